"""Tasks that misbehave: functions of a module, so that workers find them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from colabel.errors import DataError
from colabel.index.shard_plan import ShardCache


def double(cache: ShardCache, number: int, *shared: Any) -> int:
    return 2 * number


def note(cache: ShardCache, argument: tuple[int, Path]) -> int:
    """Say that it began, take a while, say that it ended."""
    number, place = argument
    (place / f"begun-{number}-{os.getpid()}").touch()
    time.sleep(0.8)
    (place / f"ended-{number}").touch()
    return number


def outlive(cache: ShardCache, argument: tuple[int, Path]) -> int:
    """Say that it began; before a node is lost, last until its workers are gone, so that a call there never ends."""
    number, place = argument
    (place / f"begun-{number}-{os.getpid()}").touch()
    if not (place / "lost").exists():
        while not (place / "lost").exists():
            time.sleep(0.05)
        time.sleep(3.0)
    return number


def die_once(cache: ShardCache, argument: tuple[int, Path]) -> int:
    """The first attempt at number 3 kills its own process, as the system does when memory runs out."""
    number, place = argument
    if number == 3 and not (place / "died").exists():
        (place / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_always(cache: ShardCache, number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(cache: ShardCache, number: int) -> int:
    if number == 3:
        raise DataError("the passages 'd7', 'd9', one batch, cannot be encoded")
    return number


def crash(cache: ShardCache, number: int) -> int:
    if number == 3:
        raise ZeroDivisionError("nobody thought of this")
    return number

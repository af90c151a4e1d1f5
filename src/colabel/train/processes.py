"""Several processes that train one model: who they are, and how they build one artefact together.

``torchrun`` starts the same program several times. Process 0 alone writes; the others follow it into the training
loop, and only there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Plan, Workspace, build, read_manifest
from colabel.errors import ColabelError, TrainingError

_PATIENCE = timedelta(days=7)  # that processes wait for the first, which indexes and ranks before they train together


def process_count() -> int:
    """How many processes ``torchrun`` or ``accelerate launch`` started; 1 without them."""
    return max(1, int(os.environ.get("WORLD_SIZE", "1")))


def is_main_process() -> bool:
    """Whether this process is the one that writes."""
    return process_count() == 1 or int(os.environ.get("RANK", "0")) == 0


def connect(*, cpu: bool) -> None:
    """Join the other processes, once; nothing to do where there are none."""
    if process_count() == 1:
        return
    from accelerate import PartialState  # type: ignore[import-untyped]

    PartialState(cpu=cpu, timeout=_PATIENCE)


@contextmanager
def main_process_first(*, cpu: bool) -> Iterator[None]:
    """Run the block in process 0 first, then in the others, which find its artefacts finished.

    For every stage before training: two processes cannot write the same folder, and need not.
    """
    connect(cpu=cpu)
    if not is_main_process():
        wait_for_all()
    try:
        yield
    finally:
        if is_main_process():
            wait_for_all()


def wait_for_all() -> None:
    """Wait until every process is here."""
    from torch import distributed

    if process_count() > 1 and distributed.is_initialized():
        distributed.barrier()


def tell_all(value: Any) -> Any:
    """What process 0 passes in, in every process."""
    from torch import distributed

    if process_count() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def build_together(
    folder: Path,
    plan: Plan,
    write: Callable[[Workspace], Mapping[str, Any]],
    follow: Callable[[Path], None],
) -> Manifest:
    """:func:`colabel.artefacts.build` in process 0; the others call ``follow`` with its workspace while it writes.

    Where the artefact is up to date nobody works; where process 0 fails before the work starts, all fail.
    """
    if process_count() == 1:
        return build(folder, plan, write)
    if not is_main_process():
        return _follow(folder, follow)
    started = False

    def write_with_others(space: Workspace) -> Mapping[str, Any]:
        nonlocal started
        started = True
        tell_all(("work", str(space.folder)))
        return write(space)

    try:
        manifest = build(folder, plan, write_with_others)
    except ColabelError as error:
        if not started:
            tell_all(("failed", str(error)))
        raise  # once the work has begun, the launcher ends the others
    tell_all(("done", ""))
    return manifest


def _follow(folder: Path, follow: Callable[[Path], None]) -> Manifest:
    word, value = tell_all(None)
    if word == "work":
        follow(Path(value))
        word, value = tell_all(None)
    if word == "failed":
        raise TrainingError(f"process 0 could not start: {value}")
    return read_manifest(folder)

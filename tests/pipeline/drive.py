"""A study in a process of its own, which can be killed: ``python drive.py FOLDER_OF_RECIPE OUT [KILL]``.

KILL is the number of steps of progress after which the process kills itself as ``kill -9`` does, the work in whose
first step it does, as "student (collective)", or the name of a function of ``colabel.pipeline.study``
that it does not survive.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from colabel import study
from colabel.pipeline.preflight import noted_recipe
from colabel.progress import SILENT, Progress, Task
from tests.train.drive import DiesAt


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesIn:
    """Kills the process in the first step of some work."""

    def __init__(self, work: str) -> None:
        self._work = work

    def start(self, what: str, total: int | None, unit: str) -> Task:
        return DiesAt(1) if what == self._work else SILENT.start(what, total, unit)


def main(recipe: str, out: str, kill: str = "") -> None:
    progress: Progress = DiesAt(int(kill)) if kill.isdecimal() else DiesIn(kill)
    if kill.isidentifier():
        setattr(importlib.import_module("colabel.pipeline.study"), kill, die)
    settings, _ = noted_recipe(Path(recipe))
    study(settings, Path(out), progress=progress)


if __name__ == "__main__":
    main(*sys.argv[1:])

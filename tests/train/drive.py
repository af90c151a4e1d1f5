"""Train in a process of its own: ``python drive.py JOB.json``. Used for kills, for torchrun and for comparing runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from colabel.data import load_dataset
from colabel.progress import SILENT, Progress, Task
from colabel.ranking import Ranking
from colabel.settings import DistilSettings, FitSettings, TrainSettings
from colabel.train import (
    candidates_from_ranking,
    dev_set,
    distil,
    groups_for,
    loop,
    main_process_first,
    models,
    train_theta,
)
from colabel.train.groups import GroupTexts
from tests.train.small import Silent


class DiesAt:
    """Kills the process like ``kill -9`` once a number of steps is done."""

    def __init__(self, step: int) -> None:
        self._left = step

    def start(self, what: str, total: int | None, unit: str) -> Task:
        return self

    def advance(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        pass


def watch(path: Path) -> None:
    """Write down which groups this process reads."""
    original = GroupTexts.__getitem__
    seen = path.with_name(f"{path.name}.{os.environ.get('RANK', '0')}").open("a", buffering=1)

    def read(self: GroupTexts, number: int) -> dict[str, object]:
        seen.write(f"{number}\n")
        return original(self, number)

    GroupTexts.__getitem__ = read  # type: ignore[method-assign]


def main(job: dict[str, object]) -> None:
    folder = Path(str(job["folder"]))
    with main_process_first(cpu=True):  # two processes that write one cache at once would stop each other
        dataset = load_dataset(str(folder / "data"), cache=Path(f"{job['out']}.cache"))
    ranking = Ranking(folder / "train")
    dev = dev_set(dataset, Ranking(folder / "dev"), queries=10, depth=40) if job.get("dev") else None
    progress: Progress = DiesAt(int(str(job["dies_at"]))) if job.get("dies_at") else SILENT
    if job.get("watch"):
        watch(Path(str(job["watch"])))
    out, start, seed = Path(str(job["out"])), Path(str(job["start"])), int(str(job.get("seed", 0)))
    table, fit = dict(job["settings"]), FitSettings(**job["fit"])  # type: ignore[call-overload,arg-type]
    loop.SAVE_EVERY, loop.LOG_EVERY = int(str(job.get("save_every", 4))), int(str(job.get("log_every", 2)))
    if job.get("dies_at_the_end"):
        models._summary = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,return-value]
    if job["kind"] == "theta":
        settings = TrainSettings(**table)
        train_theta(dataset, start, ranking, out, settings=settings, fit=fit, seed=seed, dev=dev, progress=progress)
        return
    student = DistilSettings(**table)
    groups = groups_for(candidates_from_ranking(dataset, ranking, depth=student.candidates), student, seed)
    teacher = Silent(dataset, list(job.get("silent", [])))  # type: ignore[call-overload]
    distil(dataset, start, groups, teacher, out, settings=student, fit=fit, seed=seed, dev=dev, progress=progress)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))

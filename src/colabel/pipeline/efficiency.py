"""What training costs: seconds over steps from the training logs, and when each student reached a value on dev."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.reporting.records import Ratio, Reached, System, TrainingCurve
from colabel.settings import FitSettings
from colabel.train.logs import LOG_FILE, read_log

_ONE, _THREE = "×2.67 annotation, ×2.5 overall", "×16 annotation, ×8 overall"
PAPER = {"ce-kd": _ONE, "ce3-kd": _THREE, "ce-kd-paper": _ONE, "ce3-kd-paper": _THREE}


@dataclasses.dataclass(frozen=True)
class TrainingTimes:
    """A training log with its clock.

    Attributes:
        loss: (step, loss).
        dev: (step, value of the measure on dev).
        clock: (step, seconds of all steps up to it), rising from (0, 0). Evaluations and save points are no part of it.
    """

    loss: tuple[tuple[int, float], ...]
    dev: tuple[tuple[int, float], ...]
    clock: tuple[tuple[int, float], ...]

    def at(self, step: int) -> float | None:
        """Seconds of the steps up to ``step``.

        Steps between two lines of the log, or after the last, count as long as those around them.

        >>> TrainingTimes((), (), ((0, 0.0), (10, 5.0))).at(4)
        2.0
        """
        if step == 0:
            return 0.0
        if len(self.clock) < 2:
            return None
        before, after = next(
            (pair for pair in zip(self.clock, self.clock[1:], strict=False) if step <= pair[1][0]), self.clock[-2:]
        )
        return before[1] + (step - before[0]) * (after[1] - before[1]) / (after[0] - before[0])

    def curve(self) -> TrainingCurve:
        """The same as a report shows it."""
        return TrainingCurve(self.loss, tuple((step, self.at(step), value) for step, value in self.dev))


def training_times(model: Path, settings: FitSettings) -> TrainingTimes | None:
    """Read the log of a trained model; None where there is none."""
    return times_of(read_log(model / "training" / LOG_FILE), settings)


def times_of(lines: Sequence[Mapping[str, Any]], settings: FitSettings) -> TrainingTimes | None:
    """The clock of a log: a line's steps took as long as its passages a second say."""
    clock = [(0, 0.0)]
    for line in lines:
        if line.get("passages_per_second"):
            step, seconds = clock[-1]
            passages = (line["step"] - step) * settings.batch_queries * settings.passages
            clock.append((line["step"], seconds + passages / line["passages_per_second"]))
    loss = tuple((line["step"], line["loss"]) for line in lines if "loss" in line)
    dev = tuple((line["step"], line[settings.measure]) for line in lines if settings.measure in line)
    return TrainingTimes(loss, dev, tuple(clock)) if loss or dev else None


def dev_target(times: Mapping[str, TrainingTimes], wanted: float = 0.0) -> float | None:
    """The value on dev that is waited for: ``wanted``, or the highest that all students reach that get better at all.

    Better than every start, that is; students that never are do not reach it. None where no student is.
    """
    if wanted:
        return wanted
    start = max((value for found in times.values() for step, value in found.dev if not step), default=0.0)
    best = [max((value for step, value in found.dev if step), default=0.0) for found in times.values()]
    return min((value for value in best if value > start), default=None)


def reached(system: System, times: TrainingTimes, target: float, *, start: str, before: float | None) -> Reached:
    """When a student first had the target.

    Args:
        start: what it was trained from.
        before: seconds from the plain encoder to that.
    """
    step = next((step for step, value in times.dev if value >= target), None)
    training = None if step is None else times.at(step)
    return Reached(system.slug, start, step, before, system.seconds.get("annotation"), training)


def ratios(systems: Sequence[System]) -> tuple[Ratio, ...]:
    """Annotation and training of the cross-encoder rows by those of the collective row, for equal numbers of pairs.

    On our side, encoding the collection and ranking the queries counts as annotation; on theirs, reading pairs alone.
    """
    ours = next((one for one in systems if one.slug.startswith("collective-") and one.pairs and not one.failed), None)
    if ours is None or ours.pairs is None:
        return ()
    mine, training = _sum(ours, "hard negatives", "annotation"), ours.seconds.get("training")
    found = []
    for system in systems:
        if system.slug not in PAPER or system.failed or not system.pairs:
            continue
        annotation = system.seconds.get("annotation")
        scaled = None if annotation is None else annotation * ours.pairs / system.pairs
        theirs = system.seconds.get("training")
        whole = None if scaled is None or theirs is None else scaled + theirs
        own = None if mine is None or training is None else mine + training
        found.append(
            Ratio(
                system.slug,
                ours.slug,
                _ratio(scaled, mine),
                _ratio(theirs, training),
                _ratio(whole, own),
                PAPER[system.slug],
            )
        )
    return tuple(found)


def _sum(system: System, *parts: str) -> float | None:
    values = [value for part in parts if (value := system.seconds.get(part)) is not None]
    return sum(values) if values else None


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return None if theirs is None or not ours else theirs / ours

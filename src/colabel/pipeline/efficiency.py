"""What training costs: seconds over steps from the training logs, and when each student reached a value on dev."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.reporting.records import Ratio, Reached, System, TrainingCurve
from colabel.settings import FitSettings
from colabel.train.logs import LOG_FILE, read_log

_ONE, _THREE = (2.67, 2.5), (16.0, 8.0)
PAPER = {"ce-kd": _ONE, "ce3-kd": _THREE, "ce-kd-paper": _ONE, "ce3-kd-paper": _THREE}
"""Slug → how many times as long annotation, and all of it, takes in the paper."""

_LEAD = 0.01
"""How far above the best start the default target is, as a share of it."""


@dataclasses.dataclass(frozen=True)
class TrainingTimes:
    """A training log with its clock.

    Attributes:
        loss: (step, loss).
        dev: (step, value of the measure on dev).
        clock: (step, seconds of all steps up to it), rising from (0, 0). Evaluations and save points are no part of it.
        shape: queries of a step, and passages of each.
    """

    loss: tuple[tuple[int, float], ...]
    dev: tuple[tuple[int, float], ...]
    clock: tuple[tuple[int, float], ...]
    shape: tuple[int, int]

    @property
    def step_seconds(self) -> float | None:
        """Mean seconds of a step; None where the log does not tell."""
        step, seconds = self.clock[-1]
        return seconds / step if step else None

    def at(self, step: int) -> float | None:
        """Seconds of the steps up to ``step``.

        Steps between two lines of the log, or after the last, count as long as those around them.

        >>> TrainingTimes((), (), ((0, 0.0), (10, 5.0)), shape=(4, 8)).at(4)
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
    clock, passages = [(0, 0.0)], settings.batch_queries * settings.passages
    for line in lines:
        if line.get("passages_per_second"):
            step, seconds = clock[-1]
            clock.append((line["step"], seconds + (line["step"] - step) * passages / line["passages_per_second"]))
    loss = tuple((line["step"], line["loss"]) for line in lines if "loss" in line)
    dev = tuple((line["step"], line[settings.measure]) for line in lines if settings.measure in line)
    shape = settings.batch_queries, settings.passages
    return TrainingTimes(loss, dev, tuple(clock), shape) if loss or dev else None


def dev_target(times: Mapping[str, TrainingTimes], wanted: float = 0.0) -> tuple[float, str] | None:
    """The value on dev that is waited for, and where it comes from: ``wanted``, or 1 % above the best start.

    So no student's own curve decides on it. None where no student was evaluated before its first step,
    and where a start is so good, or finds so little, that there is no such value.

    >>> dev_target({"a": TrainingTimes((), ((0, 0.5), (10, 0.7)), ((0, 0.0),), shape=(4, 8))})
    (0.505, '1 % above the highest value before training, 0.500')
    """
    if wanted:
        return wanted, "study.dev_target"
    start = max((value for found in times.values() for step, value in found.dev if not step), default=None)
    if not start or start * (1 + _LEAD) > 1:
        return None
    return start * (1 + _LEAD), f"{100 * _LEAD:g} % above the highest value before training, {start:.3f}"


def pooled_step_seconds(times: Iterable[TrainingTimes]) -> dict[tuple[int, int], float]:
    """Shape of a step → its seconds, the median over all students that were trained with such steps.

    Of three or more students, what else the machine did while one of them was trained does not move it.
    """
    found: dict[tuple[int, int], list[float]] = {}
    for one in times:
        if one.step_seconds is not None:
            found.setdefault(one.shape, []).append(one.step_seconds)
    return {shape: statistics.median(seconds) for shape, seconds in found.items()}


def reached(
    system: System,
    times: TrainingTimes,
    target: float,
    *,
    start: str,
    before: float | None,
    step_seconds: float | None,
) -> Reached:
    """When a student first had the target.

    Args:
        start: what it was trained from.
        before: seconds from the plain encoder to that.
        step_seconds: what a step takes.
    """
    step = next((step for step, value in times.dev if value >= target), None)
    training = None if step is None or step_seconds is None else step * step_seconds
    return Reached(system.slug, start, step, before, system.seconds.get("annotation"), training)


def collective_row(systems: Iterable[System]) -> System | None:
    """The row that others are compared with: the first finished one of collective labels."""
    return next((one for one in systems if one.slug.startswith("collective-") and one.pairs and not one.failed), None)


def equal_passes(system: System, pairs: int, models: int) -> int | None:
    """Passes of a transformer that a row's labels would take if there were ``pairs`` of them.

    Args:
        models: how many cross-encoders read each pair; passes beyond these do not grow with the pairs.
    """
    if system.pairs is None or system.encoder_passes is None:
        return None
    return system.encoder_passes + models * (pairs - system.pairs)


def ratios(systems: Sequence[System]) -> tuple[Ratio, ...]:
    """Annotation and training of the cross-encoder rows by those of the collective row, as run and for equal pairs.

    As run, annotation is all that came before training, on both sides. For equal pairs it is counted as the paper does:
    on our side encoding the collection and ranking the queries is part of it, on theirs reading pairs alone.
    """
    ours = collective_row(systems)
    if ours is None or ours.pairs is None:
        return ()
    mine, training = _sum(ours, "hard negatives", "annotation"), ours.seconds.get("training")
    own = _added(mine, training)
    found: list[Ratio] = []
    for system in systems:
        if system.slug not in PAPER or system.failed or not system.pairs:
            continue
        annotation, theirs = system.seconds.get("annotation"), system.seconds.get("training")
        whole, factor = _sum(system, "hard negatives", "annotation"), ours.pairs / system.pairs
        scaled = None if annotation is None else annotation * factor
        sides = {
            "annotation_as_run": (whole, mine),
            "training": (theirs, training),
            "overall_as_run": (_added(whole, theirs), own),
            "annotation": (scaled, mine),
            "overall": (_added(scaled, theirs), own),
        }
        seconds = {name: (one, other) for name, (one, other) in sides.items() if one is not None and other}
        values = {name: one / other for name, (one, other) in seconds.items()}
        paper = PAPER[system.slug]
        found.append(
            Ratio(
                system.slug,
                ours.slug,
                **values,
                factor=factor,
                seconds=seconds,
                paper_annotation=paper[0],
                paper_overall=paper[1],
            )
        )
    return tuple(found)


def _added(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _sum(system: System, *parts: str) -> float | None:
    values = [value for part in parts if (value := system.seconds.get(part)) is not None]
    return sum(values) if values else None

"""Seconds to a value on dev, worked by hand."""

from __future__ import annotations

import pytest

from colabel.pipeline.efficiency import (
    TrainingTimes,
    dev_target,
    equal_passes,
    pooled_step_seconds,
    ratios,
    reached,
    times_of,
)
from colabel.reporting.records import Reached, System
from colabel.settings import DistilSettings

SETTINGS = DistilSettings(batch_queries=2, passages=5)  # 10 passages a step


def log(values: dict[int, float]) -> TrainingTimes:
    """A log with a line every 10 steps; 20 passages a second are half a second a step."""
    lines: list[dict[str, float]] = []
    for step in range(0, 41, 5):
        if step and step % 10 == 0:
            lines.append({"step": step, "loss": 1.0, "passages_per_second": 20.0})
        if step in values:
            lines.append({"step": step, "nDCG@10": values[step]})
    found = times_of(lines, SETTINGS)
    assert found is not None
    return found


def test_the_clock_of_a_log() -> None:
    lines = [
        {"step": 0, "nDCG@10": 0.1},
        {"step": 10, "loss": 2.0, "passages_per_second": 20.0},
        {"step": 15, "nDCG@10": 0.2},
        {"step": 20, "loss": 1.0, "passages_per_second": 10.0},
        {"step": 25, "nDCG@10": 0.3},
    ]
    found = times_of(lines, SETTINGS)
    assert found is not None
    assert found.clock == ((0, 0.0), (10, 5.0), (20, 15.0))
    assert found.at(15) == 10.0, "half of the second ten steps"
    assert found.at(25) == 20.0, "as fast as the last line"
    assert found.curve().dev == ((0, 0.0, 0.1), (15, 10.0, 0.2), (25, 20.0, 0.3))
    assert found.curve().loss == ((10, 2.0), (20, 1.0))
    assert times_of([], SETTINGS) is None
    assert times_of([{"step": 5, "nDCG@10": 0.5}], SETTINGS).curve().dev == ((5, None, 0.5),)  # type: ignore[union-attr]


def test_no_students_own_curve_decides_on_the_target() -> None:
    """1 % above the best start, whatever was reached later."""
    times = {"a": log({0: 0.5, 10: 0.4, 20: 0.45}), "b": log({0: 0.5, 10: 0.7}), "c": log({0: 0.5, 10: 0.6, 20: 0.5})}
    assert dev_target(times) == (0.505, "1 % above the highest value before training, 0.500")
    better = {**times, "b": log({0: 0.5, 10: 0.9}), "c": log({0: 0.5, 10: 0.51})}
    assert dev_target(better) == dev_target(times)
    assert dev_target(times, 0.75) == (0.75, "study.dev_target")
    from_plain = {"plain": log({0: 0.1, 10: 0.4}), "b": log({0: 0.5, 10: 0.7})}
    assert dev_target(from_plain) == dev_target(times), "what is below θ is no target for those that begin with it"
    assert dev_target({"a": log({10: 0.8})}) is None, "never evaluated before its first step"
    assert dev_target({"a": log({0: 0.995, 10: 1.0})}) is None, "nothing is above 1"
    assert dev_target({"a": log({0: 0.0, 10: 0.3})}) is None, "all have it from the start"


def test_seconds_to_the_target() -> None:
    """At 3 seconds a step, whatever the student's own log says."""

    def found(system: System, times: TrainingTimes) -> Reached:
        return reached(system, times, 0.5, start="θ", before=1000.0, step_seconds=3.0)

    student = System("collective-1", "c", seconds={"annotation": 100.0})
    there = found(student, log({0: 0.1, 15: 0.5, 20: 0.6}))
    assert (there.start, there.step, there.training) == ("θ", 15, 45.0)
    assert (there.from_start, there.from_plain) == (145.0, 1145.0)
    at_once = found(System("colbert-hn", "h"), log({0: 0.5, 10: 0.4}))
    assert (at_once.step, at_once.training, at_once.from_start, at_once.from_plain) == (0, 0.0, 0.0, 1000.0)
    never = found(student, log({20: 0.4}))
    assert (never.step, never.training, never.from_start, never.from_plain) == (None, None, None, None)
    unknown = reached(student, log({20: 0.6}), 0.5, start="θ", before=None, step_seconds=None)
    assert (unknown.step, unknown.training) == (20, None)


def test_a_busy_machine_does_not_slow_one_student_down() -> None:
    """Three students of two queries a step, one of which was trained on a busy machine, and one of five."""

    def student(seconds: float, shape: tuple[int, int] = (2, 5)) -> TrainingTimes:
        return TrainingTimes((), (), ((0, 0.0), (10, 4 * seconds), (20, 20 * seconds)), shape)

    found = pooled_step_seconds([student(0.5), student(0.6), student(7.0), student(2.0, (5, 2))])
    assert found == {(2, 5): pytest.approx(0.6), (5, 2): pytest.approx(2.0)}
    assert pooled_step_seconds([TrainingTimes((), ((5, 0.5),), ((0, 0.0),), (2, 5))]) == {}
    assert log({0: 0.5}).shape == (2, 5)


def test_passes_for_equal_numbers_of_pairs() -> None:
    """As many pairs as 1,000: a cross-encoder reads each, the collective teacher's 60 passes stay."""
    assert equal_passes(System("ce3-kd", "x", pairs=50, encoder_passes=150), 1000, models=3) == 3000
    assert equal_passes(System("collective-1", "c", pairs=1000, encoder_passes=60), 1000, models=0) == 60
    assert equal_passes(System("mixed", "m", pairs=50, encoder_passes=50 + 60), 1000, models=1) == 1000 + 60
    assert equal_passes(System("colbert-hn", "h"), 1000, models=0) is None


def test_ratios_as_run_and_for_equal_numbers_of_pairs() -> None:
    ours = System(
        "collective-1", "c", seconds={"hard negatives": 30.0, "annotation": 20.0, "training": 50.0}, pairs=100
    )
    theirs = System("ce-kd", "x", seconds={"hard negatives": 30.0, "annotation": 75.0, "training": 50.0}, pairs=50)
    (found,) = ratios([ours, theirs, System("ce3-kd", "y", failed="no")])
    assert found.factor == 2.0
    assert found.annotation_as_run == pytest.approx((30 + 75) / 50)
    assert found.annotation == pytest.approx(75 * 2 / 50)
    assert found.training == 1.0
    assert found.overall_as_run == pytest.approx((30 + 75 + 50) / (50 + 50))
    assert found.overall == pytest.approx((150 + 50) / (50 + 50))
    assert found.seconds == {
        "annotation_as_run": (105.0, 50.0),
        "training": (50.0, 50.0),
        "overall_as_run": (155.0, 100.0),
        "annotation": (150.0, 50.0),
        "overall": (200.0, 100.0),
    }
    assert (found.paper_annotation, found.paper_overall) == (2.67, 2.5)
    (untimed,) = ratios([ours, System("ce3-kd", "y", seconds={"training": 25.0}, pairs=50)])
    assert (untimed.annotation, untimed.overall, untimed.training) == (None, None, 0.5)
    assert untimed.seconds == {"training": (25.0, 50.0)}
    assert ratios([theirs]) == ()

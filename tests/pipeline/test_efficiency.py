"""Seconds to a value on dev, worked by hand."""

from __future__ import annotations

import pytest

from colabel.pipeline.efficiency import TrainingTimes, dev_target, ratios, reached, times_of
from colabel.reporting.records import System
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


def test_the_target_is_what_all_reach_that_get_better_than_where_they_began() -> None:
    times = {"a": log({0: 0.5, 10: 0.4, 20: 0.45}), "b": log({0: 0.5, 10: 0.7}), "c": log({0: 0.5, 10: 0.6, 20: 0.5})}
    assert dev_target(times) == 0.6, "a never gets better and cannot set the target: all would be there at once"
    assert dev_target(times, 0.75) == 0.75
    from_plain = {"plain": log({0: 0.1, 10: 0.4}), "b": log({0: 0.5, 10: 0.7})}
    assert dev_target(from_plain) == 0.7, "what is below θ is no target for those that begin with it"
    assert dev_target({"a": log({0: 0.9})}) is None
    assert dev_target({"a": log({0: 0.9, 10: 0.8})}) is None


def test_seconds_to_the_target() -> None:
    student = System("collective-1", "c", seconds={"annotation": 100.0})
    found = reached(student, log({0: 0.1, 15: 0.5, 20: 0.6}), 0.5, start="θ", before=1000.0)
    assert (found.start, found.step, found.training) == ("θ", 15, 7.5)
    assert (found.from_start, found.from_plain) == (107.5, 1107.5)
    at_once = reached(System("colbert-hn", "h"), log({0: 0.5, 10: 0.4}), 0.5, start="θ", before=1000.0)
    assert (at_once.step, at_once.training, at_once.from_start, at_once.from_plain) == (0, 0.0, 0.0, 1000.0)
    never = reached(student, log({20: 0.4}), 0.5, start="θ", before=1000.0)
    assert (never.step, never.training, never.from_start, never.from_plain) == (None, None, None, None)


def test_ratios_for_equal_numbers_of_pairs() -> None:
    ours = System(
        "collective-1", "c", seconds={"hard negatives": 30.0, "annotation": 20.0, "training": 50.0}, pairs=100
    )
    theirs = System("ce-kd", "x", seconds={"hard negatives": 30.0, "annotation": 75.0, "training": 50.0}, pairs=50)
    (found,) = ratios([ours, theirs, System("ce3-kd", "y", failed="no")])
    assert found.annotation == pytest.approx(75 * 2 / 50)
    assert found.training == 1.0
    assert found.overall == pytest.approx((150 + 50) / (50 + 50))
    assert ratios([theirs]) == ()

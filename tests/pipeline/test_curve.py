"""The learning curve: what labels brought, what more would bring, and how far off that was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colabel import Dataset
from colabel.data.splits import with_fewer_labels
from colabel.errors import UsageError
from colabel.pipeline.curve import DRAWS, SHARES, Point, curve, fitted, plan
from tests.pipeline.test_probability_of_hits import recipe_of, write_topics

NOTED = {"dev": {"0.0": 0.4}, "measure": "nDCG@10", "dev_queries": 100}


def points(power: float, noise: float = 0.0, shares: tuple[float, ...] = SHARES) -> list[Point]:
    found = []
    for draw in range(DRAWS):
        for place, share in enumerate(shares):
            count = round(800 * share)
            gain = 0.002 * count**power + noise * ((draw + place) % 3 - 1)
            found.append(Point("queries", share, draw, count, count, 0.4 + gain, (gain, gain - 0.01, gain + 0.01)))
    return found


def test_the_curve_foretells_what_more_labels_bring() -> None:
    found = fitted(points(0.5, 0.001), NOTED)
    assert found.power == pytest.approx(0.5, abs=0.1)
    count, gain, low, high = found.more
    assert count == 200
    assert low <= 0.002 * (1000**0.5 - 800**0.5) <= high and low <= gain <= high
    assert found.foretold is not None
    expected, below, above, was = found.foretold
    assert below <= was <= above and expected == pytest.approx(was, abs=0.01)
    assert found.means()[0.5][0] == 400 and len(found.sentences()) == 2


def test_labels_that_bring_nothing_foretell_nothing() -> None:
    flat = [Point("queries", share, 0, round(80 * share), 1, 0.4, (0.0, 0.0, 0.0)) for share in SHARES]
    found = fitted(flat, NOTED)
    assert found.more == (80, 0.0, 0.0, 0.0)


def test_fewer_labels_are_nested() -> None:
    labels = {f"q{place}": [f"d{place}", f"d{place + 1}", f"d{place + 2}", f"d{place + 3}"] for place in range(16)}
    texts = {f"d{place}": f"text {place}" for place in range(20)}
    data = Dataset.from_records(texts, {name: name for name in labels}, labels)
    held = {share: set(with_fewer_labels(data, share, "a", whole_queries=True).labels("train")) for share in SHARES}
    count = len(data.labels("train"))
    assert [len(held[share]) for share in SHARES] == [max(1, round(share * count)) for share in SHARES]
    assert held[0.125] < held[0.25] < held[0.5]
    assert held[0.5] != set(with_fewer_labels(data, 0.5, "b", whole_queries=True).labels("train"))
    half = with_fewer_labels(data, 0.5, "a", whole_queries=False).labels("train")
    assert {len(one) for one in half.values()} == {2} and len(half) == count
    assert ("labels", 0.5, 0) in plan(data)


def test_a_curve_continues_where_time_ended_it(tiny_model: Path, tmp_path: Path) -> None:
    write_topics(tmp_path / "data")
    recipe = recipe_of(tmp_path / "data", tiny_model)
    found = curve(recipe, tmp_path / "run", minutes=0.001)
    assert [one.share for one in found.points] == list(SHARES) and found.unfinished > 0
    assert [one.queries for one in found.points] == sorted(one.queries for one in found.points)
    made = sorted((tmp_path / "run" / "curve").glob("*/manifest.json"))
    stamps = [path.stat().st_mtime_ns for path in made]
    again = curve(recipe, tmp_path / "run", minutes=0.001)
    assert again.points[: len(found.points)] == found.points and again.unfinished <= found.unfinished
    assert [path.stat().st_mtime_ns for path in made] == stamps
    assert json.loads((tmp_path / "run" / "curve" / "curve.json").read_text()) == json.loads(
        json.dumps(again.as_dict())
    )
    assert not list((tmp_path / "run").glob(".curve-*")) and not list((tmp_path / "run").rglob("*.safetensors.tmp"))
    with pytest.raises(UsageError, match="both sides"):
        curve(recipe, tmp_path / "run", teacher="collective")

"""Costs worked by hand, response times of one go, settings as a report shows them, and a comparison of two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colabel.data import load_dataset
from colabel.evaluation import ResponseTimes
from colabel.findings import results
from colabel.findings.records import SystemResult
from colabel.findings.results import (
    collective_settings,
    compared,
    measured_once,
    ratios,
)
from colabel.settings import (
    CollectiveSettings,
    CrossEncoderSettings,
    DataSettings,
    EncoderSettings,
    Recipe,
)
from colabel.systems import parse_system


def test_ratios_as_run_and_for_equal_numbers_of_pairs() -> None:
    ours = SystemResult(
        "collective-1", "c", seconds={"hard negatives": 30.0, "annotation": 20.0, "training": 50.0}, pairs=100
    )
    theirs = SystemResult(
        "ce-kd", "x", seconds={"hard negatives": 30.0, "annotation": 75.0, "training": 50.0}, pairs=50
    )
    (found,) = ratios([ours, theirs, SystemResult("ce3-kd", "y", failed="no")])
    assert found.factor == 2.0
    assert found.annotation_as_run == pytest.approx((30 + 75) / 50)
    assert found.annotation == pytest.approx(75 * 2 / 50)
    assert found.training == 1.0
    assert found.overall_as_run == pytest.approx((30 + 75 + 50) / (50 + 50))
    assert found.overall == pytest.approx((150 + 50) / (50 + 50))
    assert (found.paper_annotation, found.paper_overall) == (2.67, 2.5)
    (untimed,) = ratios([ours, SystemResult("ce3-kd", "y", seconds={"training": 25.0}, pairs=50)])
    assert (untimed.annotation, untimed.overall, untimed.training) == (None, None, 0.5)
    assert ratios([theirs]) == ()


class Clock:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> dict[str, float]:
        self.asked += 1
        return {"median": float(self.asked)}


def test_taken_once(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "trials" / "0.json"
    for _ in range(2):
        assert measured_once(file, ["weights", 50], clock) == {"median": 1.0}
    assert measured_once(file, ["weights", 10], clock) == {"median": 2.0}, "another number of queries"
    for damaged in ("", "[]", '{"key": 1}', '{"milliseconds": {"median": 9}}'):
        file.write_text(damaged)
        before = clock.asked
        assert measured_once(file, ["weights", 10], clock) == {"median": before + 1.0}


class FakeRows:
    """Finished and failed rows whose rankers are their names."""

    def __init__(self, out: Path, *slugs: str, failed: tuple[str, ...] = (), weights: str = "") -> None:
        self.out, self.systems = out, [parse_system(slug) for slug in (*slugs, *failed)]
        self.recipe = SimpleNamespace(rank=SimpleNamespace(depth=100))
        self.dataset = SimpleNamespace(passages=range(40), split_queries=lambda _: {"q1": "a", "q2": "b", "q3": "c"})
        self._finished, self._weights = slugs, weights

    def finished(self, slug: str) -> bool:
        return slug in self._finished

    def ranker(self, system: Any) -> Any:
        return SimpleNamespace(name=system.slug, fingerprint=f"{system.slug} {self._weights}")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rankers that were timed, in order; the n-th takes n milliseconds."""
    asked: list[str] = []

    def time_one(ranker: Any, k: int) -> ResponseTimes:
        asked.append(ranker.name)
        return ResponseTimes.of([float(len(asked))])

    def response_times_of(rankers: list[Any], texts: list[str], k: int) -> list[ResponseTimes]:
        assert (texts, k) == (["a", "b"], 40)
        return [time_one(ranker, k) for ranker in rankers]

    monkeypatch.setattr(results, "response_times_of", response_times_of)
    monkeypatch.setattr(results, "TIMED_QUERIES", 2)
    return asked


def medians(rows: FakeRows) -> dict[str, float]:
    return {slug: found.median for slug, found in results.response_times(rows).items()}


def test_all_rows_are_timed_in_one_go(tmp_path: Path, timed: list[str]) -> None:
    first = medians(FakeRows(tmp_path, "bm25", "colbert", failed=("ce3-kd",)))
    assert first == {"bm25": 1.0, "colbert": 2.0}, "a failed row is no part"
    assert medians(FakeRows(tmp_path, "bm25", "colbert")) == first, "resumed without a change"
    more = medians(FakeRows(tmp_path, "bm25", "colbert", "ce3-kd"))
    assert more == {"bm25": 3.0, "colbert": 4.0, "ce3-kd": 5.0}, "not hours apart from the others"
    trained_again = medians(FakeRows(tmp_path, "bm25", "colbert", "ce3-kd", weights="new"))
    assert list(trained_again.values()) == [6.0, 7.0, 8.0]
    assert timed == ["bm25", "colbert", *["bm25", "colbert", "ce3-kd"] * 2]
    assert [path.name for path in tmp_path.iterdir()] == ["timing.json"]


def test_settings_beside_those_of_the_paper() -> None:
    ours = {one.name: one for one in collective_settings(CollectiveSettings())}
    assert [name for name, one in ours.items() if one.differs] == ["feedback", "token", "expansion_scale"]
    assert (ours["feedback"].value, ours["feedback"].paper) == ("labelled", "top")
    assert (ours["beta"].value, ours["beta"].paper) == ("0.5", "")
    paper = CollectiveSettings(feedback="top", token="nearest", expansion_scale="paper", feedback_passages=5)
    assert [one.name for one in collective_settings(paper) if one.differs] == ["feedback_passages"]


@pytest.mark.parametrize(
    ("slugs", "readers"),
    [(("bm25", "colbert"), []), (("ce-kd", "mixed"), ["minilm"]), (("ce-kd", "ce3-kd"), ["minilm", "…/b"])],
)
def test_models_are_those_that_some_row_needs(slugs: tuple[str, ...], readers: list[str]) -> None:
    settings = CrossEncoderSettings(models=("minilm", "/home/me/b"))
    recipe = Recipe(DataSettings("x"), encoder=EncoderSettings(model="hub/model"), cross_encoder=settings)
    count = max(parse_system(slug).cross_encoder_count(recipe) for slug in slugs)
    found = results._models(recipe, count, "")
    assert found.pop("encoder") == "hub/model"
    assert found == {f"cross-encoder {number}": name for number, name in enumerate(readers, start=1)}


def test_two_runs_are_compared_and_a_third_failed(write_beir: Callable[..., Path]) -> None:
    corpus = "".join(f'{{"_id": "d{number}", "text": "t"}}\n' for number in range(4))
    queries = "".join(f'{{"_id": "q{number}", "text": "t"}}\n' for number in range(4))
    labels = "".join(f"q{number}\td{number}\t1\n" for number in range(4))
    folder = write_beir(corpus=corpus, queries=queries, qrels__train=None, qrels__dev=None, qrels__test=labels)
    right = {f"q{number}": {f"d{number}": 2.0, f"d{(number + 1) % 4}": 1.0} for number in range(4)}
    wrong = {query: {passage: -score for passage, score in run.items()} for query, run in right.items()}
    slugs = ("collective-0.5", "bm25", "colbert")
    runs = {"collective-0.5": {0: right, 1: wrong}, "bm25": {0: wrong}}
    study = SimpleNamespace(
        dataset=load_dataset(str(folder)),
        systems=[parse_system(one) for one in slugs],
        runs={slug: {seed: SimpleNamespace(run=run) for seed, run in held.items()} for slug, held in runs.items()},
        failed={"colbert": "no"},
        finished=lambda slug: slug in runs,
        recipe=SimpleNamespace(study=SimpleNamespace(measures=("RR@10",)), seed=0),
    )
    document = compared(study)
    student, bm25, failed = document.systems
    assert (student.means, bm25.means, student.seeds) == ({"RR@10": 0.75}, {"RR@10": 0.5}, 2)
    assert (student.seeded, bm25.seeded, failed.failed) == (True, False, "no")
    assert document.letters == {"collective-0.5": "a", "bm25": "b"}
    assert (document.student, document.reference) == ("collective-0.5", "colbert")
    pair = document.pair("RR@10", "bm25", "collective-0.5")
    assert pair is not None
    assert pair.seeds == (0, 1), "BM25 draws nothing and has every seed"
    line = document.comparisons["RR@10"].lines[0]
    assert student.intervals == {"RR@10": (line.mean.low, line.mean.high)}

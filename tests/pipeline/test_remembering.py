"""A run whose queries come again: their answers are remembered, by its search and by its table."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import colabel
from colabel import Dataset
from colabel.pipeline.run import RunResult, run
from colabel.ranking import Hybrid
from colabel.systems import parse_system
from tests.conftest import WORDS

ANSWERS = {"glacier": "p50", "harbour": "p51", "summer": "p52"}
"""A word of a question, and the passage that people clicked for it, which does not hold the word."""

SETTINGS = (
    *("encoder.dimension=16", "encoder.query_length=12", "encoder.passage_length=24", "encoder.device=cpu"),
    *("collective.clusters=6", "collective.centroids=3", "labels.candidates=10"),
    *("query_side.steps=2", "rank.depth=20"),
)


@pytest.fixture(scope="module")
def asked() -> Dataset:
    draw = np.random.default_rng(3)
    others = [word for word in WORDS if word not in ANSWERS]
    passages = {f"p{number}": " ".join(draw.choice(others, 8)) for number in range(60)}
    queries, labels = {}, {split: {} for split in ("train", "dev", "test")}
    for number in range(96):
        split = "train" if number < 36 else "dev" if number < 66 else "test"
        word = list(ANSWERS)[number % 3]
        queries[f"q{number}"] = f"{word} {word} {draw.choice(others)} {number}"
        labels[split][f"q{number}"] = [ANSWERS[word]]
    return Dataset.from_records(passages, queries, labels, name="asked-again")


@pytest.fixture(scope="module")
def finished(asked: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    out = tmp_path_factory.mktemp("remembering") / "run"
    return out, run(asked, out, overrides=[*SETTINGS, f"encoder.model={tiny_model}"])


def test_what_was_asked_before_is_found_first(finished: tuple[Path, RunResult]) -> None:
    out, result = finished
    assert result.evaluation is not None
    means = {name: held["nDCG@10"] for name, held in result.evaluation.means.items()}
    assert means["memory-views"] > max(means["hybrid-views"], means["hybrid"]) + 0.3
    searched = colabel.open_run(out)
    assert isinstance(searched.hybrid, Hybrid) and searched.hybrid.memory is not None
    found = searched.search("harbour harbour", k=3)
    assert found.ids[0, 0] == ANSWERS["harbour"] and found.hits()[0].asked.startswith("harbour harbour")
    assert searched.hybrid.rank(["harbour harbour"], 3)[0].tolist() == found.rows.tolist()


def test_a_repeated_run_is_up_to_date(finished: tuple[Path, RunResult]) -> None:
    out, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.glob("hybrid/*/manifest.json")}
    assert out / "hybrid" / "memory-views" / "manifest.json" in before
    run(colabel.open_run(out).recipe, out)
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("hybrid/*/manifest.json")}


def test_passages_that_are_deleted_are_forgotten(finished: tuple[Path, RunResult]) -> None:
    out, _ = finished
    changed = colabel.open_run(out).delete([ANSWERS["summer"]])
    try:
        assert ANSWERS["summer"] not in changed.search("summer summer", k=5).ids
        assert changed.search("harbour harbour", k=1).ids[0, 0] == ANSWERS["harbour"]
    finally:
        changed.add([{"id": "p99", "text": "snow"}])


def test_what_is_not_labelled_any_more_is_not_remembered(
    asked: Dataset, finished: tuple[Path, RunResult], tiny_model: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(finished[0], tmp_path / "run")
    labels = {split: {query: list(held) for query, held in asked.labels(split).items()} for split in asked.splits}
    labels["train"] = {query: [f"p{place}"] for place, query in enumerate(labels["train"])}  # no two share an answer
    passages = {one.id: one.text for one in asked.passages}
    fewer = Dataset.from_records(passages, asked.queries, labels, name="asked-once")
    result = run(fewer, out, overrides=[*SETTINGS, f"encoder.model={tiny_model}"])
    assert result.evaluation is not None and "memory-views" not in result.evaluation.means
    assert colabel.open_run(out).hybrid.memory is None


def test_a_row_of_a_study_remembers() -> None:
    system = parse_system("memory-hn-query")
    assert system.remembers and system.hybrid_of == "hn-query"
    assert system.title == "hybrid ColBERT-HN, query side, remembering"
    assert parse_system("memory").title == "hybrid θ (with BM25), remembering"
    assert (
        parse_system("hybrid-views").title == "hybrid two-view student" and not parse_system("hybrid-views").remembers
    )

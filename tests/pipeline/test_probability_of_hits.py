"""A run with enough dev labels says how likely its hits are relevant; one whose labels teach nothing keeps θ."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colabel import DataSettings, EncoderSettings, Recipe, Verdict, open_run, run
from colabel.errors import UsageError
from colabel.settings import LabelSettings, QuerySideSettings, RankSettings, TrainSettings
from tests.conftest import Call

TOPICS = ["glacier cave", "melt water", "narrow inlet", "steep sides", "harbour season", "old tunnels", "summer carves"]
COMMON = ["formed", "within", "through", "long", "made", "same"]


def write_topics(folder: Path, *, shuffled: bool = False) -> None:
    """Passages of a few topics; the passages of a query's topic are relevant, and half of them are labelled."""
    draw = np.random.default_rng(0)
    (folder / "qrels").mkdir(parents=True)
    passages = [(f"d{place}", place % len(TOPICS)) for place in range(10 * len(TOPICS))]
    lines = []
    for name, topic in passages:
        words = [*TOPICS[topic].split(), *draw.choice(COMMON, 3)]
        lines.append(json.dumps({"_id": name, "title": "", "text": f"{' '.join(draw.permutation(words))} {name[1:]}"}))
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries: list[str] = []
    labels: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for place in range(63):
        topic = place % len(TOPICS)
        queries.append(json.dumps({"_id": f"q{place}", "text": f"{TOPICS[topic]} {' '.join(draw.choice(COMMON, 4))}"}))
        split = "dev" if place < 28 else "train" if place < 56 else "test"
        wanted = draw.integers(len(TOPICS)) if shuffled and split == "train" else topic
        held = [name for name, one in passages if one == wanted]
        labels[split] += [f"q{place}\t{name}\t1" for name in draw.choice(held, 5, replace=False)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    for split, held in labels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *held]) + "\n")


def recipe_of(folder: Path, model: Path) -> Recipe:
    return Recipe(
        data=DataSettings(source=str(folder)),
        encoder=EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu"),
        rank=RankSettings(depth=20),
        labels=LabelSettings(candidates=20),
        train=TrainSettings(theta="take"),
        query_side=QuerySideSettings(steps=3),
    )


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("topics")
    write_topics(folder / "data")
    run(recipe_of(folder / "data", tiny_model), folder / "run", teacher="views")
    return folder / "run"


def test_hits_have_probabilities_whatever_ranks(finished: Path) -> None:
    opened = open_run(finished)
    found = opened.search(["glacier cave", "summer carves long"], k=20)
    assert ((found.probabilities >= 0) & (found.probabilities <= 1)).all()
    assert found.hits()[0].probability == pytest.approx(found.probabilities[0, 0])
    right = [int(name[1:]) % len(TOPICS) == 0 for name in found.ids[0].tolist()]
    assert found.probabilities[0][right].mean() > found.probabilities[0][np.logical_not(right)].mean() + 0.1
    for ranker in ("student", "colbert", "bm25"):
        other = opened.search("glacier cave", k=5, ranker=ranker)
        known = dict(zip(found.ids[0].tolist(), found.probabilities[0].tolist(), strict=True))
        shared = [place for place, name in enumerate(other.ids[0].tolist()) if name in known]
        assert shared and all(
            other.probabilities[0, place] == pytest.approx(known[other.ids[0, place]], abs=1e-5) for place in shared
        )


def test_what_is_not_likely_is_left_out(finished: Path, call: Call) -> None:
    opened = open_run(finished)
    whole = opened.search("glacier cave", k=20)
    middle = float(np.median(whole.probabilities))
    found = opened.search("glacier cave", k=20, min_probability=middle)
    kept = whole.probabilities[0] >= middle
    assert 0 < kept.sum() < 20
    assert found.ids[0, : kept.sum()].tolist() == whole.ids[0][kept].tolist()
    assert (found.rows[0, kept.sum() :] == -1).all() and len(found.hits()) == kept.sum()
    code, out, _ = call("search", finished, "glacier cave", "--min-probability", "1")
    assert (code, out.count("\n")) == (0, 1)
    hits = json.loads(call("search", finished, "glacier cave", "--min-probability", str(middle), "--json")[1])
    assert hits and all(hit["probability"] >= middle - 1e-6 for hit in hits)
    assert call("search", finished / "index", "ice", "--min-probability", "0.5")[0] == 2


def test_missing_labels_have_probabilities_and_a_total(finished: Path, call: Call) -> None:
    opened = open_run(finished)
    listed = opened.missing(limit=5)
    assert all(one.probability is not None and 0 <= one.probability <= 1 for one in listed)
    estimate = opened.missing_in_all()
    assert estimate is not None and estimate[1] <= estimate[0] <= estimate[2]
    code, out, _ = call("missing", finished, "--limit", 2)
    assert (code, f"{estimate[0]:,.0f}" in out.splitlines()[-2]) == (0, True)


def test_random_verdicts_are_learned(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    data = opened.dataset
    pairs = [(query, f"d{place}") for query in sorted(data.positives("train"))[:6] for place in range(7)]
    said = [Verdict(query, passage, "no", "ann", source="random") for query, passage in pairs]
    opened.verdict_store.add_all([one for one in said if one.passage_id not in data.labels("train")[one.query_id]])
    before, after = opened.relevance, opened.again().run.relevance
    assert before is not None and after is not None
    assert (before.basis, after.basis) == ("labels", "verdicts")
    assert after.relevant[0] < before.relevant[0]


def test_too_few_dev_labels_give_none_and_say_so(tiny_model: Path, tmp_path: Path) -> None:
    write_topics(tmp_path / "data")
    dev = tmp_path / "data" / "qrels" / "dev.tsv"
    dev.write_text("\n".join(dev.read_text().splitlines()[:20]) + "\n")
    run(recipe_of(tmp_path / "data", tiny_model), tmp_path / "run", teacher="hard-query")
    opened = open_run(tmp_path / "run")
    assert opened.relevance is None and np.isnan(opened.search("glacier").probabilities).all()
    assert opened.search("glacier").hits()[0].probability is None
    with pytest.raises(UsageError, match="20 queries"):
        opened.search("glacier", min_probability=0.5)


def test_labels_that_teach_nothing_end_in_theta(tiny_model: Path, tmp_path: Path) -> None:
    write_topics(tmp_path / "data", shuffled=True)
    recipe = recipe_of(tmp_path / "data", tiny_model)
    recipe = replace(recipe, query_side=QuerySideSettings(steps=40, learning_rate=1e-2))
    result = run(recipe, tmp_path / "run", teacher="hard-query")
    summary = json.loads((result.student / "training" / "summary.json").read_text())
    assert summary["alpha"] == 0 and result.verdict.startswith("Keep θ")
    opened = open_run(tmp_path / "run")
    questions = ["glacier cave", "summer carves long"]
    assert np.allclose(
        opened.search(questions, ranker="student").scores, opened.search(questions, ranker="colbert").scores
    )

"""The two-view teacher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colabel import Bm25, Index, collect
from colabel.collective import Knowledge
from colabel.data import Dataset
from colabel.teachers import views
from colabel.teachers.views import DEFAULT_WEIGHTS, ViewTeacher, agreement, fit_weights, fitted_teacher
from tests.collective.small import SETTINGS


@pytest.fixture
def knowledge(dataset: Dataset, index: Index, tmp_path: Path) -> Knowledge:
    return collect(dataset, index, tmp_path / "k", settings=SETTINGS)


def candidates(knowledge: Knowledge, queries: list[str]) -> np.ndarray:
    return np.stack([knowledge.ranking.query(query)[0][:12] for query in queries]).astype(np.int64)


def test_views_are_standardised_and_the_labelled_passage_is_capped(knowledge: Knowledge, words: Bm25) -> None:
    queries = list(knowledge.queries.ids)[:4]
    rows = candidates(knowledge, queries)
    positives = {query: [int(line[0])] for query, line in zip(queries, rows, strict=True)}
    teacher = ViewTeacher(knowledge, words, positives)
    found = teacher.views(queries, rows)
    assert set(found) == set(DEFAULT_WEIGHTS)
    for view in found.values():
        free = view[:, 1:]
        assert (np.abs(free.mean(axis=1)) < 1e-4).all()
        assert ((np.abs(free.std(axis=1) - 1) < 1e-3) | (free.std(axis=1) < 1e-6)).all()
    scores = teacher.scores(queries, rows)
    assert (scores[:, 0] <= scores[:, 1:].max(axis=1) + 1e-6).all()
    rows[0, -1] = -1
    assert teacher.scores(queries, rows)[0, -1] == -np.inf


def test_the_query_view_alone_is_the_order_of_phi(knowledge: Knowledge, words: Bm25) -> None:
    queries = list(knowledge.queries.ids)[:4]
    rows = candidates(knowledge, queries)
    last = {query: [int(line[-1])] for query, line in zip(queries, rows, strict=True)}
    scores = ViewTeacher(knowledge, words, last, {"query": 2.5}).scores(queries, rows)
    assert (np.diff(scores[:, :-1], axis=1) <= 1e-6).all()  # in θ's order, whatever the weight's size


def test_a_query_without_labels_is_scored_by_vectors_and_words(knowledge: Knowledge, words: Bm25) -> None:
    queries = list(knowledge.queries.ids)[:4]
    rows = candidates(knowledge, queries)
    teacher = ViewTeacher(knowledge, words, {queries[0]: [int(rows[0, 0])]}, {"query": 1.0})
    views, scores = teacher.views(queries, rows), teacher.scores(queries, rows)
    agreed = agreement(views["query"], views["words"], rows >= 0)
    assert 0 < agreed.max() <= 1
    both = views["query"] + 4 * agreed[:, None] * views["words"]
    assert np.array_equal(np.argsort(-scores[1:], kind="stable"), np.argsort(-both[1:], kind="stable"))
    assert np.array_equal(np.argsort(-scores[0, 1:]), np.argsort(-views["query"][0, 1:])), "its own weights"


def test_weights_are_fitted_where_labels_can_be_hidden(
    knowledge: Knowledge, words: Bm25, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "FEWEST_QUERIES", 4)
    queries = list(knowledge.queries.ids)
    rows = dict(zip(queries, candidates(knowledge, queries), strict=True))
    texts = [knowledge.queries.text(query) for query in queries]
    by_words = words.scores(texts, np.stack(list(rows.values())))
    positives = {q: rows[q][np.argsort(-by_words[n])[:3]].tolist() for n, q in enumerate(queries)}
    fitted = fit_weights(knowledge, words, positives, rows)
    assert fitted.queries >= 4
    assert fitted.average_precision["fitted"] > fitted.average_precision["default"]
    assert max(fitted.weights, key=lambda name: fitted.weights[name]) == "words", "BM25's best are the labels"


def test_one_label_per_query_takes_the_default_weights(
    knowledge: Knowledge,
    words: Bm25,
    dataset: Dataset,
) -> None:
    assert fitted_teacher(knowledge, words, dataset).weights == dict(DEFAULT_WEIGHTS)

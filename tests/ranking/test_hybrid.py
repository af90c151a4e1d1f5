"""Words and vectors together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.collective.small import small_dataset, small_index

from colabel import Index
from colabel.data import Dataset
from colabel.errors import UsageError
from colabel.ranking import Bm25, Hybrid, LateInteraction
from colabel.ranking.hybrid import DEFAULT_WEIGHT, fit_weight, standardise
from colabel.settings import RankSettings

TEXTS = ["glacier ice", "harbour in summer", "water"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))


@pytest.fixture
def hybrid(dataset: Dataset, index: Index, tmp_path: Path) -> Hybrid:
    return Hybrid(LateInteraction(index), Bm25(dataset.passages, RankSettings(), tmp_path / "bm25"))


def test_the_ends_of_the_weight_are_the_views_themselves(hybrid: Hybrid) -> None:
    late, words = hybrid.late.rank(TEXTS, 5), hybrid.words.rank(TEXTS, 5)
    assert Hybrid(hybrid.late, hybrid.words, 0.0).rank(TEXTS, 5)[0].tolist() == late[0].tolist()
    found = Hybrid(hybrid.late, hybrid.words, 1.0).rank(TEXTS, 5)[0]
    for line, expected in zip(found.tolist(), words[0].tolist(), strict=True):
        matched = [row for row in expected if row >= 0]
        assert line[: len(matched)] == matched


def test_scores_do_not_depend_on_the_depth_and_filters_hold(hybrid: Hybrid) -> None:
    rows, scores = hybrid.rank(TEXTS, len(hybrid.ids))
    few, values = hybrid.rank(TEXTS, 3)
    assert few.tolist() == rows[:, :3].tolist()
    np.testing.assert_allclose(values, scores[:, :3], rtol=1e-6)
    assert (np.diff(scores, axis=1) <= 0).all()
    allowed = np.zeros(len(hybrid.ids), dtype=bool)
    allowed[[1, 4]] = True
    filtered, _ = hybrid.rank(TEXTS, 5, allowed)
    assert set(filtered[filtered >= 0].tolist()) <= {1, 4}


def test_standardised_scores_have_no_scale() -> None:
    scores = np.array([[1.0, 2.0, 5.0, 3.0]])
    pool = np.array([[True, True, True, False]])
    for factor, offset in ((3.0, 0.0), (0.01, 7.0), (100.0, -40.0)):
        np.testing.assert_allclose(standardise(factor * scores + offset, pool), standardise(scores, pool), rtol=1e-4)
    assert standardise(np.array([[2.0, 2.0]]), np.array([[True, True]])).tolist() == [[0.0, 0.0]]


def test_the_weight_is_fitted_on_labels_and_the_default_without(hybrid: Hybrid) -> None:
    queries = {f"q{number}": text for number, text in enumerate(TEXTS * 10)}
    by_words, _ = hybrid.words.rank(list(queries.values()), 1)
    labels = {query: {hybrid.ids[int(row)]: 1} for query, (row,) in zip(queries, by_words, strict=True)}
    fitted = fit_weight(hybrid, queries, labels)
    assert fitted.values and fitted.weight >= 0.5  # BM25's own answers are the labels
    assert fitted.values[1.0] == pytest.approx(1.0)
    few = fit_weight(hybrid, queries, dict(list(labels.items())[:3]))
    assert not few.values and few.weight == DEFAULT_WEIGHT


def test_a_weight_outside_its_range_is_refused(hybrid: Hybrid) -> None:
    with pytest.raises(UsageError):
        Hybrid(hybrid.late, hybrid.words, 1.5)

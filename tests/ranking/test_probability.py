"""Probabilities of relevance: the share of labels that is missing is found, and verdicts decide."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from colabel.data.string_table import StringTable
from colabel.ranking.hybrid import Views, standardise
from colabel.ranking.probability import (
    FILE,
    Relevance,
    _Fit,
    features,
    fit_relevance,
    grades_of,
    read_relevance,
    reliability,
    too_little,
)

QUERIES, CANDIDATES = 100, 40


def drawn(seed: int = 0, queries: int = QUERIES) -> tuple[Views, np.ndarray, np.ndarray]:
    """Views of queries with relevant passages, which both views see dimly, and each pair's true probability."""
    draw = np.random.default_rng(seed)
    rows = np.tile(np.arange(CANDIDATES), (queries, 1))
    late, words = (draw.normal(size=rows.shape) for _ in range(2))
    pool = np.ones(rows.shape, dtype=bool)
    scores = [standardise(one, pool) for one in (late, words)]
    true = 1 / (1 + np.exp(4.2 - 2.2 * scores[0] - 1.4 * scores[1]))
    shares = ((0.5 + one / 10).astype(np.float32) for one in (late, words))
    views = Views(rows, *scores, pool, *shares, np.zeros(rows.shape, dtype=np.float32))
    return views, draw.random(rows.shape) < true, true


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_missing_labels_are_not_taken_for_negatives(share: float) -> None:
    views, relevant, true = drawn()
    seen = relevant & (np.random.default_rng(1).random(relevant.shape) < share)
    fitted = fit_relevance(views, np.where(seen, 1, -1))
    value, low, high = fitted.labelled
    assert low <= share <= high + 1e-6 and abs(value - share) < 0.15
    assert fitted.relevant[1] <= relevant.sum() / QUERIES <= fitted.relevant[2]
    assert np.abs(fitted.of(views) - true).mean() < 0.02
    assert fitted.basis == "labels"
    missing, below, above = fitted.missing(QUERIES, int(seen.sum()), seen.sum() / QUERIES)
    assert below <= relevant.sum() - seen.sum() <= above and below <= missing <= above


def test_judged_negatives_are_fitted_alone() -> None:
    views, relevant, true = drawn()
    judged = np.random.default_rng(1).random(relevant.shape) < 0.3
    fitted = fit_relevance(views, np.where(judged, relevant.astype(int), -1))
    assert (fitted.basis, fitted.labelled) == ("judgements", (1.0, 1.0, 1.0))
    assert np.abs(fitted.of(views) - true).mean() < 0.02
    assert fitted.held_out.ece < 0.1


def test_pairs_that_repeat_others_of_their_query_are_no_evidence() -> None:
    views, relevant, _ = drawn(queries=30)
    x, taken, often = features(views), np.ones(relevant.shape, dtype=bool), relevant | (views.late > 0)
    once = _Fit(x, often, taken, complete=True)
    twice = _Fit(*(np.repeat(one, 2, axis=1) for one in (x, often, taken)), complete=True)
    assert np.allclose(once.best()[:-1], twice.best()[:-1], atol=0.01)
    once = _Fit(x, often, taken, complete=False)
    twice = _Fit(*(np.repeat(one, 2, axis=1) for one in (x, often, taken)), complete=False)
    assert not np.allclose(once.best()[:-1], twice.best()[:-1], atol=0.01), "there, c would pay for it"


def test_random_verdicts_decide() -> None:
    views, relevant, _ = drawn()
    top = np.zeros_like(relevant)  # labels of the best passage of a query alone: no random share of the relevant ones
    top[np.arange(QUERIES), np.argmax(np.where(relevant, views.late, -9), axis=1)] = True
    grades = np.where(top & relevant, 1, -1)
    sample, said, _ = drawn(seed=5, queries=100)
    asked = np.random.default_rng(2).random(said.shape) < 0.2
    without = fit_relevance(views, grades)
    fitted = fit_relevance(views, grades, verdicts=(sample, np.where(asked, said.astype(int), -1)))
    assert fitted.basis == "verdicts"
    true = relevant.sum() / QUERIES
    assert abs(fitted.relevant[0] - true) < abs(without.relevant[0] - true)


def test_too_few_labels_are_said(tmp_path: Path) -> None:
    views, relevant, _ = drawn()
    none = np.full(relevant.shape, -1)
    assert too_little(views, np.where(relevant, 1, -1), 1) == ""
    assert too_little(views, np.where(relevant, 1, -1), 2) and too_little(views, none, 1)
    (tmp_path / FILE).write_text(json.dumps({"why": "too few"}))
    assert read_relevance(tmp_path) is None


def test_a_fit_is_read_as_it_was_written(tmp_path: Path) -> None:
    views, relevant, _ = drawn(queries=30)
    fitted = fit_relevance(views, np.where(relevant, 1, -1))
    (tmp_path / FILE).write_text(json.dumps(dataclasses.asdict(fitted)))
    found = read_relevance(tmp_path)
    assert found == fitted and isinstance(found, Relevance)
    rows = np.array([[5, -1, 0]] * 30)
    some, everything = fitted.of_rows(views, rows), fitted.of(views)
    assert np.array_equal(some[:, [0, 2]], everything[:, [5, 0]]) and np.isnan(some[:, 1]).all()


def test_features_do_not_depend_on_scale_or_on_candidates_outside_the_pool() -> None:
    views, _, _ = drawn(queries=2)
    inside = np.ones(views.rows.shape, dtype=bool)
    inside[:, 30:] = False
    narrowed = Views(views.rows, views.late, views.words, inside, views.similarity, views.coverage, views.asked)
    shorter = Views(*(part[:, :30] for part in vars(narrowed).values()))
    assert np.allclose(features(narrowed)[:, :30], features(shorter))
    late = features(views)[0, :, 2]
    assert sorted(np.exp(late).round().tolist()) == list(range(1, CANDIDATES + 1))


def test_grades_and_reliability() -> None:
    ids = StringTable.of(["a", "b", "c"])
    assert grades_of(np.array([[2, 0, -1]]), ["q"], {"q": {"c": 2}}, ids).tolist() == [[2, -1, -1]]
    half = reliability(np.full((1, 4), 0.5), np.array([[True, False, False, False]]), np.ones((1, 4), bool), share=0.5)
    assert (half.ece, half.brier) == (0.0, 0.25)

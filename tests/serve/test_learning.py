"""The model that orders suggestions: beside scikit-learn, before any verdict, and what it learns of queries."""

from __future__ import annotations

import numpy as np
import pytest

from colabel.serve import learning
from colabel.serve.learning import Learner


def drawn(count: int, queries: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    chance = np.random.default_rng(seed)
    features, of = chance.normal(size=(count, 2)), chance.integers(queries, size=count)
    effects = chance.normal(size=queries)
    odds = features @ [1.5, -0.5] + effects[of] - 0.5
    return features, chance.random(count) < 1 / (1 + np.exp(-odds)), [f"q{number}" for number in of]


def test_before_any_verdict_pairs_come_as_they_are_suggested() -> None:
    learner = Learner()
    assert learner.value("q", (2.0, -9.0)) > learner.value("r", (1.0, 9.0))
    learner.fit(np.empty((0, 2)), np.empty(0, bool), [])
    assert learner.value("q", (2.0, -9.0)) > learner.value("r", (1.0, 9.0)) and learner.effects == {}


def test_it_is_the_optimum_of_its_penalised_likelihood() -> None:
    from scipy.optimize import minimize

    features, relevant, queries = drawn(300, 12)
    names = sorted(set(queries))
    of = np.array([names.index(one) for one in queries])
    table = np.column_stack([features, np.ones(len(features))])

    def loss(values: np.ndarray) -> float:
        odds = table @ values[:3] + values[3:][of]
        away = values[:3] - learning._START
        held = (learning._HOLD * away**2).sum() / 2 + learning._EFFECT * (values[3:] ** 2).sum() / 2
        return float(np.logaddexp(0, np.where(relevant, -odds, odds)).sum() + held)

    theirs = minimize(loss, np.zeros(3 + len(names)), method="BFGS").x
    learner = Learner()
    learner.fit(features, relevant, queries)
    assert learner.weights == pytest.approx(theirs[:3], abs=1e-3)
    assert [learner.effects[name] for name in names] == pytest.approx(theirs[3:], abs=1e-3)


def test_a_query_with_many_relevant_passages_comes_first() -> None:
    learner = Learner()
    learner.fit(np.zeros((6, 2)), np.array([True] * 3 + [False] * 3), ["rich"] * 3 + ["poor"] * 3)
    values = [learner.value(query, (0.0, 0.0)) for query in ("rich", "new", "poor")]
    assert values == sorted(values, reverse=True) and len(set(values)) == 3


def test_verdicts_that_are_all_alike_do_not_run_away() -> None:
    learner = Learner()
    learner.fit(np.full((500, 2), 3.0), np.ones(500, bool), ["q"] * 500)
    assert np.isfinite(learner.weights).all() and abs(learner.effects["q"]) < 10

"""What verdicts say about pairs that nobody has judged.

**Which pairs are likely**: logistic regression with an effect of each query,

    P(relevant) = 1 / (1 + exp(−(b + w·x + u_q)))

x has two figures of a pair, each in units of its deviation over all candidates: the value by which it is suggested,
and how far φ stands out. u_q says that some queries have more relevant passages than others: it is drawn to 0, the
more so the fewer pairs of the query were judged. Before any verdict w is (1, 0), and pairs come as they are suggested.

**Teacher scores after a query's labels have grown**, without a pass of a model: centroids come from the stored vectors
of labelled passages, so a new label changes them at once. With t the teacher score of a candidate, c its collective
score (Eq. 6) from the labels of the run and c′ the one from the labels of now,

    t′ = t + (c′ − c) · s(t) / s(c)

where s is the deviation over the query's unlabelled candidates. For the collective teacher t = c, so t′ is c′ itself;
any other teacher's score moves by what the new labels say, on its own scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.collective import Centroids, Knowledge, choose_feedback, expand, extract
from colabel.labels import Labels, QueryLabels
from colabel.labels.artefact import unlabelled

FloatArray = npt.NDArray[np.float64]

_START = np.array([1.0, 0.0, -1.0])  # w and b before any verdict
_HOLD = np.array([20.0, 20.0, 0.1])  # how firmly they are held there: one over a variance
_EFFECT = 1.0  # one over the variance of u
_STEPS = 12  # of Newton's method
MOST_FEEDBACK = 8
"""The most labelled passages from which centroids are recomputed; a query rarely has more aspects."""


class Learner:
    """The model as the verdicts so far make it."""

    def __init__(self) -> None:
        self.weights = _START.copy()
        self.effects: dict[str, float] = {}

    def fit(self, features: FloatArray, relevant: npt.NDArray[np.bool_], queries: Sequence[str]) -> None:
        """The most likely weights and effects, from judged pairs: features [n, 2], relevant [n], query ids [n]."""
        names, of = np.unique(np.array(queries, dtype=np.str_), return_inverse=True)
        table = np.column_stack([features, np.ones(len(features))])
        weights, effects = _START.copy(), np.zeros(len(names))
        for _ in range(_STEPS):
            chance = 1 / (1 + np.exp(-np.clip(table @ weights + effects[of], -30, 30)))
            missed, doubt = relevant - chance, chance * (1 - chance)
            slope = table.T @ missed - _HOLD * (weights - _START)
            slopes = np.bincount(of, missed, len(names)) - _EFFECT * effects
            own = np.bincount(of, doubt, len(names)) + _EFFECT  # effects do not touch each other: a diagonal
            cross = np.stack([np.bincount(of, doubt * column, len(names)) for column in table.T])
            whole = (table * doubt[:, None]).T @ table + np.diag(_HOLD) - (cross / own) @ cross.T
            step = np.linalg.solve(whole, slope - cross @ (slopes / own))
            steps = (slopes - step @ cross) / own
            weights, effects = weights + np.clip(step, -2, 2), effects + np.clip(steps, -2, 2)
            if max(np.abs(step).max(), np.abs(steps).max(initial=0)) < 1e-6:
                break
        self.weights, self.effects = weights, dict(zip(names.tolist(), effects.tolist(), strict=True))

    def value(self, query_id: str, features: tuple[float, float]) -> float:
        """How likely a pair is relevant, as log odds."""
        value, standout = features
        found = self.weights[0] * value + self.weights[1] * standout + self.weights[2]
        return float(found + self.effects.get(query_id, 0.0))


def rescore(knowledge: Knowledge, labels: Labels, query_id: str, positives: Sequence[int]) -> npt.NDArray[np.float32]:
    """t′ of the query's candidates, float32 [candidates], in the order of ``labels.query(query_id)``.

    Args:
        positives: rows of all passages that are labelled now.
    """
    held, origin = labels.query(query_id), labels.origin()
    queries = knowledge.queries.vectors([query_id])
    rows = held.rows.astype(np.int64)[None]

    def score(centroids: Centroids) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = knowledge.index.store.score(
            expand(queries, centroids, origin.beta, origin.scale), rows
        )[0]
        return found

    before, after = score(knowledge.centroids([query_id])), score(fresh_centroids(knowledge, query_id, positives))
    return np.asarray(held.teacher + (after - before) * _ratio(held, before), dtype=np.float32)


def fresh_centroids(knowledge: Knowledge, query_id: str, positives: Sequence[int]) -> Centroids:
    """Centroids from the labels of now."""
    settings = knowledge.settings
    feedback = settings.feedback if settings.feedback != "top" else "labelled-first"
    count = max(settings.feedback_passages, min(len(positives), MOST_FEEDBACK))
    settings = dataclasses.replace(settings, feedback=feedback, feedback_passages=count)
    ranked, _ = knowledge.ranking.query(query_id)
    filled = [row for row in positives if knowledge.index.store.lengths(np.array([row]))[0]]
    chosen = choose_feedback(ranked[None].astype(np.int64), settings, [filled])
    return extract(knowledge.index, chosen, settings).first(settings.centroids)


def _ratio(held: QueryLabels, collective: npt.NDArray[np.float32]) -> float:
    """s(t) / s(c); 1 where either does not vary."""
    free = unlabelled(held.teacher[None], held.flags[None])[0]
    spreads = [
        float(values[free].astype(np.float64).std()) if free.any() else 0.0 for values in (held.teacher, collective)
    ]
    return spreads[0] / spreads[1] if min(spreads) > 1e-9 else 1.0

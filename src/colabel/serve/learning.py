"""What verdicts say about pairs that nobody has judged: logistic regression with an effect of each query.

    P(relevant) = 1 / (1 + exp(−(b + w·x + u_q)))

x has two figures of a pair, each in units of its deviation over all candidates: the value by which it is suggested,
and how far φ stands out. u_q says that some queries have more relevant passages than others: it is drawn to 0, the
more so the fewer pairs of the query were judged. Before any verdict w is (1, 0), and pairs come as they are suggested.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_START = np.array([1.0, 0.0, -1.0])  # w and b before any verdict
_HOLD = np.array([20.0, 20.0, 0.1])  # how firmly they are held there: one over a variance
_EFFECT = 1.0  # one over the variance of u
_STEPS = 12  # of Newton's method


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

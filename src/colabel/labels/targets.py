"""What follows from teacher scores: probabilities, their entropy, the order of suspected positives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError
from colabel.labels.artefact import Flag

FloatArray = npt.NDArray[np.float32]


def probabilities(teacher: npt.NDArray[np.floating], temperature: float) -> FloatArray:
    """Target probabilities float32 [queries, candidates]: softmax(t / temperature) over each query's scored candidates.

    A candidate that is absent (−∞) or not scored (NaN) gets 0. A row sums to 1, or to 0 where nothing was scored.

    >>> probabilities(np.array([[0.0, np.log(3.0), np.nan, -np.inf]]), temperature=1.0).tolist()
    [[0.25, 0.75, 0.0, 0.0]]
    """
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    scores = np.where(np.isfinite(teacher), teacher, -np.inf).astype(np.float64)
    best = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp((scores - np.where(np.isfinite(best), best, 0.0)) / temperature)
    total = powers.sum(axis=1, keepdims=True)
    return (powers / np.where(total > 0, total, 1.0)).astype(np.float32)


def entropy(targets: FloatArray) -> npt.NDArray[np.float64]:
    """H = −Σ p·ln p of each row [queries, candidates], in nats; 0·ln 0 is 0.

    >>> bool(np.isclose(entropy(np.array([[0.5, 0.5, 0.0]], np.float32))[0], np.log(2)))
    True
    """
    p = targets.astype(np.float64)
    values: npt.NDArray[np.float64] = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    return np.maximum(values, 0.0)  # a one-hot row would be −0


def suspect_ranks(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Rank int32 [queries, candidates] among a query's scored, unlabelled candidates by teacher score, from 1.

    Equal scores keep their order; 0 where a candidate is labelled, absent or not scored.

    >>> suspect_ranks(np.array([[5.0, 7.0, 6.0, np.nan]]), np.array([[0, Flag.LABELLED, 4, 4]], np.uint8)).tolist()
    [[2, 0, 1, 0]]
    """
    suspect = np.isfinite(teacher) & ((flags & Flag.LABELLED) == 0)
    order = np.argsort(np.where(suspect, -teacher, np.inf), axis=1, kind="stable")
    ranks = np.empty(teacher.shape, dtype=np.int32)
    np.put_along_axis(ranks, order, np.arange(1, teacher.shape[1] + 1, dtype=np.int32)[None, :], axis=1)
    return np.where(suspect, ranks, 0).astype(np.int32)


def best_labelled(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> FloatArray:
    """The teacher score t⁺ of each query's best labelled passage, float32 [queries]; NaN where none was scored.

    >>> best_labelled(np.array([[5.0, 7.0, 9.0]]), np.array([[1, 1, 4]], np.uint8)).tolist()
    [7.0]
    """
    scored = np.isfinite(teacher) & ((flags & Flag.LABELLED) != 0)
    best = np.where(scored, teacher, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(scored.any(axis=1), best, np.nan).astype(np.float32)

"""Scores of different teachers on one scale, query by query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def moments(scores: FloatArray, known: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation [queries, 1] of each row's known scores; 0 where nothing is known."""
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, scores, 0.0).sum(axis=1, keepdims=True) / count
    variance = np.where(known, scores - mean, 0.0)
    return mean, np.sqrt((variance**2).sum(axis=1, keepdims=True) / count)


def standardised(scores: FloatArray, known: BoolArray) -> FloatArray:
    """z = (s − mean) / deviation of each row over its known entries; 0 where all known scores are equal.

    Entries that are not known keep whatever comes out, and are for the caller to mask.

    >>> standardised(np.array([[1.0, 3.0, 9.0]]), np.array([[True, True, False]]))[0, :2].tolist()
    [-1.0, 1.0]
    """
    mean, deviation = moments(scores, known)
    spread = deviation > 1e-9 * np.maximum(1.0, np.abs(mean))  # below it, only rounding differs
    return np.where(spread, (scores - mean) / np.where(spread, deviation, 1.0), 0.0)


def log_probabilities(scores: FloatArray, known: BoolArray, temperature: float) -> FloatArray:
    """ln softmax(s / temperature) of each row over its known entries; −∞ elsewhere."""
    logits = np.where(known, scores / temperature, -np.inf)
    best = logits.max(axis=1, keepdims=True, initial=-np.inf)
    logits = logits - np.where(np.isfinite(best), best, 0.0)
    total = np.exp(logits).sum(axis=1, keepdims=True)
    return logits - np.log(np.where(total > 0, total, 1.0))


def with_gaps(scores: FloatArray, known: BoolArray, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Scores as a teacher gives them: float32, NaN where a pair is not known, −∞ where there is no candidate."""
    return np.where(rows < 0, -np.inf, np.where(known, scores, np.nan)).astype(np.float32)

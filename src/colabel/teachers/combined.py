"""Teachers that combine others: the mean of several, and two mixed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.errors import UsageError
from colabel.teachers.protocol import Knows, Teacher
from colabel.types import FloatArray, IntArray

_Scores = npt.NDArray[np.float64]
_Known = npt.NDArray[np.bool_]


class MeanTeacher:
    """s(q, p) = 1/n · Σ s_i(q, p); a pair that one of the teachers lacks has no score.

    CE-3 of the paper is the mean of three cross-encoders. Raw scores are averaged, as in the paper, which suits models
    of one kind.
    """

    name = "ensemble"

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        if not teachers:
            raise UsageError("an ensemble has no teachers; expected at least one")
        self._teachers = tuple(teachers)
        self.knows: Knows = "any" if all(teacher.knows == "any" for teacher in teachers) else "candidates"
        self.fingerprint = fingerprint({"teacher": self.name, "parts": [one.fingerprint for one in self._teachers]})

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Mean scores float32 [queries, candidates]; −∞ where the row is −1, NaN where a teacher has none."""
        parts, known = _ask(self._teachers, query_ids, rows)
        return _with_gaps(sum(parts, np.zeros(rows.shape)) / len(parts), known, rows)


class MixedTeacher:
    """w parts of the first teacher and 1 − w of the second, combined query by query.

    Scores of two teachers differ in scale, so the second's are first brought to the mean m₁ and deviation d₁ of the
    first's, over the candidates that both have scored:

        s = w · s₁ + (1 − w) · (m₁ + d₁ · (s₂ − m₂) / d₂)

    With w = 1 these are the first teacher's scores, and a temperature that suits the first suits the mixture. A score
    depends on all candidates that are scored together. A pair that one of the teachers lacks has no score.
    """

    name = "mixed"
    knows: Knows = "candidates"

    def __init__(self, first: Teacher, second: Teacher, weight: float = 0.5) -> None:
        if not 0.0 <= weight <= 1.0:
            raise UsageError(f"the weight of the first teacher is {weight}; expected a number from 0 to 1")
        self._parts, self._weight = (first, second), weight
        parts = [first.fingerprint, second.fingerprint]
        self.fingerprint = fingerprint({"teacher": self.name, "parts": parts, "weight": weight})

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Mixed scores float32 [queries, candidates]; −∞ where the row is −1, NaN where a teacher has none."""
        (first, second), known = _ask(self._parts, query_ids, rows)
        mean, deviation = _moments(first, known)
        mixed = self._weight * first + (1 - self._weight) * (mean + deviation * standardised(second, known))
        return _with_gaps(mixed, known, rows)


def standardised(scores: _Scores, known: _Known) -> _Scores:
    """z = (s − mean) / deviation of each row over its known entries; 0 where all known scores are equal.

    Entries that are not known keep whatever comes out, and are for the caller to mask.

    >>> standardised(np.array([[1.0, 3.0, 9.0]]), np.array([[True, True, False]]))[0, :2].tolist()
    [-1.0, 1.0]
    """
    mean, deviation = _moments(scores, known)
    spread = deviation > 1e-9 * np.maximum(1.0, np.abs(mean))  # below it, only rounding differs
    return np.where(spread, (scores - mean) / np.where(spread, deviation, 1.0), 0.0)


def _ask(teachers: Sequence[Teacher], query_ids: Sequence[str], rows: IntArray) -> tuple[list[_Scores], _Known]:
    """Each teacher's scores float64, 0 where one lacks a pair, and bool: which pairs all of them know."""
    parts = [teacher.scores(query_ids, rows).astype(np.float64) for teacher in teachers]
    known = (rows >= 0) & np.logical_and.reduce([np.isfinite(part) for part in parts])
    return [np.where(known, part, 0.0) for part in parts], known


def _moments(scores: _Scores, known: _Known) -> tuple[_Scores, _Scores]:
    """Mean and standard deviation [queries, 1] of each row's known scores; 0 where nothing is known."""
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, scores, 0.0).sum(axis=1, keepdims=True) / count
    variance = np.where(known, scores - mean, 0.0)
    return mean, np.sqrt((variance**2).sum(axis=1, keepdims=True) / count)


def _with_gaps(scores: _Scores, known: _Known, rows: IntArray) -> FloatArray:
    """Scores as a teacher gives them: float32, NaN where a pair is not known, −∞ where there is no candidate."""
    return np.where(rows < 0, -np.inf, np.where(known, scores, np.nan)).astype(np.float32)

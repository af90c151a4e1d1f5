"""The mean of several teachers: CE-3 of the paper is the mean of three cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.errors import UsageError
from colabel.teachers.base import Teacher
from colabel.teachers.scales import standardised, with_gaps


class MeanTeacher:
    """s(q, p) = 1/n · Σ s_i(q, p); a pair that one of the teachers lacks has no score.

    The paper averages raw scores, which suits models of one kind. With ``standardise`` each teacher's scores are first
    brought to mean 0 and deviation 1 over the query's candidates that all teachers know, so that one with large numbers
    does not outvote the others; the mean then depends on the whole row of candidates.
    """

    name = "ensemble"

    def __init__(self, teachers: Sequence[Teacher], *, standardise: bool = False) -> None:
        if not teachers:
            raise UsageError("an ensemble of no teachers was asked for; expected at least one")
        self._teachers = tuple(teachers)
        self._standardise = standardise
        parts = [teacher.fingerprint for teacher in self._teachers]
        self.fingerprint = fingerprint({"teacher": self.name, "standardise": standardise, "parts": parts})

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Mean scores float32 [queries, candidates]; −∞ where the row is −1, NaN where a teacher has none."""
        parts = [teacher.score(query_ids, rows).astype(np.float64) for teacher in self._teachers]
        known = (rows >= 0) & np.logical_and.reduce([np.isfinite(part) for part in parts])
        total = np.zeros(rows.shape)
        for part in parts:
            filled = np.where(known, part, 0.0)
            total += standardised(filled, known) if self._standardise else filled
        return with_gaps(total / len(parts), known, rows)

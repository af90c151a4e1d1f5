"""Teachers behind a guard: one that a user wrote is checked, and none contradicts what people have judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from colabel.artefacts import fingerprint
from colabel.data import Dataset
from colabel.errors import UsageError
from colabel.teachers.protocol import Knows, Teacher
from colabel.types import FloatArray, IntArray

_KNOWS = ("any", "candidates", "drawn")


class CheckedTeacher:
    """A teacher of the user's own: what it lacks is refused at once, and what it returns in every call.

    Args:
        teacher: has ``name``, ``fingerprint``, ``knows`` and ``scores``, as :class:`colabel.teachers.Teacher` says.
    """

    def __init__(self, teacher: Any) -> None:
        what = f"the teacher {type(teacher).__name__}"
        for part in ("name", "fingerprint"):
            found = getattr(teacher, part, None)
            if not isinstance(found, str) or not found.strip():
                raise UsageError(
                    f"{what}: '{part}' is {found!r}; expected a text"
                    + (" that changes whenever its scores would" if part == "fingerprint" else "")
                )
        knows = getattr(teacher, "knows", None)
        if knows not in _KNOWS:
            raise UsageError(f"{what}: 'knows' is {knows!r}; expected one of {', '.join(_KNOWS)}")
        if not callable(getattr(teacher, "scores", None)):
            raise UsageError(f"{what} has no method scores(query_ids, rows)")
        self.name: str = teacher.name
        self.fingerprint: str = teacher.fingerprint
        self.knows: Knows = teacher.knows
        self._teacher, self._what = teacher, what

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """The teacher's scores, float32 [queries, count]; −∞ where the row is −1."""
        found = self._teacher.scores(query_ids, rows)
        if not isinstance(found, np.ndarray):
            raise UsageError(
                f"{self._what}: scores() returned a {type(found).__name__}; expected a numpy array of shape "
                f"{rows.shape}, a score for each row"
            )
        if found.shape != rows.shape or found.dtype.kind not in "fiu":
            raise UsageError(
                f"{self._what}: scores() returned {found.dtype} of shape {found.shape} for {len(query_ids)} queries; "
                f"expected numbers of shape {rows.shape}, one for each row"
            )
        scores = np.where(rows >= 0, found, -np.inf).astype(np.float32)
        if np.isposinf(scores).any():
            raise UsageError(f"{self._what}: scores() returned +∞; expected numbers, NaN where it has no score")
        return scores


class JudgedTeacher:
    """A teacher that gives no probability to passages which people found not relevant: their score is −∞."""

    def __init__(self, teacher: Teacher, dataset: Dataset) -> None:
        self._rows, self._teacher = trusted_rows(dataset), teacher
        self.name, self.knows = teacher.name, teacher.knows
        self.fingerprint = fingerprint({"teacher": teacher.fingerprint, "trusted": sorted(dataset.trusted.items())})

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Scores float32 [queries, count]."""
        found = self._teacher.scores(query_ids, rows).copy()
        for place, query_id in enumerate(query_ids):
            if query_id in self._rows:
                found[place, np.isin(rows[place], self._rows[query_id])] = -np.inf
        return found


def trusted_rows(dataset: Dataset) -> dict[str, list[int]]:
    """Query id → rows of the passages that people found not relevant."""
    ids = dataset.passages.ids
    found = {query: ids.all_of(ids.rows(sorted(held))) for query, held in dataset.trusted.items()}
    return {query: rows[rows >= 0].tolist() for query, rows in found.items()}


def heeding(teacher: Teacher, dataset: Dataset) -> Teacher:
    """The teacher, made to heed the judged negatives of a dataset where there are any."""
    return JudgedTeacher(teacher, dataset) if dataset.trusted else teacher

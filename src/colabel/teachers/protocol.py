"""What a teacher is: something that scores passages for training queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from colabel.types import FloatArray, IntArray

Knows = Literal["any", "candidates", "drawn"]


class Teacher(Protocol):
    """Scores (query, passage) pairs: for the label artefact, and for the steps of a student.

    A student learns from any teacher. One that ``knows`` any pair can score all passages of a step, one that knows only
    candidates or drawn pairs a query's own passages (scope ``group``). Hard labels are not a teacher but ``None``.
    """

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def fingerprint(self) -> str:
        """Names everything that its scores depend on."""

    @property
    def knows(self) -> Knows:
        """Which pairs it can score: any, those of a query's candidates, or those that a training run draws."""

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Scores float32 [queries, count] of each query's passage rows int64 [queries, count].

        −∞ where the row is −1 (no passage), NaN where this teacher has no score for a pair.
        """

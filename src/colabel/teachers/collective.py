"""Teachers that score any pair from stored token vectors, without a pass of the model: collective and self."""

from __future__ import annotations

from collections.abc import Sequence

from colabel.artefacts import fingerprint
from colabel.collective.expansion import expand
from colabel.collective.knowledge import Knowledge
from colabel.encode import QueryStore
from colabel.errors import SettingsError
from colabel.index import Index
from colabel.teachers.protocol import Knows
from colabel.types import FloatArray, IntArray


class CollectiveTeacher:
    """φ_q(p) + β·Σ σ·max (Eq. 6): the query together with its collective centroids. β = 0 is exactly φ."""

    name = "collective"
    knows: Knows = "any"

    def __init__(self, knowledge: Knowledge, *, beta: float | None = None, scale: str | None = None) -> None:
        self.knowledge = knowledge
        self.beta = knowledge.settings.beta if beta is None else beta
        self.scale = scale or knowledge.settings.expansion_scale
        if not self.beta >= 0:
            raise SettingsError(f"β is {self.beta}; expected a number of at least 0")
        if self.scale not in ("normalised", "paper"):
            raise SettingsError(f"the expansion scale is '{self.scale}'; expected 'normalised' or 'paper'")
        parts = ["collective", knowledge.fingerprint, knowledge.queries.fingerprint, self.beta, self.scale]
        self.fingerprint = fingerprint(parts)

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Teacher scores float32 [queries, count]; −∞ where a row is −1."""
        queries = self.knowledge.queries.vectors(query_ids)
        expanded = expand(queries, self.knowledge.centroids(query_ids), self.beta, self.scale)
        return self.knowledge.index.store.score(expanded, rows)


class SelfTeacher:
    """φ of θ alone: the plain late-interaction score (Eq. 1)."""

    name = "self"
    knows: Knows = "any"

    def __init__(self, index: Index, queries: QueryStore) -> None:
        self._index, self._queries = index, queries
        self.fingerprint = fingerprint(["self", index.store.fingerprint, queries.fingerprint])

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """φ_q(p), float32 [queries, count]; −∞ where a row is −1."""
        return self._index.store.score(self._queries.vectors(query_ids), rows)

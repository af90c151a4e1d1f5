"""The collective teacher, Eq. (6), from stored token vectors: no pass of the model, whatever the number of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.collective.expansion import expand
from colabel.collective.knowledge import Knowledge
from colabel.errors import SettingsError


class CollectiveTeacher:
    """φ_q(p) + β·Σ σ·max (Eq. 6): the query together with its collective centroids. β = 0 is exactly φ."""

    name = "collective"

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

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Teacher scores float32 [queries, count]; −∞ where a row is −1."""
        queries = self.knowledge.queries.vectors(query_ids)
        expanded = expand(queries, self.knowledge.centroids(query_ids), self.beta, self.scale)
        return self.knowledge.index.store.score(expanded, rows)

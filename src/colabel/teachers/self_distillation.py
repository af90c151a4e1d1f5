"""The self teacher: φ of θ from stored token vectors, without a pass of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.encode import QueryStore
from colabel.index import Index


class SelfTeacher:
    """φ of θ alone: the plain late-interaction score (Eq. 1)."""

    name = "self"

    def __init__(self, index: Index, queries: QueryStore) -> None:
        self._index, self._queries = index, queries
        self.fingerprint = fingerprint(["self", index.store.fingerprint, queries.fingerprint])

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """φ_q(p), float32 [queries, count]; −∞ where a row is −1."""
        return self._index.store.score(self._queries.vectors(query_ids), rows)

"""Late-interaction rankings: encode the queries, search the index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.encode import encode_queries_checked
from colabel.index import Index
from colabel.progress import SILENT, Progress


class LateInteraction:
    """Ranks by MaxSim (Eq. 1) over an index."""

    def __init__(
        self, index: Index, name: str = "colbert", *, strict: bool = False, progress: Progress = SILENT
    ) -> None:
        self.index = index
        self.name = name
        self.strict = strict
        self.progress = progress
        self.ids = index.store.ids
        self.fingerprint = index.fingerprint

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rows int64 [queries, depth] and scores float32 [queries, depth], best first."""
        queries = encode_queries_checked(self.index.encoder, texts, strict=self.strict)
        return self.index.search(queries.vectors, depth, allowed=allowed, progress=self.progress)

"""ColBERT-PRF: collective knowledge at search time. The query's own top passages are the feedback."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.collective.centroids import extract
from colabel.collective.expansion import Centroids, expand
from colabel.collective.feedback import choose_feedback
from colabel.encode import encode_queries_checked
from colabel.index import Index
from colabel.index.exact import rescore
from colabel.progress import SILENT, Progress
from colabel.settings import CollectiveSettings


class PrfRanker:
    """Searches, expands the query with the collective centroids of its top f_p passages, and ranks again.

    ``rerank = False``, the ranker, searches again with the expanded query; ``rerank = True``, the re-ranker, only
    scores the first candidates again, so it finds no other passages.
    """

    def __init__(
        self,
        index: Index,
        settings: CollectiveSettings | None = None,
        *,
        rerank: bool = False,
        seed: int = 0,
        strict: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        self.index = index
        self.settings = (settings or CollectiveSettings()).with_feedback("top")
        self.rerank = rerank
        self.seed = seed
        self.strict = strict
        self.progress = progress
        self.name = "colbert-prf-rerank" if rerank else "colbert-prf"
        self.ids = index.store.ids
        self.fingerprint = fingerprint([self.name, index.fingerprint, self.settings.as_dict(), seed])

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rows int64 [queries, depth] and scores float32 [queries, depth], best first."""
        queries = encode_queries_checked(self.index.encoder, texts, strict=self.strict).vectors
        wanted = max(depth, self.settings.feedback_passages) if self.rerank else self.settings.feedback_passages
        first, _ = self.index.search(queries, wanted, allowed=allowed, progress=self.progress)
        expanded = expand(queries, self.centroids(first), self.settings.beta, self.settings.expansion_scale)
        if self.rerank:
            return rescore(expanded, first[:, :depth], self.index.store, depth)
        return self.index.search(expanded, depth, allowed=allowed, progress=self.progress)

    def centroids(self, ranked: npt.NDArray[np.int64]) -> Centroids:
        """The collective centroids of queries from their ranking, [queries, f_e, …]."""
        feedback = choose_feedback(ranked, self.settings)
        return extract(self.index, feedback, self.settings, seed=self.seed).first(self.settings.centroids)

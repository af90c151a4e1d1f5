"""The query and its collective centroids as one weighted query (Eq. 6), and ColBERT-PRF, which searches with it.

    score(q, p) = Σ_i max_j q_i·p_j  +  β · Σ_c σ_c · max_j c·p_j

As every weight is ≥ 0, the right sum is the plain late-interaction score of vectors β·σ_c·c: appended to the query
they give the teacher's score in one pass (:mod:`colabel.maxsim`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from colabel.artefacts import fingerprint
from colabel.collective.centroids import Centroids, choose_feedback, extract
from colabel.errors import SettingsError
from colabel.index import Index
from colabel.index.exact import rescore
from colabel.maxsim import fold_weights
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction
from colabel.settings import CollectiveSettings
from colabel.types import FloatArray, IntArray, Mask


def expansion_weights(sigma: Tensor, query_lengths: Tensor, beta: float, scale: str) -> Tensor:
    """Weight of each centroid, float32 [queries, centroids].

    ``paper``: β·σ. ``normalised``: β·|q|·σ / Σσ, with |q| the query's own tokens, so that β is the share of the
    expansion relative to the query whatever their numbers and whatever the size of the IDF.

    >>> expansion_weights(torch.tensor([[6.0, 2.0]]), torch.tensor([4]), beta=0.5, scale="normalised")
    tensor([[1.5000, 0.5000]])
    """
    if scale == "paper":
        return beta * sigma
    if scale != "normalised":
        raise SettingsError(f"the expansion scale is '{scale}'; expected 'normalised' or 'paper'")
    total = sigma.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return beta * query_lengths[:, None].to(sigma.dtype) * sigma / total


def expand(queries: Tensor, centroids: Centroids, beta: float, scale: str) -> Tensor:
    """Queries float32 [queries, length, dimension] (zero vectors as padding) with their weighted centroids behind.

    With β = 0 the queries come back as they are, so that their score is exactly φ.
    """
    if beta == 0:
        return queries
    lengths = (queries != 0).any(dim=2).sum(dim=1)
    weights = expansion_weights(centroids.sigma, lengths, beta, scale)
    return torch.cat([queries, fold_weights(centroids.vectors, weights)], dim=1)


class PrfRanker(LateInteraction):
    """ColBERT-PRF: searches, expands the query with the centroids of its own top f_p passages, and ranks again.

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
        super().__init__(index, "colbert-prf-rerank" if rerank else "colbert-prf", strict=strict, progress=progress)
        self.settings = (settings or CollectiveSettings()).with_feedback("top")
        self.rerank, self.seed = rerank, seed
        self.fingerprint = fingerprint([self.name, index.fingerprint, self.settings.as_dict(), seed])

    def search(self, queries: Tensor, depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows and scores of encoded queries, best first."""
        wanted = max(depth, self.settings.feedback_passages) if self.rerank else self.settings.feedback_passages
        first, _ = super().search(queries, wanted, allowed)
        feedback = choose_feedback(first, self.settings)
        centroids = extract(self.index, feedback, self.settings, seed=self.seed).first(self.settings.centroids)
        expanded = expand(queries, centroids, self.settings.beta, self.settings.expansion_scale)
        if self.rerank:
            return rescore(expanded, first[:, :depth], self.index.store, depth)
        return super().search(expanded, depth, allowed)

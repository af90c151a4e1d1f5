"""The query and its collective centroids as one weighted query (Eq. 6).

    score(q, p) = Σ_i max_j q_i·p_j  +  β · Σ_c σ_c · max_j c·p_j

As every weight is ≥ 0, the right sum is the plain late-interaction score of vectors β·σ_c·c: appended to the query
they give the teacher's score in one pass (:mod:`colabel.maxsim`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.errors import SettingsError
from colabel.maxsim import fold_weights


@dataclass(frozen=True)
class Centroids:
    """Collective centroids of some queries, by falling σ.

    vectors: float32 [queries, centroids, dimension]; sigma: float32 [queries, centroids], the IDF of each one's
    token, 0 where a query has fewer; token_ids: int32 [queries, centroids], −1 where it has fewer.
    """

    vectors: Tensor
    sigma: Tensor
    token_ids: npt.NDArray[np.int32]

    def first(self, count: int) -> Centroids:
        """The ``count`` of highest σ (f_e)."""
        return Centroids(self.vectors[:, :count], self.sigma[:, :count], self.token_ids[:, :count])


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

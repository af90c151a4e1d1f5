"""Exact scores of candidates, from the stored vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from colabel.index.store import TokenStore


def candidate_scores(
    queries: torch.Tensor, candidates: npt.NDArray[np.int64], store: TokenStore
) -> npt.NDArray[np.float32]:
    """MaxSim of each query with its own candidates [queries, count]: float32 of that shape, −∞ where a row is −1."""
    return store.score(queries, candidates)


def rescore(
    queries: torch.Tensor, candidates: npt.NDArray[np.int64], store: TokenStore, k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The k best of the candidates by exact MaxSim, best first, equal scores in the order of the store's ids."""
    scores = candidate_scores(queries, candidates, store)
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    best = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ties = store.tie_ranks[np.maximum(candidates, 0)]
    order = np.lexsort((ties, -scores), axis=1)[:, :k]
    kept_rows = np.take_along_axis(candidates, order, axis=1)
    kept_scores = np.take_along_axis(scores, order, axis=1)
    rows[:, : order.shape[1]] = np.where(np.isfinite(kept_scores), kept_rows, -1)
    best[:, : order.shape[1]] = kept_scores
    return rows, best

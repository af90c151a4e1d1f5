"""Feedback passages → collective centroids with σ, for many queries at once and without a pass of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from colabel.collective.clustering import cluster_feedback, cluster_sharded
from colabel.collective.expansion import Centroids
from colabel.collective.feedback import Feedback
from colabel.index.sharded import ShardedIndex

if TYPE_CHECKING:
    from colabel.index import Index
    from colabel.settings import CollectiveSettings

NEIGHBOURS = 10
"""Stored tokens among which the most frequent names a centroid."""


def extract(
    index: Index, feedback: Feedback, settings: CollectiveSettings, *, seed: int = 0, threads: int | None = None
) -> Centroids:
    """All clusters of each query with their tokens and σ, by falling σ: ``.first(f_e)`` are the collective centroids.

    Equal σ are ordered by the cluster's number, a centroid without a token (all of its neighbours are special) comes
    last with σ = 0.
    """
    if isinstance(index, ShardedIndex):
        means, counts = cluster_sharded(index, feedback, settings, seed=seed)
    else:
        means, counts = cluster_feedback(index.store, feedback, settings, seed=seed, threads=threads)
    used = torch.arange(means.shape[1]) < counts[:, None]
    token_ids = np.full(used.shape, -1, dtype=np.int32)
    if bool(used.any()):
        wanted = 1 if settings.token == "nearest" else NEIGHBOURS
        neighbours, _ = index.nearest_tokens(means[used], wanted)
        token_ids[used.numpy()] = most_frequent(neighbours)
    sigma = np.maximum(index.idf(token_ids), 0.0).astype(np.float32)
    key = np.where(token_ids >= 0, sigma, -1.0)
    order = np.argsort(-key, axis=1, kind="stable")
    places = torch.from_numpy(order)
    vectors = means.gather(1, places[..., None].expand(-1, -1, means.shape[2]))
    return Centroids(
        vectors, torch.from_numpy(np.take_along_axis(sigma, order, 1)), np.take_along_axis(token_ids, order, 1)
    )


def most_frequent(neighbours: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The most frequent token id of each row [n, k] of neighbours, nearest first; ties go to the nearest; −1 is none.

    >>> most_frequent(np.array([[7, 5, 5], [7, 5, 9], [-1, -1, -1]], dtype=np.int32)).tolist()
    [5, 7, -1]
    """
    same = (neighbours[:, :, None] == neighbours[:, None, :]).sum(axis=2)
    best = np.where(neighbours >= 0, same, 0).argmax(axis=1)
    return np.asarray(neighbours[np.arange(len(neighbours)), best])

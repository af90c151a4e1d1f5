"""Feedback passages → collective centroids with σ, for many queries at once and without a pass of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.collective.expansion import Centroids
from colabel.collective.feedback import Feedback
from colabel.collective.kmeans import cluster, plus_plus_start, spread_start, top_passage_start
from colabel.workers import Workers

if TYPE_CHECKING:
    from colabel.index import Index
    from colabel.index.store import TokenStore
    from colabel.settings import CollectiveSettings

NEIGHBOURS = 10
"""Stored tokens among which the most frequent names a centroid."""

_BATCH = 16  # queries clustered together by a thread: 16 × 540 points of 128 dimensions are 4 MB


def extract(
    index: Index, feedback: Feedback, settings: CollectiveSettings, *, seed: int = 0, threads: int | None = None
) -> Centroids:
    """All clusters of each query with their tokens and σ, by falling σ: ``.first(f_e)`` are the collective centroids.

    Equal σ are ordered by the cluster's number, a centroid without a token (all of its neighbours are special) comes
    last with σ = 0.
    """
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


def cluster_feedback(
    store: TokenStore,
    feedback: Feedback,
    settings: CollectiveSettings,
    *,
    seed: int = 0,
    threads: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Centroids float32 [queries, clusters, dimension] of each query's feedback and their number, int64 [queries]."""
    queries = len(feedback.rows)
    centroids = torch.zeros(queries, settings.clusters, store.dimension)
    counts = torch.zeros(queries, dtype=torch.int64)
    sizes = store.lengths(feedback.rows)
    totals = sizes.sum(axis=1)
    # Queries of similar size together: little padding. Those without a token have no cluster.
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]
    batches = [order[first : first + _BATCH] for first in range(0, len(order), _BATCH)]

    def work(numbers: Iterator[npt.NDArray[np.int64]]) -> None:
        for batch in numbers:
            points, weights, lengths = _points(store, feedback, sizes, batch)
            starts, used = _starts(points, sizes[batch], settings, seed)
            centroids[batch] = cluster(points, lengths, starts, used, weights)
            counts[batch] = used

    with Workers(threads) as workers:
        workers.share(batches, work)
    return centroids, counts


def _points(
    store: TokenStore, feedback: Feedback, sizes: npt.NDArray[np.int64], batch: npt.NDArray[np.int64]
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Token vectors [queries, longest, dimension] of some queries' feedback, their weights and their numbers."""
    lengths = torch.from_numpy(sizes[batch].sum(axis=1))
    points = torch.zeros(len(batch), int(lengths.max()), store.dimension)
    rows = feedback.rows[batch]
    present = rows >= 0
    vectors, offsets = store.vectors(rows[present])
    ends = np.cumsum(present.sum(axis=1))
    stored = torch.from_numpy(vectors)
    for place, (first, last) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        points[place, : int(lengths[place])] = stored[offsets[first] : offsets[last]]
    chosen = feedback.weights[batch]
    if (chosen == 1).all():
        return points, None, lengths
    weights = torch.ones(points.shape[:2])
    for place in range(len(batch)):
        weights[place, : int(lengths[place])] = torch.from_numpy(np.repeat(chosen[place], sizes[batch[place]]))
    return points, weights, lengths


def _starts(
    points: Tensor, sizes: npt.NDArray[np.int64], settings: CollectiveSettings, seed: int
) -> tuple[Tensor, Tensor]:
    """Where each query's clusters start, [queries, clusters, dimension], and how many it has."""
    starts = torch.zeros(len(points), settings.clusters, points.shape[2])
    counts = torch.zeros(len(points), dtype=torch.int64)
    for place, lengths in enumerate(sizes.tolist()):
        if settings.start == "k-means++":
            begin = plus_plus_start(points[place, : sum(lengths)], settings.clusters, seed)
        else:
            choose = spread_start if settings.start == "spread" else top_passage_start
            begin = points[place, choose(lengths, settings.clusters)]
        starts[place, : len(begin)] = begin
        counts[place] = len(begin)
    return starts, counts

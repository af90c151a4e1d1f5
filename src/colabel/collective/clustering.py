"""The clusters of each query's feedback: k-means for many queries at once, in threads or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.collective.feedback import Feedback
from colabel.collective.kmeans import cluster, plus_plus_start, spread_start, top_passage_start
from colabel.workers import Workers

if TYPE_CHECKING:
    from colabel.index.sharded import ShardedIndex
    from colabel.settings import CollectiveSettings

IntArray = npt.NDArray[np.int64]

_BATCH = 16  # queries clustered together by a thread: 16 × 540 points of 128 dimensions are 4 MB
_GROUP = 256  # queries clustered by one task of a cluster: whole batches, 20 to 40 MB of vectors


class VectorSource(Protocol):
    """Token vectors of passages by row."""

    @property
    def dimension(self) -> int:
        """Size of a token vector."""

    def lengths(self, rows: IntArray) -> IntArray:
        """How many tokens passages have, in the shape of ``rows``; 0 for the row −1."""

    def vectors(self, rows: IntArray) -> tuple[npt.NDArray[np.float32], IntArray]:
        """Vectors of passages, one after another, and offsets."""


def cluster_feedback(
    store: VectorSource,
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
    order = _by_size(sizes)  # those without a token have no cluster
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
    store: VectorSource, feedback: Feedback, sizes: npt.NDArray[np.int64], batch: npt.NDArray[np.int64]
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


@dataclass(frozen=True)
class FetchedVectors:
    """Vectors of some passages, fetched from wherever they lie.

    rows: int64 [passages], rising; tokens: [tokens, dimension], one passage after another; offsets: int64
    [passages + 1].
    """

    rows: IntArray
    tokens: npt.NDArray[np.floating]
    offsets: IntArray

    @property
    def dimension(self) -> int:
        """Size of a token vector."""
        return int(self.tokens.shape[1])

    def lengths(self, rows: IntArray) -> IntArray:
        """How many tokens passages have; 0 for the row −1."""
        return np.where(rows >= 0, np.diff(self.offsets)[self._places(rows)], 0)

    def vectors(self, rows: IntArray) -> tuple[npt.NDArray[np.float32], IntArray]:
        """Vectors of passages, one after another, and offsets."""
        parts = [self.tokens[self.offsets[place] : self.offsets[place + 1]] for place in self._places(rows).tolist()]
        offsets = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
        return np.concatenate(parts).astype(np.float32), offsets

    def _places(self, rows: IntArray) -> IntArray:
        return np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)


@dataclass(frozen=True)
class _Job:
    """Queries that are clustered together, and all that it takes."""

    vectors: FetchedVectors
    feedback: Feedback
    settings: CollectiveSettings
    seed: int


def cluster_sharded(
    index: ShardedIndex, feedback: Feedback, settings: CollectiveSettings, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """As :func:`cluster_feedback`, with its very batches: vectors come from the shards, and workers cluster them."""
    centroids = torch.zeros(len(feedback.rows), settings.clusters, index.store.dimension)
    counts = torch.zeros(len(feedback.rows), dtype=torch.int64)
    order = _by_size(index.store.lengths(feedback.rows))
    groups = [order[first : first + _GROUP] for first in range(0, len(order), _GROUP)]

    def jobs() -> Iterator[_Job]:
        for group in groups:
            rows = np.unique(feedback.rows[group])
            rows = rows[rows >= 0]
            tokens, offsets = index.store.vectors(rows)
            halves = tokens.astype(np.float16)  # loses nothing where vectors are stored as float16
            fetched = FetchedVectors(rows, halves if np.array_equal(halves, tokens) else tokens, offsets)
            yield _Job(fetched, Feedback(feedback.rows[group], feedback.weights[group]), settings, seed)

    for group, (means, used) in zip(groups, index.shards.run(_cluster, jobs()), strict=True):
        centroids[group] = torch.from_numpy(np.array(means))
        counts[group] = torch.from_numpy(np.array(used))
    return centroids, counts


def _cluster(job: _Job) -> tuple[npt.NDArray[np.float32], IntArray]:
    means, counts = cluster_feedback(job.vectors, job.feedback, job.settings, seed=job.seed)
    return means.numpy(), counts.numpy()


def _by_size(sizes: IntArray) -> IntArray:
    """Queries with feedback, those with most tokens first: similar sizes together need little padding."""
    totals = sizes.sum(axis=1)
    return np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]

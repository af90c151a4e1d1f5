"""k-means over the token vectors of many queries at once.

Each query has its own points and its own clusters; a batch is padded to its longest and worked on together, since one
query alone is far too small for matrix products to be fast. The algorithm is Lloyd's with scikit-learn's stopping rule
and its treatment of empty clusters, so that a query's centroids are those that ``KMeans(init=start, n_init=1)`` gives.

    points    float32 [queries, longest, dimension], each query's token vectors, zeros behind them
    lengths   int64 [queries], how many points are real
    starts    float32 [queries, clusters, dimension]
    counts    int64 [queries], how many clusters are real: a query with few tokens has fewer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_TOLERANCE = 1e-4  # scikit-learn's default: relative to the mean variance of the features


def cluster(points: Tensor, lengths: Tensor, starts: Tensor, counts: Tensor, *, iterations: int = 300) -> Tensor:
    """Cluster every query's points from the given starts.

    Returns:
        Centroids float32 like ``starts``, zeros where a query has fewer clusters.
    """
    work = _Batch.of(points, lengths, starts, counts)
    result = work.centroids.clone()
    active = torch.arange(len(points))  # the query behind each place of the batch
    running = torch.ones(len(points), dtype=torch.bool)
    for _ in range(iterations):
        finished = work.step()
        stopping = running & finished
        if bool(stopping.any()):
            result[active[stopping]] = work.centroids[stopping]
            running &= ~finished
            if not bool(running.any()):
                break
            if 4 * int(running.sum()) <= 3 * len(running):  # copying the rest costs less than working on the finished
                work, active, running = work.part(running), active[running], running[running]
    result[active[running]] = work.centroids[running]
    return result


@dataclass
class _Batch:
    """Points, clusters and the state of Lloyd's algorithm for some queries."""

    points: Tensor
    real: Tensor  # float32 [queries, longest]: 1 for a point, 0 behind a query's points
    padding: Tensor  # bool [queries, longest]: no point here
    unused: Tensor  # bool [queries, clusters]: no cluster here
    tolerance: Tensor
    centroids: Tensor
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, lengths: Tensor, starts: Tensor, counts: Tensor) -> _Batch:
        padding = torch.arange(points.shape[1]) >= lengths[:, None]
        unused = torch.arange(starts.shape[1]) >= counts[:, None]
        return cls(
            points=points,
            real=(~padding).to(points.dtype),
            padding=padding,
            unused=unused,
            tolerance=_TOLERANCE * _mean_variance(points, lengths),
            centroids=starts.masked_fill(unused[..., None], 0.0),
            labels=torch.full(padding.shape, -1),
        )

    def part(self, kept: Tensor) -> _Batch:
        """The same for some of the queries."""
        return _Batch(*(values[kept] for values in vars(self).values()))

    def step(self) -> Tensor:
        """One iteration for all; returns which queries are finished by scikit-learn's rule, bool [queries]."""
        nearest, gaps = self.nearest()
        moved = self._means(nearest, gaps)
        shift = (moved - self.centroids).square().sum(dim=(1, 2))
        same = ((nearest == self.labels) | self.padding).all(dim=1)
        self.labels, self.centroids = nearest, moved
        return same | (shift <= self.tolerance)

    def nearest(self) -> tuple[Tensor, Tensor]:
        """Each point's nearest centroid, int64 [queries, longest], and ‖c‖² − 2·p·c of it.

        The minimum and then the first cluster that attains it: both are many times as fast as a minimum with places.
        """
        norms = self.centroids.square().sum(dim=2).masked_fill(self.unused, torch.inf)
        gaps = torch.baddbmm(norms[..., None], self.centroids, self.points.transpose(1, 2), alpha=-2)
        lowest = gaps.amin(dim=1)
        clusters = gaps.shape[1]
        backwards = torch.arange(clusters, 0, -1, dtype=torch.int16)[:, None]
        first = ((gaps <= lowest[:, None]) * backwards).amax(dim=1)
        return clusters - first.to(torch.int64), lowest

    def _means(self, nearest: Tensor, gaps: Tensor) -> Tensor:
        """Means of the clusters; an empty one takes the point farthest from its own centroid, as scikit-learn does."""
        queries, clusters, dimension = self.centroids.shape
        place = (nearest + torch.arange(queries)[:, None] * clusters).flatten()
        sums = torch.zeros(queries * clusters, dimension).index_add_(0, place, self.points.flatten(0, 1))
        sizes = torch.zeros(queries * clusters).index_add_(0, place, self.real.flatten())
        sums, sizes = sums.view(queries, clusters, dimension), sizes.view(queries, clusters)
        empty = (sizes == 0) & ~self.unused
        if bool(empty.any()):
            for query in torch.nonzero(empty.any(dim=1)).flatten().tolist():
                self._fill(query, empty[query], nearest[query], gaps[query], sums[query], sizes[query])
        means = sums / sizes.clamp(min=torch.finfo(sizes.dtype).tiny)[..., None]
        return torch.where((sizes > 0)[..., None], means, self.centroids)

    def _fill(self, query: int, empty: Tensor, nearest: Tensor, gaps: Tensor, sums: Tensor, sizes: Tensor) -> None:
        """Move the farthest points of one query into its empty clusters; changes ``sums`` and ``sizes``."""
        distances = (gaps + self.points[query].square().sum(dim=1)).masked_fill(self.padding[query], -torch.inf)
        holes = torch.nonzero(empty).flatten().tolist()
        farthest = torch.argsort(distances, descending=True, stable=True)[: len(holes)].tolist()
        for hole, point in zip(holes, farthest, strict=True):
            former = int(nearest[point])
            sums[former] -= self.points[query, point]
            sizes[former] -= 1
            sums[hole] = self.points[query, point]
            sizes[hole] = 1


def _mean_variance(points: Tensor, lengths: Tensor) -> Tensor:
    """Mean over the dimensions of the points' variance, [queries]."""
    number = lengths.clamp(min=1).to(points.dtype)
    mean = points.sum(dim=1) / number[:, None]
    squares = points.square().sum(dim=(1, 2)) / number
    return (squares - mean.square().sum(dim=1)) / points.shape[2]


def spread_start(lengths: Sequence[int], clusters: int) -> list[int]:
    """The authors' start: clusters shared evenly over the passages, each share at evenly spaced tokens of its passage.

    Args:
        lengths: tokens of each feedback passage, in their order; the points stand one after another.

    Returns:
        Numbers of the points that the clusters start at, at most as many as there are points.

    >>> spread_start([8, 4], clusters=4)
    [0, 4, 8, 10]
    >>> spread_start([1, 9], clusters=6)
    [0, 1, 2, 4, 6, 8]
    """
    shares = _shares(lengths, clusters)
    chosen, first = [], 0
    for length, share in zip(lengths, shares, strict=True):
        chosen += [first + place * length // share for place in range(share)]
        first += length
    return chosen


def plus_plus_start(points: Tensor, clusters: int, seed: int) -> Tensor:
    """k-means++ as scikit-learn draws it, for one query's points [n, dimension]: seeded, as ColBERT-PRF does."""
    from sklearn.cluster import kmeans_plusplus

    centres, _ = kmeans_plusplus(points.numpy(), min(clusters, len(points)), random_state=seed)
    return torch.from_numpy(centres)


def _shares(lengths: Sequence[int], clusters: int) -> list[int]:
    """How many clusters each passage gets: one by one to those with the fewest, none more than it has tokens."""
    shares = [0] * len(lengths)
    for _ in range(min(clusters, sum(lengths))):
        open_passages = [number for number, length in enumerate(lengths) if shares[number] < length]
        shares[min(open_passages, key=lambda number: shares[number])] += 1
    return shares

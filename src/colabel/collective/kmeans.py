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

import torch
from torch import Tensor

_TOLERANCE = 1e-4  # scikit-learn's default: relative to the mean variance of the features


def cluster(
    points: Tensor, lengths: Tensor, starts: Tensor, counts: Tensor, *, iterations: int = 300
) -> tuple[Tensor, Tensor]:
    """Cluster every query's points from the given starts.

    Returns:
        Centroids float32 like ``starts`` (zeros where a query has fewer clusters) and labels int64
        [queries, longest], −1 behind a query's points.
    """
    real = torch.arange(points.shape[1]) < lengths[:, None]
    used = torch.arange(starts.shape[1]) < counts[:, None]
    tolerance = _TOLERANCE * _mean_variance(points, real, lengths)
    centroids = starts * used[..., None]
    labels = torch.full(real.shape, -1)
    active = torch.arange(len(points))
    for _ in range(iterations):
        if not len(active):
            break
        part, mask = points[active], real[active]
        nearest, distances = _assign(part, mask, centroids[active], used[active])
        moved = _update(part, mask, nearest, distances, centroids[active], used[active])
        shift = (moved - centroids[active]).square().sum(dim=(1, 2))
        same = (nearest == labels[active]).all(dim=1)
        labels[active] = nearest
        centroids[active] = moved
        active = active[~(same | (shift <= tolerance[active]))]
    # scikit-learn assigns once more to the final centroids, so that labels and centroids agree
    labels, _ = _assign(points, real, centroids, used)
    return centroids, labels


def _mean_variance(points: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
    """Mean over the dimensions of the points' variance, [queries]."""
    number = lengths.clamp(min=1)[:, None].to(points.dtype)
    mean = points.sum(dim=1) / number
    centred = (points - mean[:, None]) * real[..., None]
    return (centred.square().sum(dim=1) / number).mean(dim=1)


def _assign(points: Tensor, real: Tensor, centroids: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Each point's nearest centroid [queries, longest] (−1 behind the points) and its squared distance to it."""
    products = torch.bmm(points, centroids.transpose(1, 2))
    offsets = centroids.square().sum(dim=2).masked_fill(~used, torch.inf)
    gaps, nearest = (offsets[:, None, :] - 2 * products).min(dim=2)
    distances = (gaps + points.square().sum(dim=2)).clamp(min=0)
    return nearest.masked_fill(~real, -1), distances.masked_fill(~real, -1.0)


def _update(
    points: Tensor, real: Tensor, nearest: Tensor, distances: Tensor, centroids: Tensor, used: Tensor
) -> Tensor:
    """Means of the clusters; an empty cluster takes the point farthest from its own centroid, as scikit-learn does."""
    members = torch.nn.functional.one_hot(nearest.clamp(min=0), centroids.shape[1]).to(points.dtype) * real[..., None]
    sizes = members.sum(dim=1)
    sums = torch.bmm(members.transpose(1, 2), points)
    empty = (sizes == 0) & used
    for query in torch.nonzero(empty.any(dim=1)).flatten().tolist():
        holes = torch.nonzero(empty[query]).flatten()
        farthest = torch.argsort(distances[query], descending=True, stable=True)[: len(holes)]
        for hole, point in zip(holes.tolist(), farthest.tolist(), strict=True):
            former = int(nearest[query, point])
            sums[query, former] -= points[query, point]
            sizes[query, former] -= 1
            sums[query, hole] = points[query, point]
            sizes[query, hole] = 1
    means = sums / sizes.clamp(min=1)[..., None]
    return torch.where((sizes > 0)[..., None], means, centroids) * used[..., None]


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


def top_passage_start(lengths: Sequence[int], clusters: int) -> list[int]:
    """Evenly spaced tokens of the first passage; where it has too few, the next ones fill up.

    >>> top_passage_start([8, 4], clusters=4)
    [0, 2, 4, 6]
    """
    chosen: list[int] = []
    first = 0
    for length in lengths:
        share = min(length, clusters - len(chosen))
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

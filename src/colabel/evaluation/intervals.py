"""Confidence intervals by the bootstrap over queries."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError

FloatArray = npt.NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95
_BLOCK = 2**22  # query draws held at a time: 32 MB


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over queries with its bootstrap interval; no bounds where there are fewer than two queries."""

    mean: float
    low: float | None
    high: float | None
    queries: int
    confidence: float = CONFIDENCE

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


def bootstrap_mean(
    values: npt.ArrayLike, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean of ``values`` [queries] with its percentile bootstrap interval.

    >>> bootstrap_mean([0.25, 0.25, 0.25])
    Interval(mean=0.25, low=0.25, high=0.25, queries=3, confidence=0.95)
    """
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    return bootstrap_means(column, confidence=confidence, resamples=resamples, seed=seed)[0]


def bootstrap_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of first − second, query by query, with its interval: a query is drawn with both its values."""
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape:
        raise UsageError(f"a paired difference needs values of the same queries, not {len(one)} and {len(other)}")
    return bootstrap_mean(one - other, confidence=confidence, resamples=resamples, seed=seed)


def bootstrap_unpaired(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of ``first`` less that of ``second``, of other queries: each side is drawn by itself.

    >>> bootstrap_unpaired([0.75, 0.75], [0.25, 0.25, 0.25])
    Interval(mean=0.5, low=0.5, high=0.5, queries=5, confidence=0.95)
    """
    sides = [np.asarray(values, dtype=np.float64).reshape(-1, 1) for values in (first, second)]
    queries = sum(map(len, sides))
    if not all(map(len, sides)):
        raise UsageError("there is no query to take a mean over")
    mean = float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) == 1:
        return Interval(mean, None, None, queries, confidence)
    drawn = [_resampled_means(side - side.mean(), resamples, seed + place) for place, side in enumerate(sides)]
    low, high = np.quantile(mean + drawn[0] - drawn[1], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high), queries, confidence)


def bootstrap_means(
    values: FloatArray, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """Percentile intervals of the means of the columns of ``values`` [queries, columns].

    Queries are drawn with replacement, as many as there are, ``resamples`` times; the interval holds the middle
    ``confidence`` of the means. The draws depend on the seed and the number of queries alone, so all columns (and
    all systems) are resampled alike.
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise UsageError(f"expected 0 < confidence < 1 and resamples >= 1, not {confidence} and {resamples}")
    queries = len(values)
    if not queries:
        raise UsageError("there is no query to take a mean over")
    means = values.mean(axis=0)
    if queries == 1:
        return [Interval(float(mean), None, None, 1, confidence) for mean in means]
    drawn = means + _resampled_means(values - means, resamples, seed)  # centred, since that rounds least
    bounds = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return [
        Interval(float(mean), float(low), float(high), queries, confidence)
        for mean, low, high in zip(means, bounds[0], bounds[1], strict=True)
    ]


def _resampled_means(values: FloatArray, resamples: int, seed: int) -> FloatArray:
    """Means of the columns in every resample, [resamples, columns]."""
    generator = np.random.default_rng(seed)
    queries = len(values)
    means = np.empty((resamples, values.shape[1]))
    block = max(1, _BLOCK // queries)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        counts = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        means[start : start + rows] = counts @ values / queries
    return means

"""Bootstrap intervals, paired tests between two systems on the same queries, and Holm's correction of a family."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError
from colabel.measures import SAME, FloatArray, query_differences, t_test

RESAMPLES = SAMPLES = 10_000
CONFIDENCE = 0.95
_BOUNDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_MOST_SAMPLES = 200_000
_FLOOR = 10  # how many times below the level the smallest p of a randomisation test is, after Holm's correction
_BLOCK = 2**22  # signs or query draws held at a time: 32 MB as float64


class Plain:
    """A record that is written as JSON field by field."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclasses.dataclass(frozen=True)
class Interval(Plain):
    """A mean over queries with its bootstrap interval; no bounds where there are fewer than two queries."""

    mean: float
    low: float | None
    high: float | None
    queries: int
    confidence: float = CONFIDENCE


def bootstrap_mean(values: npt.ArrayLike, *, seed: int = 0) -> Interval:
    """The mean of ``values`` [queries] with its percentile bootstrap interval.

    >>> bootstrap_mean([0.25, 0.25, 0.25])
    Interval(mean=0.25, low=0.25, high=0.25, queries=3, confidence=0.95)
    """
    return bootstrap_means(np.asarray(values, dtype=np.float64).reshape(-1, 1), seed=seed)[0]


def bootstrap_means(values: FloatArray, *, seed: int = 0) -> list[Interval]:
    """Percentile intervals of the means of the columns of ``values`` [queries, columns].

    Queries are drawn with replacement, as many as there are, ``RESAMPLES`` times; the interval holds the middle
    95 % of the means. The draws depend only on the seed and the number of queries, so all columns (and all systems)
    are resampled alike.
    """
    queries = len(values)
    if not queries:
        raise UsageError("there is no query to take a mean over")
    means = values.mean(axis=0)
    if queries == 1:
        return [Interval(float(mean), None, None, 1) for mean in means]
    centred = values - means  # rounds least
    generator = np.random.default_rng(seed)
    resampled = np.empty((RESAMPLES, values.shape[1]))
    block = max(1, _BLOCK // queries)
    for start in range(0, RESAMPLES, block):
        rows = min(block, RESAMPLES - start)
        drawn = generator.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        counts = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        resampled[start : start + rows] = counts @ centred / queries
    bounds = np.stack([means, *np.quantile(means + resampled, _BOUNDS, axis=0)], axis=1).tolist()
    return [Interval(mean, low, high, queries) for mean, low, high in bounds]


@dataclasses.dataclass(frozen=True)
class PairedTest(Plain):
    """How a system does against another on the same queries.

    Attributes:
        t_test: two-sided p-value of the paired t-test, or None where it is not defined.
        randomisation: two-sided p-value of the randomisation test, or None for a single query.
    """

    difference: Interval
    t_test: float | None
    randomisation: float | None
    better: int
    equal: int
    worse: int


def paired_test(first: Mapping[str, float], second: Mapping[str, float], *, seed: int = 0) -> PairedTest:
    """Compare two systems on their values query id → value, which must be of the same queries."""
    return paired_tests([(first, second)], seed=seed)[0]


def paired_tests(
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]], *, samples: int = SAMPLES, seed: int = 0
) -> list[PairedTest]:
    """Compare the two systems of every pair; queries and signs are drawn once for all pairs that have as many."""
    differences = [query_differences(*pair) for pair in pairs]
    intervals: dict[int, Interval] = {}
    for length in {len(values) for values in differences}:
        places = [place for place, values in enumerate(differences) if len(values) == length]
        found = bootstrap_means(np.column_stack([differences[place] for place in places]), seed=seed)
        intervals |= dict(zip(places, found, strict=True))
    randomised = randomisation_tests(differences, samples=samples, seed=seed)
    return [
        PairedTest(
            difference=intervals[place],
            t_test=t_test(values),
            randomisation=randomised[place],
            better=int((values > 0).sum()),
            equal=int((values == 0).sum()),
            worse=int((values < 0).sum()),
        )
        for place, values in enumerate(differences)
    ]


def samples_for(tests: int, alpha: float) -> int:
    """How many signs a randomisation test of a family must draw: its smallest p-value is 1 / (1 + samples).

    Holm's correction multiplies that by the number of tests, and with too few samples nothing could be significant.

    >>> samples_for(36, 0.05), samples_for(153, 0.05), samples_for(5000, 0.05)
    (10000, 30600, 200000)
    """
    return min(_MOST_SAMPLES, max(SAMPLES, round(_FLOOR * tests / alpha)))


def randomisation_tests(
    differences: Sequence[FloatArray], *, samples: int = SAMPLES, seed: int = 0
) -> list[float | None]:
    """Two-sided p-value of Fisher's randomisation test, from the differences [queries] of each pair of systems.

    If the two systems were the same, each difference could as well have the other sign. The p-value is the share of
    sign assignments whose mean is at least as far from 0 as the one seen: of all of them where there are at most
    ``samples`` and 10,000, otherwise of ``samples`` drawn ones, (1 + as far) / (1 + samples). None for a single query.
    Signs are drawn once for all pairs of as many queries.

    >>> randomisation_tests([np.array([1.0, 2.0, 3.0])])  # of 8 assignments +++ and ---
    [0.25]
    """
    found: list[float | None] = [None] * len(differences)
    drawn: dict[int, list[int]] = {}
    for place, values in enumerate(differences):
        held = values[values != 0]  # a sign of 0 changes nothing
        if len(values) < 2:
            continue
        if not len(held):
            found[place] = 1.0
        elif len(held) < 63 and 2 ** len(held) <= min(samples, SAMPLES):
            signs = np.arange(2 ** len(held))[:, None] >> np.arange(len(held)) & 1
            found[place] = float(np.mean(_far(signs, held[:, None])))
        else:
            drawn.setdefault(len(values), []).append(place)
    for places in drawn.values():
        far = _drawn_far(np.column_stack([differences[place] for place in places]), samples, seed)
        for place, count in zip(places, far.tolist(), strict=True):
            found[place] = (1 + count) / (1 + samples)
    return found


def _drawn_far(columns: FloatArray, samples: int, seed: int) -> npt.NDArray[np.int64]:
    """How many of drawn sign assignments take the sum of each column [queries, pairs] as far from 0 as it is."""
    queries, pairs = columns.shape
    generator = np.random.default_rng(seed)
    far, block = np.zeros(pairs, dtype=np.int64), max(1, _BLOCK // queries)  # the signs do not depend on the pairs
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        packed = generator.integers(0, 256, size=(rows, -(-queries // 8)), dtype=np.uint8)
        signs = np.unpackbits(packed, axis=1, count=queries).astype(np.float64)
        width = max(1, _BLOCK // rows)
        for left in range(0, pairs, width):
            far[left : left + width] += _far(signs, columns[:, left : left + width]).sum(axis=0)
    return far


def _far(signs: npt.NDArray[Any], columns: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether the sum under each row of signs [rows, queries] (1 plus, 0 minus) is as far from 0 as that of a column.

    The largest sum is Σ|d|; sums that differ by less than rounding are equal.
    """
    total = columns.sum(axis=0)
    limits = np.abs(total) - SAME * np.abs(columns).sum(axis=0)
    sums: FloatArray = 2 * (signs @ columns) - total
    far: npt.NDArray[np.bool_] = np.abs(sums) >= limits
    return far


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of a family of p-values, in their order; tests without a p-value do not count.

    The i-th smallest of m is multiplied by m − i + 1, is at least the one before it and at most 1.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    before = 0.0
    for rank, (p, place) in enumerate(known):
        before = min(1.0, max(before, p * (len(known) - rank)))
        corrected[place] = before
    return corrected

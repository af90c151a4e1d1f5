"""Two systems on the same queries: their differences, and whether these are more than chance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError

FloatArray = npt.NDArray[np.float64]

SAME = 1e-9
"""Differences that vary less than this, relative to their size, are equal but for rounding."""
ROUNDING = 1e-12
"""Values closer than this, relative to their size (or to 1, if they are smaller), are the same: means over seeds of
equal values differ in the last digit."""


def query_differences(first: Mapping[str, float], second: Mapping[str, float]) -> FloatArray:
    """first − second of every query, in the order of the first; 0 where they differ by rounding alone.

    >>> mean = (1 + 1 / 3 + 1 / 3) / 3, (1 + 1 / 2 + 1 / 6) / 3  # both are 5/9
    >>> mean[0] == mean[1], query_differences({"q": mean[0]}, {"q": mean[1]}).tolist()
    (False, [0.0])
    """
    odd = sorted(first.keys() ^ second.keys())
    if odd:
        raise UsageError(
            f"a paired test needs two systems measured on the same queries; query '{odd[0]}' and {len(odd) - 1} more "
            "have a value of one of them only"
        )
    if not first:
        raise UsageError("a paired test needs values of at least one query")
    left = np.array(list(first.values()), dtype=np.float64)
    right = np.array([second[query] for query in first], dtype=np.float64)
    size = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    return np.where(np.abs(left - right) <= ROUNDING * size, 0.0, left - right)


def p_text(p: float | None, none: str) -> str:
    """A p-value in four digits, wherever one is written; ``none`` where there is none.

    >>> p_text(0.25, "–"), p_text(0.00001, "–"), p_text(None, "–")
    ('0.2500', '<0.0001', '–')
    """
    if p is None:
        return none
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def t_test(differences: npt.ArrayLike) -> float | None:
    """Two-sided p-value of the paired t-test, from the differences [queries].

    1 where all differences are 0. None where t is not defined: for a single query, and where all differ by the same
    amount (the spread is 0; the randomisation test still answers).

    >>> round(t_test([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    if not values.any():
        return 1.0
    if np.ptp(values) <= SAME * np.abs(values).max():
        return None
    from scipy import stats

    return float(stats.ttest_1samp(values, 0.0).pvalue)

"""Precision, recall and ROC AUC of scores against relevance, on plain arrays.

Equal scores are treated in two ways, each where it is right. A *list* (one query's candidates) is a ranking: its
candidates stand in the order in which our rankings put equal scores (the larger id first), and sorting keeps that
order, so its average precision is trec_eval's. A *threshold* cannot part equal scores, so curves that are pooled over
queries have one point for each distinct score, and AUC counts an equal pair as half: both as scikit-learn has them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RECALL_LEVELS = tuple(level / 10 for level in range(11))
_FINE_LEVELS = tuple(level / 100 for level in range(101))


@dataclasses.dataclass(frozen=True, eq=False)  # arrays do not compare as a whole
class Curve:
    """Recall (rising, ends at 1) and precision float64 [points], from the highest score to the lowest."""

    recall: FloatArray
    precision: FloatArray

    @property
    def average_precision(self) -> float:
        """Σ (R_n − R_n−1) · P_n."""
        return float(np.sum(np.diff(self.recall, prepend=0.0) * self.precision))

    def at_recall(self, levels: tuple[float, ...] = RECALL_LEVELS) -> FloatArray:
        """Interpolated precision: the highest at each recall level or beyond it, float64 [levels]."""
        best = np.maximum.accumulate(self.precision[::-1])[::-1]
        return best[np.searchsorted(self.recall, levels)]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types: interpolated precision at 101 recall levels."""
        return {"recall": list(_FINE_LEVELS), "precision": self.at_recall(_FINE_LEVELS).tolist()}


def list_curve(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> Curve:
    """The curve of one ranked list, a point for each place; candidates of equal score keep their order.

    >>> list_curve([3.0, 2.0, 1.0], [True, False, True]).precision.round(2).tolist()
    [1.0, 0.5, 0.67]
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    order = np.argsort(-values, kind="stable")
    return _curve(positive[order], np.arange(len(values)))


def pooled_curve(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> Curve:
    """The curve of a threshold over pairs of any queries, a point for each distinct score.

    >>> pooled_curve([3.0, 2.0, 2.0, 1.0], [True, False, True, False]).recall.tolist()
    [0.5, 1.0, 1.0]
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(values[order][1:] != values[order][:-1], True))
    return _curve(positive[order], ends)


def _curve(relevant: BoolArray, places: npt.NDArray[np.int64]) -> Curve:
    """Recall and precision at some places of a ranked list that has at least one relevant passage."""
    found = np.cumsum(relevant)[places]
    return Curve(found / relevant.sum(), found / (places + 1.0))


def average_precision(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """Mean over the relevant passages of the precision at their places in the list.

    >>> average_precision([0.9, 0.8, 0.7, 0.6], [True, False, True, False])  # (1/1 + 2/3) / 2
    0.8333333333333333
    """
    return list_curve(scores, relevant).average_precision


def roc_auc(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> float | None:
    """How often a relevant passage scores above one that is not, an equal pair counting half.

    None where either kind is missing. From the ranks r of the relevant ones: (Σ r − n (n + 1) / 2) / (n · m).

    >>> roc_auc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    from scipy import stats

    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return None
    ranks = stats.rankdata(values)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))

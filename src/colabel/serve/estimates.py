"""How many labels are missing, and how good the suggestions are."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from colabel.labels.verdicts import Decision, Verdict

_Z = 1.959963984540054  # of a 95 % interval


class Share(msgspec.Struct, frozen=True):
    """A share with Wilson's 95 % interval; ``low`` and ``high`` are 0 and 1 where nothing was counted."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself, NaN where nothing was counted."""
        return self.hits / self.of if self.of else math.nan


def wilson(hits: int, of: int) -> Share:
    """Wilson's score interval, which holds for small counts and for shares near 0 as well.

    >>> share = wilson(1, 10)
    >>> round(share.low, 4), round(share.high, 4)
    (0.0179, 0.4042)
    >>> wilson(0, 0)
    Share(hits=0, of=0, low=0.0, high=1.0)
    """
    if of == 0:
        return Share(0, 0, 0.0, 1.0)
    share, square = hits / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    reach = _Z / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    return Share(hits, of, max(0.0, middle - reach), min(1.0, middle + reach))


class MissingEstimate(msgspec.Struct, frozen=True):
    """Labels that the candidates hold and nobody gave when the run was made.

    Attributes:
        candidates: unlabelled candidates of all queries, N.
        sample: of a random sample of them, how many were found relevant.
        found: how many were found by any way.
        estimate: N · share of the sample; None where nothing of the sample was judged.
        low, high: N · Wilson's interval; never less than was found.
    """

    candidates: int
    sample: Share
    found: int
    estimate: float | None
    low: float
    high: float


def estimate_missing(candidates: int, sampled: Iterable[Decision | None], found: int) -> MissingEstimate:
    """Missing labels from a random sample of the candidates: None is a pair that was not judged, and left out.

    >>> yes, no = (Decision("q", "d", "", said, None, ()) for said in (True, False))
    >>> estimate_missing(100, [yes, no, no, None, no], found=3).estimate
    25.0
    """
    said = [one.relevant for one in sampled if one is not None and one.relevant is not None]
    share = wilson(sum(said), len(said))
    low, high = max(found, candidates * share.low), max(found, candidates * share.high)
    estimate = max(float(found), candidates * share.value) if said else None
    return MissingEstimate(candidates, share, found, estimate, float(low), float(high))


def precision(verdicts: Iterable[Verdict], source: str = "missing") -> Share:
    """Of the suggestions that were decided, how many were right."""
    answers = [one.answer for one in verdicts if one.source == source and one.answer != "unsure"]
    return wilson(answers.count("yes"), len(answers))

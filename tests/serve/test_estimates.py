"""Estimates beside scipy's."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from colabel.labels import Verdict
from colabel.labels.verdicts import Decision
from colabel.serve.estimates import estimate_missing, precision, wilson


@pytest.mark.parametrize(("hits", "of"), [(0, 1), (0, 40), (3, 7), (10, 10), (500, 1000)])
def test_intervals_are_scipys(hits: int, of: int) -> None:
    theirs = binomtest(hits, of).proportion_ci(method="wilson")
    ours = wilson(hits, of)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=1e-9), pytest.approx(theirs.high, abs=1e-9))


def test_missing_labels_are_never_fewer_than_were_found() -> None:
    yes, no, open_ = (Decision("q", "d", "", said, None, ()) for said in (True, False, None))
    found = estimate_missing(1000, [yes, no, no, no, None, open_], found=5)
    assert (found.sample.hits, found.sample.of, found.estimate) == (1, 4, 250.0)
    assert estimate_missing(1000, [no], found=5).estimate == 5.0
    assert estimate_missing(1000, [], found=5) == estimate_missing(1000, [None], found=5)
    assert estimate_missing(1000, [], found=5).estimate is None


def test_precision_counts_suggestions_that_were_decided() -> None:
    said = [("yes", "missing"), ("no", "missing"), ("unsure", "missing"), ("yes", "random"), ("yes", "search")]
    found = precision([Verdict("q", f"d{n}", answer, "ann", source=source) for n, (answer, source) in enumerate(said)])
    assert (found.hits, found.of) == (1, 2)

"""Figures of the overview, by hand."""

from __future__ import annotations

from colabel.labels import Verdict
from colabel.labels.verdicts import Decision
from colabel.serve.overview import estimate_missing, precision


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

"""Measures by hand, and names that are refused."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from colabel.errors import UsageError
from colabel.measures import mean_values, measure_run, parse_measure


def test_measures_agree_on_tied_scores() -> None:
    run = {"q": {"a": 1.0, "b": 1.0}}
    values = mean_values(measure_run({"q": {"a": 1}}, run, ["RR@10", "P@1", "nDCG@1"]))
    assert values == {"RR@10": 0.5, "P@1": 0.0, "nDCG@1": 0.0}, "trec_eval puts b before a"


def test_one_measure_under_two_names() -> None:
    labels, run = {"q": {"a": 2}}, {"q": {"a": 1.0}}
    assert mean_values(measure_run(labels, run, ["RR@10", "MRR@10"])) == {"RR@10": 1.0, "MRR@10": 1.0}
    twice = measure_run(labels, run, ["R@10", "R(rel=2)@10"], relevant_from=2)
    assert mean_values(twice) == {"R@10": 1.0, "R(rel=2)@10": 1.0}


def test_measures_by_hand() -> None:
    labels = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"a": 1}, "q3": {"z": 1}}
    run = {"q1": {"c": 3.0, "b": 2.0, "a": 1.0}, "q2": {"a": 1.0}}
    values = measure_run(labels, run, ["RR@10", "R@2", "nDCG@10"])
    assert values["RR@10"] == {"q1": 0.5, "q2": 1.0, "q3": 0.0}, "a query without an answer counts 0"
    assert values["R@2"]["q1"] == 0.5
    ideal = 2 + 1 / np.log2(3)
    assert values["nDCG@10"]["q1"] == pytest.approx((1 / np.log2(3) + 2 / 2) / ideal)
    assert mean_values(values)["RR@10"] == 0.5
    strict = measure_run(labels, run, ["RR@10", "RR(rel=1)@10"], relevant_from=2)
    assert strict["RR@10"]["q1"] == pytest.approx(1 / 3)
    assert strict["RR(rel=1)@10"]["q1"] == 0.5, "a measure's own cut-off wins"


@pytest.mark.parametrize("name", ["nope", "nDCG@@", "", "RR@ten", "__import__('os')"])
def test_unknown_measures(name: str) -> None:
    with pytest.raises(Exception, match="is not a measure"):
        parse_measure(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nDCG@0", "'cutoff' is 0; expected 1 or more"),
        ("P(rel=0)@5", "'rel' is 0"),
        ("P", "'P' lacks 'cutoff'"),
        ("INST", "lacks 'max_rel'"),
        ("IPrec@7", "recall=7"),
    ],
)
def test_measures_that_cannot_be_computed_are_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parse_measure(name)


def test_expected_reciprocal_rank_takes_any_query_ids() -> None:
    if shutil.which("perl") is None:
        pytest.skip("ir_measures computes ERR with a perl script, and there is no perl")
    values = measure_run({"why me": {"a": 1}, "7": {"b": 1}}, {"why me": {"a": 1.0}}, ["ERR@10"])
    assert values == {"ERR@10": {"why me": pytest.approx(1 / 16), "7": 0.0}}, "(2¹ − 1) / 2⁴ at the first place"

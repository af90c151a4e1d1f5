from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tests.labels.conftest import MakeLabels, Teacher

from colabel.labels import Labels, report_labels


def test_figures_by_hand(make_labels: MakeLabels) -> None:
    """q1: d1 … d4 score 1, 3, 2, 2.5 and d4 is labelled; q2: the same, d1 and d3 are labelled."""
    report = report_labels(make_labels())
    powers = np.exp([1.0, 3.0, 2.0, 2.5])
    p = powers / powers.sum()
    nats = -(p * np.log(p)).sum()
    assert (report.teacher, report.split, report.temperature) == ("table", "train", 1.0)
    assert (report.queries, report.skipped_queries, report.pairs, report.scored) == (2, 2, 8, 8)
    assert (report.labelled, report.feedback, report.hard_negatives, report.empty_positives) == (3, 4, 5, 1)
    assert report.entropy_mean == report.entropy_median == pytest.approx(nats, rel=1e-5)
    assert report.effective_mean == report.effective_median == pytest.approx(np.exp(nats), rel=1e-5)
    assert report.labelled_mass == pytest.approx((p[3] + p[0] + p[2]) / 2, rel=1e-5)
    assert (report.one_hot, report.unscored_queries) == (0, 0)
    assert report.suspect_above == 2, "d2 stands above the labelled passages of both"


def test_a_low_temperature_makes_targets_one_hot(make_labels: MakeLabels) -> None:
    labels = make_labels()
    sharp, flat = report_labels(labels, 0.01), report_labels(labels, 1e6)
    assert (sharp.one_hot, flat.one_hot) == (2, 0)
    assert sharp.entropy_mean == pytest.approx(0, abs=1e-9)
    assert flat.effective_mean == pytest.approx(4, rel=1e-4)
    assert sharp.suspect_above == flat.suspect_above == 2, "scores are not touched by the temperature"


def test_a_tie_with_the_labelled_passage_is_not_above_it(make_labels: MakeLabels) -> None:
    assert report_labels(make_labels(Teacher(dict.fromkeys(range(4), 1.0)))).suspect_above == 0


def test_queries_without_scores_count_in_no_mean(make_labels: MakeLabels) -> None:
    only_d1 = report_labels(make_labels(Teacher({0: 1.0}), name="some"))
    assert (only_d1.scored, only_d1.one_hot, only_d1.labelled_mass) == (2, 2, 0.5)
    assert only_d1.suspect_above == 0, "q1's labelled passage has no score to compare with"
    nothing = report_labels(make_labels(Teacher({}), name="none"))
    assert nothing.unscored_queries == nothing.queries == 2
    assert math.isnan(nothing.entropy_mean)
    assert nothing.as_dict()["entropy_mean"] is None
    json.dumps(nothing.as_dict(), allow_nan=False)


def test_blocks_do_not_matter(make_labels: MakeLabels, monkeypatch: pytest.MonkeyPatch) -> None:
    train = "".join(f"q{number}\td{1 + number % 4}\t1\n" for number in range(1, 1501))
    labels: Labels = make_labels(train=train, queries=1501)
    assert len(list(labels.blocks())) == 2
    report = report_labels(labels)
    above = sum(1 + number % 4 != 2 for number in range(1, 1501))
    assert (report.queries, report.suspect_above) == (1500, above)

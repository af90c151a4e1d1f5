from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colabel.errors import UsageError
from colabel.labels import Flag, Labels, probabilities, report_labels
from colabel.labels.statistics import best_labelled, entropy, missing_ranks
from tests.labels.conftest import MakeLabels, Teacher

NAN, NONE = np.nan, -np.inf

scores = st.floats(-1e4, 1e4, width=32) | st.sampled_from([NAN, NONE])
rows = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 12)), elements=scores)


def test_probabilities_by_hand() -> None:
    teacher = np.array([[0.0, np.log(2.0), NAN, NONE], [NAN, NONE, NONE, NONE], [5.0, NONE, NONE, NONE]])
    assert probabilities(teacher, 1.0) == pytest.approx(np.array([[1 / 3, 2 / 3, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]))
    assert probabilities(teacher, 0.5)[0] == pytest.approx([1 / 5, 4 / 5, 0, 0])
    assert probabilities(teacher, 1.0).dtype == np.float32
    assert probabilities(np.array([[1e4, -1e4]]), 0.001).tolist() == [[1.0, 0.0]], "no overflow"
    with pytest.raises(UsageError, match="temperature is 0; expected a number above 0"):
        probabilities(teacher, 0)


@given(rows, st.sampled_from([0.01, 1.0, 30.0]))
def test_a_row_sums_to_one_and_padding_does_not_matter(teacher: np.ndarray, temperature: float) -> None:
    targets = probabilities(teacher, temperature)
    scored = np.isfinite(teacher)
    assert targets.sum(axis=1) == pytest.approx(scored.any(axis=1).astype(float), abs=1e-5)
    assert (targets[~scored] == 0).all()
    wider = np.concatenate([np.full((len(teacher), 2), NAN), teacher, np.full((len(teacher), 3), NONE)], axis=1)
    assert np.array_equal(probabilities(wider, temperature)[:, 2:-3], targets)


@given(rows)
def test_batch_and_order_of_queries_do_not_matter(teacher: np.ndarray) -> None:
    flags = np.zeros(teacher.shape, np.uint8)
    for function in (lambda part, _: probabilities(part, 1.0), missing_ranks):
        whole = function(teacher, flags)
        alone = [function(teacher[place : place + 1], flags[place : place + 1])[0] for place in range(len(teacher))]
        assert np.array_equal(whole, np.stack(alone))
        assert np.array_equal(function(teacher[::-1], flags), whole[::-1])


def test_entropy_by_hand() -> None:
    found = entropy(np.array([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0], [0.5, 0.25, 0.25, 0]], np.float32))
    assert found == pytest.approx([np.log(4), 0, 1.5 * np.log(2)])
    assert str(found[1]) == "0.0", "not −0"


def test_missing_ranks_by_hand() -> None:
    flags = np.array([[Flag.HARD_NEGATIVE, Flag.LABELLED, Flag.HARD_NEGATIVE | Flag.FEEDBACK, 4, 4, 0]], np.uint8)
    assert missing_ranks(np.array([[2.0, 9.0, 5.0, 2.0, NAN, NONE]]), flags).tolist() == [[2, 0, 1, 3, 0, 0]]
    assert missing_ranks(np.array([[NAN] * 6]), flags).tolist() == [[0] * 6]


@given(rows, st.integers(0, 2**32))
def test_unlabelled_candidates_are_numbered_from_one_by_falling_score(teacher: np.ndarray, seed: int) -> None:
    flags = np.random.default_rng(seed).integers(0, 8, teacher.shape).astype(np.uint8)
    ranks = missing_ranks(teacher, flags)
    for line, row, marks in zip(ranks, teacher, flags, strict=True):
        unlabelled = [
            place for place in range(len(row)) if np.isfinite(row[place]) and not marks[place] & Flag.LABELLED
        ]
        expected = sorted(unlabelled, key=lambda place: (-row[place], place))
        assert [int(place) for place in np.argsort(line, kind="stable") if line[place]] == expected
        assert (line > 0).sum() == len(unlabelled)


def test_best_labelled_by_hand() -> None:
    flags = np.array([[1, 3, 4], [1, 0, 4], [4, 4, 4]], np.uint8)
    teacher = np.array([[1.0, 2.0, 9.0], [NAN, 1.0, 2.0], [1.0, 2.0, 3.0]])
    assert best_labelled(teacher, flags) == pytest.approx([2.0, NAN, NAN], nan_ok=True)


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


def test_blocks_do_not_matter(make_labels: MakeLabels) -> None:
    train = "".join(f"q{number}\td{1 + number % 4}\t1\n" for number in range(1, 1501))
    labels: Labels = make_labels(train=train, queries=1501)
    assert len(list(labels.blocks())) == 2
    report = report_labels(labels)
    above = sum(1 + number % 4 != 2 for number in range(1, 1501))
    assert (report.queries, report.suspect_above) == (1500, above)

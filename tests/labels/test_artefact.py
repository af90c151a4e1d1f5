from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colabel.errors import UsageError
from colabel.labels import Flag, probabilities
from colabel.labels.artefact import best_labelled, missing_ranks

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

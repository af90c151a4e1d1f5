from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colabel.artefacts.arrays import PairTable, pair_keys
from colabel.errors import DataError
from colabel.labels import LabelBlock
from colabel.teachers import DrawnTeacher, StoredTeacher
from colabel.teachers.protocol import Knows

GONE = -np.inf


class FakeLabels:
    """Labels in memory."""

    teacher = "fake"
    fingerprint = "fake"
    folder = Path("labels")

    def blocks(self) -> list[LabelBlock]:
        rows = np.array([[5, 2, 9, -1], [7, 1, -1, -1]], np.int32)
        scores = np.array([[0.5, 0.2, np.nan, GONE], [0.7, 0.1, GONE, GONE]], np.float32)
        return [LabelBlock(["q0", "q1"], rows, scores, scores, np.zeros((2, 4), np.uint8))]


def test_stored_scores_are_looked_up_by_row() -> None:
    """Row 9 is a candidate of q0 without a score, row 3 none of q1's candidates."""
    stored, whole = StoredTeacher(FakeLabels()), StoredTeacher(FakeLabels(), others_irrelevant=True)
    asked = np.array([[1, 7, 3, -1], [9, 5, 2, -1]])
    expected = np.array([[0.1, 0.7, np.nan, GONE], [np.nan, 0.5, 0.2, GONE]], np.float32)
    assert np.array_equal(stored.scores(["q1", "q0"], asked), expected, equal_nan=True)
    expected[0, 2] = GONE
    assert np.array_equal(whole.scores(["q1", "q0"], asked), expected, equal_nan=True)
    assert (stored.name, stored.knows, whole.knows) == ("fake", "candidates", "any")
    assert whole.fingerprint != stored.fingerprint
    with pytest.raises(DataError, match="'q7'"):
        stored.scores(["q7"], np.array([[1]]))


class Counting:
    """A teacher that remembers what it was asked: the score is ten times the query's number and the row."""

    name = "counting"
    fingerprint = "counting"
    knows: Knows = "any"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        self.asked.append(rows.size)
        numbers = np.array([int(query_id[1:]) for query_id in query_ids])
        return (10 * numbers[:, None] + rows).astype(np.float32)


def test_drawn_pairs_are_scored_once() -> None:
    teacher = Counting()
    drawn = DrawnTeacher(teacher, ["q2", "q1", "q2"], np.array([[3, 4], [4, 5], [4, 6]], np.int32), "groups")
    found = drawn.scores(["q1", "q2", "q3"], np.array([[5, 3, -1], [6, 3, 4], [3, 4, 5]]))
    expected = np.array([[15, np.nan, GONE], [26, 23, 24], [np.nan] * 3], np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    assert teacher.asked == [6]
    assert (drawn.name, drawn.knows) == ("counting", "drawn")
    other = DrawnTeacher(teacher, ["q1"], np.array([[4, 5]], np.int32), "others")
    assert other.fingerprint != drawn.fingerprint


pairs = st.tuples(st.integers(0, 50), st.integers(0, 2**31 - 1))


@given(st.dictionaries(pairs, st.floats(-1e6, 1e6, width=32)), st.lists(pairs, min_size=1))
def test_a_pair_table_is_a_dictionary(known: dict[tuple[int, int], float], more: list[tuple[int, int]]) -> None:
    numbers = np.array([*known, *more], np.int64)
    keys = pair_keys(numbers[:, 0], numbers[:, 1])
    values = np.array([*known.values()], np.float32)
    table = PairTable.of(keys[: len(known)], values)
    expected = [known.get(pair, np.nan) for pair in (*known, *more)]
    assert np.array_equal(table.look_up(keys), np.array(expected, np.float32), equal_nan=True)
    assert table.contains(keys).tolist() == [pair in known for pair in (*known, *more)]
    assert not table.contains(pair_keys(np.array([-1, 0]), np.array([0, -1]))).any()

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colabel.errors import UsageError
from colabel.teachers import MeanTeacher, MixedTeacher, Teacher
from colabel.teachers.protocol import Knows

NAN, GONE = np.nan, -np.inf


class Fixed:
    """A teacher with known answers."""

    name = "fixed"
    knows: Knows = "any"

    def __init__(self, scores: object, fingerprint: str = "fixed") -> None:
        self.values = np.array(scores, dtype=np.float32)
        self.fingerprint = fingerprint

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.values


ROWS = np.array([[5, 6, 7, -1]])


def ask(teacher: Teacher, rows: npt.NDArray[np.int64] = ROWS) -> list[float]:
    scores = teacher.scores([f"q{number}" for number in range(len(rows))], rows)
    assert scores.dtype == np.float32
    assert scores.shape == rows.shape
    return scores[0].tolist()  # type: ignore[no-any-return]


def test_mean_by_hand() -> None:
    first, second, third = Fixed([[1, 2, 3, GONE]]), Fixed([[3, 0, NAN, GONE]]), Fixed([[5, 1, 3, GONE]])
    scores = ask(MeanTeacher([first, second, third]))
    assert scores[:2] == [3.0, 1.0]
    assert np.isnan(scores[2]), "one of the three has no score"
    assert scores[3] == GONE
    assert MeanTeacher([first, second]).knows == "any"
    assert MeanTeacher([first, MixedTeacher(first, second)]).knows == "candidates"


def test_mean_fingerprint_and_bad_input() -> None:
    one, two = Fixed([[1]], "one"), Fixed([[1]], "two")
    names = {
        MeanTeacher([one, two]).fingerprint,
        MeanTeacher([one, one]).fingerprint,
        MeanTeacher([one]).fingerprint,
    }
    assert len(names) == 3
    with pytest.raises(UsageError, match="at least one"):
        MeanTeacher([])


def test_mixed_on_the_first_ones_scale_by_hand() -> None:
    """The first's mean is 2 and its deviation 1, so (40, 20) of the second becomes (3, 1)."""
    first, second = Fixed([[1, 3, NAN, GONE]]), Fixed([[40, 20, 30, GONE]])
    scores = ask(MixedTeacher(first, second, 0.75))
    assert scores[:2] == pytest.approx([0.75 * 1 + 0.25 * 3, 0.75 * 3 + 0.25 * 1])
    assert np.isnan(scores[2])
    assert scores[3] == GONE
    assert ask(MixedTeacher(first, second, 1.0))[:2] == [1.0, 3.0], "all of the first is the first"
    assert ask(MixedTeacher(first, second, 0.0))[:2] == pytest.approx([3.0, 1.0])


def test_mixed_fingerprint_and_bad_input() -> None:
    one, two = Fixed([[1]], "one"), Fixed([[1]], "two")
    names = {
        MixedTeacher(one, two).fingerprint,
        MixedTeacher(two, one).fingerprint,
        MixedTeacher(one, two, 0.6).fingerprint,
    }
    assert len(names) == 3
    with pytest.raises(UsageError, match=r"weight of the first teacher is 1\.5"):
        MixedTeacher(one, two, 1.5)


values = st.floats(-1e4, 1e4, width=32) | st.just(np.float32("nan"))
tables = arrays(np.float32, (2, 4), elements=values)


@given(tables, tables, st.floats(0, 1))
def test_mixtures_have_gaps_where_a_part_has_them_and_nowhere_else(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32], weight: float
) -> None:
    rows = np.array([[0, 1, 2, 3], [0, 1, -1, -1]])
    known = (rows >= 0) & ~np.isnan(first) & ~np.isnan(second)
    for teacher in (
        MixedTeacher(Fixed(first), Fixed(second), weight),
        MeanTeacher([Fixed(first), Fixed(second)]),
    ):
        scores = teacher.scores(["a", "b"], rows)
        assert (np.isfinite(scores) == known).all()
        assert (scores[rows < 0] == -np.inf).all()


whole = arrays(np.float32, (2, 4), elements=st.integers(-100, 100).map(float))


@given(whole, whole, st.floats(0, 1), st.floats(0.1, 100), st.floats(-50, 50))
def test_a_mixture_does_not_depend_on_the_seconds_scale(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32], weight: float, factor: float, shift: float
) -> None:
    rows = np.arange(8).reshape(2, 4)
    plain = MixedTeacher(Fixed(first), Fixed(second), weight).scores(["a", "b"], rows)
    scaled = MixedTeacher(Fixed(first), Fixed(second * np.float32(factor) + np.float32(shift)), weight)
    assert scaled.scores(["a", "b"], rows) == pytest.approx(plain, rel=1e-2, abs=1e-1)

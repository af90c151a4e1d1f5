"""What the query encoder is trained from."""

from __future__ import annotations

import numpy as np
import pytest

from colabel.errors import DataError
from colabel.train.query_lists import lessons_for, sharpened

ROWS = np.array([[3, 5, 7, 9, -1], [1, 2, 4, 6, 8]])
QUERIES = {"a": "ice", "b": "water"}
POSITIVES = {"a": [3], "b": [2, 4]}
PHI = np.array([[5.0, 4.0, 3.0, 2.0, 0.0], [9.0, 8.0, 7.0, 5.0, 1.0]], dtype=np.float32)


class Says:
    """A teacher with given scores."""

    name, fingerprint, knows = "says", "says", "candidates"

    def __init__(self, scores: np.ndarray) -> None:
        self._scores = scores

    def scores(self, query_ids: object, rows: np.ndarray) -> np.ndarray:
        return np.where(rows >= 0, self._scores, -np.inf).astype(np.float32)


def taught(teacher: Says) -> np.ndarray:
    return lessons_for(QUERIES, ROWS, PHI, POSITIVES, teacher, label_mass=0.4)["teacher"].target  # type: ignore[arg-type]


def test_hard_labels_share_all_mass_among_the_labelled() -> None:
    lists = lessons_for(QUERIES, ROWS, PHI, POSITIVES, None, label_mass=0.4)["labels"]
    assert lists.target.tolist() == [[1, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0]]


def test_a_teacher_shares_out_what_labels_leave() -> None:
    lists = lessons_for(QUERIES, ROWS, PHI, POSITIVES, Says(PHI), label_mass=0.4)["teacher"]  # type: ignore[arg-type]
    np.testing.assert_allclose(lists.target.sum(axis=1), 1.0, rtol=1e-5)
    assert lists.target[0, 0] == pytest.approx(0.4) and lists.target[1, 1:3].tolist() == pytest.approx([0.2, 0.2])
    assert lists.target[0, 1] > lists.target[0, 2] > lists.target[0, 3] > 0 == lists.target[0, 4]


def test_without_mass_labelled_passages_are_left_out() -> None:
    lessons = lessons_for(QUERIES, ROWS, PHI, POSITIVES, Says(PHI), label_mass=0.0)  # type: ignore[arg-type]
    lists = lessons["teacher"]
    assert list(lessons) == ["teacher"]
    assert lists.rows.tolist() == [[-1, 5, 7, 9, -1], [1, -1, -1, 6, 8]]
    assert (lists.target[lists.rows < 0] == 0).all()
    np.testing.assert_allclose(lists.target.sum(axis=1), 1.0, rtol=1e-5)


def test_labels_are_a_lesson_of_their_own_beside_a_teacher() -> None:
    unknown = {**POSITIVES, "a": []}
    lessons = lessons_for(QUERIES, ROWS, PHI, unknown, Says(PHI), label_mass=0.4)  # type: ignore[arg-type]
    taught, labels = lessons["teacher"], lessons["labels"]
    assert taught.target[0].argmax() == 0 and (taught.target[0, :4] > 0).all(), "no label: the teacher alone"
    assert labels.query_ids == ["b"] and labels.target.tolist() == [[0, 0.5, 0.5, 0, 0]]
    alone = lessons_for({"b": "water"}, ROWS[1:], PHI[1:], POSITIVES, None, label_mass=0.4)["labels"]
    assert alone.fingerprint == labels.fingerprint, "students share the training"
    with pytest.raises(DataError, match="'a'"):
        lessons_for(QUERIES, ROWS, PHI, unknown, None, label_mass=0.4)


def test_neither_scale_nor_offset_of_a_teacher_matters() -> None:
    expected = taught(Says(PHI))
    for factor, offset in ((100.0, 0.0), (0.01, 30.0), (7.0, -3.0)):
        np.testing.assert_allclose(taught(Says(factor * PHI + offset)), expected, atol=1e-4)


def test_the_temperature_is_set_by_the_entropy() -> None:
    scores = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    for share in (0.3, 0.6):
        target = sharpened(scores, np.ones_like(scores, dtype=bool), share)
        entropy = -(target * np.log(np.maximum(target, 1e-300))).sum(axis=1)
        assert entropy.mean() / np.log(50) == pytest.approx(share, abs=0.01)

"""One-shot labels."""

from __future__ import annotations

import numpy as np

from colabel import Bm25, Index
from colabel.teachers.neighbours import NeighbourTeacher


def test_scores_fall_linearly_over_the_neighbours(index: Index, words: Bm25) -> None:
    teacher = NeighbourTeacher(index, words, {"q": [3], "r": [3, 5]}, nearest=8)
    rows = np.arange(len(words.ids))[None]
    (one,), (two,) = teacher.scores(["q"], rows), teacher.scores(["r"], rows)
    assert one[3] == 1.0
    assert (one * 8 == np.round(one * 8)).all()
    assert 1 < (one > 0).sum() <= 9
    assert (two >= one).all() and two[5] == 1.0, "the nearest of several labels counts"
    assert teacher.scores(["q"], np.array([[3, -1]]))[0, 1] == -np.inf
    assert not teacher.scores(["unlabelled"], rows).any()

"""One-shot labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colabel import Index
from colabel.data import Dataset
from colabel.ranking import Bm25
from colabel.settings import RankSettings
from colabel.teachers.neighbours import NeighbourTeacher
from tests.collective.small import small_dataset, small_index


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("by", ["words", "vectors"])
def test_scores_fall_linearly_over_the_neighbours(by: str, dataset: Dataset, index: Index, tmp_path: Path) -> None:
    words = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    teacher = NeighbourTeacher(index, words, {"q": [3], "r": [3, 5]}, by=by, nearest=8)  # type: ignore[arg-type]
    rows = np.arange(len(dataset.passages))[None]
    (one,), (two,) = teacher.scores(["q"], rows), teacher.scores(["r"], rows)
    assert one[3] == 1.0
    assert (one * 8 == np.round(one * 8)).all()
    assert 1 < (one > 0).sum() <= 9
    assert (two >= one).all() and two[5] == 1.0, "the nearest of several labels counts"
    assert teacher.scores(["q"], np.array([[3, -1]]))[0, 1] == -np.inf
    assert not teacher.scores(["unlabelled"], rows).any()

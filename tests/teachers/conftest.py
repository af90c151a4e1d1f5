"""One small collection, its index and BM25 over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from colabel import Bm25, Index
from colabel.data import Dataset
from colabel.settings import RankSettings
from tests.collective.small import small_dataset, small_index


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="session")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def words(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Bm25:
    return Bm25(dataset.passages, RankSettings(), tmp_path_factory.mktemp("bm25") / "bm25")

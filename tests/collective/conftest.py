"""One small collection and its index for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from colabel import Index
from colabel.data import Dataset
from tests.collective.small import small_dataset, small_index


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="session")
def dataset(words: Path) -> Dataset:
    return small_dataset(words)


@pytest.fixture(scope="session")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))

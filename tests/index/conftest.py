"""One small index for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from colabel import Index, build_index, load_dataset
from colabel.data import Dataset
from colabel.index.ivf import IvfIndex, build_ivf
from tests.index.small import encoder_settings, write_corpus


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(str(write_corpus(tmp_path_factory.mktemp("data") / "words", 400)))


@pytest.fixture(scope="session")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    out = tmp_path_factory.mktemp("index") / "exact"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colabel.index.store.BLOCK_PASSAGES", 90)
        return build_index(dataset, out, encoder=encoder_settings(tiny_model))


@pytest.fixture(scope="session")
def ivf(index: Index, tmp_path_factory: pytest.TempPathFactory) -> IvfIndex:
    out = tmp_path_factory.mktemp("ivf") / "ivf"
    build_ivf(index.store, out)
    found = IvfIndex(out, index.store)
    found.token_depth, found.candidates = 512, 100
    return found

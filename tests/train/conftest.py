"""The small collection with its rankings, and the tiny encoder made into a ColBERT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from colabel.data import load_dataset
from colabel.encode import prepare_encoder
from colabel.ranking import rank
from colabel.settings import EncoderSettings
from tests.train.small import ENCODER, Small, Spread, write_collection


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from more, and threads that wait for each other lose much beside other programs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Small:
    folder = tmp_path_factory.mktemp("small")
    dataset = load_dataset(str(write_collection(folder / "data")), cache=folder / "cache")
    settings = EncoderSettings(model=str(tiny_model), **ENCODER)
    prepare_encoder(settings, dataset.passages, folder / "encoder")
    ranker = Spread(dataset)
    train = rank(ranker, dataset.split_queries("train"), folder / "train", depth=20)
    dev = rank(ranker, dataset.split_queries("dev"), folder / "dev", depth=40)
    return Small(folder, dataset, folder / "encoder", train, dev)

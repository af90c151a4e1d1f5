"""A tiny collection of random words with labels, its index, and settings that fit it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from colabel import Index, build_index, load_dataset
from colabel.data import Dataset
from colabel.settings import CollectiveSettings, DataSettings, EncoderSettings
from tests.conftest import WORDS

SETTINGS = CollectiveSettings(feedback="labelled", clusters=6, centroids=4, beta=1.0)


def small_encoder(model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu")


def small_dataset(folder: Path) -> Dataset:
    random = np.random.default_rng(0)
    passages = [" ".join(random.choice(WORDS, size=random.integers(2, 18))) for _ in range(150)]
    passages[7] = ""
    lines = [json.dumps({"_id": f"p{number:03d}", "text": text}) for number, text in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [json.dumps({"_id": f"q{number}", "text": " ".join(random.choice(WORDS, 4))}) for number in range(30)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (folder / "qrels").mkdir()
    for split, numbers in (("train", range(12)), ("dev", range(12, 20)), ("test", range(20, 30))):
        rows = [f"q{number}\tp{(7 if number == 3 else number * 3):03d}\t1" for number in numbers]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return load_dataset(DataSettings(source=str(folder)), cache=folder / "cache")


def small_index(dataset: Dataset, model: Path, folder: Path) -> Index:
    return build_index(dataset, folder / "index", encoder=small_encoder(model))

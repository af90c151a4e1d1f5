"""A tiny collection of random words, and what tests of an index ask of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from colabel import Index
from colabel.data import Dataset
from colabel.index.store import TokenStore
from colabel.settings import EncoderSettings
from tests.conftest import WORDS


def encoder_settings(model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu")


def write_corpus(folder: Path, passages: int) -> Path:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(passages):
            text = " ".join(generator.choice(WORDS, size=generator.integers(2, 18)))
            file.write(json.dumps({"_id": f"p{number:04d}", "text": "" if number == 7 else text}) + "\n")
    queries = [{"_id": f"q{number}", "text": " ".join(generator.choice(WORDS, size=4))} for number in range(20)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return folder


def queries(index: Index, dataset: Dataset) -> torch.Tensor:
    return index.encoder.encode_queries(list(dataset.queries.values())).vectors


def loop_scores(index: Index, query: torch.Tensor) -> np.ndarray:
    """Eq. (1), one multiplication at a time."""
    scores = []
    for row in range(len(index.store)):
        vectors, _ = index.store.vectors([row])
        if not len(vectors):
            scores.append(-np.inf)
            continue
        total = 0.0
        for token in query.numpy().astype(np.float64):
            total += max(float(sum(a * b for a, b in zip(token, stored, strict=True))) for stored in vectors)
        scores.append(total)
    return np.array(scores)


def probes(store: TokenStore) -> torch.Tensor:
    """Means of a few stored tokens of one passage, as k-means would give them."""
    parts = [store.vectors([row])[0] for row in range(100, 130)]
    return torch.from_numpy(np.stack([vectors[len(vectors) // 2 :].mean(axis=0) for vectors in parts]))

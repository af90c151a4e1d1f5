"""A world small enough to compute by hand: five passages of two dimensions, a ranking, a teacher with known scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from colabel.collective import Centroids
from colabel.data import Dataset, load_dataset
from colabel.data.string_table import StringTable
from colabel.labels import Labels, label
from colabel.maxsim import TokenShard, plain, score_rows
from colabel.ranking import rank
from colabel.ranking.rankings import Ranking
from colabel.settings import CollectiveSettings, LabelSettings
from colabel.teachers.protocol import Knows

PASSAGES = {
    "d1": [[1.0, 0.0]],
    "d2": [[0.8, 0.6]],
    "d3": [[0.6, 0.8], [0.0, -1.0]],
    "d4": [[0.0, 1.0]],
    "d5": [],  # empty: no tokens
}
"""Token vectors. With the query [[1, 0]], φ of d1 … d4 is 1, 0.8, 0.6 and 0."""


class Store:
    def __init__(self) -> None:
        self.ids = StringTable.of(PASSAGES)
        lengths = [len(tokens) for tokens in PASSAGES.values()]
        self._offsets = np.cumsum([0, *lengths]).astype(np.int64)
        self._vectors = np.array([token for tokens in PASSAGES.values() for token in tokens], dtype=np.float32)
        self.shards = (
            TokenShard(plain(self._vectors[:2]), self._offsets[:3]),
            TokenShard(plain(self._vectors[2:]), self._later, 2),
        )

    @property
    def _later(self) -> npt.NDArray[np.int64]:
        return self._offsets[2:] - self._offsets[2]

    def lengths(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(rows >= 0, np.diff(self._offsets)[np.maximum(rows, 0)], 0)

    def score(self, queries: torch.Tensor, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return score_rows(queries, self.shards, rows).numpy()

    def vectors(self, rows: Sequence[int]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        parts = [self._vectors[self._offsets[row] : self._offsets[row + 1]] for row in rows]
        return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


class Encoder:
    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        return [f"piece{token}" for token in token_ids]


class Index:
    def __init__(self, passages: str) -> None:
        self.store = Store()
        self.encoder = Encoder()
        self._passages = passages

    def check_collection(self, passages: Any) -> None:
        if passages.fingerprint != self._passages:
            from colabel.errors import DataError

            raise DataError("the collection is another one")


class Queries:
    """Every query is [[1, 0]]."""

    def vectors(self, query_ids: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]).repeat(len(query_ids), 1, 1)

    def lengths(self, query_ids: Sequence[str]) -> torch.Tensor:
        return torch.ones(len(query_ids), dtype=torch.int64)


class Ranker:
    """Ranks d1, d2, d3, d4 for every query."""

    name = "fixed"
    fingerprint = "fixed"

    def __init__(self) -> None:
        self.ids = StringTable.of(PASSAGES)

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        rows = np.array([0, 1, 2, 3, -1])[:depth]
        scores = np.array([1.0, 0.8, 0.6, 0.0, -np.inf], dtype=np.float32)[:depth]
        return np.tile(rows, (len(texts), 1)), np.tile(scores, (len(texts), 1))


SETTINGS = CollectiveSettings(feedback="top", feedback_passages=4, beta=0.5, expansion_scale="paper")


@dataclass
class Knowledge:
    folder: Path
    index: Index
    ranking: Ranking
    split: str = "train"
    fingerprint: str = "knowledge"
    labelled_fingerprint: str | None = None
    settings: CollectiveSettings = SETTINGS
    queries: Queries = field(default_factory=Queries)

    def feedback(self, query_ids: Sequence[str]) -> npt.NDArray[np.int32]:
        return np.tile(np.array([1, 3, -1], dtype=np.int32), (len(query_ids), 1))

    def centroids(self, query_ids: Sequence[str]) -> Centroids:
        """Two centroids, [0, 1] with σ = 2 and [1, 0] with σ = 1, and an unused place."""
        count = len(query_ids)
        vectors = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]]).repeat(count, 1, 1)
        sigma = torch.tensor([[2.0, 1.0, 0.0]]).repeat(count, 1)
        return Centroids(vectors, sigma, np.tile(np.array([7, 8, -1], dtype=np.int32), (count, 1)))


class Teacher:
    """Scores rows by a table; remembers what it was asked."""

    name = "table"
    knows: Knows = "any"

    def __init__(self, scores: Mapping[int, float] | None = None) -> None:
        self.table = {0: 1.0, 1: 3.0, 2: 2.0, 3: 2.5} if scores is None else dict(scores)
        self.fingerprint = f"table {sorted(self.table.items())}"
        self.asked: list[str] = []

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        self.asked += query_ids
        table = np.array([self.table.get(row, np.nan) for row in range(len(PASSAGES))] + [-np.inf], dtype=np.float32)
        return table[rows]


MakeWorld = Callable[..., tuple[Dataset, Knowledge]]
MakeLabels = Callable[..., Labels]

TRAIN = "q1\td4\t1\nq1\td2\t0\nq2\td1\t2\nq2\td3\t1\nq3\td5\t1\nq4\td1\t0\n"
"""q1's positive d4 lies beyond the top 2, q3's only one is empty, q4 has none."""


@pytest.fixture
def make_world(write_beir: Callable[..., Path], tmp_path: Path) -> MakeWorld:
    """A dataset (queries q1 … qN) and its knowledge."""

    def make(train: str = TRAIN, queries: int = 5, name: str = "small", depth: int = 5) -> tuple[Dataset, Knowledge]:
        texts = {passage: f"text of\t{passage}" if tokens else "" for passage, tokens in PASSAGES.items()}
        folder = write_beir(
            name,
            corpus="".join(json.dumps({"_id": key, "title": "", "text": text}) + "\n" for key, text in texts.items()),
            queries="".join(json.dumps({"_id": f"q{n}", "text": f"query {n}"}) + "\n" for n in range(1, queries + 1)),
            qrels__train=train,
            qrels__dev=f"q{queries}\td1\t1\n",
            qrels__test=None,
        )
        dataset = load_dataset(str(folder))
        place = tmp_path / f"{name}-knowledge"
        ranking = rank(Ranker(), dataset.split_queries("train"), place / "ranking", depth=depth)
        return dataset, Knowledge(place, Index(dataset.passages.fingerprint), ranking)

    return make


@pytest.fixture
def make_labels(make_world: MakeWorld, tmp_path: Path) -> MakeLabels:
    """Labels of the small world; ``labels.dataset`` and ``labels.knowledge`` are beside them."""

    def make(teacher: Teacher | None = None, candidates: int = 4, name: str = "small", **world: Any) -> Labels:
        dataset, knowledge = make_world(name=name, **world)
        settings = LabelSettings(candidates=candidates)
        labels = label(knowledge, dataset, teacher or Teacher(), tmp_path / f"{name}-labels", settings=settings)  # type: ignore[arg-type]
        labels.dataset, labels.knowledge = dataset, knowledge  # type: ignore[attr-defined]
        return labels

    return make

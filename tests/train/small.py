"""A collection of ten queries and a ranker for it, shared by the training tests and the programs that they start."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.data import Dataset
from colabel.data.string_table import StringTable
from colabel.ranking import Ranking
from colabel.teachers.protocol import Knows

NOUNS = "cave glacier ice water tunnels fjord inlet harbour summer season".split()  # noqa: SIM905
ENCODER = {"dimension": 16, "query_length": 12, "passage_length": 24}


@dataclass(frozen=True)
class Small:
    """What a training test needs."""

    folder: Path
    dataset: Dataset
    encoder: Path
    train: Ranking
    dev: Ranking


def write_collection(folder: Path) -> Path:
    """Ten queries, each with a positive that shares no word with it: only training can bring them together."""
    choose = random.Random(0)
    folder.mkdir(parents=True)
    (folder / "qrels").mkdir()
    passages = [
        " ".join(choose.choice(NOUNS) for _ in range(choose.randint(3, 14))) + (", of." if number % 3 else "")
        for number in range(40)
    ]
    lines = [json.dumps({"_id": f"d{number}", "title": "", "text": text}) for number, text in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = {f"q{number}": f"what is {noun} made by" for number, noun in enumerate(NOUNS)}
    queries |= {f"v{number}": f"how are {noun} formed" for number, noun in enumerate(NOUNS)}
    lines = [json.dumps({"_id": query, "text": text}) for query, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    head = "query-id\tcorpus-id\tscore\n"
    train = [f"q{number}\td{3 * number}\t1\n" for number in range(10)] + ["q0\td1\t1\n"]
    dev = [f"v{number}\td{3 * number}\t1\n" for number in range(10)]
    (folder / "qrels" / "train.tsv").write_text(head + "".join(train))
    (folder / "qrels" / "dev.tsv").write_text(head + "".join(dev))
    return folder


class Spread:
    """A ranker that gives each query all passages in an order of its own, with falling scores."""

    name = "spread"
    fingerprint = "spread"

    def __init__(self, dataset: Dataset) -> None:
        self.ids: StringTable = dataset.passages.ids

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        orders = [np.random.default_rng(len(text)).permutation(len(self.ids))[:depth] for text in texts]
        scores = np.linspace(10, 1, depth, dtype=np.float32)
        return np.stack(orders).astype(np.int64), np.tile(scores, (len(texts), 1))


class Overlap:
    """A teacher: how many words a passage shares with the query, and a little for being short."""

    name = "overlap"
    fingerprint = "overlap"
    knows: Knows = "any"

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        for place, query_id in enumerate(query_ids):
            words = self._dataset.queries[query_id].split()
            for column, row in enumerate(rows[place].tolist()):
                if row >= 0:
                    text = self._dataset.passages[row].full_text.split()
                    scores[place, column] = sum(text.count(word) for word in words) - 0.1 * len(text)
        return scores


class Silent(Overlap):
    """The same, and it says nothing of some queries."""

    def __init__(self, dataset: Dataset, queries: Collection[str]) -> None:
        super().__init__(dataset)
        self._unknown = queries

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        scores = super().scores(query_ids, rows)
        scores[[query_id in self._unknown for query_id in query_ids]] = np.nan
        return scores

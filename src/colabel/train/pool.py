"""Candidates of every training query: its labelled positives, and the passages from which negatives are drawn.

Rows of candidates stay on disk, in the blocks of the ranking that they come from: a pool of half a million queries with
1,000 candidates each would be 4 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.data import Dataset
from colabel.data.splits import TRAIN
from colabel.data.strings import StringTable
from colabel.errors import DataError
from colabel.index.store import allow_open_files
from colabel.ranking import Ranking

Rows = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Candidates:
    """rows int32 and scores float32, both [queries, count], mapped from disk."""

    rows: Rows
    scores: Scores


@dataclass(frozen=True)
class Pool:
    """Where groups are drawn from.

    Attributes:
        query_ids: queries with a positive, by query number.
        positives: rows of each query's visible positives, rising.
        passages: how many the collection has.
        empty_positives: labelled passages without text, which were left out.
        unranked: queries with a positive that have no candidates at all.
        fingerprint: names all that the pool depends on.
    """

    query_ids: Sequence[str]
    positives: Sequence[Rows]
    passages: int
    empty_positives: int
    unranked: int
    fingerprint: str
    _blocks: Sequence[_Candidates]
    _places: npt.NDArray[np.int32]
    _depth: int

    def __len__(self) -> int:
        return len(self.query_ids)

    def candidates(self, number: int) -> tuple[Rows, Scores]:
        """Rows and scores (φ or BM25) of a query's candidates in their order, labelled positives among them."""
        block, line = self._places[number]
        if block < 0:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        rows = np.asarray(self._blocks[block].rows[line, : self._depth])
        kept = rows >= 0
        return rows[kept], np.asarray(self._blocks[block].scores[line, : self._depth])[kept]

    def negatives(self, number: int) -> tuple[Rows, Scores]:
        """The same without labelled positives."""
        rows, scores = self.candidates(number)
        kept = ~np.isin(rows, self.positives[number])
        return rows[kept], scores[kept]


def pool_from_ranking(dataset: Dataset, ranking: Ranking, *, depth: int, split: str = TRAIN) -> Pool:
    """The top ``depth`` of a ranking (BM25's or θ's) as candidates of the queries of a split."""
    check_collection(dataset, ranking.passage_ids, str(ranking.folder))
    allow_open_files(2 * int(ranking.manifest.counts["blocks"]) + 256)
    blocks, places = [], {}
    for number, (query_ids, rows, scores) in enumerate(ranking.blocks()):
        blocks.append(_Candidates(rows, scores))
        places.update({query_id: (number, line) for line, query_id in enumerate(query_ids)})
    positives, empty = _positive_rows(dataset, split)
    query_ids = sorted(positives)  # so that the order of the label file does not matter
    found = [places.get(query_id, (-1, -1)) for query_id in query_ids]
    names = {
        "ranking": ranking.manifest.fingerprint,
        "depth": depth,
        "labels": dataset.labels_fingerprint(split),
        "passages": dataset.passages.fingerprint,
        "split": split,
    }
    return Pool(
        query_ids=query_ids,
        positives=[positives[query_id] for query_id in query_ids],
        passages=len(dataset.passages),
        empty_positives=empty,
        unranked=sum(block < 0 for block, _ in found),
        fingerprint=fingerprint(names),
        _blocks=blocks,
        _places=np.array(found, dtype=np.int32).reshape(-1, 2),
        _depth=depth,
    )


def _positive_rows(dataset: Dataset, split: str) -> tuple[dict[str, Rows], int]:
    """Query id → rows of its visible positives that have a text, and how many have none."""
    positives = dataset.positives(split)
    found: dict[str, Rows] = {}
    empty = 0
    for query_id, passages in positives.items():
        rows = np.sort(dataset.passages.rows(passages)).astype(np.int32)
        filled = [row for row in rows.tolist() if dataset.passages[row].full_text]
        empty += len(rows) - len(filled)
        if filled:
            found[query_id] = np.array(filled, dtype=np.int32)
    if not found:
        raise DataError(
            f"no query of the split '{split}' of {dataset.name} has a relevant passage (grade {dataset.relevant_from} "
            "or higher) with a text; there is nothing to train on"
        )
    return found, empty


def check_collection(dataset: Dataset, ids: StringTable, folder: str) -> None:
    """Refuse candidates whose rows mean other passages than the dataset's."""
    ours = dataset.passages.ids
    sample = range(0, len(ours), max(1, len(ours) // 100))
    if len(ids) != len(ours) or any(ids[row] != ours[row] for row in sample):
        raise DataError(f"{folder} was made from another collection than {dataset.name}; make it again from this one")

"""Which queries a training run shows with which passages, and what of them the model sees.

- :class:`Candidates`: every training query's labelled positives, and the top of a ranking from which its negatives are
  drawn.
- :class:`Groups`: for every step, queries with a positive and n negatives each, drawn once from a seed. An epoch visits
  every query once, in an order of its own; a query with several positives shows them in turn. A longer run starts with
  the groups of a shorter one, so an expensive teacher can score all pairs before training starts.
- :class:`GroupTexts`, :func:`collator_for`: texts are read when their step comes and tokenised as for searching. A
  group's label is a row of integers, [query number, passage rows …], which the trainer hands through to the loss: with
  it the loss finds teacher scores and known positives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import MultiVectorEncoder
from torch.utils.data import Dataset as TorchDataset

from colabel.artefacts import fingerprint
from colabel.artefacts.arrays import PairTable, pair_keys
from colabel.data import Dataset
from colabel.data.splits import TRAIN
from colabel.data.string_table import StringTable
from colabel.errors import DataError, UsageError
from colabel.ranking import Ranking
from colabel.ranking.labelled_pieces import positive_rows
from colabel.settings import DistilSettings, TrainSettings
from colabel.teachers.guarded import trusted_rows
from colabel.types import FloatArray, IntArray

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.int32]

QUERY, PASSAGE = "query", "passage"
"""The two columns of a batch."""


@dataclass(frozen=True)
class Candidates:
    """Where groups are drawn from.

    Rows of candidates stay on disk, in the ranking that they come from: half a million queries with 1,000 candidates
    each would be 4 GB.

    Attributes:
        query_ids: queries with a positive, by query number.
        positives: rows of each query's visible positives, rising.
        labelled: the same with all pieces of documents that are in pieces: never negatives.
        passages: how many the collection has.
        empty_positives: labelled passages without text, which were left out.
        unranked: queries with a positive that the ranking does not hold.
        trusted: query number → rows of passages that people found not relevant.
    """

    query_ids: Sequence[str]
    positives: Sequence[Rows]
    labelled: Sequence[Rows]
    passages: int
    empty_positives: int
    unranked: int
    fingerprint: str
    _ranking: Ranking
    _depth: int
    trusted: Mapping[int, Rows] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.query_ids)

    def ranked(self, number: int) -> tuple[Rows, FloatArray]:
        """Rows and scores (φ or BM25) of a query's candidates in their order, labelled positives among them."""
        if self._ranking.query_ids.row(self.query_ids[number]) < 0:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        rows, scores = self._ranking.query(self.query_ids[number])
        return rows[: self._depth], scores[: self._depth]

    def negatives(self, number: int) -> Rows:
        """Rows of the candidates that are not labelled."""
        rows, _ = self.ranked(number)
        return rows[~np.isin(rows, self.labelled[number])]


def candidates_from_ranking(dataset: Dataset, ranking: Ranking, *, depth: int, split: str = TRAIN) -> Candidates:
    """The top ``depth`` of a ranking (BM25's or θ's) as candidates of the queries of a split."""
    check_collection(dataset, ranking.passage_ids, str(ranking.folder))
    positives, empty = _positive_rows(dataset, split)
    query_ids = sorted(positives)  # so that the order of the label file does not matter
    judged = trusted_rows(dataset) if split == TRAIN else {}
    trusted = {place: _filled(dataset, sorted(judged[one])) for place, one in enumerate(query_ids) if one in judged}
    names = {
        "ranking": ranking.manifest.fingerprint,
        "depth": depth,
        "labels": dataset.labels_fingerprint(split),
        "passages": dataset.passages.fingerprint,
        "split": split,
    }
    return Candidates(
        query_ids=query_ids,
        positives=[positives[query_id] for query_id in query_ids],
        labelled=[dataset.passages.ids.all_of(positives[query_id]).astype(np.int32) for query_id in query_ids],
        passages=len(dataset.passages),
        empty_positives=empty,
        unranked=int((ranking.query_ids.rows(query_ids) < 0).sum()),
        fingerprint=fingerprint(names),
        _ranking=ranking,
        _depth=depth,
        trusted=trusted,
    )


def _positive_rows(dataset: Dataset, split: str) -> tuple[dict[str, Rows], int]:
    """Query id → rows of its visible positives that have a text, and how many have none."""
    labelled = positive_rows(dataset, split)
    filled = {query_id: _filled(dataset, rows.tolist()) for query_id, rows in labelled.items()}
    found = {query_id: rows for query_id, rows in filled.items() if len(rows)}
    if not found:
        raise DataError(
            f"no query of the split '{split}' of {dataset.name} has a relevant passage (grade {dataset.relevant_from} "
            "or higher) with a text; there is nothing to train on"
        )
    return found, sum(map(len, labelled.values())) - sum(map(len, found.values()))


def _filled(dataset: Dataset, rows: Sequence[int]) -> Rows:
    """Those of some rows that have a text."""
    return np.array([row for row in rows if dataset.passages[row].full_text], dtype=np.int32)


def check_collection(dataset: Dataset, ids: StringTable, folder: str) -> None:
    """Refuse candidates whose rows mean other passages than the dataset's."""
    ours = dataset.passages.ids
    sample = range(0, len(ours), max(1, len(ours) // 100))
    if len(ids) != len(ours) or any(ids[row] != ours[row] for row in sample):
        raise DataError(f"{folder} was made from another collection than {dataset.name}; make it again from this one")


@dataclass(frozen=True)
class Groups:
    """All groups of a run in their order.

    Attributes:
        queries: int32 [count], query numbers of the candidates.
        rows: int32 [count, 1 + n], passage rows, the positive first.
        filled: negatives that were drawn from the whole collection because a query had too few candidates.
    """

    queries: Rows
    rows: Rows
    filled: int
    candidates: Candidates
    fingerprint: str

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def size(self) -> int:
        """Passages of a group, 1 + n."""
        return int(self.rows.shape[1])

    @property
    def query_ids(self) -> list[str]:
        """The query of each group, [count]."""
        return [self.candidates.query_ids[number] for number in self.queries.tolist()]

    def pairs(self) -> DrawnPairs:
        """Which pairs are drawn: for :func:`colabel.labels.label`, so that an expensive teacher scores no others."""
        return DrawnPairs(self)


def groups_for(candidates: Candidates, settings: TrainSettings | DistilSettings, seed: int) -> Groups:
    """The groups of a whole run by its settings; the same for every teacher."""
    count = settings.steps * settings.batch_queries
    groups = draw_groups(candidates, count=count, size=settings.passages, seed=seed)
    if groups.filled:
        log.info("%s negatives come from the whole collection: some queries have too few candidates", groups.filled)
    return groups


def draw_groups(candidates: Candidates, *, count: int, size: int, seed: int, anywhere: int = 0) -> Groups:
    """Draw ``count`` groups of ``size`` passages.

    Negatives are drawn without replacement, labelled positives never. Up to half of them are trusted ones, where a
    query has any. ``anywhere`` of each group come from the whole collection, the others from the query's candidates.
    Where these are too few, all are taken and the rest comes from the whole collection, too.
    """
    if candidates.passages < size - 1 + max(len(rows) for rows in candidates.labelled):
        raise UsageError(
            f"a group has {size} passages, and the collection has {candidates.passages}; choose smaller groups"
        )
    queries = np.empty(count, np.int32)
    rows = np.empty((count, size), np.int32)
    done = epoch = filled = 0
    wanted = size - 1 - anywhere
    while done < count:
        random = np.random.default_rng([seed, epoch])
        for number in random.permutation(len(candidates))[: count - done].tolist():
            positives, negatives = candidates.positives[number], candidates.negatives(number)
            trusted = candidates.trusted.get(number, negatives[:0])
            if len(trusted):
                trusted = random.permutation(trusted)[: (wanted + 1) // 2]
                negatives = negatives[~np.isin(negatives, trusted)]
            if len(negatives) > wanted - len(trusted):
                negatives = random.choice(negatives, wanted - len(trusted), replace=False)
            negatives = np.concatenate([trusted, negatives])
            missing = wanted - len(negatives)
            others = _from_anywhere(candidates, number, negatives, missing + anywhere, random)
            queries[done] = number
            rows[done] = [positives[(number + epoch) % len(positives)], *negatives, *others]
            filled += missing
            done += 1
        epoch += 1
    names = {"pool": candidates.fingerprint, "count": count, "size": size, "seed": seed}
    if anywhere:
        names["anywhere"] = anywhere
    return Groups(queries, rows, filled, candidates, fingerprint(names))


def _from_anywhere(
    candidates: Candidates, number: int, taken: Rows, missing: int, random: np.random.Generator
) -> list[int]:
    """Rows of the whole collection that are neither labelled nor taken nor, if possible, candidates."""
    if not missing:
        return []
    avoided = {*candidates.labelled[number].tolist(), *candidates.ranked(number)[0].tolist(), *taken.tolist()}
    if candidates.passages - len(avoided) < missing:
        avoided = {*candidates.labelled[number].tolist(), *taken.tolist()}
    found: list[int] = []
    while len(found) < missing:
        row = int(random.integers(candidates.passages))
        if row not in avoided:
            avoided.add(row)
            found.append(row)
    return found


class DrawnPairs:
    """The pairs that a run will draw, as a choice of pairs for labelling."""

    def __init__(self, groups: Groups) -> None:
        self.fingerprint = fingerprint({"groups": groups.fingerprint})
        self._numbers = {query_id: number for number, query_id in enumerate(groups.candidates.query_ids)}
        self._pairs = _pair_set(groups.queries[:, None], groups.rows)

    def __len__(self) -> int:
        """How many distinct pairs are drawn."""
        return len(self._pairs)

    def __call__(self, query_ids: Sequence[str], rows: IntArray, flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Bool [queries, candidates]: True where the pair is drawn. ``flags`` do not matter."""
        numbers = np.array([self._numbers.get(query_id, -1) for query_id in query_ids], dtype=np.int64)
        return self._pairs.contains(pair_keys(numbers[:, None], rows))


class KnownPositives:
    """Rows of the passages that visible labels call relevant, by query number."""

    def __init__(self, rows: Sequence[npt.NDArray[np.integer]]) -> None:
        owners = np.repeat(np.arange(len(rows)), [len(line) for line in rows])
        self._pairs = _pair_set(owners, np.concatenate([np.zeros(0, np.int64), *rows]))

    def excluded(self, queries: IntArray, rows: IntArray, positive: IntArray) -> npt.NDArray[np.bool_]:
        """Bool [B, P]: pairs of query numbers [B] and rows [B, P] that take no part in a query's distribution.

        These are other copies of the positive, and other passages known to be relevant. The query's own positive, in
        the column ``positive`` [B], takes part.
        """
        own = np.take_along_axis(rows, positive[:, None], axis=1)
        left_out: npt.NDArray[np.bool_] = (rows == own) | self._pairs.contains(pair_keys(queries[:, None], rows))
        np.put_along_axis(left_out, positive[:, None], False, axis=1)
        return left_out


def _pair_set(queries: npt.NDArray[np.integer], rows: npt.NDArray[np.integer]) -> PairTable:
    keys = pair_keys(queries.astype(np.int64), rows.astype(np.int64))
    return PairTable.of(keys, np.ones(keys.shape, np.float32))


class GroupTexts(TorchDataset[dict[str, Any]]):
    """Group number → query text, passage texts and label. Only the groups are held in memory."""

    column_names = (QUERY, PASSAGE, "label")  # the trainer asks for them

    def __init__(self, dataset: Dataset, groups: Groups) -> None:
        self._dataset = dataset
        self._groups = groups

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, number: int) -> dict[str, Any]:
        query = int(self._groups.queries[number])
        rows = self._groups.rows[number].tolist()
        return {
            QUERY: self._dataset.queries[self._groups.candidates.query_ids[query]],
            PASSAGE: [self._dataset.passages[row].full_text for row in rows],
            "label": [query, *rows],
        }


def collator_for(model: MultiVectorEncoder) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """Makes a batch of features of a list of groups, with the model's own prompts, which the trainer would leave out.

    ``query_*`` are features of B queries, ``passage_*`` of B·(1 + n) passages, group after group, ``label`` int64
    [B, 2 + n]. All passages are one column: many small forward passes are slower than one.
    """

    def collate(groups: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {"label": torch.tensor([group["label"] for group in groups], dtype=torch.int64)}
        queries = [group[QUERY] for group in groups]
        passages = [text for group in groups for text in group[PASSAGE]]
        for column, task, texts in ((QUERY, "query", queries), (PASSAGE, "document", passages)):
            features = model.preprocess(texts, prompt=model.prompts.get(task) or "", task=task)
            batch |= {f"{column}_{name}": value for name, value in features.items()}
            batch[f"{column}_task"] = task
        return batch

    return collate

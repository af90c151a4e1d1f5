"""Labelled queries with their ranking, a block at a time: what labels are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colabel.collective.centroids import labels_used
from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels.artefact import BLOCK
from colabel.settings import LabelSettings

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranked:
    """Queries of a block: their top candidates, φ of them, and the rows of their positives."""

    query_ids: list[str]
    rows: npt.NDArray[np.int32]
    base: npt.NDArray[np.float32]
    positives: list[IntArray]


class LabelledQueries:
    """Labelled queries in the order of the ranking, a block at a time; counts what it leaves out."""

    def __init__(self, knowledge: Knowledge, dataset: Dataset, candidates: int) -> None:
        self.skipped_queries = 0
        self.empty_positives = 0
        self._ranking = knowledge.ranking
        self._dataset = dataset
        self._labels = dataset.labels(knowledge.split)
        self._candidates = candidates
        self._store = knowledge.index.store

    def __len__(self) -> int:
        return len(self._ranking)

    def __iter__(self) -> Iterator[Ranked]:
        pending: list[tuple[str, npt.NDArray[np.int32], npt.NDArray[np.float32], IntArray]] = []
        for query_ids, rows, scores in self._ranking.blocks():
            for place, query_id in enumerate(query_ids):
                positives = self._positives(query_id)
                if not len(positives):
                    self.skipped_queries += 1
                    continue
                here = slice(None, self._candidates)
                pending.append((query_id, rows[place, here], scores[place, here], positives))
                if len(pending) == BLOCK:
                    yield _stack(pending)
                    pending = []
        if pending:
            yield _stack(pending)

    def _positives(self, query_id: str) -> IntArray:
        """Rows of a query's visible positives, rising, so that the order of the label file does not matter."""
        grades = self._labels.get(query_id, {})
        wanted = [passage for passage, grade in grades.items() if grade >= self._dataset.relevant_from]
        rows = np.sort(self._dataset.passages.rows(wanted))
        filled: IntArray = rows[self._store.lengths(rows) > 0]
        self.empty_positives += len(rows) - len(filled)
        return filled


def _stack(pending: list[tuple[str, npt.NDArray[np.int32], npt.NDArray[np.float32], IntArray]]) -> Ranked:
    query_ids, rows, base, positives = zip(*pending, strict=True)
    return Ranked(list(query_ids), np.stack(rows), np.stack(base), list(positives))


def check_inputs(knowledge: Knowledge, dataset: Dataset, settings: LabelSettings) -> None:
    """Refuse what does not fit together, before anything is written."""
    labels = dataset.labels(knowledge.split)
    knowledge.index.check_collection(dataset.passages)
    depth = int(knowledge.ranking.manifest.counts["depth"])
    if depth < min(settings.candidates, len(dataset.passages)):
        raise UsageError(
            f"'labels.candidates' is {settings.candidates}, and {knowledge.folder} ranked {depth} passages for each "
            "query; choose at most as many or collect again with a deeper ranking"
        )
    for query_id in labels:
        if knowledge.ranking.query_ids.row(query_id) < 0:
            raise ArtefactError(
                f"{knowledge.folder} knows nothing of query '{query_id}' of the split '{knowledge.split}' of "
                f"{dataset.name}; collect again from this dataset"
            )
    depth = max(settings.candidates, knowledge.settings.feedback_passages)
    first = next(iter(LabelledQueries(knowledge, dataset, depth)), None)
    if first is None:
        raise DataError(
            f"no query of the split '{knowledge.split}' of {dataset.name} has a visible positive (grade "
            f"{dataset.relevant_from} or higher) that is not empty; there is nothing to label"
        )
    _check_feedback(knowledge, dataset)


def _check_feedback(knowledge: Knowledge, dataset: Dataset) -> None:
    """Refuse knowledge that was collected with other labels than the dataset shows.

    A positive that was feedback and is hidden now would make labels that know what they are to find.
    """
    used = knowledge.labelled_fingerprint
    if used is not None and used != labels_used(dataset.positives(knowledge.split)):
        raise ArtefactError(
            f"{knowledge.folder} was collected with other labels than the split '{knowledge.split}' of {dataset.name} "
            "shows; collect again with the same settings, such as data.keep_labels"
        )

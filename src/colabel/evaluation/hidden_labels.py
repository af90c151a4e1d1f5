"""How well labels find the positives that were hidden on purpose. The one place outside ``data`` that reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from colabel.data import Dataset
from colabel.data.splits import TRAIN, hidden_labels, stable_fraction
from colabel.data.string_table import StringTable
from colabel.errors import DataError
from colabel.evaluation.precision_recall import CandidateList, Quality, grades_of, measured_grades, run_lists
from colabel.evaluation.significance import Plain
from colabel.types import Qrels

if TYPE_CHECKING:  # at run time where they are used: they bring torch, which `colabel evaluate` does not need
    from colabel.labels.artefact import LabelBlock, Labels

BASE = "base"
TEACHER = "teacher"


@dataclasses.dataclass(frozen=True)
class LabelQuality(Plain):
    """How the base scores φ and the teacher's scores rank the hidden positives among a query's candidates.

    ``grades`` has the figures for each grade from which passages count as relevant; systems are "base" and "teacher".
    """

    dataset: str
    teacher: str
    grades: dict[int, Quality]


def label_quality(labels: Labels | Iterable[LabelBlock], dataset: Dataset, *, seed: int = 0) -> LabelQuality:
    """Measure labels against the hidden positives of the dataset they were made from.

    The list of a query is its candidates without the labelled ones; hidden positives are relevant in it, all others
    are not. Queries with no hidden positive among their candidates are counted and left out. Pairs that the teacher
    did not score count for neither of the two. On graded labels this is done for each grade as the cut-off.

    Raises:
        DataError: nothing is hidden in the dataset, or blocks were made with other visible labels.
        ArtefactError: the labels were made from another dataset or with other visible labels.
    """
    from colabel.labels.artefact import Labels
    from colabel.labels.export import check_dataset

    hidden = _hidden(dataset)
    if isinstance(labels, Labels):
        if labels.split != TRAIN:
            raise DataError(f"{labels.folder} labels the split '{labels.split}'; only labels of '{TRAIN}' are hidden")
        check_dataset(labels, dataset)
        blocks, ids, teacher = labels.blocks(), labels.passage_ids, labels.teacher
    else:
        blocks, ids, teacher = iter(labels), dataset.passages.ids, TEACHER
    lists = list(_lists(blocks, ids, hidden, dataset))
    grades = measured_grades(lists, grades_of(hidden, dataset.relevant_from), seed)
    if not grades:
        raise DataError(
            f"no hidden positive of {dataset.name} is among the candidates of the labels; label more candidates "
            "(labels.candidates)"
        )
    return LabelQuality(dataset.name, teacher, grades)


@dataclasses.dataclass(frozen=True)
class SuggestionPrecision:
    """The best suggestions of a missing-label report against hidden labels.

    ``multiple`` × queries suggestions are wanted; ``suggestions`` of them exist, ``found`` are hidden positives.
    """

    multiple: float
    suggestions: int
    found: int
    hidden: int

    @property
    def precision(self) -> float | None:
        """The share of the suggestions that are hidden positives; None without a suggestion."""
        return self.found / self.suggestions if self.suggestions else None

    @property
    def recall(self) -> float:
        """The share of the hidden positives that are among the suggestions."""
        return self.found / self.hidden

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**dataclasses.asdict(self), "precision": self.precision, "recall": self.recall}


def suggestion_precision(
    suggestions: Sequence[tuple[str, str | int]],
    dataset: Dataset,
    *,
    queries: int | None = None,
    multiples: Sequence[float] = (1, 2, 5),
) -> list[SuggestionPrecision]:
    """Precision of suspected positives, best first, at 1×, 2× and 5× as many suggestions as queries.

    Args:
        suggestions: (query id, passage id or row), best first, no visible positive among them.
        queries: how many queries the report is about; default: the train queries with a visible positive.
    """
    hidden, ids = _hidden(dataset), dataset.passages.ids
    pairs = [(query_id, one if isinstance(one, str) else ids[int(one)]) for query_id, one in suggestions]
    right = np.array(hidden_positives(pairs, dataset), dtype=bool)
    total = sum(grade >= dataset.relevant_from for held in hidden.values() for grade in held.values())
    count = len(dataset.positives(TRAIN)) if queries is None else queries
    found = []
    for multiple in multiples:
        taken = right[: round(multiple * count)]
        found.append(SuggestionPrecision(multiple, len(taken), int(taken.sum()), total))
    return found


def hidden_positives(pairs: Sequence[tuple[str, str]], dataset: Dataset) -> list[bool]:
    """Of each (query id, passage id), whether it is a positive that was hidden."""
    hidden, lowest = hidden_labels(dataset), dataset.relevant_from
    return [hidden.get(query_id, {}).get(passage_id, lowest - 1) >= lowest for query_id, passage_id in pairs]


def drawn_queries(labels: Labels, dataset: Dataset, count: int) -> list[str]:
    """At most ``count`` training queries that have a hidden positive among their candidates, drawn by their ids."""
    lists = _lists(labels.blocks(), labels.passage_ids, _hidden(dataset), dataset)
    able = [one.query_id for one in lists if (one.grades >= dataset.relevant_from).any()]
    return sorted(sorted(able, key=lambda query_id: stable_fraction(query_id, "quality 0"))[:count])


def count_hidden(dataset: Dataset) -> int:
    """How many labels are hidden."""
    return sum(map(len, hidden_labels(dataset).values()))


def _hidden(dataset: Dataset) -> Qrels:
    hidden = hidden_labels(dataset)
    if not grades_of(hidden, dataset.relevant_from):
        raise DataError(
            f"{dataset.name} has no hidden labels to measure against; hide some before labelling, with "
            "--set data.keep_labels=1"
        )
    return hidden


def _lists(blocks: Iterator[LabelBlock], ids: StringTable, hidden: Qrels, dataset: Dataset) -> Iterator[CandidateList]:
    """Candidate lists of the queries that have hidden labels, without what is labelled."""
    from colabel.labels.artefact import Flag

    runs: dict[str, dict[str, dict[str, float]]] = {BASE: {}, TEACHER: {}}
    positives = dataset.positives(TRAIN)
    for block in blocks:
        for place, query_id in enumerate(block.query_ids):
            if query_id not in hidden:
                continue
            rows, labelled = ids.first_of(block.rows[place]), (block.flags[place] & Flag.LABELLED) != 0
            mixed = np.isin(rows, ids.rows(hidden[query_id])) & labelled
            if mixed.any():
                raise DataError(
                    f"passage '{ids[int(rows[mixed][0])]}' is labelled for query '{query_id}' in the labels and hidden "
                    "in the dataset; name the dataset with the same settings as for labelling"
                )
            kept = (rows >= 0) & ~labelled & ~np.isin(rows, ids.rows(positives.get(query_id, ())))
            names = [ids[row] for row in rows[kept].tolist()]
            for name, run in runs.items():
                run[query_id] = dict(zip(names, getattr(block, name)[place][kept].tolist(), strict=True))
    return run_lists(runs, hidden)

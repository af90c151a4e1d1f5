"""Validate a dataset: report its contents and every problem found."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from colabel.data.formats import Source
from colabel.data.load import open_source, read_labels, read_query_texts, relevance_cutoff
from colabel.data.passages import verify_ids
from colabel.data.pieces import count_words, cut_text, readable_words
from colabel.data.splits import DEV, TRAIN, hold_out, leaks
from colabel.data.string_table import StringTable, StringTableBuilder
from colabel.data.text_lines import Collected
from colabel.progress import SILENT, Progress, track
from colabel.settings import DataSettings, EncoderSettings
from colabel.types import Qrels


@dataclasses.dataclass(frozen=True)
class SplitCounts:
    """What a split holds. ``positive`` counts grades from 1 up, ``relevant`` those from the cut-off up."""

    queries: int
    labels: int
    positive: int
    relevant: int
    hidden: int
    mean_positive: float
    mean_relevant: float


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Lengths in white-space separated words."""

    mean: float
    median: float
    p95: float
    longest: int

    @classmethod
    def of(cls, counts: Iterable[int]) -> Lengths:
        """Summarise word counts."""
        values = np.fromiter(counts, dtype=np.uint32)
        if not values.size:
            return cls(0.0, 0.0, 0.0, 0)
        median, p95 = np.percentile(values, [50, 95])
        return cls(float(values.mean()), float(median), float(p95), int(values.max()))


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The outcome of :func:`check`.

    ``pieces`` counts what is encoded: passages, or with ``data.chunk`` their pieces. ``long`` of them are, estimated by
    their words, longer than the ``passage_length`` tokens that a model reads; ``lost`` is the share of all text beyond.
    """

    name: str
    passages: int
    queries: int
    splits: Mapping[str, SplitCounts]
    passage_words: Lengths
    query_words: Lengths
    relevant_from: int
    relevant_from_reason: str
    held_out_share: float | None
    problems: Collected
    pieces: int
    passage_length: int
    long: int
    lost: float

    @property
    def ok(self) -> bool:
        """Whether there is no fatal problem."""
        return self.problems.fatal == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        table = dataclasses.asdict(dataclasses.replace(self, problems=Collected()))
        table["ok"] = self.ok
        table["problem_counts"] = dict(self.problems.counts)
        table["problems"] = [
            {"kind": kind.slug, "fatal": kind.fatal, "file": file, "line": line, "message": text, "remedy": kind.remedy}
            for kind, file, line, text in self.problems
        ]
        return table


def check(data: str | DataSettings, *, passage_length: int | None = None, progress: Progress = SILENT) -> CheckReport:
    """Read everything once; problems are collected, not raised. ``passage_length``: tokens that the model will read."""
    settings = data if isinstance(data, DataSettings) else DataSettings(source=data)
    source = open_source(settings)
    problems = Collected()
    passage_length = passage_length or EncoderSettings().passage_length
    passage_ids, passage_words, piece_words = _check_passages(source, problems, progress)
    lengths = np.frombuffer(piece_words, dtype=np.uint32).astype(np.int64)
    beyond = np.maximum(0, lengths - readable_words(passage_length))
    places: dict[str, tuple[str, int]] = {}
    queries = read_query_texts(source, problems, places)
    labels, hidden = read_labels(source, queries, passage_ids, problems, settings)
    for leak in leaks(labels, queries):
        problems.add(leak.kind, *places[leak.twin], leak.message)
    cutoff, reason = relevance_cutoff(settings, source)
    held_out = None  # there is a dev split
    if TRAIN in labels and DEV not in labels:
        held_out = settings.holdout if hold_out(labels[TRAIN], queries, settings.holdout)[1] else 0.0
    return CheckReport(
        name=source.name,
        passages=len(passage_ids),
        queries=len(queries),
        splits={split: _count(rels, cutoff, hidden if split == TRAIN else {}) for split, rels in labels.items()},
        passage_words=Lengths.of(passage_words),
        query_words=Lengths.of(len(text.split()) for text in queries.values()),
        relevant_from=cutoff,
        relevant_from_reason=reason,
        held_out_share=held_out,
        problems=problems,
        pieces=len(lengths),
        passage_length=passage_length,
        long=int((beyond > 0).sum()),
        lost=float(beyond.sum() / max(1, lengths.sum())),
    )


def _check_passages(
    source: Source, problems: Collected, progress: Progress
) -> tuple[StringTable, array[int], array[int]]:
    """Ids and word counts of all passages, and word counts of all pieces; memory is a few dozen bytes each."""
    ids, words, lines, pieces = StringTableBuilder(), array("I"), array("q"), array("I")
    file = source.name
    for located in track(source.passages(problems), progress, "reading passages", None, "passages"):
        ids.append(located.value.id)
        title, text = located.value.title, located.value.text
        words.append(len(title.split()) + len(text.split()))
        parts = cut_text(text, source.chunk) if source.chunk else (text,)
        pieces.extend(count_words(title) + count_words(part) for part in parts)
        lines.append(located.line)
        file = located.file
    table = ids.finish()
    verify_ids(table, file, lines, problems)
    return table, words, pieces


def _count(labels: Qrels, cutoff: int, hidden: Qrels) -> SplitCounts:
    grades = [grade for rels in labels.values() for grade in rels.values()]
    positive, relevant = sum(grade >= 1 for grade in grades), sum(grade >= cutoff for grade in grades)
    return SplitCounts(
        queries=len(labels),
        labels=len(grades),
        positive=positive,
        relevant=relevant,
        hidden=sum(len(rels) for query_id, rels in hidden.items() if query_id in labels),
        mean_positive=round(positive / max(len(labels), 1), 2),
        mean_relevant=round(relevant / max(len(labels), 1), 2),
    )

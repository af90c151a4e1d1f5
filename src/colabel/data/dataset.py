"""The dataset that every later stage reads: passages, queries and visible labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from colabel.artefacts import fingerprint
from colabel.data.passages import PassageTable
from colabel.data.splits import DEV, TRAIN
from colabel.errors import DataError
from colabel.settings import DataSettings
from colabel.types import Qrels


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A collection with its queries and labels.

    Attributes:
        name: what reports call it.
        passages: on disk, by row or id.
        queries: query id → text.
        relevant_from: the lowest grade that counts as relevant.
        provenance: format and origin.
        warnings: kind → how many imperfections were read over, as ``check`` lists them.
        dev_from_train: whether dev is a share of the source's training queries that was held out.
        trusted: training query id → passages that people found not relevant: hard negatives that training always
            shows, and to which no teacher gives any probability.
        pseudo: splits whose queries were made of the passages, as there were no labels.

    Labels that were hidden for a study are not part of this interface; only label-quality code may read them,
    through :func:`colabel.data.splits.hidden_labels`.
    """

    name: str
    passages: PassageTable
    queries: Mapping[str, str]
    relevant_from: int
    provenance: Mapping[str, str]
    warnings: Mapping[str, int]
    _labels: Mapping[str, Qrels] = dataclasses.field(repr=False)
    _hidden: Qrels = dataclasses.field(repr=False, default_factory=dict)
    dev_from_train: bool = False
    trusted: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    pseudo: tuple[str, ...] = ()

    @classmethod
    def from_records(
        cls,
        passages: Any,
        queries: Any = (),
        labels: Any = (),
        *,
        clicks: Any = (),
        min_clicks: int = 1,
        name: str = "records",
        chunk: int = 0,
        cache: Path | None = None,
    ) -> Dataset:
        """A dataset from what is in memory: lists of dicts, mappings, pandas, polars or Arrow tables.

        Args:
            passages: id, title and text by their columns' names, as in a catalogue; other columns are metadata. A
                mapping is id → text.
            queries: id and text; a mapping is id → text. Left out: a collection to search alone.
            labels: query_id, passage_id and, if given, grade and split (default: train). A mapping is query id →
                passage ids or query id → passage id → grade, or split → such a mapping.
            clicks: a click log: query text, passage id and, if given, a count or grade, as in a ``--clicks`` file.
            min_clicks: clicks from which a pair of the log is a label.
            name: what reports call it.
            chunk: words per piece of a long document, as ``data.chunk``; 0: documents stay whole.
            cache: a folder for the passages, as in :func:`colabel.load_dataset`.

        Example:
            >>> caves = Dataset.from_records({"d1": "A cave in a glacier."}, {"q1": "ice cave"}, {"q1": ["d1"]})
            >>> caves.passages[0].text, caves.queries, caves.labels("train")
            ('A cave in a glacier.', {'q1': 'ice cave'}, {'q1': {'d1': 1}})
        """
        from colabel.data.formats.clicks import clicks_of
        from colabel.data.formats.in_memory import record_rows, records_source
        from colabel.data.load import read_dataset, with_clicks
        from colabel.data.text_lines import Collected, numbered

        settings = DataSettings(source=name, chunk=chunk, min_clicks=min_clicks)
        source = records_source(passages, queries, labels, name).in_pieces(settings.chunk)
        if rows := record_rows(clicks, "clicks", ("query", "id")):
            located, found = numbered(rows, "clicks"), Collected()
            known = clicks_of(located, list(rows[0]), "clicks", settings.min_clicks, not source.labels, found)
            source = with_clicks(source, known, found)
        return read_dataset(source, settings, cache=cache)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have labels."""
        return tuple(sorted(self._labels))

    def labels(self, split: str) -> Qrels:
        """Every visible judgement of a split, grade 0 included."""
        try:
            return self._labels[split]
        except KeyError:
            known = ", ".join(self.splits) or "none"
            raise DataError(f"{self.name} has no split '{split}'; it has: {known}") from None

    def source_labels(self, split: str) -> Qrels:
        """Every visible judgement of a split as its own file would hold them: with train, those held out for dev."""
        own = self.labels(split)
        return {**own, **self.labels(DEV)} if split == TRAIN and self.dev_from_train else own

    def positives(self, split: str) -> dict[str, tuple[str, ...]]:
        """Query id → relevant passages (grade ≥ ``relevant_from``), queries without one left out."""
        found = {
            query_id: tuple(passage for passage, grade in labels.items() if grade >= self.relevant_from)
            for query_id, labels in self.labels(split).items()
        }
        return {query_id: passages for query_id, passages in found.items() if passages}

    def split_queries(self, split: str) -> dict[str, str]:
        """Query id → text of the labelled queries of a split."""
        return {query_id: self.queries[query_id] for query_id in self.labels(split)}

    def labels_fingerprint(self, split: str) -> str:
        """Names what a stage that reads this split depends on: its queries, visible labels and the cut-off."""
        return self._fingerprints[split]

    @cached_property
    def _fingerprints(self) -> dict[str, str]:
        return {
            split: fingerprint(
                {
                    "queries": self.split_queries(split),
                    "labels": dict(labels),
                    "relevant_from": self.relevant_from,
                    **({"trusted": dict(self.trusted)} if self.trusted and split == TRAIN else {}),
                }
            )
            for split, labels in self._labels.items()
        }

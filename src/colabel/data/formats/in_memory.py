"""What is in memory already: lists of dicts, mappings, pandas, polars and Arrow tables, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source
from colabel.data.formats.catalogue import find_column, find_roles, located_passages
from colabel.data.splits import TRAIN
from colabel.data.text_lines import Located, Malformed, Problems, as_id, grade_of, make_query
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

Row = Mapping[str, Any]


class RecordsSource(Source):
    """Passages, queries and labels that are in memory already; see :meth:`colabel.Dataset.from_records`."""

    spelling = "Dataset.from_records(…)"

    def __init__(self, passages: Any, queries: Any = (), labels: Any = (), name: str = "records") -> None:
        self._name = name
        self._passages = _rows(passages, "passages", ("id", "text"))
        self._roles = find_roles(list(self._passages[0]) if self._passages else ["text"], {}, "passages")
        self._queries = _rows(queries, "queries", ("id", "text"))
        self._labels = _label_rows(labels)

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """Not by a name."""
        raise UsageError("records in memory have no name; call Dataset.from_records")

    @property
    def name(self) -> str:
        """What the caller calls it."""
        return self._name

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """A passage per record."""
        rows = (Located(row, "passages", number) for number, row in enumerate(self._passages, start=1))
        return located_passages(rows, self._roles, problems)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """A query per record with an id and a text (or query)."""
        for number, row in enumerate(self._queries, start=1):
            text = find_column("text", row) or find_column("query", row)
            try:
                query_id = as_id(row.get("query_id", row.get(find_column("id", row))), "id")
                yield Located(make_query(query_id, str(row.get(text) or "")), "queries", number)
            except Malformed as error:
                problems.add(error.kind, "queries", number, str(error))

    def splits(self) -> tuple[str, ...]:
        """The splits that labels name; train where they name none."""
        return tuple(sorted(self._labels))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """A label per record with query_id, passage_id and, if given, a grade."""
        for number, (query_id, passage_id, grade) in enumerate(self._labels[split], start=1):
            try:
                label = Qrel(as_id(query_id, "query_id"), as_id(passage_id, "passage_id"), grade_of(grade))
            except Malformed as error:
                problems.add(error.kind, f"labels of {split}", number, str(error))
                continue
            yield Located(label, f"labels of {split}", number)

    def corpus_fingerprint(self) -> str:
        """Of all passages."""
        return fingerprint([[sorted((str(key), str(value)) for key, value in row.items())] for row in self._passages])

    def provenance(self) -> dict[str, str]:
        """Format and name."""
        return {"format": "records", "name": self._name}


def _rows(records: Any, what: str, keys: tuple[str, str]) -> list[Row]:
    """Records of any of the kinds as dicts."""
    if isinstance(records, Mapping):
        return [dict(zip(keys, pair, strict=True)) for pair in records.items()]
    if isinstance(records, str | bytes) or not (isinstance(records, Iterable) or hasattr(records, "to_pylist")):
        raise UsageError(f"{what}: expected a list of dicts, a mapping or a table, not a {type(records).__name__}")
    if hasattr(records, "to_pylist"):  # Arrow
        return list(records.to_pylist())
    if hasattr(records, "to_dicts"):  # polars
        return list(records.to_dicts())
    if hasattr(records, "iterrows"):  # pandas
        return [{str(key): value for key, value in row.items()} for row in records.to_dict("records")]
    found: list[Row] = []
    for number, record in enumerate(records, start=1):
        if isinstance(record, Passage | Query):
            row: dict[str, Any] = {"id": record.id, "text": record.text}
            if isinstance(record, Passage):
                row |= {"title": record.title, **record.metadata}
            found.append(row)
        elif isinstance(record, Mapping):
            found.append(record)
        elif isinstance(record, str) and what == "passages":
            found.append({"text": record})
        elif isinstance(record, tuple) and len(record) in (2, 3):
            found.append(dict(zip((*keys, "grade"), record, strict=False)))
        else:
            raise DataError(f"record {number} of {what} is a {type(record).__name__}; expected a dict")
    return found


def _label_rows(labels: Any) -> dict[str, list[tuple[Any, Any, Any]]]:
    """Split → (query id, passage id, grade)."""
    if isinstance(labels, Mapping):
        nested = any(isinstance(rels, Mapping) and any(isinstance(one, Mapping) for one in rels.values())
                     for rels in labels.values())  # fmt: skip
        splits = labels if nested else {TRAIN: labels} if labels else {}
        return {
            split: [
                (query_id, passage_id, grade)
                for query_id, rels in qrels.items()
                for passage_id, grade in (rels.items() if isinstance(rels, Mapping) else ((one, 1) for one in rels))
            ]
            for split, qrels in splits.items()
        }
    found: dict[str, list[tuple[Any, Any, Any]]] = {}
    for row in _rows(labels, "labels", ("query_id", "passage_id")):
        grade = find_column("grade", row)
        missing = [key for key in ("query_id", "passage_id") if key not in row]
        if missing:
            raise DataError(f"a label has no '{missing[0]}' (it has {', '.join(row) or 'nothing'})")
        label = row["query_id"], row["passage_id"], row[grade] if grade else 1
        found.setdefault(str(row.get("split") or TRAIN), []).append(label)
    return found

"""What is in memory already: lists of dicts, mappings, pandas, polars and Arrow tables, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source, Stream
from colabel.data.formats.catalogue import find_column, find_roles, row_passages
from colabel.data.splits import TRAIN
from colabel.data.text_lines import Row, as_id, grade_of, id_field, make_query, numbered, parse_rows
from colabel.errors import DataError, UsageError
from colabel.types import Passage, Qrel, Query


def records_source(passages: Any, queries: Any, labels: Any, name: str) -> Source:
    """Passages, queries and labels that are in memory already; see :meth:`colabel.Dataset.from_records`."""
    texts, asked = record_rows(passages, "passages", ("id", "text")), record_rows(queries, "queries", ("id", "text"))
    roles = find_roles(list(texts[0]) if texts else ["text"], {}, "passages")
    return Source(
        name=name,
        passages=lambda problems: row_passages(numbered(texts, "passages"), roles, problems),
        fingerprint=lambda: fingerprint(
            [[sorted((str(key), str(value)) for key, value in row.items())] for row in texts]
        ),
        provenance={"format": "records", "name": name},
        queries=lambda problems: parse_rows(numbered(asked, "queries"), _query, problems),
        labels={split: _label_stream(f"labels of {split}", rows) for split, rows in _label_rows(labels).items()},
    )


def _query(row: Row) -> Query:
    text = find_column("text", row) or find_column("query", row)
    query_id = as_id(row.get("query_id", row.get(find_column("id", row))), "id")
    return make_query(query_id, str(row.get(text) or ""))


def _label_stream(place: str, rows: list[Row]) -> Stream[Qrel]:
    return lambda problems: parse_rows(numbered(rows, place), _label, problems)


def _label(row: Row) -> Qrel:
    grade = find_column("grade", row)
    query_id, passage_id = id_field(row, "query_id"), id_field(row, "passage_id")
    return Qrel(query_id, passage_id, grade_of(row[grade]) if grade else 1)


def record_rows(records: Any, what: str, keys: tuple[str, str]) -> list[Row]:
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


def _label_rows(labels: Any) -> dict[str, list[Row]]:
    """Split → rows of query_id, passage_id and, if given, grade."""
    if isinstance(labels, Mapping):
        inner = [one for rels in labels.values() if isinstance(rels, Mapping) for one in rels.values()]
        nested = any(isinstance(one, Iterable) and not isinstance(one, str) for one in inner)  # else it is a grade
        labels = [
            {"query_id": query_id, "passage_id": passage_id, "grade": grade, "split": split}
            for split, qrels in (labels if nested else {TRAIN: labels}).items()
            for query_id, rels in qrels.items()
            for passage_id, grade in (rels if isinstance(rels, Mapping) else dict.fromkeys(rels, 1)).items()
        ]
    found: dict[str, list[Row]] = {}
    for row in record_rows(labels, "labels", ("query_id", "passage_id")):
        found.setdefault(str(row.get("split") or TRAIN), []).append(row)
    return found

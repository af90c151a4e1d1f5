"""Catalogues: a CSV, TSV, JSONL or Parquet file with one passage per row, its columns found by their names.

All columns that are neither id, title nor text are kept as the passages' metadata. Files are streamed: memory does
not grow with them.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.formats.base import Source
from colabel.data.text_lines import (
    BAD_FIELD,
    Located,
    Malformed,
    Problems,
    Strict,
    as_id,
    check_unicode,
    json_row,
    read_records,
    warn_if_empty,
)
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage

log = logging.getLogger(__name__)

NAMES: dict[str, tuple[str, ...]] = {
    "id": (
        *("id", "_id", "passage_id", "doc_id", "docid", "document_id", "pid", "docno"),
        *("product_id", "item_id", "sku", "asin", "key", "uuid", "url", "link"),
    ),
    "title": ("title", "name", "product_name", "product_title", "headline", "heading", "subject"),
    "text": ("text", "body", "description", "content", "contents", "abstract", "passage", "product_description"),
    "query": ("query", "query_text", "search", "search_term", "search_query", "question", "q", "keywords"),
    "clicks": ("clicks", "count", "n", "click_count", "frequency", "times"),
    "grade": ("grade", "relevance", "label", "score", "rating"),
}
"""Role → the names of columns that mean it, the likeliest first; case, spaces and hyphens do not matter."""

_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_BATCH = 4096


class Roles(NamedTuple):
    """Which columns hold what; text roles may join several: ``("abstract", "body")``. Empty: there is none."""

    id: str
    title: tuple[str, ...]
    text: tuple[str, ...]


def find_column(role: str, columns: Iterable[str]) -> str:
    """The column that means a role; "" where none does.

    >>> find_column("id", ["Product Name", "SKU"]), find_column("title", ["Product Name", "SKU"])
    ('SKU', 'Product Name')
    """
    by_name = {str(column).strip().lower().replace(" ", "_").replace("-", "_"): str(column) for column in columns}
    return next((by_name[name] for name in NAMES[role] if name in by_name), "")


def find_roles(columns: Sequence[str], given: Mapping[str, str], place: str) -> Roles:
    """The columns of a passage: those that ``[data.columns]`` names, else those whose names say it.

    Raises:
        UsageError: no column holds text, or one that was named is not there.
    """
    found = {
        role: given[f"passage_{role}"] if f"passage_{role}" in given else find_column(role, columns)
        for role in ("id", "title", "text")
    }
    shown = ", ".join(map(str, columns)) or "none"
    for role, value in found.items():
        for name in filter(None, value.split("+")):
            if name not in columns:
                raise UsageError(f"{place}: data.columns.passage_{role} is '{name}'; the columns are {shown}")
    if not found["title"] and not found["text"]:
        raise UsageError(
            f"{place}: no column is called {', '.join(NAMES['text'][:3])} or {', '.join(NAMES['title'][:2])}; the "
            f"columns are {shown}. Name one: --set data.columns.passage_text=COLUMN"
        )
    title, text = (tuple(filter(None, found[role].split("+"))) for role in ("title", "text"))
    return Roles(found["id"], title, text)


def passage_of(row: Mapping[str, Any], roles: Roles, number: int) -> Passage:
    """A row as a passage; without an id column, the number of the row is the id."""
    passage_id = as_id(row.get(roles.id), roles.id) if roles.id else str(number)
    used = {roles.id, *roles.title, *roles.text}
    metadata = {name: value for name, value in row.items() if name not in used and not _missing(value)}
    return Passage(passage_id, _joined(row, roles.title), _joined(row, roles.text), metadata)


def _joined(row: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    parts = []
    for column in columns:
        value = row.get(column)
        if _missing(value):
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise Malformed(BAD_FIELD, f"'{column}' is a {type(value).__name__}; expected a string")
        parts.append(check_unicode(value, column))
    return " ".join(parts)


def _missing(value: Any) -> bool:
    """Whether a cell is empty; pandas says so with NaN."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def is_table(path: Path) -> bool:
    """Whether a name says that a file is a table.

    >>> is_table(Path("shop/products.csv.gz")), is_table(Path("recipe.toml"))
    (True, False)
    """
    return path.name.lower().removesuffix(".gz").endswith(_ENDINGS)


def table_columns(path: Path) -> list[str]:
    """The names of a file's columns; in JSONL, the fields of its first row."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return list(next(iter(read_records(path, json_row, Strict()))).value) if path.stat().st_size else []
    with _arrow_errors(path):
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        with _open_csv(path) as reader:
            return list(reader.schema.names)


def read_table(path: Path, problems: Problems) -> Iterator[Located[Mapping[str, Any]]]:
    """The rows of a file in their order, streamed; cells of CSV and TSV are strings as they stand."""
    name, file, number = path.name.lower().removesuffix(".gz"), str(path), 0
    if name.endswith((".jsonl", ".ndjson")):
        yield from read_records(path, json_row, problems)
        return
    with _arrow_errors(path):
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as table:
                for batch in table.iter_batches(_BATCH):
                    for row in batch.to_pylist():
                        number += 1
                        yield Located(row, file, number)
            return
        with _open_csv(path) as reader:
            names = reader.schema.names
        with _open_csv(path, names) as reader:
            for batch in reader:
                for row in batch.to_pylist():
                    number += 1
                    yield Located(row, file, number)


def _open_csv(path: Path, names: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    return csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )


class _arrow_errors:  # noqa: N801 - used as a function
    """Turns what pyarrow raises into an error with the file's name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Only leaving matters."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pyarrow as pa

        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DataError(f"cannot be read as a table: {reason}", file=str(self.path)) from None


@dataclasses.dataclass(frozen=True)
class CatalogueSource(Source):
    """A catalogue without queries and labels of its own; ``[data]`` names a click log, or query and label files."""

    path: Path
    given: Mapping[str, str]

    spelling = "a catalogue (.csv, .tsv, .jsonl or .parquet)"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether it is a file that is called like a table."""
        return is_table(path) and path.is_file()

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """The file; which columns are read is logged."""
        source = cls(Path(name), settings.columns)
        roles = source.roles
        log.info(
            "%s: id is %s, title %s, text %s; other columns are kept as metadata",
            name,
            *(f"'{'+'.join(part) if isinstance(part, tuple) else part}'" if part else "not given" for part in roles),
        )
        return source

    @cached_property
    def roles(self) -> Roles:
        """The columns that are read."""
        return find_roles(table_columns(self.path), self.given, str(self.path))

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.split(".")[0]

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """A passage per row."""
        return located_passages(read_table(self.path, problems), self.roles, problems)

    def corpus_fingerprint(self) -> str:
        """Of the file's bytes and the columns that are read."""
        return fingerprint([file_fingerprint(self.path), list(map(str, self.roles))])

    def provenance(self) -> dict[str, str]:
        """Format and file."""
        return {"format": "table", "file": self.path.name}


def located_passages(
    rows: Iterable[Located[Mapping[str, Any]]], roles: Roles, problems: Problems
) -> Iterator[Located[Passage]]:
    """Rows as passages; what cannot be read is reported."""
    for number, (row, file, line, _) in enumerate(rows, start=1):
        try:
            passage = passage_of(row, roles, number)
        except Malformed as error:
            problems.add(error.kind, file, line, str(error))
            continue
        warn_if_empty(passage, file, line, problems)
        yield Located(passage, file, line)

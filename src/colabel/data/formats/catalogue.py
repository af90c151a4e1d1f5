"""Catalogues: a CSV, TSV, JSONL or Parquet file with one passage per row, its columns found by their names.

All columns that are neither id, title nor text are kept as the passages' metadata. Files are streamed: memory does
not grow with them.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.formats.base import Source
from colabel.data.text_lines import (
    Located,
    Problems,
    Row,
    Strict,
    as_id,
    joined_text,
    json_row,
    numbered,
    parse_rows,
    read_records,
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
    "title": ("title", "name", "product_name", "product_title", "product", "headline", "heading", "subject"),
    "text": ("text", "body", "description", "content", "contents", "abstract", "passage", "product_description"),
    "query": ("query", "query_text", "search", "search_term", "search_query", "question", "q", "keywords"),
    "clicks": ("clicks", "count", "n", "click_count", "frequency", "times"),
    "grade": ("grade", "relevance", "label", "score", "rating"),
}
"""Role → the names of columns that mean it, the likeliest first; case, spaces and hyphens do not matter."""

_JSON_LINES = (".jsonl", ".ndjson")
_ENDINGS = (".csv", ".tsv", ".parquet", *_JSON_LINES)
_BATCH = 4096
_LONGEST_ROW = 1 << 24  # bytes of CSV that are parsed at once


@functools.cache
def log_once(sentence: str) -> None:
    """Log what was found in a file, though a command reads it several times."""
    log.info("%s", sentence)


@contextmanager
def read_before() -> Iterator[None]:
    """While files are opened that a run has read before: what was found in them was said then."""
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)


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
    """The columns of a passage: those that ``[data.columns]`` names, else those whose names say it."""
    found = {role: given.get(f"passage_{role}", find_column(role, columns)) for role in ("id", "title", "text")}
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


def row_passages(rows: Iterable[Located[Row]], roles: Roles, problems: Problems) -> Iterator[Located[Passage]]:
    """Rows as passages; without an id column, the number of a row is its id."""
    used, numbers = {roles.id, *roles.title, *roles.text}, itertools.count(1)

    def parse(row: Row) -> Passage:
        number = next(numbers)
        passage_id = as_id(row.get(roles.id), roles.id) if roles.id else str(number)
        metadata = {name: value for name, value in row.items() if name not in used and not _missing(value)}
        title, text = (joined_text(row, columns, numbers=True) for columns in (roles.title, roles.text))
        return Passage(passage_id, title, text, metadata)

    return parse_rows(rows, parse, problems)


def _missing(value: Any) -> bool:
    """Whether a cell is empty; pandas says so with NaN."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _ending(path: Path) -> str:
    return path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def is_catalogue(path: Path) -> bool:
    """Whether it is a file that is called like a table: ``shop/products.csv.gz``."""
    return _ending(path) in _ENDINGS and path.is_file()


def table_columns(path: Path) -> list[str]:
    """The names of a file's columns; in JSONL, the fields of its first row."""
    if _ending(path) in _JSON_LINES:
        first = next(read_records(path, json_row, Strict()), None)
        return list(first.value) if first else []
    with arrow_errors(path):
        if _ending(path) == ".parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        with _open_csv(path) as reader:
            return list(reader.schema.names)


def read_table(path: Path, problems: Problems) -> Iterator[Located[Row]]:
    """The rows of a file in their order, streamed; cells of CSV and TSV are strings as they stand."""
    if _ending(path) in _JSON_LINES:
        return read_records(path, json_row, problems)
    header = _ending(path) != ".parquet"  # the line of a row, as long as no cell above it has several
    return numbered(_table_rows(path), str(path), first=1 + header)


def _table_rows(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with arrow_errors(path):
        if _ending(path) == ".parquet":
            with pq.ParquetFile(path) as table:
                for batch in table.iter_batches(_BATCH):
                    yield from batch.to_pylist()
        else:
            with _open_csv(path, table_columns(path)) as reader:
                for batch in reader:
                    yield from batch.to_pylist()


def _open_csv(path: Path, names: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=csv.ReadOptions(block_size=_LONGEST_ROW),
        parse_options=csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )


def _delimiter(path: Path) -> str:
    """What stands between cells; in many countries spreadsheets write CSV with semicolons."""
    import pyarrow as pa

    if _ending(path) == ".tsv":
        return "\t"
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(_BATCH).partition(b"\n")[0]
    return ";" if b";" in head and b"," not in head else ","


@contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises into an error with the file's name."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        reason = re.sub(r"(got \d+):.*", r"\1", reason)  # the row itself, which may be anything
        if "straddling" in reason:
            reason = f"a row has more than {_LONGEST_ROW >> 20} MB, or a quote is never closed"
        if "invalid UTF8" in reason:
            reason = f"{reason}; save it as UTF-8"
        raise DataError(f"cannot be read as a table: {reason}", file=str(path)) from None


def open_catalogue(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A catalogue without queries and labels of its own; ``[data]`` names a click log, or query and label files."""
    path = Path(name)
    roles = find_roles(table_columns(path), settings.columns, name)
    joined = ("+".join(part) if isinstance(part, tuple) else part for part in roles)
    found = [f"'{part}'" if part else "not given" for part in joined]
    if not roles.id:
        found[0] = "the row's number (or name a column: --set data.columns.passage_id=COLUMN)"
    log_once("{}: id is {}, title {}, text {}; other columns are kept as metadata".format(name, *found))
    return Source(
        name=path.name.split(".")[0],
        passages=lambda problems: row_passages(read_table(path, problems), roles, problems),
        fingerprint=lambda: fingerprint([file_fingerprint(path), list(map(str, roles))]),
        provenance={"format": "table", "file": path.name},
    )

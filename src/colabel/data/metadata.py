"""What a collection says of its passages besides their text (a brand, a price), and the choice of passages by it.

    metadata.parquet   a row per passage in the order of the collection: its id, and a column for every name

Values are kept as the collection has them. A column of strings that are all numbers, dates or truth values is read as
such, so that a price from a CSV file can be compared with a number.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from colabel.artefacts import Workspace
from colabel.errors import UsageError
from colabel.types import Mask

if TYPE_CHECKING:
    from colabel.data.passages import PassageTable

FILE = "metadata.parquet"
_BATCH = 4096
_ROW = "__row__"  # the column that leads back from what DuckDB selects
_GUESSES = (pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.bool_())
_CODES = r"^(0\d|-?\d{19})"  # numbers that name something: 00123 is not 123, and a long one loses its last digits
_SEALED: dict[str, Any] = dict.fromkeys(("enable_external_access", "python_enable_replacements"), "false")


class Metadata:
    """The columns of a collection; ``kept`` has them as they stand in it, ``table`` with the types of their values."""

    def __init__(self, kept: pa.Table) -> None:
        self.kept = kept

    @classmethod
    def of(cls, passages: PassageTable) -> Metadata:
        """Read from the passages themselves."""
        reader, tables = zip(passages.ids, passages, strict=True), []
        while batch := list(itertools.islice(reader, _BATCH)):
            rows: list[Mapping[str, Any]] = [{"id": passage_id, **passage.metadata} for passage_id, passage in batch]
            names = dict.fromkeys(str(name) for row in rows for name in row)
            tables.append(pa.table({name: _array([row.get(name) for row in rows]) for name in names}))
        return cls(join(tables))

    @classmethod
    def open(cls, folder: Path) -> Metadata:
        """Read what :meth:`save` wrote."""
        return cls(pq.read_table(folder / FILE))

    def save(self, space: Workspace) -> Mapping[str, Any]:
        """Write ``metadata.parquet``."""
        with space.file(FILE) as path:
            pq.write_table(self.kept, path)
        return {"passages": self.kept.num_rows, "columns": self.kept.column_names}

    @cached_property
    def table(self) -> pa.Table:
        """A row per passage, in the order of the collection."""
        return pa.table({name: _typed(self.kept[name]) for name in self.kept.column_names})

    def select(self, where: str) -> Mask:
        """Which passages a condition of SQL holds for, bool [passages].

        Args:
            where: such as ``brand = 'Acme' and price < 30``; it does not hold where a value is missing.
        """
        try:
            import duckdb
        except ImportError:
            raise UsageError(
                "filters are evaluated by DuckDB; install it with: pip install 'colabel[filter]'"
            ) from None
        rows = self.table.append_column(_ROW, pa.array(np.arange(self.table.num_rows)))
        try:
            with duckdb.connect(":memory:", config=_SEALED) as connection:
                connection.execute("SET lock_configuration = true")
                found = connection.from_arrow(rows).filter(where).project(_ROW).fetchnumpy()[_ROW]
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0].replace(f', "{_ROW}"', "")
            columns = ", ".join(f'"{name}" ({self.table.schema.field(name).type})' for name in self.table.column_names)
            raise UsageError(f'the filter "{where}" cannot be evaluated: {reason}. The columns are {columns}') from None
        allowed = np.zeros(len(rows), dtype=np.bool_)
        allowed[np.asarray(found, dtype=np.int64)] = True
        return allowed


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below one another; a column whose values have no common type becomes strings."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        names = dict.fromkeys(name for table in tables for name in table.column_names)
        rows = [row for table in tables for row in table.to_pylist()]
        return pa.table({name: _array([row.get(name) for row in rows]) for name in names})


def _array(values: Sequence[Any]) -> pa.Array:
    """Values of one name; objects, and values of several kinds, as strings."""
    try:
        found = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(_strings(values))
    flat = found.type.value_type if pa.types.is_list(found.type) else found.type
    return pa.array(_strings(values)) if pa.types.is_nested(flat) else found


def _strings(values: Iterable[Any]) -> list[str | None]:
    return [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    ]


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strings as the first type that all of them can be read as; anything else as it is."""
    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return column
    if pc.any(pc.match_substring_regex(column, _CODES)).as_py():
        return column
    for kind in _GUESSES:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column

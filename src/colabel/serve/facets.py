"""Filters on what a collection says of its passages besides their text: a few values to choose from, or a range.

A filter is ``column=value``, ``column<=number`` or ``column>=number``. Several values of a column are alternatives; all
else has to hold together. Nothing in a filter is ever read as a program or a query language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from colabel.errors import DataError, UsageError
from colabel.serve.api_records import Bar, FacetView

MOST_VALUES = 40
"""Values of a column that is offered as a choice, at most."""
_MOST_COLUMNS = 8
_FILTER = re.compile(r"(.+?)(<=|>=|=)(.*)", re.DOTALL)


class Facets:
    """The columns of a collection's metadata, a row per passage."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.drop_columns(["id"]) if "id" in table.column_names else table

    def views(self) -> list[FacetView]:
        """Columns that are worth a choice: with two to forty values, or with numbers."""
        found = (self._view(name) for name in self._table.column_names)
        return [one for one in found if one is not None][:_MOST_COLUMNS]

    def _view(self, name: str) -> FacetView | None:
        column = self._table[name]
        if pa.types.is_nested(column.type):
            return None
        counts = sorted(
            pc.value_counts(column.drop_null()).to_pylist(), key=lambda one: (-one["counts"], one["values"])
        )
        if 2 <= len(counts) <= MOST_VALUES:
            return FacetView(name, [Bar(_text(one["values"]), one["counts"]) for one in counts], None, None)
        if len(counts) > MOST_VALUES and _is_number(column.type):
            ends = pc.min_max(column).as_py()
            return FacetView(name, [], float(ends["min"]), float(ends["max"]))
        return None

    def allowed(self, filters: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Which passages filters leave, bool [passages]; None: all."""
        groups: dict[tuple[str, str, str], npt.NDArray[np.bool_]] = {}
        for text in filters:
            parts = _FILTER.fullmatch(text)
            if parts is None:
                raise UsageError(f"the filter '{text[:80]}' is not of the form column=value, column<=1 or column>=1")
            name, sign, value = parts.groups()
            key = name, sign, "" if sign == "=" else value
            here = self._holds(name, sign, value)
            groups[key] = groups[key] | here if key in groups else here
        return np.logical_and.reduce(list(groups.values())) if groups else None

    def _holds(self, name: str, sign: str, value: str) -> npt.NDArray[np.bool_]:
        if name not in self._table.column_names:
            known = ", ".join(self._table.column_names[:20]) or "none"
            raise DataError(f"the passages have no column '{name[:80]}'; they have: {known}")
        column = self._table[name]
        if sign == "=":
            values = [one for one in pc.unique(column.drop_null()).to_pylist() if _text(one) == value]
            found = pc.is_in(column, value_set=pa.array(values, type=column.type))
            return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)
        try:
            bound = float(value)
        except ValueError:
            raise UsageError(f"the filter '{name[:80]}{sign}' needs a number; found '{value[:40]}'") from None
        if not _is_number(column.type):
            raise DataError(f"the column '{name[:80]}' has no numbers to compare")
        numbers = pc.cast(column, pa.float64(), safe=False)
        found = (pc.less_equal if sign == "<=" else pc.greater_equal)(numbers, bound)
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _text(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else str(value)

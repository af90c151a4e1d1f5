"""Click logs as labels: a table of query text, passage id and, if given, a count or grade. Query logs: texts alone."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from colabel.data.formats.catalogue import find_column, is_catalogue, log_once, read_table, table_columns
from colabel.data.splits import TEST, TRAIN, normalise_query, stable_fraction
from colabel.data.string_table import string_hash
from colabel.data.text_lines import Kind, Located, Malformed, Problems, Row, as_id, check_unicode, parse_rows
from colabel.errors import UsageError
from colabel.types import Qrel, Query

CLICKS = "clicks"
"""The name in ``[data] labels`` that stands for a click log and not for a split."""
TEST_SHARE = 0.15
"""Queries that are kept for testing where the collection has no labels of its own."""


class Clicks(NamedTuple):
    """What a click log says: queries, and labels by split, each with the first row that names it."""

    queries: list[Located[Query]]
    labels: dict[str, list[Located[Qrel]]]


class _Pair(NamedTuple):
    clicks: float
    grade: int
    line: int


def read_clicks(path: Path, min_clicks: int, split: bool, problems: Problems) -> Clicks:
    """Read a click log; see :func:`clicks_of`."""
    if not is_catalogue(path):
        what = "no such file" if not path.exists() else "expected a .csv, .tsv, .jsonl or .parquet file"
        raise UsageError(f"the click log '{path}' (data.labels.clicks): {what}")
    return clicks_of(read_table(path, problems), table_columns(path), str(path), min_clicks, split, problems)


def clicks_of(
    rows: Iterable[Located[Row]], columns: Sequence[str], file: str, min_clicks: int, split: bool, problems: Problems
) -> Clicks:
    """What the rows of a click log say. The query's text is its key (case and white space do not matter); an id is
    made from it.

    Rows of one pair add up. A pair with fewer than ``min_clicks`` clicks is no label. With ``split``, a stable hash of
    the text sends about one query in seven to test; otherwise all go to train.
    """
    query, passage, count, grade = (find_column(role, columns) for role in ("query", "id", "clicks", "grade"))
    if not query or not passage:
        raise UsageError(
            f"{file}: expected a column 'query' and a column 'id' (or 'sku', 'url', …) of the passage that was chosen; "
            f"the columns are {', '.join(columns) or 'none'}"
        )

    def parse(row: Row) -> tuple[str, str, float, int]:
        found = int(_number(row, grade)) if grade else 1
        return _text(row, query), as_id(row.get(passage), passage), _number(row, count) if count else 1.0, found

    texts: dict[str, tuple[str, int]] = {}
    pairs: dict[str, dict[str, _Pair]] = {}
    for (text, passage_id, clicks, found), _, line, _ in parse_rows(rows, parse, problems):
        key = normalise_query(text)
        texts.setdefault(key, (text, line))
        before = pairs.setdefault(key, {}).get(passage_id, _Pair(0.0, 0, line))
        pairs[key][passage_id] = _Pair(before.clicks + clicks, max(before.grade, found), before.line)
    result, rare = Clicks([], {}), 0
    for key, clicked in pairs.items():
        kept = {passage_id: pair for passage_id, pair in clicked.items() if pair.clicks >= min_clicks}
        rare += len(clicked) - len(kept)
        if not kept:
            continue
        text, line = texts[key]
        query_id = _query_id(key)
        name = TEST if split and stable_fraction(key, "clicks") < TEST_SHARE else TRAIN
        result.queries.append(Located(Query(query_id, text), file, line))
        labels = result.labels.setdefault(name, [])
        labels += [Located(Qrel(query_id, one, pair.grade), file, pair.line) for one, pair in kept.items()]
    sizes = ", ".join(f"{len(labels):,} labels in {name}" for name, labels in sorted(result.labels.items())) or "none"
    left = f"; {rare:,} pairs have fewer than {min_clicks} clicks and are left out" if rare else ""
    log_once(f"{file}: {len(result.queries):,} queries, {sizes}{left}")
    return result


def is_query_log(path: Path) -> bool:
    """Whether a file is a table with a column of query texts, and no file of ids and texts."""
    return is_catalogue(path) and path.is_file() and bool(find_column("query", table_columns(path)))


def read_query_log(path: Path, problems: Problems, known: Container[str] = ()) -> Iterator[Located[Query]]:
    """The queries of a log, the most frequent first: rows of one text add up, and an id is made from it as for clicks.

    Args:
        known: ids of queries that are left out, since clicks bring them.
    """
    columns = table_columns(path)
    query, count = find_column("query", columns), find_column("clicks", columns)

    def parse(row: Row) -> tuple[str, float]:
        return _text(row, query), _number(row, count) if count else 1.0

    found: dict[str, tuple[float, str, int]] = {}
    for (text, times), _, line, _ in parse_rows(read_table(path, problems), parse, problems):
        key = normalise_query(text)
        before, first, place = found.get(key, (0.0, text, line))
        found[key] = (before + times, first, place)
    for key, (_, text, line) in sorted(found.items(), key=lambda one: (-one[1][0], one[1][2])):
        if (query_id := _query_id(key)) not in known:
            yield Located(Query(query_id, text), str(path), line)


def _query_id(key: str) -> str:
    return f"q{string_hash(key.encode('utf-8')):016x}"


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise Malformed(Kind.EMPTY_QUERY, f"'{column}' is {'empty' if not value else f'a {type(value).__name__}'}")
    return check_unicode(" ".join(value.split()), column)


def _number(row: Row, column: str) -> float:
    value = row.get(column)
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e6:
        kind = Kind.BAD_GRADE if column in ("grade", "relevance") else Kind.BAD_FIELD
        raise Malformed(kind, f"'{column}' is {str(value)[:40]!r}; expected a number from 0 up")
    return number

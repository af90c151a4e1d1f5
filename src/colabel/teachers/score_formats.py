"""Files of scores that other programs wrote, whatever their format: (query id, passage id, score) with its line.

A TREC run, ``query Q0 passage rank score tag``
A table of three columns, ``query passage score``, with or without a header
The table that Hofstätter et al. (2020) publish, ``positive-score negative-score query positive negative``
JSON lines with ``query_id``, ``passage_id`` and ``score``
Parquet with ``query_id``, ``passage_id`` and ``teacher_score``, as labels are exported
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from colabel.data.lines import read_lines
from colabel.data.problems import BAD_COLUMNS, BAD_FIELD, MISSING_FIELD, Deaf, Strict
from colabel.data.records import Malformed, check_id, json_row, read_records, without_header
from colabel.data.trec import parse_run_line
from colabel.errors import DataError, UsageError

_PARQUET_MAGIC = b"PAR1"
_LARGEST = 3.4e38  # of a float32
_HEADERS = {"query_id", "query-id", "qid", "queryid", "query"}
_PARQUET_COLUMNS = ("query_id", "passage_id", "teacher_score")
_BATCH = 65_536
_EXPECTED = (
    "a TREC run (6 columns), query passage score (3 columns), positive-score negative-score query positive negative "
    "(5 columns), JSON lines with query_id, passage_id and score, or Parquet with query_id, passage_id and "
    "teacher_score"
)


class Score(NamedTuple):
    """One score and where it stands; ``line`` is a row number in Parquet."""

    query_id: str
    passage_id: str
    value: float
    line: int


Pairs = tuple[tuple[str, str, float], ...]


def read_scores(path: Path) -> Iterator[Score]:
    """All scores of a file in their order; the format is seen from its first line.

    Scores that are missing in Parquet (null or NaN: not annotated) are left out.

    Raises:
        DataError: what cannot be read, with its file and line.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file of scores; expected {_EXPECTED}")
    if _is_parquet(path):
        yield from _parquet_scores(path)
        return
    problems = Strict()
    parse = _detect(path)
    for located in without_header(read_records(path, parse, problems), problems):
        for query_id, passage_id, value in located.value:
            yield Score(query_id, passage_id, value, located.line)
    problems.summarise()


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _PARQUET_MAGIC
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _detect(path: Path) -> Callable[[str], Pairs | None]:
    """The parser for a text file, chosen by its first line."""
    line = next(read_lines(path, Deaf()), None)
    if line is None:
        return parse_table_line  # blank, or broken in a way that reading it again will tell
    if line.text.lstrip().startswith("{"):
        return parse_json_line
    parsers = {3: parse_table_line, 5: parse_triple_line, 6: parse_trec_line}
    columns = len(line.text.split())
    if columns not in parsers:
        raise DataError(f"{columns} columns; expected {_EXPECTED}", file=str(path), line=line.number)
    return parsers[columns]


def parse_trec_line(text: str) -> Pairs:
    """``query Q0 passage rank score tag``."""
    scored = parse_run_line(text)
    return ((scored.query_id, scored.passage_id, _finite(scored.score)),)


def parse_table_line(text: str) -> Pairs | None:
    """``query passage score``; None for a header."""
    columns = text.split()
    if len(columns) != 3:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected 3: query, passage, score")
    if columns[0].lower() in _HEADERS and columns[2].lower() in ("score", "teacher_score"):
        return None
    return ((check_id(columns[0]), check_id(columns[1]), _number(columns[2])),)


def parse_triple_line(text: str) -> Pairs:
    """``positive-score negative-score query positive negative``: two pairs of one query.

    >>> parse_triple_line("9.5\\t-1.25\\tq1\\td7\\td9")
    (('q1', 'd7', 9.5), ('q1', 'd9', -1.25))
    """
    columns = text.split()
    if len(columns) != 5:
        raise Malformed(
            BAD_COLUMNS,
            f"{len(columns)} columns; expected 5: positive score, negative score, query, positive, negative",
        )
    query_id = check_id(columns[2])
    return (
        (query_id, check_id(columns[3]), _number(columns[0])),
        (query_id, check_id(columns[4]), _number(columns[1])),
    )


def parse_json_line(text: str) -> Pairs:
    """``{"query_id": …, "passage_id": …, "score": …}``."""
    row = json_row(text)
    for column in ("query_id", "passage_id", "score"):
        if column not in row:
            raise Malformed(MISSING_FIELD, f"no field '{column}'; expected query_id, passage_id and score")
    return ((_json_id(row["query_id"]), _json_id(row["passage_id"]), _json_number(row["score"])),)


def _json_id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = json.dumps(value)  # many exports write numeric ids without quotes
    if not isinstance(value, str):
        raise Malformed(BAD_FIELD, f"an id is a {type(value).__name__}; expected a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(BAD_FIELD, "an id holds half of a surrogate pair, which is not a character") from None
    return check_id(value)


def _json_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(BAD_FIELD, f"the score is a {type(value).__name__}; expected a number")
    return _finite(float(value) if isinstance(value, float) or abs(value) < _LARGEST else math.inf)


def _number(text: str) -> float:
    try:
        return _finite(float(text))
    except ValueError:
        raise Malformed(BAD_FIELD, f"the score is {text[:40]!r}; expected a number") from None


def _finite(value: float) -> float:
    if not abs(value) < _LARGEST:
        raise Malformed(BAD_FIELD, f"the score is {value}; expected a finite number that fits into 32 bits")
    return value


def _parquet_scores(path: Path) -> Iterator[Score]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in _PARQUET_COLUMNS if name not in file.schema_arrow.names]
            if missing:
                present = ", ".join(map(str, file.schema_arrow.names[:12])) or "none"
                raise DataError(f"no column '{missing[0]}' (there is {present})", file=str(path))
            row = 0
            for batch in file.iter_batches(_BATCH, columns=list(_PARQUET_COLUMNS)):
                columns = (batch.column(name).to_pylist() for name in _PARQUET_COLUMNS)
                for query_id, passage_id, value in zip(*columns, strict=True):
                    row += 1
                    if value is None or (isinstance(value, float) and math.isnan(value)):
                        continue
                    try:
                        yield Score(_json_id(query_id), _json_id(passage_id), _json_number(value), row)
                    except Malformed as error:
                        raise DataError(f"row {row}: {error} ({error.kind.remedy})", file=str(path)) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"not a Parquet file that can be read: {reason}", file=str(path)) from None

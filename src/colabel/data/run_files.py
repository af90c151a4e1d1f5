"""Run files of any program; the format is seen from the first line.

``query Q0 passage rank score tag``, a TREC run
``query passage rank score``, a ranking of Stanford's ColBERT
``query passage rank``, a run of MS MARCO, or ``query passage score``: told apart by the whole file
``{query: {passage: score}}``, JSON as pytrec_eval, BEIR and ranx write it
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from colabel.data.lines import open_binary, read_lines
from colabel.data.problems import BAD_COLUMNS, BAD_FIELD, Deaf, Strict
from colabel.data.records import Malformed, check_id, read_records
from colabel.data.source import Located
from colabel.data.trec import finite_score, parse_run_line, whole_rank
from colabel.errors import DataError
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

RUN_FORMATS = (
    "a TREC run (6 columns: query, Q0, passage, rank, score, system name), query passage rank score (4 columns), "
    "query passage rank or query passage score (3 columns), or JSON, {query: {passage: score}}"
)
_HEADERS = ("rank", "score")
_Columns = tuple[str, str, str]
T = TypeVar("T")


def read_run(path: Path) -> Iterator[Located[ScoredPassage]]:
    """The lines of a run file, plain or gzipped, as they stand; where it names no scores, a score is the rank below 0.

    Raises:
        DataError: it has none of the formats, or three columns of which the last may be a rank or a score.
    """
    first = next(read_lines(path, Deaf()), None)
    if first is not None and first.text.lstrip().startswith("{"):
        return _read_json(path)
    columns = 6 if first is None else len(first.text.split())
    if columns == 3:
        return _read_pairs(path)
    if columns == 4:
        return _present(read_records(path, parse_ranking_line, Strict()))
    if columns != 6:
        raise DataError(
            f"{columns} columns; expected {RUN_FORMATS}", file=str(path), line=first.number if first else None
        )
    return read_records(path, parse_run_line, Strict())


def parse_ranking_line(text: str) -> ScoredPassage | None:
    """``query passage rank score``; None for a header."""
    columns = text.split()
    if len(columns) != 4:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected 4: query, passage, rank, score")
    query_id, passage_id, rank, score = columns
    if (rank.lower(), score.lower()) == _HEADERS:
        return None
    return ScoredPassage(check_id(query_id), check_id(passage_id), whole_rank(rank), finite_score(score))


def parse_pair_line(text: str) -> _Columns | None:
    """``query passage rank`` or ``query passage score``; None for a header."""
    columns = text.split()
    if len(columns) != 3:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected 3: query, passage, rank or score")
    if columns[2].lower() in _HEADERS:
        return None
    finite_score(columns[2])
    return check_id(columns[0]), check_id(columns[1]), columns[2]


def _present(rows: Iterable[Located[T | None]]) -> Iterator[Located[T]]:
    """Rows without the header."""
    for value, file, line, offset in rows:
        if value is not None:
            yield Located(value, file, line, offset)


def _read_pairs(path: Path) -> Iterator[Located[ScoredPassage]]:
    """A file of three columns: of ranks where those of every query count up from 1 (or 0) line by line."""
    rows = list(_present(read_records(path, parse_pair_line, Strict())))
    numbers: dict[str, list[str]] = {}
    for located in rows:
        query_id, _, number = located.value
        numbers.setdefault(query_id, []).append(number)
    ranks = _are_ranks(list(numbers.values()))
    if ranks is None:
        raise DataError(
            "the third column may be a rank or a score: its numbers are 1, 2, 3 … of every query and neither rise nor "
            "fall line by line; sort the lines by it (ranks rising, scores falling), or write a TREC run",
            file=str(path),
        )
    log.info("%s: three columns, read as query, passage, %s", path, "rank" if ranks else "score")
    for (query_id, passage_id, number), file, line, offset in rows:
        value = finite_score(number)
        rank, score = (int(value), -value) if ranks else (0, value)
        yield Located(ScoredPassage(query_id, passage_id, rank, score), file, line, offset)


def _are_ranks(numbers: Sequence[Sequence[str]]) -> bool | None:
    """Whether the numbers of all queries are ranks, and not scores; None where they may be either.

    >>> _are_ranks([["1", "2", "3"], ["1"]]), _are_ranks([["3", "2", "1"]]), _are_ranks([["9.5", "1"]])
    (True, False, False)
    >>> _are_ranks([["2", "1", "3"]]) is None
    True
    """
    if not all(number.isdecimal() for held in numbers for number in held):
        return False
    values = [list(map(int, held)) for held in numbers]
    start = min((min(held) for held in values), default=1)
    if start > 1 or any(sorted(held) != list(range(start, start + len(held))) for held in values):
        return False
    if all(held == sorted(held) for held in values):
        return True
    return False if all(held == sorted(held, reverse=True) for held in values) else None


def _read_json(path: Path) -> Iterator[Located[ScoredPassage]]:
    file = str(path)
    try:
        with open_binary(path) as stream:
            found = json.loads(stream.read().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON ({error.msg}); expected {RUN_FORMATS}", file=file, line=error.lineno) from None
    except (UnicodeDecodeError, EOFError, OSError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", file=file) from None
    for query_id, answers in found.items():
        if not isinstance(answers, Mapping):
            raise DataError(
                f"query '{query_id}' has a {type(answers).__name__}; expected JSON {{query: {{passage: score}}}}",
                file=file,
            )
        for passage_id, score in answers.items():
            try:
                value = _json_score(score, passage_id)
                scored = ScoredPassage(check_id(query_id), check_id(passage_id), 0, value)
            except Malformed as error:
                raise DataError(f"query '{query_id}': {error} ({error.kind.remedy})", file=file) from None
            yield Located(scored, file, 0)


def _json_score(score: Any, passage_id: str) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Malformed(
            BAD_FIELD, f"the score of passage '{passage_id}' is a {type(score).__name__}; expected a number"
        )
    return finite_score(repr(score))

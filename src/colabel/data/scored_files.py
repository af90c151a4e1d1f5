"""Files of (query, passage, score) from any program, for runs and for teachers; the first line shows the format.

``query Q0 passage rank score tag``, a TREC run
``query passage rank score``, a ranking of Stanford's ColBERT
``query passage rank``, a run of MS MARCO, or ``query passage score``: a header says which, or the whole file does
``positive-score negative-score query positive negative``, the table that Hofstätter et al. (2020) publish
``{"query_id": …, "passage_id": …, "score": …}``, JSON lines
``{query: {passage: score}}``, JSON as pytrec_eval, BEIR and ranx write it
Parquet with ``query_id``, ``passage_id`` and ``teacher_score`` (as labels are exported) or ``score``
"""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from colabel.data.formats.catalogue import arrow_errors
from colabel.data.text_lines import (
    Collected,
    Kind,
    Located,
    Malformed,
    Strict,
    as_id,
    begins_with,
    check_id,
    json_row,
    numbered,
    open_binary,
    parse_rows,
    read_lines,
    read_records,
    required_field,
    without_header,
)
from colabel.errors import DataError, UsageError
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

SCORE_FORMATS = (
    "a TREC run (6 columns: query, Q0, passage, rank, score, system name), query passage rank score (4 columns), "
    "query passage rank or query passage score (3 columns), positive-score negative-score query positive negative "
    "(5 columns), JSON, {query: {passage: score}}, JSON lines with query_id, passage_id and score, or Parquet with "
    "query_id, passage_id and teacher_score or score"
)
Scores = tuple[ScoredPassage, ...]
T = TypeVar("T")

_COLUMNS = {
    3: "query, passage, rank or score",
    4: "query, passage, rank, score",
    5: "positive score, negative score, query, positive, negative",
    6: "query, Q0, passage, rank, score, system name",
}
_NUMBERS = ("rank", "score", "teacher_score")  # what a header calls the last column
_LARGEST = 3.4028235e38  # rounds to the largest float32, with which some programs mark "never"
_BATCH = 65_536


def read_scores(path: Path, *, ranks: bool = True) -> Iterator[Located[ScoredPassage]]:
    """The records of a score file, plain or gzipped, in their order.

    Args:
        ranks: whether a third of three columns may be a rank, as in a run; the score is then minus the rank.
            A teacher's file has scores there.

    ``line`` is the row in Parquet and 0 in JSON; ``rank`` is 0 where the file has none. Parquet rows without a score
    (null or NaN: not annotated) are left out.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such score file; expected {SCORE_FORMATS}")
    if begins_with(path, b"PAR1"):
        return _read_parquet(path)
    first = next(read_lines(path, Collected()), None)
    text = first.value if first else ""
    columns = text.split()
    if text.lstrip().startswith("{") and not _parsed(partial(parse_line, wanted=6), text):
        lines = isinstance((_parsed(json_row, text) or {}).get("query_id", {}), str | int)
        return _read_table(path, parse_json_line) if lines else _read_json(path)
    if len(columns) == 3:
        return _read_pairs(path, columns[2].lower(), ranks)
    if len(columns) == 4:
        return _read_ranking(path)
    if first and len(columns) not in _COLUMNS:
        raise DataError(f"{len(columns)} columns; expected {SCORE_FORMATS}", file=str(path), line=first.line)
    return _read_table(path, partial(parse_line, wanted=len(columns) or 6))


def run_line(scored: ScoredPassage, system: str) -> str:
    """One line of a TREC run; the score keeps enough digits to restore a float32.

    >>> run_line(ScoredPassage("q1", "d7", 1, 12.5), "colabel")
    'q1 Q0 d7 1 12.5 colabel'
    """
    return f"{scored.query_id} Q0 {scored.passage_id} {scored.rank} {scored.score:.9g} {system}"


def parse_line(text: str, wanted: int) -> Scores | None:
    """The scores on a line of ``wanted`` columns; None for a header.

    Only the score orders a run, as in trec_eval. Some programs write ranks as 1.0 or -1; others are taken for a slip
    of columns.

    >>> [(one.passage_id, one.score) for one in parse_line("9.5\\t-1.25\\tq1\\td7\\td9", 5)]
    [('d7', 9.5), ('d9', -1.25)]
    """
    columns = text.split()
    if len(columns) != wanted:
        raise Malformed(Kind.BAD_COLUMNS, f"{len(columns)} columns; expected {wanted}: {_COLUMNS[wanted]}")
    if wanted == 5:
        high, low, query_id, positive, negative = columns
        return _scored(query_id, positive, high), _scored(query_id, negative, low)
    if wanted == 6:
        query_id, _, passage_id, rank, score, _ = columns
        return (_scored(query_id, passage_id, score, rank),)
    if columns[-1].lower() in _NUMBERS:
        return None
    return (_scored(columns[0], columns[1], columns[-1], columns[2] if wanted == 4 else "0"),)


def _scored(query_id: str, passage_id: str, score: str, rank: str = "0") -> ScoredPassage:
    if not re.fullmatch(r"-?[0-9]{1,9}(\.0*)?", rank):
        raise Malformed(Kind.BAD_FIELD, f"the rank is {rank[:40]!r}; expected a whole number")
    return ScoredPassage(check_id(query_id), check_id(passage_id), int(float(rank)), _score(score))


def parse_json_line(text: str) -> Scores:
    """``{"query_id": …, "passage_id": …, "score": …}``."""
    row = json_row(text)
    query_id, passage_id, score = (required_field(row, name) for name in ("query_id", "passage_id", "score"))
    return (_from_json(query_id, passage_id, score),)


def _from_json(query_id: Any, passage_id: Any, score: Any) -> ScoredPassage:
    pair = as_id(query_id, "query_id"), as_id(passage_id, "passage_id")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Malformed(
            Kind.BAD_FIELD, f"the score of passage '{pair[1]}' is a {type(score).__name__}; expected a number"
        )
    return ScoredPassage(*pair, 0, _score(str(score)))


def _score(text: str) -> float:
    """A score as text; Python would read 1_000 as a number, too."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= _LARGEST:
        raise Malformed(Kind.BAD_FIELD, f"the score is {text[:40]!r}; expected a finite number that fits into 32 bits")
    return value


def _parsed(parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except Malformed:
        return None


def _read_table(path: Path, parse: Callable[[str], Scores | None]) -> Iterator[Located[ScoredPassage]]:
    problems = Strict()
    for scores, file, line, offset in without_header(read_records(path, parse, problems), problems):
        for scored in scores:
            yield Located(scored, file, line, offset)
    problems.summarise()


def _read_ranking(path: Path) -> Iterator[Located[ScoredPassage]]:
    """A file of four columns; one in which no rank is 0 or 1 has other columns, such as those of labels."""
    starts = False
    for located in _read_table(path, partial(parse_line, wanted=4)):
        starts = starts or located.value.rank in (0, 1)
        yield located
    if not starts:
        raise DataError(
            "four columns, of which the third is no rank: none is 0 or 1; expected query, passage, rank, score",
            file=str(path),
        )


def _read_pairs(path: Path, header: str, ranks: bool) -> Iterator[Located[ScoredPassage]]:
    """A file of three columns, read twice where neither the ``header`` nor the caller says what the third is."""
    if header == "rank" and not ranks:
        raise DataError("the third column holds ranks; a teacher needs scores there", file=str(path), line=1)
    if ranks:
        ranks = header == "rank" if header in _NUMBERS else _are_ranks(path)
        log.info("%s: three columns, read as query, passage, %s", path, "rank" if ranks else "score")
    for located in _read_table(path, partial(parse_line, wanted=3)):
        query_id, passage_id, value = located.value.query_id, located.value.passage_id, located.value.score
        yield located._replace(value=ScoredPassage(query_id, passage_id, int(value), -value)) if ranks else located


def _are_ranks(path: Path) -> bool:
    """Whether the third column holds ranks: whole numbers that rise line by line in every query, from 0 or 1."""
    last: dict[str, float] = {}
    rises = falls = early = True
    for located in _read_table(path, partial(parse_line, wanted=3)):
        query_id, value = located.value.query_id, located.value.score
        if not (value.is_integer() and 0 <= value < 1e9):
            return False
        before = last.get(query_id)
        if before is None:
            early = early and value <= 1
        else:
            rises, falls = rises and before <= value, falls and before >= value
        last[query_id] = value
    if falls:  # also where every query has one passage, whose number does not matter
        return False
    if rises and early:
        return True
    raise DataError(
        "the third column may be a rank or a score: its numbers are whole and neither rise from 1 nor fall in every "
        "query; put 'query passage rank' or 'query passage score' on a line before them, or write a TREC run",
        file=str(path),
    )


def _read_json(path: Path) -> Iterator[Located[ScoredPassage]]:
    file = str(path)
    try:
        with open_binary(path) as stream:
            found = json.loads(stream.read().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        what = "JSON lines without query_id" if error.msg == "Extra data" else f"not JSON ({error.msg})"
        line = 1 if error.msg == "Extra data" else error.lineno
        raise DataError(f"{what}; expected {SCORE_FORMATS}", file=file, line=line) from None
    except (ValueError, EOFError, OSError, RecursionError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", file=file) from None
    for query_id, answers in found.items():
        if not isinstance(answers, Mapping):
            raise DataError(
                f"query '{query_id}' has a {type(answers).__name__}; expected JSON {{query: {{passage: score}}}}",
                file=file,
            )
        for passage_id, score in answers.items():
            try:
                yield Located(_from_json(query_id, passage_id, score), file, 0)
            except Malformed as error:
                raise DataError(f"query {query_id!a}: {error} ({error.kind.remedy})", file=file) from None


def _read_parquet(path: Path) -> Iterator[Located[ScoredPassage]]:
    rows = (row for row in numbered(_parquet_rows(path), str(path)) if row.value[2] is not None)
    return parse_rows(rows, lambda row: _from_json(*row), Strict())


def _parquet_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """Query id, passage id and score, which is None where there is none."""
    import pyarrow.parquet as pq

    with arrow_errors(path), pq.ParquetFile(path) as table:
        present = table.schema_arrow.names
        score = "score" if "score" in present and "teacher_score" not in present else "teacher_score"
        wanted = ["query_id", "passage_id", score]
        for name in wanted:
            if name not in present:
                shown = ", ".join(map(str, present[:12])) or "none"
                raise DataError(f"no column '{name}' (there is {shown})", file=str(path))
        for batch in table.iter_batches(_BATCH, columns=wanted):
            query_ids, passage_ids, scores = (batch.column(name).to_pylist() for name in wanted)
            known = (None if isinstance(value, float) and math.isnan(value) else value for value in scores)
            yield from zip(query_ids, passage_ids, known, strict=True)

"""Run files of any program; the format is seen from the first line.

``query Q0 passage rank score tag``, a TREC run
``query passage rank score``, a ranking of Stanford's ColBERT
``query passage rank``, a run of MS MARCO, or ``query passage score``: a header says which, or the whole file does
``{query: {passage: score}}``, JSON as pytrec_eval, BEIR and ranx write it
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.data.lines import open_binary, read_lines
from colabel.data.problems import BAD_COLUMNS, BAD_FIELD, Deaf, Strict
from colabel.data.records import Malformed, check_id, check_unicode, read_records, without_header
from colabel.data.source import Located
from colabel.data.trec import finite_score, parse_run_line, whole_rank
from colabel.errors import DataError
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

RUN_FORMATS = (
    "a TREC run (6 columns: query, Q0, passage, rank, score, system name), query passage rank score (4 columns), "
    "query passage rank or query passage score (3 columns), or JSON, {query: {passage: score}}"
)
_NUMBERS = ("rank", "score")  # as a header of three columns names the third
_WHOLE = re.compile(r"\d{1,9}(\.0*)?")


def read_run(path: Path) -> Iterator[Located[ScoredPassage]]:
    """The lines of a run file, plain or gzipped, as they stand; where it has ranks alone, the score is minus the rank.

    Raises:
        DataError: it has none of the formats, or it cannot be told whether its numbers are ranks or scores.
    """
    first = next(read_lines(path, Deaf()), None)
    if first is None or _is_trec(first.text):
        return read_records(path, parse_run_line, Strict())
    if first.text.lstrip().startswith("{"):
        return _read_json(path)
    columns = first.text.split()
    if len(columns) == 3:
        return _read_pairs(path, columns[2].lower())
    if len(columns) == 4:
        return _read_ranking(path)
    if len(columns) != 6:
        raise DataError(f"{len(columns)} columns; expected {RUN_FORMATS}", file=str(path), line=first.number)
    return read_records(path, parse_run_line, Strict())


def _is_trec(text: str) -> bool:
    try:
        parse_run_line(text)
    except Malformed:
        return False
    return True


def parse_ranking_line(text: str) -> ScoredPassage | None:
    """``query passage rank score``; None for a header."""
    columns = text.split()
    if len(columns) != 4:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected 4: query, passage, rank, score")
    query_id, passage_id, rank, score = columns
    if (rank.lower(), score.lower()) == ("rank", "score"):
        return None
    return ScoredPassage(check_id(query_id), check_id(passage_id), whole_rank(rank), finite_score(score))


def parse_pair_line(text: str) -> tuple[str, str, str] | None:
    """``query passage rank`` or ``query passage score``; None for a header."""
    columns = text.split()
    if len(columns) != 3:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected 3: query, passage, rank or score")
    if columns[2].lower() in _NUMBERS:
        return None
    finite_score(columns[2])
    return check_id(columns[0]), check_id(columns[1]), columns[2]


def _read_ranking(path: Path) -> Iterator[Located[ScoredPassage]]:
    """A file of four columns; one in which no rank is 0 or 1 has other columns, such as those of labels."""
    starts = False
    for located in without_header(read_records(path, parse_ranking_line, Strict()), Strict()):
        starts = starts or located.value.rank in (0, 1)
        yield located
    if not starts:
        raise DataError(
            "four columns, of which the third is no rank: none is 0 or 1; expected query, passage, rank, score",
            file=str(path),
        )


def _read_pairs(path: Path, name: str) -> Iterator[Located[ScoredPassage]]:
    """A file of three columns, read twice unless the first line has the ``name`` of the third."""
    ranks = name == "rank" if name in _NUMBERS else _are_ranks(path)
    log.info("%s: three columns, read as query, passage, %s", path, "rank" if ranks else "score")
    rows = without_header(read_records(path, parse_pair_line, Strict()), Strict())
    for (query_id, passage_id, number), file, line, offset in rows:
        value = finite_score(number)
        rank, score = (int(value), -value) if ranks else (0, value)
        yield Located(ScoredPassage(query_id, passage_id, rank, score), file, line, offset)


def _are_ranks(path: Path) -> bool:
    """Whether the third column holds ranks: whole numbers that rise line by line in every query, from 0 or 1.

    Raises:
        DataError: they are whole, and neither rise so nor fall as scores do.
    """
    last: dict[str, float] = {}
    rises = falls = early = True
    for located in without_header(read_records(path, parse_pair_line, Strict()), Strict()):
        query_id, _, number = located.value
        if not _WHOLE.fullmatch(number):
            return False
        value = float(number)
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
            found = json.loads(stream.read().decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        what = "JSON lines" if error.msg == "Extra data" else f"not JSON ({error.msg})"
        line = 1 if error.msg == "Extra data" else error.lineno
        raise DataError(f"{what}; expected {RUN_FORMATS}", file=file, line=line) from None
    except Malformed as error:
        raise DataError(str(error), file=file) from None
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
                yield Located(_json_entry(query_id, passage_id, score), file, 0)
            except Malformed as error:
                raise DataError(f"query {query_id!a}: {error} ({error.kind.remedy})", file=file) from None


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise Malformed(BAD_FIELD, f"{twice!a} stands twice in one JSON object; a run names each once")
    return found


def _json_entry(query_id: str, passage_id: str, score: Any) -> ScoredPassage:
    query = check_unicode(check_id(query_id), "query")
    passage = check_unicode(check_id(passage_id), "passage")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Malformed(
            BAD_FIELD, f"the score of passage '{passage_id}' is a {type(score).__name__}; expected a number"
        )
    return ScoredPassage(query, passage, 0, finite_score(repr(score)))

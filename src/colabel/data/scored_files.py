"""Files of (query, passage, score) from any program, for runs and for teachers; the first line shows the format.

``query Q0 passage rank score tag``, a TREC run
``query passage rank score``, a ranking of Stanford's ColBERT
``query passage rank``, a run of MS MARCO, or ``query passage score``: a header says which, or the whole file does
``positive-score negative-score query positive negative``, the table that Hofstätter et al. (2020) publish
``{"query_id": …, "passage_id": …, "score": …}``, JSON lines
``{query: {passage: score}}``, JSON as pytrec_eval, BEIR and ranx write it
Parquet with ``query_id``, ``passage_id`` and ``teacher_score`` (as labels are exported) or ``score``

Another format of one record per line is a parser from a line to :data:`Scores` and its entry in ``_COLUMNS``.
"""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.data.text_lines import (
    BAD_COLUMNS,
    BAD_FIELD,
    Collected,
    Located,
    Malformed,
    Strict,
    as_id,
    check_id,
    check_unicode,
    id_field,
    json_row,
    open_binary,
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

_NUMBERS = ("rank", "score", "teacher_score")  # as a header of three columns names the third
_LARGEST = 3.4028235e38  # rounds to the largest float32, with which some programs mark "never"
_PARQUET_MAGIC = b"PAR1"
_BATCH = 65_536


def read_scores(path: Path, *, ranks: bool = True) -> Iterator[Located[ScoredPassage]]:
    """The records of a score file, plain or gzipped, in their order.

    Args:
        ranks: whether a third of three columns may be a rank, as in a run; the score is then minus the rank.
            A teacher's file has scores there.

    ``line`` is the row in Parquet and 0 in JSON; ``rank`` is 0 where the file has none. Parquet rows without a score
    (null or NaN: not annotated) are left out.

    Raises:
        UsageError: there is no such file.
        DataError: it has none of the formats, or its numbers may be ranks or scores.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such score file; expected {SCORE_FORMATS}")
    if _starts_with(path, _PARQUET_MAGIC):
        return _read_parquet(path)
    first = next(read_lines(path, Collected()), None)
    if first is None or _is_trec(first.text):
        return _read_table(path, parse_trec_line)
    if first.text.lstrip().startswith("{"):
        return _read_table(path, parse_json_line) if _is_json_line(first.text) else _read_json(path)
    columns = first.text.split()
    if len(columns) == 3:
        return _read_pairs(path, columns[2].lower(), ranks)
    if len(columns) == 4:
        return _read_ranking(path)
    if len(columns) not in _COLUMNS:
        raise DataError(f"{len(columns)} columns; expected {SCORE_FORMATS}", file=str(path), line=first.number)
    return _read_table(path, _COLUMNS[len(columns)])


def run_line(scored: ScoredPassage, system: str) -> str:
    """One line of a TREC run; the score keeps enough digits to restore a float32.

    >>> run_line(ScoredPassage("q1", "d7", 1, 12.5), "colabel")
    'q1 Q0 d7 1 12.5 colabel'
    """
    return f"{scored.query_id} Q0 {scored.passage_id} {scored.rank} {scored.score:.9g} {system}"


def parse_trec_line(text: str) -> Scores:
    """``query Q0 passage rank score tag``.

    Only the score orders a run, as in trec_eval. Some programs write ranks as 1.0 or -1; others are taken for a slip
    of columns.
    """
    query_id, _, passage_id, rank, score, _ = _columns(text, "query, Q0, passage, rank, score, system name")
    return (ScoredPassage(check_id(query_id), check_id(passage_id), _whole_rank(rank), _number(score)),)


def parse_ranking_line(text: str) -> Scores | None:
    """``query passage rank score``; None for a header."""
    query_id, passage_id, rank, score = _columns(text, "query, passage, rank, score")
    if (rank.lower(), score.lower()) == ("rank", "score"):
        return None
    return (ScoredPassage(check_id(query_id), check_id(passage_id), _whole_rank(rank), _number(score)),)


def parse_pair_line(text: str) -> Scores | None:
    """``query passage number``, the number as the score; None for a header."""
    query_id, passage_id, number = _columns(text, "query, passage, rank or score")
    if number.lower() in _NUMBERS:
        return None
    return (ScoredPassage(check_id(query_id), check_id(passage_id), 0, _number(number)),)


def parse_triple_line(text: str) -> Scores:
    """``positive-score negative-score query positive negative``: two pairs of one query.

    >>> [(one.passage_id, one.score) for one in parse_triple_line("9.5\\t-1.25\\tq1\\td7\\td9")]
    [('d7', 9.5), ('d9', -1.25)]
    """
    high, low, query_id, positive, negative = _columns(
        text, "positive score, negative score, query, positive, negative"
    )
    pairs = ((positive, high), (negative, low))
    return tuple(ScoredPassage(check_id(query_id), check_id(passage), 0, _number(score)) for passage, score in pairs)


def parse_json_line(text: str) -> Scores:
    """``{"query_id": …, "passage_id": …, "score": …}``."""
    row = json_row(text)
    score = required_field(row, "score")
    return (ScoredPassage(id_field(row, "query_id"), id_field(row, "passage_id"), 0, _json_number(score, "the score")),)


_COLUMNS: dict[int, Callable[[str], Scores | None]] = {5: parse_triple_line, 6: parse_trec_line}


def _columns(text: str, names: str) -> list[str]:
    columns, wanted = text.split(), names.count(",") + 1
    if len(columns) != wanted:
        raise Malformed(BAD_COLUMNS, f"{len(columns)} columns; expected {wanted}: {names}")
    return columns


def _number(text: str) -> float:
    """A score as text; Python would read 1_000 as a number, too."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    return _finite(value, text)


def _json_number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(BAD_FIELD, f"{what} is a {type(value).__name__}; expected a number")
    return _finite(float(value) if abs(value) <= _LARGEST else math.nan, str(value))


def _finite(value: float, text: str) -> float:
    if not abs(value) <= _LARGEST:
        raise Malformed(BAD_FIELD, f"the score is {text[:40]!r}; expected a finite number that fits into 32 bits")
    return value


def _whole_rank(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}(\.0*)?", text):
        raise Malformed(BAD_FIELD, f"the rank is {text[:40]!r}; expected a whole number")
    return int(float(text))


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _is_trec(text: str) -> bool:
    try:
        parse_trec_line(text)
    except Malformed:
        return False
    return True


def _is_json_line(text: str) -> bool:
    try:
        return not isinstance(json_row(text).get("query_id", {}), Mapping)
    except Malformed:
        return False


def _read_table(path: Path, parse: Callable[[str], Scores | None]) -> Iterator[Located[ScoredPassage]]:
    problems = Strict()
    for scores, file, line, offset in without_header(read_records(path, parse, problems), problems):
        for scored in scores:
            yield Located(scored, file, line, offset)
    problems.summarise()


def _read_ranking(path: Path) -> Iterator[Located[ScoredPassage]]:
    """A file of four columns; one in which no rank is 0 or 1 has other columns, such as those of labels."""
    starts = False
    for located in _read_table(path, parse_ranking_line):
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
    for located in _read_table(path, parse_pair_line):
        query_id, passage_id, value = located.value.query_id, located.value.passage_id, located.value.score
        yield located._replace(value=ScoredPassage(query_id, passage_id, int(value), -value)) if ranks else located


def _are_ranks(path: Path) -> bool:
    """Whether the third column holds ranks: whole numbers that rise line by line in every query, from 0 or 1.

    Raises:
        DataError: they are whole, and neither rise so nor fall as scores do.
    """
    last: dict[str, float] = {}
    rises = falls = early = True
    for located in _read_table(path, parse_pair_line):
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
            found = json.loads(stream.read().decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        what = "JSON lines without query_id" if error.msg == "Extra data" else f"not JSON ({error.msg})"
        line = 1 if error.msg == "Extra data" else error.lineno
        raise DataError(f"{what}; expected {SCORE_FORMATS}", file=file, line=line) from None
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
                query = check_unicode(check_id(query_id), "query")
                passage = check_unicode(check_id(passage_id), "passage")
                number = _json_number(score, f"the score of passage '{passage_id}'")
            except Malformed as error:
                raise DataError(f"query {query_id!a}: {error} ({error.kind.remedy})", file=file) from None
            yield Located(ScoredPassage(query, passage, 0, number), file, 0)


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise Malformed(BAD_FIELD, f"{twice!a} appears twice in one JSON object; a run names each once")
    return found


def _read_parquet(path: Path) -> Iterator[Located[ScoredPassage]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = str(path)
    try:
        with pq.ParquetFile(path) as table:
            present = table.schema_arrow.names
            score = "score" if "score" in present and "teacher_score" not in present else "teacher_score"
            wanted = ["query_id", "passage_id", score]
            for name in wanted:
                if name not in present:
                    shown = ", ".join(map(str, present[:12])) or "none"
                    raise DataError(f"no column '{name}' (there is {shown})", file=file)
            number = 0
            for batch in table.iter_batches(_BATCH, columns=wanted):
                columns = (batch.column(name).to_pylist() for name in wanted)
                for query_id, passage_id, value in zip(*columns, strict=True):
                    number += 1
                    if value is None or (isinstance(value, float) and math.isnan(value)):
                        continue
                    try:
                        pair = as_id(query_id, "query_id"), as_id(passage_id, "passage_id")
                        yield Located(ScoredPassage(*pair, 0, _json_number(value, "the score")), file, number)
                    except Malformed as error:
                        raise DataError(f"row {number}: {error} ({error.kind.remedy})", file=file) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"not a Parquet file that can be read: {reason}", file=file) from None

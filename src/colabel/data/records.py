"""One line or table row → one record, or one problem. All formats share these few readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from colabel.data.lines import read_lines
from colabel.data.problems import (
    BAD_COLUMNS,
    BAD_FIELD,
    BAD_GRADE,
    BAD_ID,
    BAD_JSON,
    EMPTY_PASSAGE,
    EMPTY_QUERY,
    MISSING_FIELD,
    Kind,
    Problems,
)
from colabel.data.source import Located
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")
Row = Mapping[str, Any]

BEIR_COLUMNS: Mapping[str, str] = {
    "passage_id": "_id",
    "passage_title": "title",
    "passage_text": "text",
    "query_id": "_id",
    "query_text": "text",
    "label_query": "query-id",
    "label_passage": "corpus-id",
    "label_grade": "score",
}
"""Role → column name. A text role may join several columns: ``"abstract+body"``."""

_QREL_HEADERS = {"query-id", "query_id", "qid", "queryid", "query"}
_MAX_GRADE_DIGITS = 6


class Malformed(Exception):  # noqa: N818 - not an error of ours: it never leaves the readers
    """A row cannot be used; carries the kind of problem."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_records(path: Path, parse: Callable[[str], T], problems: Problems) -> Iterator[Located[T]]:
    """Parse every line of a file, reporting what cannot be parsed and warning of empty passages."""
    file = str(path)
    for line in read_lines(path, problems):
        try:
            value = parse(line.text)
        except Malformed as error:
            problems.add(error.kind, file, line.number, str(error))
            continue
        if isinstance(value, Passage):
            warn_if_empty(value, file, line.number, problems)
        yield Located(value, file, line.number, line.offset)


def without_header(rows: Iterable[Located[T | None]], problems: Problems) -> Iterator[Located[T]]:
    """Rows of a parser that gives None for a header, which may stand first and nowhere else."""
    for number, (value, file, line, offset) in enumerate(rows):
        if value is not None:
            yield Located(value, file, line, offset)
        elif number > 0:
            problems.add(BAD_COLUMNS, file, line, "a header line inside the file")


def warn_if_empty(passage: Passage, file: str, line: int, problems: Problems) -> None:
    """Report a passage in which there is nothing to read."""
    if not passage.full_text:
        problems.add(EMPTY_PASSAGE, file, line, f"passage '{passage.id}' has neither title nor text")


def json_row(text: str) -> Row:
    """One JSON object from one line."""
    try:
        row = json.loads(text)
    except RecursionError:
        raise Malformed(BAD_JSON, "not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise Malformed(BAD_JSON, f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise Malformed(BAD_JSON, f"a JSON {type(row).__name__} where an object was expected")
    return row


def passage_from_row(row: Row, columns: Mapping[str, str]) -> Passage:
    """A passage; the title column may be absent."""
    passage_id = _id(row, columns["passage_id"])
    title_column = columns["passage_title"]
    title = _text(row, title_column, optional=True) if title_column else ""
    return Passage(passage_id, title, _text(row, columns["passage_text"], optional=False))


def query_from_row(row: Row, columns: Mapping[str, str]) -> Query:
    """A query with a non-empty text."""
    return make_query(_id(row, columns["query_id"]), _text(row, columns["query_text"], optional=False))


def qrel_from_row(row: Row, columns: Mapping[str, str]) -> Qrel:
    """A label; where the grade column is set to "", every row means "relevant" (clicks often have no grade)."""
    grade_column = columns["label_grade"]
    grade = _field(row, grade_column) if grade_column else 1
    return Qrel(_id(row, columns["label_query"]), _id(row, columns["label_passage"]), _grade(grade))


def passage_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns on which the contents of a collection depend."""
    return {role: columns[role] for role in ("passage_id", "passage_title", "passage_text")}


def make_query(query_id: str, text: str) -> Query:
    """A query, refused when its text is empty."""
    if not text.strip():
        raise Malformed(EMPTY_QUERY, f"query '{query_id}' has no text")
    return Query(query_id, text)


def passage_from_tsv(text: str) -> Passage:
    """``id<TAB>text`` as in MS MARCO's collection.tsv."""
    passage_id, body = _two_columns(text)
    return Passage(check_id(passage_id), "", body)


def query_from_tsv(text: str) -> Query:
    """``id<TAB>text`` as in MS MARCO's queries.*.tsv."""
    query_id, body = _two_columns(text)
    return make_query(check_id(query_id), body)


def qrel_from_line(text: str) -> Qrel | None:
    """A BEIR line (query, passage, grade; tabs), a TREC line (query, iteration, passage, grade) or a header (None)."""
    columns = text.split("\t") if text.count("\t") == 2 else text.split()
    if columns and columns[0].lower() in _QREL_HEADERS and not columns[-1].lstrip("-").isdigit():
        return None
    if len(columns) == 3:
        query_id, passage_id, grade = columns
    elif len(columns) == 4:
        query_id, _, passage_id, grade = columns
    else:
        run = "; six are those of a run, and labels come before runs" if len(columns) == 6 else ""
        raise Malformed(
            BAD_COLUMNS,
            f"{len(columns)} columns; expected 3 (query, passage, grade) or 4 (query, iteration, passage, grade){run}",
        )
    return Qrel(check_id(query_id.strip()), check_id(passage_id.strip()), _grade(grade.strip()))


def read_qrels(path: Path, problems: Problems, columns: Mapping[str, str] = BEIR_COLUMNS) -> Iterator[Located[Qrel]]:
    """Labels from a BEIR, TREC or JSONL file; which one is seen from the name and the number of columns."""
    if is_jsonl(path):
        yield from read_records(path, lambda text: qrel_from_row(json_row(text), columns), problems)
        return
    yield from without_header(read_records(path, qrel_from_line, problems), problems)


def read_queries(path: Path, problems: Problems, columns: Mapping[str, str] = BEIR_COLUMNS) -> Iterator[Located[Query]]:
    """Queries from a JSONL or TSV file, by its name."""
    if is_jsonl(path):
        return read_records(path, lambda text: query_from_row(json_row(text), columns), problems)
    return read_records(path, query_from_tsv, problems)


def is_jsonl(path: Path) -> bool:
    """Whether a name says JSON lines.

    >>> is_jsonl(Path("clicks.jsonl.gz")), is_jsonl(Path("train.tsv"))
    (True, False)
    """
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson"))


def check_id(value: str) -> str:
    """Refuse ids that could not be written to a TREC file."""
    if not value or re.search(r"\s", value):
        raise Malformed(BAD_ID, "the id is empty" if not value else f"the id {value[:60]!r} contains white space")
    return value


def _two_columns(text: str) -> tuple[str, str]:
    first, tab, rest = text.partition("\t")
    if not tab:
        raise Malformed(BAD_COLUMNS, "no tab; expected an id, a tab and the text")
    return first, rest


def _id(row: Row, column: str) -> str:
    value = _field(row, column)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # many exports write numeric ids without quotes
    if not isinstance(value, str):
        raise Malformed(BAD_FIELD, f"'{column}' is a {type(value).__name__}; expected a string")
    return check_id(check_unicode(value, column))


def _text(row: Row, columns: str, *, optional: bool) -> str:
    names = columns.split("+")
    if not optional and not any(name in row for name in names):
        _field(row, columns)  # raises: none of the columns is there
    parts = []
    for column in names:
        value = row.get(column)
        if value is None:
            continue
        if not isinstance(value, str):
            raise Malformed(BAD_FIELD, f"'{column}' is a {type(value).__name__}; expected a string")
        parts.append(check_unicode(value, column))
    return " ".join(part for part in parts if part)


def _field(row: Row, column: str) -> Any:
    if column not in row:
        present = ", ".join(f"'{str(name)[:30]}'" for name in list(row)[:8]) or "nothing"
        raise Malformed(MISSING_FIELD, f"no field '{column}' (there is {present})")
    return row[column]


def check_unicode(value: str, column: str) -> str:
    """Refuse what JSON can write and no file of text can hold."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(BAD_FIELD, f"'{column}' holds half of a surrogate pair, which is not a character") from None
    return value


def _grade(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        text = str(value) if abs(value) < 10**_MAX_GRADE_DIGITS else ""
    else:
        text = value if isinstance(value, str) else ""
    if not re.fullmatch(rf"-?[0-9]{{1,{_MAX_GRADE_DIGITS}}}", text):
        raise Malformed(BAD_GRADE, f"the grade is {str(value)[:40]!r}; expected a whole number")
    return int(text)

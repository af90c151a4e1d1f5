"""Text files to records: lines, plain or gzipped, one record or one problem each. All formats share these readers.

Readers report each problem with its file and line. ``colabel check`` collects them all; everything else stops
at the first fatal one (:class:`Strict`).
"""

from __future__ import annotations

import enum
import gzip
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar, cast

from colabel.errors import DataError, location
from colabel.types import Passage, Qrel, Qrels, Query

log = logging.getLogger(__name__)

R = TypeVar("R")
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
_BOM = b"\xef\xbb\xbf"
_MOST_PROBLEMS = 100_000  # of each kind


class Kind(enum.Enum):
    """A kind of problem: its name, whether it is fatal, and the remedy or what colabel will do."""

    UNREADABLE = "unreadable", True, "check the path and the permissions, or copy the file again"
    BAD_GZIP = "bad-gzip", True, "the compressed file is damaged or cut short: copy it again"
    BAD_UTF8 = "bad-utf8", True, "save the file as UTF-8 (iconv -f latin1 -t utf-8 is a common repair)"
    BAD_JSON = "bad-json", True, "each line must be one JSON object"
    BAD_COLUMNS = "bad-columns", True, "check the separator and the number of columns"
    MISSING_FIELD = "missing-field", True, "add the field, or name the right one under [data.columns]"
    BAD_FIELD = "bad-field", True, "ids and texts are strings, scores and ranks numbers"
    BAD_ID = "bad-id", True, "an id must be non-empty and without white space, which separates columns in TREC files"
    BAD_GRADE = "bad-grade", True, "a grade is a whole number from 0 (judged, not relevant) up"
    EMPTY_PASSAGE = "empty-passage", False, "kept in the collection, never retrieved"
    EMPTY_QUERY = "empty-query", True, "give the query a text or remove it and its labels"
    EMPTY_FILE = "empty-file", True, "there is nothing to work with"
    DUPLICATE_PASSAGE = "duplicate-passage", True, "ids must be unique: remove or rename one"
    DUPLICATE_QUERY = "duplicate-query", True, "ids must be unique: remove or rename one"
    REPEATED_QUERY = "repeated-query", False, "same id and same text: the first is used"
    REPEATED_LABEL = "repeated-label", False, "same pair and same grade: counted once"
    CONFLICTING_LABEL = "conflicting-label", True, "one pair, two grades: keep one line"
    UNKNOWN_QUERY = "unknown-query", True, "add the query, remove the label, or set data.unknown_labels = 'drop'"
    UNKNOWN_PASSAGE = "unknown-passage", True, "add the passage, remove the label, or set data.unknown_labels = 'drop'"
    DROPPED_LABEL = "dropped-label", False, "query or passage does not exist: left out, as data.unknown_labels says"
    TEST_IN_TRAIN = "test-query-in-train", False, "left out of train, so test stays whole"
    DEV_IN_TRAIN = "dev-query-in-train", False, "left out of train, so dev stays whole"
    TEST_IN_DEV = "test-query-in-dev", False, "left out of dev, so test stays whole"
    HIDDEN_AND_VISIBLE = "hidden-and-visible", True, "remove it from hidden/train.tsv or from the train labels"
    BOM = "byte-order-mark", False, "skipped"
    CRLF = "crlf", False, "Windows line ends are read as line ends"

    def __init__(self, slug: str, fatal: bool, remedy: str) -> None:
        self.slug, self.fatal, self.remedy = slug, fatal, remedy


class Problem(NamedTuple):
    """One thing that is wrong at one place."""

    kind: Kind
    file: str
    line: int | None
    message: str


class Collected:
    """Keeps every problem, up to 100,000 of each kind; all are counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._problems: dict[Kind, list[Problem]] = {}

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Keep the problem."""
        self.counts[kind.slug] += 1
        if self.counts[kind.slug] <= _MOST_PROBLEMS:
            self._problems.setdefault(kind, []).append(Problem(kind, file, line, message))

    def __iter__(self) -> Iterator[Problem]:
        """All kept problems, fatal kinds first, in the order they were found within a kind."""
        for kind in sorted(self._problems, key=lambda kind: not kind.fatal):
            yield from self._problems[kind]

    @property
    def fatal(self) -> int:
        """How many fatal problems there are."""
        return sum(self.counts[kind.slug] for kind in self._problems if kind.fatal)


class Strict:
    """Raises the first fatal problem as a DataError; logs the first warning of each kind and counts the rest."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Raise or count."""
        if kind.fatal:
            raise DataError(f"{message} ({kind.remedy})", file=file, line=line)
        if not self.counts[kind.slug]:
            log.warning("%s: %s (%s)", location(file, line), message, kind.remedy)
        self.counts[kind.slug] += 1

    def summarise(self) -> dict[str, int]:
        """Log how often each kind of warning came after the one that was shown, and return the counts."""
        for name, count in self.counts.items():
            if count > 1:
                log.warning("… and %d more of the kind '%s' (colabel check lists them)", count - 1, name)
        return dict(self.counts)


Problems = Collected | Strict
"""Where readers report problems."""


class Located(NamedTuple, Generic[T]):
    """A record with its place: a line of a file (or a row of a table), and the byte at which the line starts."""

    value: T
    file: str
    line: int
    offset: int = -1


def begins_with(path: Path, start: bytes) -> bool:
    """Whether a file begins with some bytes; one that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except (OSError, ValueError):
        return False


def is_gzip(path: Path) -> bool:
    """Whether the file is gzipped, judged by its first bytes and not by its name."""
    return begins_with(path, b"\x1f\x8b")


def open_binary(path: Path) -> IO[bytes]:
    """Open for reading, unpacking gzip on the way."""
    if is_gzip(path):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def read_lines(path: Path, problems: Problems) -> Iterator[Located[str]]:
    """Yield the non-blank lines; a line that is not UTF-8 is reported and left out."""
    name = str(path)
    carriage_returns = 0
    number = offset = 0
    try:
        with open_binary(path) as file:
            for number, raw in enumerate(file, start=1):
                start, offset = offset, offset + len(raw)
                body = raw[:-1] if raw.endswith(b"\n") else raw
                if number == 1 and body.startswith(_BOM):
                    problems.add(Kind.BOM, name, 1, "the file starts with a byte-order mark")
                    body, start = body[3:], start + 3
                if body.endswith(b"\r"):
                    carriage_returns += 1
                    body = body[:-1]
                try:
                    text = body.decode("utf-8")
                except UnicodeDecodeError as error:
                    problems.add(Kind.BAD_UTF8, name, number, f"not UTF-8 at byte {error.start + 1} of the line")
                    continue
                if text and not text.isspace():
                    yield Located(text, name, number, start)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.add(
            Kind.BAD_GZIP, name, number or None, f"the gzip data breaks off or is damaged after this line: {error}"
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = getattr(error, "strerror", None) or error
        problems.add(Kind.UNREADABLE, name, None, f"cannot be read: {reason}")
    if carriage_returns:
        problems.add(Kind.CRLF, name, None, f"{carriage_returns} lines end in CR LF")


class Malformed(Exception):  # noqa: N818 - not an error of ours: it never leaves the readers
    """A row cannot be used; carries the kind of problem."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def parse_rows(rows: Iterable[Located[R]], parse: Callable[[R], T], problems: Problems) -> Iterator[Located[T]]:
    """Parse every row, reporting what cannot be parsed and warning of empty passages."""
    for row, file, line, offset in rows:
        try:
            value = parse(row)
        except Malformed as error:
            problems.add(error.kind, file, line, str(error))
            continue
        if isinstance(value, Passage) and not value.full_text:
            problems.add(Kind.EMPTY_PASSAGE, file, line, f"passage '{value.id}' has neither title nor text")
        yield Located(value, file, line, offset)


def read_records(path: Path, parse: Callable[[str], T], problems: Problems) -> Iterator[Located[T]]:
    """Parse every line of a file."""
    return parse_rows(read_lines(path, problems), parse, problems)


def numbered(rows: Iterable[R], file: str, first: int = 1) -> Iterator[Located[R]]:
    """Rows with their numbers."""
    return (Located(row, file, number) for number, row in enumerate(rows, start=first))


def without_header(rows: Iterable[Located[T | None]], problems: Problems) -> Iterator[Located[T]]:
    """Rows of a parser that gives None for a header, which may stand first and nowhere else."""
    for number, (value, file, line, offset) in enumerate(rows):
        if value is not None:
            yield Located(value, file, line, offset)
        elif number > 0:
            problems.add(Kind.BAD_COLUMNS, file, line, "a header line inside the file")


def json_row(text: str) -> Row:
    """One JSON object from one line."""
    try:
        row = json.loads(text)
    except RecursionError:
        raise Malformed(Kind.BAD_JSON, "not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise Malformed(Kind.BAD_JSON, f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise Malformed(Kind.BAD_JSON, f"a JSON {type(row).__name__} where an object was expected")
    return row


def passage_from_row(row: Row, columns: Mapping[str, str]) -> Passage:
    """A passage; the title column may be absent, and so may BEIR's ``metadata``, an object."""
    passage_id = id_field(row, columns["passage_id"])
    title = joined_text(row, columns["passage_title"].split("+"))
    text, metadata = _text(row, columns["passage_text"]), row.get("metadata")
    return Passage(passage_id, title, text, metadata if isinstance(metadata, dict) else {})


def passage_from_json(text: str, columns: Mapping[str, str] = BEIR_COLUMNS) -> Passage:
    """A passage from a line of JSON."""
    return passage_from_row(json_row(text), columns)


def query_from_row(row: Row, columns: Mapping[str, str]) -> Query:
    """A query with a non-empty text."""
    return make_query(id_field(row, columns["query_id"]), _text(row, columns["query_text"]))


def qrel_from_row(row: Row, columns: Mapping[str, str]) -> Qrel:
    """A label; where the grade column is set to "", every row means "relevant" (clicks often have no grade)."""
    grade = required_field(row, columns["label_grade"]) if columns["label_grade"] else 1
    return Qrel(id_field(row, columns["label_query"]), id_field(row, columns["label_passage"]), grade_of(grade))


def make_query(query_id: str, text: str) -> Query:
    """A query, refused when its text is empty."""
    if not text.strip():
        raise Malformed(Kind.EMPTY_QUERY, f"query '{query_id}' has no text")
    return Query(query_id, text)


def passage_from_tsv(text: str) -> Passage:
    """``id<TAB>text`` as in MS MARCO's collection.tsv."""
    passage_id, body = _two_columns(text)
    return Passage(passage_id, "", body)


def query_from_tsv(text: str) -> Query:
    """``id<TAB>text`` as in MS MARCO's queries.*.tsv."""
    return make_query(*_two_columns(text))


def _two_columns(text: str) -> tuple[str, str]:
    first, tab, rest = text.partition("\t")
    if not tab:
        raise Malformed(Kind.BAD_COLUMNS, "no tab; expected an id, a tab and the text")
    return check_id(first), rest


def qrel_from_line(text: str) -> Qrel | None:
    """A BEIR line (query, passage, grade; tabs), a TREC line (query, iteration, passage, grade) or a header (None)."""
    columns = text.split("\t") if text.count("\t") == 2 else text.split()
    if columns and columns[0].lower() in _QREL_HEADERS and not columns[-1].lstrip("-").isdigit():
        return None
    if len(columns) not in (3, 4):
        run = "; six are those of a run, and labels come before runs" if len(columns) == 6 else ""
        raise Malformed(
            Kind.BAD_COLUMNS,
            f"{len(columns)} columns; expected 3 (query, passage, grade) or 4 (query, iteration, passage, grade){run}",
        )
    query_id, passage_id, grade = columns[0], columns[-2], columns[-1]
    return Qrel(check_id(query_id.strip()), check_id(passage_id.strip()), grade_of(grade.strip()))


def read_qrels(path: Path, problems: Problems, columns: Mapping[str, str] = BEIR_COLUMNS) -> Iterator[Located[Qrel]]:
    """Labels from a BEIR, TREC or JSONL file; which one is seen from the name and the number of columns."""
    if is_jsonl(path):
        return read_records(path, lambda text: qrel_from_row(json_row(text), columns), problems)
    return without_header(read_records(path, qrel_from_line, problems), problems)


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
        raise Malformed(Kind.BAD_ID, "the id is empty" if not value else f"the id {value[:60]!r} contains white space")
    return value


def id_field(row: Row, column: str) -> str:
    """The id in a column of a row."""
    return as_id(required_field(row, column), column)


def as_id(value: Any, column: str) -> str:
    """An id that a JSON or table cell holds; many exports write numeric ids without quotes."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Malformed(Kind.BAD_FIELD, f"'{column}' is a {type(value).__name__}; expected a string")
    return check_id(check_unicode(value, column))


def _text(row: Row, columns: str) -> str:
    names = columns.split("+")
    if not any(name in row for name in names):
        required_field(row, columns)  # raises: none of the columns is there
    return joined_text(row, names)


def joined_text(row: Row, columns: Iterable[str], *, numbers: bool = False) -> str:
    """The texts in some columns of a row, joined; with ``numbers`` these are texts, too. NaN is pandas' empty cell."""
    parts = []
    for column in columns:
        value = row.get(column)
        if numbers and isinstance(value, int | float) and not isinstance(value, bool):
            value = None if value != value else str(value)  # noqa: PLR0124 - NaN
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise Malformed(Kind.BAD_FIELD, f"'{column}' is a {type(value).__name__}; expected a string")
        parts.append(check_unicode(value, column))
    return " ".join(parts)


def required_field(row: Row, column: str) -> Any:
    """What a row holds in a column, which must be there."""
    if column not in row:
        present = ", ".join(f"'{str(name)[:30]}'" for name in list(row)[:8]) or "nothing"
        raise Malformed(Kind.MISSING_FIELD, f"no field '{column}' (there is {present})")
    return row[column]


def check_unicode(value: str, column: str) -> str:
    """Refuse what JSON can write and no file of text can hold."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(
            Kind.BAD_FIELD, f"'{column}' holds half of a surrogate pair, which is not a character"
        ) from None
    return value


def grade_of(value: Any) -> int:
    """A grade as a number or as text; exports of tables write 2.0 for 2."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        value = int(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,6}", str(value)[:8]):
        raise Malformed(Kind.BAD_GRADE, f"the grade is {str(value)[:40]!r}; expected a whole number")
    return int(value)


def qrel_lines(labels: Qrels) -> Iterator[str]:
    """TREC qrels lines."""
    for query_id, grades in labels.items():
        yield from (f"{query_id} 0 {passage_id} {grade}\n" for passage_id, grade in grades.items())

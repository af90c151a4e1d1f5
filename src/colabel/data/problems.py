"""What can be wrong with a collection, and who wants to hear of it.

Readers report each problem with its file and line. ``colabel check`` collects them all; everything else stops
at the first fatal one (:class:`Strict`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from colabel.errors import DataError, location

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its name, whether work can go on, and the remedy or what colabel will do."""

    name: str
    fatal: bool
    remedy: str


UNREADABLE = Kind("unreadable", True, "check the path and the permissions, or copy the file again")
BAD_GZIP = Kind("bad-gzip", True, "the compressed file is damaged or cut short: copy it again")
BAD_UTF8 = Kind("bad-utf8", True, "save the file as UTF-8 (iconv -f latin1 -t utf-8 is a common repair)")
BAD_JSON = Kind("bad-json", True, "each line must be one JSON object")
BAD_COLUMNS = Kind("bad-columns", True, "check the separator and the number of columns")
MISSING_FIELD = Kind("missing-field", True, "add the field, or name the right one under [data.columns]")
BAD_FIELD = Kind("bad-field", True, "ids and texts are strings, scores and ranks numbers")
BAD_ID = Kind("bad-id", True, "an id must be non-empty and without white space, which separates columns in TREC files")
BAD_GRADE = Kind("bad-grade", True, "a grade is a whole number from 0 (judged, not relevant) up")
EMPTY_PASSAGE = Kind("empty-passage", False, "kept in the collection, never retrieved")
EMPTY_QUERY = Kind("empty-query", True, "give the query a text or remove it and its labels")
EMPTY_FILE = Kind("empty-file", True, "there is nothing to work with")
DUPLICATE_PASSAGE = Kind("duplicate-passage", True, "ids must be unique: remove or rename one")
DUPLICATE_QUERY = Kind("duplicate-query", True, "ids must be unique: remove or rename one")
REPEATED_QUERY = Kind("repeated-query", False, "same id and same text: the first is used")
REPEATED_LABEL = Kind("repeated-label", False, "same pair and same grade: counted once")
CONFLICTING_LABEL = Kind("conflicting-label", True, "one pair, two grades: keep one line")
UNKNOWN_QUERY = Kind("unknown-query", True, "add the query, remove the label, or set data.unknown_labels = 'drop'")
UNKNOWN_PASSAGE = Kind(
    "unknown-passage", True, "add the passage, remove the label, or set data.unknown_labels = 'drop'"
)
DROPPED_LABEL = Kind(
    "dropped-label", False, "its query or passage does not exist: left out, as data.unknown_labels says"
)
TEST_IN_TRAIN = Kind("test-query-in-train", False, "left out of train, so test stays whole")
DEV_IN_TRAIN = Kind("dev-query-in-train", False, "left out of train, so dev stays whole")
TEST_IN_DEV = Kind("test-query-in-dev", False, "left out of dev, so test stays whole")
HIDDEN_AND_VISIBLE = Kind("hidden-and-visible", True, "remove it from hidden/train.tsv or from the train labels")
BOM = Kind("byte-order-mark", False, "skipped")
CRLF = Kind("crlf", False, "Windows line ends are read as line ends")


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong at one place."""

    kind: Kind
    file: str
    line: int | None
    message: str


class Problems(Protocol):
    """Whoever is told of problems."""

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Take note of a problem, or raise."""


class Collected:
    """Keeps every problem, up to ``limit`` of each kind (the rest is counted)."""

    def __init__(self, limit: int = 100_000) -> None:
        self.limit = limit
        self.counts: Counter[str] = Counter()
        self._problems: dict[str, list[Problem]] = {}

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Keep the problem."""
        self.counts[kind.name] += 1
        kept = self._problems.setdefault(kind.name, [])
        if len(kept) < self.limit:
            kept.append(Problem(kind, file, line, message))

    def __iter__(self) -> Iterator[Problem]:
        """All kept problems, fatal kinds first, in the order they were found within a kind."""
        for kept in sorted(self._problems.values(), key=lambda kept: not kept[0].kind.fatal):
            yield from kept

    @property
    def fatal(self) -> int:
        """How many fatal problems there are."""
        return sum(self.counts[name] for name, kept in self._problems.items() if kept[0].kind.fatal)


class Deaf:
    """Listens to no problem: the file is read again by one who does."""

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Nothing."""


class Strict:
    """Raises the first fatal problem as a DataError; logs the first warning of each kind and counts the rest."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, kind: Kind, file: str, line: int | None, message: str) -> None:
        """Raise or count."""
        if kind.fatal:
            raise DataError(f"{message} ({kind.remedy})", file=file, line=line)
        if not self.counts[kind.name]:
            log.warning("%s: %s (%s)", location(file, line), message, kind.remedy)
        self.counts[kind.name] += 1

    def summarise(self) -> dict[str, int]:
        """Log how often each kind of warning came after the one that was shown, and return the counts."""
        for name, count in self.counts.items():
            if count > 1:
                log.warning("… and %d more of the kind '%s' (colabel check lists them)", count - 1, name)
        return dict(self.counts)

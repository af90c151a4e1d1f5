"""Verdicts: what people said about pairs of query and passage, kept in one SQLite file for as long as the run exists.

Nothing is ever changed or deleted: a verdict is a line, undoing it is another line, and triggers refuse the rest. Every
line is on the disk before the call returns (write-ahead log, synchronous), and several processes may write at once.

One judge's verdict on a pair is the last that was not undone. Where judges differ, the majority decides (unsure does
not vote); where there is none, the pair is left open. Programs judge under names of their own, ``program:NAME``: what
they say stays out of labels unless asked for, and never outvotes a person.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from colabel.data import Dataset
from colabel.data.splits import TRAIN, normalise_query
from colabel.errors import ArtefactError, UsageError

Answer = Literal["yes", "no", "unsure"]
ANSWERS: tuple[str, ...] = get_args(Answer)
FOLDER, FILE = "verdicts", "verdicts.sqlite"
"""Where verdicts lie in the folder of a run."""
HIGHEST_GRADE = 3
LONGEST_JUDGE = 60
RANDOM = "random"
"""The source of verdicts on pairs that were drawn at random."""
TYPED = "typed-"
"""What the id of a query begins with that is no query of the dataset: somebody searched for it."""
PROGRAM = "program:"
"""What the name of a judge begins with that is no person."""

_VERSION = 2
_PATIENCE = 20.0  # seconds to wait for another process that writes; a line takes milliseconds
_SCHEMA = """
CREATE TABLE lines (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time TEXT NOT NULL,
  judge TEXT NOT NULL,
  query_id TEXT NOT NULL,
  passage_id TEXT NOT NULL,
  query TEXT NOT NULL,
  answer TEXT NOT NULL CHECK (answer IN ('yes', 'no', 'unsure')),
  grade INTEGER,
  source TEXT NOT NULL,
  call TEXT UNIQUE,
  undoes INTEGER UNIQUE REFERENCES lines (id),
  reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX of_pair ON lines (query_id, passage_id, judge);
CREATE INDEX of_judge ON lines (judge, id);
CREATE TRIGGER never_changed BEFORE UPDATE ON lines BEGIN SELECT RAISE (ABORT, 'verdicts are never changed'); END;
CREATE TRIGGER never_deleted BEFORE DELETE ON lines BEGIN SELECT RAISE (ABORT, 'verdicts are never deleted'); END;
"""
_STANDING = "undoes IS NULL AND NOT EXISTS (SELECT 1 FROM lines AS later WHERE later.undoes = lines.id)"
_COLUMNS = "id, time, judge, query_id, passage_id, query, answer, grade, source, reason"
_SECOND = "ALTER TABLE lines ADD COLUMN reason TEXT NOT NULL DEFAULT ''"  # what version 1 lacks


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One judge's verdict on a pair.

    Attributes:
        id: rises with every line; 0 where it is not stored yet.
        source: where the pair came from: a queue of the review, ``search``, a file, or a program.
    """

    query_id: str
    passage_id: str
    answer: Answer
    judge: str
    grade: int | None = None
    query: str = ""
    source: str = ""
    id: int = 0
    time: str = ""
    reason: str = ""

    @property
    def by_program(self) -> bool:
        """Whether the judge is no person."""
        return self.judge.startswith(PROGRAM)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Decision:
    """What the judges of a pair say together; None: as many say yes as no, or all are unsure."""

    query_id: str
    passage_id: str
    query: str
    relevant: bool | None
    grade: int | None
    judges: tuple[str, ...]


class VerdictStore:
    """The verdicts in a folder. Reading makes no file; the first verdict does."""

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / FILE
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None

    def add(self, verdict: Verdict, call: str | None = None) -> Verdict:
        """Keep a verdict; it is on the disk when this returns.

        Args:
            call: a name that the caller gave to this very call. Repeated after a lost answer, it adds nothing.
        """
        return self.add_all([verdict], [call])[0]

    def add_all(self, verdicts: Sequence[Verdict], calls: Sequence[str | None] | None = None) -> list[Verdict]:
        """Keep several, all of them or none."""
        for verdict in verdicts:
            check_verdict(verdict)
        with self._writing() as connection:
            named = calls or [None] * len(verdicts)
            return [_insert(connection, one, call) for one, call in zip(verdicts, named, strict=True)]

    def undo(self, judge: str, verdict_id: int | None = None) -> Verdict | None:
        """Take a judge's last verdict back, or the one with this number; None where there is none to take back."""
        if not self.path.exists():
            return None
        with self._writing() as connection:
            chosen = "" if verdict_id is None else " AND id = :id"
            text = f"SELECT {_COLUMNS} FROM lines WHERE judge = :judge AND {_STANDING}{chosen} ORDER BY id DESC LIMIT 1"
            found = connection.execute(text, {"judge": judge, "id": verdict_id}).fetchone()
            if found is None:
                return None
            verdict = Verdict(**dict(found))
            values = {**verdict.as_dict(), "time": _now(), "call": None, "undoes": verdict.id}
            connection.execute(_INSERT, values)
            return verdict

    def current(self, until: int | None = None) -> list[Verdict]:
        """The standing verdict of each judge on each pair, oldest first; as it was when ``until`` was the last line."""
        then = self.last if until is None else until
        stood = f"{_STANDING[:-1]} AND later.id <= ?) AND id <= ?"
        last = f"SELECT max(id) FROM lines WHERE {stood} GROUP BY judge, query_id, passage_id"
        found = self._read(f"SELECT {_COLUMNS} FROM lines WHERE id IN ({last}) ORDER BY id", then, then)
        return [Verdict(**line) for line in found]

    def history(self) -> list[dict[str, Any]]:
        """Every line as it was written; ``undoes`` is the number of the verdict that it takes back."""
        return self._read(f"SELECT {_COLUMNS}, undoes FROM lines ORDER BY id")

    @property
    def last(self) -> int:
        """The number of the newest line, 0 where there is none; it rises with every verdict of any process."""
        return next((int(line["id"]) for line in self._read("SELECT id FROM lines ORDER BY id DESC LIMIT 1")), 0)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _read(self, text: str, *values: object) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(text, values).fetchall()]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection()
            except sqlite3.Error as error:
                said = f"verdicts cannot be read or written ({error}); nothing was lost or changed"
                raise ArtefactError(f"{self.path}: {said}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process writes in; kept when the block ends, undone where it raises."""
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            opened = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                opened.row_factory = sqlite3.Row
                _patiently(opened, "PRAGMA journal_mode = WAL")
                opened.execute("PRAGMA synchronous = FULL")
                _make_tables(opened, self.path)
            except BaseException:
                opened.close()
                raise
            self._opened = opened
        return self._opened


_INSERT = """INSERT INTO lines (time, judge, query_id, passage_id, query, answer, grade, source, reason, call, undoes)
VALUES (:time, :judge, :query_id, :passage_id, :query, :answer, :grade, :source, :reason, :call, :undoes)"""


def _insert(connection: sqlite3.Connection, verdict: Verdict, call: str | None) -> Verdict:
    if call is not None:
        known = connection.execute(f"SELECT {_COLUMNS} FROM lines WHERE call = ?", (call,)).fetchone()
        if known is not None:
            return Verdict(**dict(known))
    values = {**verdict.as_dict(), "time": verdict.time or _now(), "call": call, "undoes": None}
    number = connection.execute(_INSERT, values).lastrowid
    return dataclasses.replace(verdict, id=int(number or 0), time=values["time"])


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, once, whoever comes first; refuse a file of a later version."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        for statement in re.split(r"(?<=;)\n", _SCHEMA.strip()):
            connection.execute(statement)
    elif version == 1:
        connection.execute(_SECOND)
    if version < _VERSION:
        connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")
    if version > _VERSION:
        raise ArtefactError(f"{path} was written by a later version of colabel; update colabel to read it")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Changing the mode of a new file does not wait for others by itself."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_verdict(verdict: Verdict) -> None:
    """Refuse what no file of labels could hold."""
    check_judge(verdict.judge)
    if verdict.answer not in ANSWERS:
        raise UsageError(f"the answer is '{verdict.answer}'; expected one of {', '.join(ANSWERS)}")
    if verdict.grade is not None and not 0 <= verdict.grade <= HIGHEST_GRADE:
        raise UsageError(f"the grade is {verdict.grade}; expected 0 to {HIGHEST_GRADE}")
    for name in (verdict.query_id, verdict.passage_id):
        if not name or re.search(r"\s", name):
            raise UsageError(f"the id {name[:60]!r} is empty or contains white space")


def check_judge(name: str) -> None:
    """Refuse a judge's name that is empty, long, or not printable."""
    if not name.strip() or len(name) > LONGEST_JUDGE or not name.isprintable():
        raise UsageError(f"a judge's name has 1 to {LONGEST_JUDGE} printable characters; give one such as 'anna'")


def check_person(name: str) -> None:
    """Refuse a name that is none, or that of a program."""
    check_judge(name)
    if name.startswith(PROGRAM):
        raise UsageError(f"names that begin with '{PROGRAM}' are those of programs; give another")


def typed_id(text: str) -> str:
    """The id of a query that is no query of the dataset: equal texts have one."""
    plain = normalise_query(text).encode("utf-8", "replace")
    return f"{TYPED}{hashlib.blake2b(plain, digest_size=8).hexdigest()}"


def of_people(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """What people said, without what programs did."""
    return [one for one in verdicts if not one.by_program]


def decide(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Decision]:
    """What the judges of each pair say together, from their standing verdicts; programs, where no person judged it.

    >>> said = [Verdict("q", "d", "yes", "ann", 2), Verdict("q", "d", "yes", "bob"), Verdict("q", "d", "no", "cy")]
    >>> decide(said)["q", "d"].relevant, decide(said)["q", "d"].grade, decide(said[1:])["q", "d"].relevant
    (True, 2, None)
    """
    pairs: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        pairs.setdefault((verdict.query_id, verdict.passage_id), []).append(verdict)
    return {pair: _decision(of_people(given) or given) for pair, given in pairs.items()}


def _decision(given: Sequence[Verdict]) -> Decision:
    votes = Counter(verdict.answer for verdict in given)
    lead = votes["yes"] - votes["no"]
    relevant = None if lead == 0 else lead > 0
    grades = sorted(one.grade for one in given if one.grade is not None and (one.answer == "yes") == relevant)
    judges = tuple(dict.fromkeys(verdict.judge for verdict in given))
    first = given[0]
    middle = grades[(len(grades) - 1) // 2] if grades and relevant else None
    return Decision(first.query_id, first.passage_id, given[-1].query, relevant, middle, judges)


@dataclasses.dataclass(frozen=True)
class Applied:
    """A dataset to which verdicts were added.

    Attributes:
        dataset: with every pair that was found relevant as a label of the split, and the others as ``trusted``.
        negatives: query id → passages that were found not relevant: judged negatives.
        contested: judgements of the dataset that a verdict contradicts. They stay: labels are only ever added to.
        left_out: judged pairs that were not used: queries of another split, or passages that are gone.
    """

    dataset: Dataset
    negatives: dict[str, tuple[str, ...]]
    contested: tuple[tuple[str, str], ...]
    left_out: int
    added: int


def apply_verdicts(dataset: Dataset, verdicts: Iterable[Verdict], split: str = TRAIN) -> Applied:
    """Add what judges found relevant to the labels of a split, and give what they found not relevant as negatives.

    Queries that somebody typed become queries of the split, unless another split has a query of the same text. A pair
    about which judges disagree or are unsure changes nothing.

    Example:
        >>> caves = Dataset.from_records({"d1": "An ice cave.", "d2": "A fjord."}, {"q1": "ice"}, {"q1": ["d1"]})
        >>> applied = apply_verdicts(caves, [Verdict("q1", "d2", "no", "ann")])
        >>> applied.dataset.labels("train"), applied.negatives
        ({'q1': {'d1': 1}}, {'q1': ('d2',)})
    """
    labels = {name: {query: dict(held) for query, held in dataset.labels(name).items()} for name in dataset.splits}
    mine = labels.setdefault(split, {})
    queries = dict(dataset.queries)
    taken = {query for name, held in labels.items() if name != split for query in held}
    texts = {normalise_query(queries[query]) for query in taken}
    negatives: dict[str, list[str]] = {}
    contested, left_out, added = [], 0, 0
    for (query_id, passage_id), one in decide(verdicts).items():
        known = query_id in queries or (query_id.startswith(TYPED) and one.query.strip() != "")
        text = queries.get(query_id, one.query)
        if query_id in taken or normalise_query(text) in texts or not known:
            left_out += 1
            continue
        if one.relevant is None:
            continue
        if dataset.passages.ids.row(passage_id) < 0:
            left_out += 1
            continue
        known_grade = mine.get(query_id, {}).get(passage_id)
        if known_grade is not None:
            if (known_grade >= dataset.relevant_from) != one.relevant:
                contested.append((query_id, passage_id))
        elif one.relevant:
            queries.setdefault(query_id, text)
            mine.setdefault(query_id, {})[passage_id] = max(one.grade or 0, dataset.relevant_from)
            added += 1
        else:
            negatives.setdefault(query_id, []).append(passage_id)
    judged = {query: tuple(held) for query, held in negatives.items()}
    changed = dataclasses.replace(dataset, queries=queries, _labels=labels, trusted=judged)
    return Applied(changed, judged, tuple(contested), left_out, added)

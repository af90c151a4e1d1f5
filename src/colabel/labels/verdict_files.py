"""Verdicts as files: labels for other programs, tables that a person filled in, and what other programs judged."""

from __future__ import annotations

import csv
import dataclasses
import getpass
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.artefacts import write_text
from colabel.data import Dataset
from colabel.data.formats.in_memory import record_rows
from colabel.data.splits import normalise_query
from colabel.data.text_lines import Row, Strict, json_row, read_qrels, read_records
from colabel.errors import DataError, UsageError
from colabel.labels.verdicts import HIGHEST_GRADE, TYPED, Answer, Verdict, VerdictStore, check_judge, decide, typed_id
from colabel.types import Qrel, Qrels

_KINDS = (".qrels", ".txt", ".trec", ".tsv", ".jsonl")


def write_verdicts(
    verdicts: Iterable[Verdict], path: Path, *, relevant_from: int = 1, visible: Qrels | None = None
) -> int:
    """Write judged pairs as labels, whole or not at all; how many pairs were written.

    The name decides: ``.qrels``, ``.trec`` or ``.txt`` are TREC label files, ``.tsv`` is BEIR's; ``.jsonl`` holds every
    verdict with its judge and time. What judges found not relevant has grade 0. With ``visible``, those labels come
    first, and stay as they are.
    """
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise UsageError(f"{path}: verdicts are written as {', '.join(_KINDS)}; use one of these endings")
    given = list(verdicts)
    if kind == ".jsonl":
        if visible is not None:
            raise UsageError("visible labels have no judge; write them to a .qrels or .tsv file")
        text, count = "".join(json.dumps(one.as_dict(), ensure_ascii=False) + "\n" for one in given), len(given)
    else:
        pairs = _label_lines(given, relevant_from, visible or {})
        text, count = "".join(f"{one.query_id} 0 {one.passage_id} {one.grade}\n" for one in pairs), len(pairs)
        if kind == ".tsv":
            lines = (f"{one.query_id}\t{one.passage_id}\t{one.grade}\n" for one in pairs)
            text = "query-id\tcorpus-id\tscore\n" + "".join(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return count


def _label_lines(given: Sequence[Verdict], relevant_from: int, visible: Qrels) -> list[Qrel]:
    known = [Qrel(query, passage, grade) for query, held in visible.items() for passage, grade in held.items()]
    for one in decide(given).values():
        if one.relevant is None or one.passage_id in visible.get(one.query_id, {}):
            continue
        known.append(Qrel(one.query_id, one.passage_id, max(one.grade or 0, relevant_from) if one.relevant else 0))
    return known


_WORDS: Mapping[str, tuple[Answer, int | None]] = {
    **dict.fromkeys(("y", "yes", "x", "true", "relevant"), ("yes", None)),
    **dict.fromkeys(("n", "no", "false", "not relevant", "irrelevant"), ("no", None)),
    **dict.fromkeys(("u", "unsure", "?"), ("unsure", None)),
}


def parse_answer(text: str, relevant_from: int = 1) -> tuple[Answer, int | None] | None:
    """What somebody wrote into a cell: an answer and, where it is a number from 0 to 3, its grade; None: nothing.

    >>> parse_answer("Yes"), parse_answer("2"), parse_answer("0"), parse_answer(" ")
    (('yes', None), ('yes', 2), ('no', 0), None)
    """
    word = text.strip().lower()
    if not word:
        return None
    if re.fullmatch(rf"[0-{HIGHEST_GRADE}](\.0)?", word):
        return graded(int(word[0]), relevant_from)
    if word not in _WORDS:
        raise ValueError(f"the verdict is '{text.strip()[:40]}'; expected yes, no, unsure, or 0 to {HIGHEST_GRADE}")
    return _WORDS[word]


def graded(grade: int, relevant_from: int) -> tuple[Answer, int]:
    """A grade as an answer."""
    return ("yes" if grade >= max(1, relevant_from) else "no"), grade


def parse_record(record: Mapping[str, Any], relevant_from: int = 1) -> tuple[Answer, int | None, str]:
    """Answer, grade and reason of a JSON record: ``verdict`` (yes, no, unsure, 0 to 3), or ``grade`` or ``judgment``.

    >>> parse_record({"verdict": "no", "reason": "another drug"}), parse_record({"judgment": 3})
    (('no', None, 'another drug'), ('yes', 3, ''))
    """
    said = next((record[name] for name in _SAID if record.get(name) is not None), None)
    if isinstance(said, bool):
        said = "yes" if said else "no"
    answer = parse_answer(_text(said), relevant_from)
    if answer is None:
        raise ValueError(f"it has no verdict; expected one of the keys {', '.join(_SAID)}")
    return *answer, _text(next((record[name] for name in _WHY if record.get(name)), ""))[:_LONGEST_REASON]


_SAID, _WHY = ("verdict", "grade", "judgment"), ("reason", "reasoning")
_LONGEST_REASON = 2000


def read_review(table: Any, dataset: Dataset, judge: str) -> list[Verdict]:
    """Verdicts from a table that a person filled in: columns ``query_id``, ``passage_id`` and ``verdict``.

    Such a table is what ``colabel missing --out review.tsv`` writes; a .csv that a spreadsheet made of it does as well,
    and so does a table in memory (a DataFrame, an Arrow table, dicts, or tuples). Lines without a verdict are left out.
    A line may name its query by the text alone, in a column ``query``: one that the collection does not have becomes a
    query of its own.

    Two more kinds of file come from programs, umbrela among them: TREC labels (.qrels, .txt, .trec), and .jsonl with
    ``verdict``, ``grade`` or ``judgment``, which may name a pair by its texts, ``query`` and ``passage``.
    """
    check_judge(judge)
    if isinstance(table, str | Path):
        file, rows = str(table), _file_rows(Path(table))
    else:
        named = record_rows(table, "verdicts", ("query_id", "passage_id"))
        file, rows = "rows", enumerate(named, start=1)
    ids: dict[str, str] = {}
    passages: dict[bytes, str] = {}
    found = []
    for number, row in rows:
        unread = row.get("result_status") == 0  # umbrela's mark of an answer that it could not read
        if unread or not any(_text(row.get(name)) for name in _SAID):
            continue
        try:
            answer, grade, reason = parse_record(row, dataset.relevant_from)
        except ValueError as error:
            raise DataError(str(error), file=file, line=number) from None
        query_id, passage_id, text = (_text(row.get(name)) for name in ("query_id", "passage_id", "query"))
        if not passage_id and (content := _text(row.get("passage"))):
            passages = passages or {
                _digest(words): one.id for one in dataset.passages for words in (one.text, one.full_text)
            }
            passage_id = passages.get(_digest(content), "")
            if not passage_id:
                raise DataError("the collection has no passage of this text", file=file, line=number)
        if not query_id and text:
            ids = ids or {normalise_query(one): key for key, one in dataset.queries.items()}
            query_id = ids.get(normalise_query(text)) or typed_id(text)
        if query_id not in dataset.queries and not (query_id.startswith(TYPED) and text):
            raise DataError(f"the collection has no query '{query_id}'", file=file, line=number)
        if dataset.passages.ids.row(passage_id) < 0:
            raise DataError(f"the collection has no passage '{passage_id}'", file=file, line=number)
        text = dataset.queries.get(query_id, text)
        found.append(Verdict(query_id, passage_id, answer, judge, grade, text, "file", reason=reason))
    return found


def _digest(text: str) -> bytes:
    return hashlib.blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=12).digest()


def user_name() -> str:
    """Who judges where nobody is named: the user of this computer."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may know no user
        return "me"


def _text(value: Any) -> str:
    """A cell's text; nothing where a table has no value."""
    absent = value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "<NA>"
    return "" if absent else str(value).strip()


def _file_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Line numbers and rows of a table, whose first line names its columns, of JSON lines, or of TREC labels."""
    kind = path.suffix.lower()
    if kind == ".jsonl":
        for row in read_records(path, json_row, Strict()):
            yield row.line, {"query_id": row.value.get("qid"), "passage_id": row.value.get("docid"), **row.value}
    elif kind in (".qrels", ".txt", ".trec"):
        for label in read_qrels(path, Strict()):
            yield label.line, dataclasses.asdict(label.value)
    else:
        rows = _table(path)
        head = [name.strip().lower() for name in next(rows, (0, []))[1]]
        for name in ("query_id", "passage_id", "verdict"):
            if name not in head:
                raise DataError(f"has no column '{name}' in its first line", file=str(path), line=1)
        for number, cells in rows:
            yield number, dict(zip(head, cells, strict=False))


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells; blank lines are left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError("is not UTF-8; save it as UTF-8 text", file=str(path)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    if path.suffix.lower() == ".csv":
        separator = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
        reader = csv.reader((line + "\n" for line in lines), delimiter=separator)
        yield from ((reader.line_num, cells) for cells in reader if cells)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, [_unquoted(cell) for cell in line.split("\t")]


def _unquoted(cell: str) -> str:
    """A cell without the quotes that spreadsheets put around some."""
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if quoted else cell


def new_verdicts(given: Iterable[Verdict], store: VerdictStore) -> list[Verdict]:
    """Those that say something else than their judge's standing verdict: a file read twice adds nothing."""
    standing = {(one.judge, one.query_id, one.passage_id): (one.answer, one.grade) for one in store.current()}
    return [one for one in given if standing.get((one.judge, one.query_id, one.passage_id)) != (one.answer, one.grade)]

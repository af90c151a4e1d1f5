"""TREC files: run files, and folders with ``documents.trec``, ``topics.SPLIT.tsv`` and ``qrels.SPLIT.txt``."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from colabel.artefacts import file_fingerprint
from colabel.data.beir import existing, folder_provenance, split_files
from colabel.data.lines import read_lines
from colabel.data.problems import BAD_COLUMNS, BAD_FIELD, MISSING_FIELD, Problems
from colabel.data.records import (
    Malformed,
    check_id,
    query_from_tsv,
    read_qrels,
    read_records,
    warn_if_empty,
)
from colabel.data.source import LineFile, Located
from colabel.types import Passage, Qrel, Query, ScoredPassage


def parse_run_line(text: str) -> ScoredPassage:
    """``query Q0 passage rank score tag``.

    Only the score orders a run, as in trec_eval. Some programs write ranks as 1.0 or -1; others are taken for a slip
    of columns.
    """
    columns = text.split()
    if len(columns) != 6:
        raise Malformed(
            BAD_COLUMNS, f"{len(columns)} columns; expected 6: query, Q0, passage, rank, score, system name"
        )
    query_id, _, passage_id, rank, score, _ = columns
    return ScoredPassage(check_id(query_id), check_id(passage_id), whole_rank(rank), finite_score(score))


def finite_score(text: str) -> float:
    """A score as text; Python would read 1_000 as a number, too."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Malformed(BAD_FIELD, f"the score is {text[:40]!r}; expected a finite number")
    return value


def whole_rank(text: str) -> int:
    """A rank as text."""
    if not re.fullmatch(r"-?[0-9]{1,9}(\.0*)?", text):
        raise Malformed(BAD_FIELD, f"the rank is {text[:40]!r}; expected a whole number")
    return int(float(text))


def run_line(scored: ScoredPassage, system: str) -> str:
    """One line of a run file; the score keeps enough digits to restore a float32.

    >>> run_line(ScoredPassage("q1", "d7", 1, 12.5), "colabel")
    'q1 Q0 d7 1 12.5 colabel'
    """
    return f"{scored.query_id} Q0 {scored.passage_id} {scored.rank} {scored.score:.9g} {system}"


def document_text(passage: Passage) -> str:
    """A passage as a TREC document; markup characters are escaped, so any text survives."""
    return (
        f"<DOC>\n<DOCNO>{html.escape(passage.id, quote=False)}</DOCNO>\n"
        f"<TITLE>{_one_line(passage.title)}</TITLE>\n<TEXT>{_one_line(passage.text)}</TEXT>\n</DOC>\n"
    )


def _one_line(text: str) -> str:
    return html.escape(text, quote=False).replace("\r", "&#13;").replace("\n", "&#10;")


_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # str.lower() can change lengths
_OPENING = re.compile(r"<(DOCNO|TITLE|HEADLINE|HEAD|TEXT|BODY)>", re.IGNORECASE)


def read_documents(path: Path, problems: Problems) -> Iterator[Located[Passage]]:
    """Passages between ``<DOC>`` and ``</DOC>`` lines, with DOCNO, TITLE (or HEAD, HEADLINE) and TEXT (or BODY)."""
    file = str(path)
    start, offset, body = 0, 0, list[str]()
    for line in read_lines(path, problems):
        marker = line.text.strip().upper()
        if marker == "<DOC>":
            if start:
                problems.add(BAD_COLUMNS, file, line.number, f"<DOC> inside the <DOC> of line {start}")
            start, offset, body = line.number, line.offset, []
        elif marker == "</DOC>" and start:
            try:
                passage = _document("\n".join(body))
            except Malformed as error:
                problems.add(error.kind, file, start, str(error))
            else:
                warn_if_empty(passage, file, start, problems)
                yield Located(passage, file, start, offset)
            start = 0
        elif start:
            body.append(line.text)
        else:
            problems.add(BAD_COLUMNS, file, line.number, "text outside <DOC> … </DOC>")
    if start:
        problems.add(BAD_COLUMNS, file, start, "this <DOC> is never closed")


def _document(body: str) -> Passage:
    parts: dict[str, list[str]] = {"id": [], "title": [], "text": []}
    roles = {
        "DOCNO": "id",
        "TITLE": "title",
        "HEADLINE": "title",
        "HEAD": "title",
        "TEXT": "text",
        "BODY": "text",
    }
    lowered, end = body.translate(_ASCII_LOWER), 0
    unclosed: set[str] = set()  # searched for once: a hostile file could make it quadratic
    for opening in _OPENING.finditer(body):
        tag = opening[1].lower()
        if opening.start() < end or tag in unclosed:
            continue
        closing = lowered.find(f"</{tag}>", opening.end())
        if closing < 0:
            unclosed.add(tag)
            continue
        end = closing
        # references such as &#xD800; become U+FFFD in html.unescape, so the text stays encodable
        parts[roles[tag.upper()]].append(html.unescape(body[opening.end() : closing].strip("\n")))
    if len(parts["id"]) != 1:
        raise Malformed(MISSING_FIELD, f"{len(parts['id'])} <DOCNO> elements in one <DOC>; expected one")
    return Passage(check_id(parts["id"][0].strip()), " ".join(parts["title"]), " ".join(parts["text"]))


@dataclasses.dataclass(frozen=True)
class TrecSource:
    """A folder with ``documents.trec``, ``topics.SPLIT.tsv`` and ``qrels.SPLIT.txt``."""

    folder: Path

    @staticmethod
    def recognises(folder: Path) -> bool:
        """Whether the folder looks like one."""
        return existing(folder / "documents.trec") is not None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def _corpus(self) -> Path:
        return existing(self.folder / "documents.trec") or self.folder / "documents.trec"

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """The documents."""
        return read_documents(self._corpus, problems)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Lines of every ``topics.*.tsv``."""
        for path in split_files(self.folder, "topics.*.tsv").values():
            yield from read_records(path, query_from_tsv, problems)

    def splits(self) -> tuple[str, ...]:
        """The names between ``qrels.`` and ``.txt``."""
        return tuple(split_files(self.folder, "qrels.*.txt"))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """Lines of ``qrels.SPLIT.txt``."""
        return read_qrels(split_files(self.folder, "qrels.*.txt")[split], problems)

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """None."""
        return iter(())

    def line_file(self) -> LineFile | None:
        """None: a document spans lines, so the collection is unpacked once."""
        return None

    def corpus_fingerprint(self) -> str:
        """Of the document file's bytes."""
        return file_fingerprint(self._corpus)

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return folder_provenance("trec", self.folder)


def qrel_lines(labels: Iterable[Qrel]) -> Iterator[str]:
    """TREC qrels lines."""
    return (f"{label.query_id} 0 {label.passage_id} {label.grade}\n" for label in labels)

"""Folders of plain files, each plain or gzipped: BEIR, MS MARCO and TREC.

BEIR      ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``; beyond BEIR ``hidden/train.tsv``, labels set aside
          for label-quality studies
MS MARCO  ``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``
TREC      ``documents.trec``, ``topics.SPLIT.tsv``, ``qrels.SPLIT.txt``
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from colabel.artefacts import file_fingerprint, fingerprint, parse_manifest
from colabel.data.formats.base import LineFile, Source, existing
from colabel.data.text_lines import (
    BAD_COLUMNS,
    BEIR_COLUMNS,
    MISSING_FIELD,
    Located,
    Malformed,
    Problems,
    check_id,
    is_gzip,
    json_row,
    passage_columns,
    passage_from_row,
    passage_from_tsv,
    query_from_tsv,
    read_lines,
    read_qrels,
    read_queries,
    read_records,
    warn_if_empty,
)
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

HIDDEN_FILE = Path("hidden") / "train.tsv"


@dataclasses.dataclass(frozen=True)
class FolderSource(Source):
    """A folder that is recognised by its corpus file. Label (and query) files are patterns with the split as ``*``."""

    folder: Path
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(BEIR_COLUMNS))

    format: ClassVar[str]
    corpus_name: ClassVar[str]
    query_files: ClassVar[str]
    label_files: ClassVar[str]
    has_columns: ClassVar[bool] = False

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether it is a folder with such a corpus file."""
        return existing(path / cls.corpus_name) is not None

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """The folder, which :meth:`recognises` has seen."""
        if settings.columns and not cls.has_columns:
            raise UsageError(f"'data.columns' does not apply to {name}, whose files have no column names")
        return cls(Path(name), {**BEIR_COLUMNS, **settings.columns})

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def _corpus(self) -> Path:
        return existing(self.folder / self.corpus_name) or self.folder / self.corpus_name

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Lines of every query file."""
        for path in split_files(self.folder, self.query_files).values():
            yield from read_records(path, query_from_tsv, problems)

    def splits(self) -> tuple[str, ...]:
        """What stands for ``*`` in the names of the label files."""
        return tuple(split_files(self.folder, self.label_files))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """Lines of one label file."""
        return read_qrels(split_files(self.folder, self.label_files)[split], problems)

    def corpus_fingerprint(self) -> str:
        """Of the corpus file's bytes."""
        return file_fingerprint(self._corpus)

    def provenance(self) -> dict[str, str]:
        """Format and name of the folder, and the relevance cut-off if ``colabel convert`` wrote it."""
        found = {"format": self.format, "folder": self.name}
        with contextlib.suppress(ArtefactError):
            cutoff = parse_manifest(self.folder).settings.get("relevant_from")
            if isinstance(cutoff, int):
                found["relevant_from"] = str(cutoff)
        return found


class BeirSource(FolderSource):
    """A BEIR folder."""

    spelling = "a BEIR folder (corpus.jsonl)"
    format = "beir"
    corpus_name = "corpus.jsonl"
    label_files = "qrels/*.tsv"
    has_columns = True

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of ``corpus.jsonl``."""
        return read_records(self._corpus, self._parse, problems)

    def _parse(self, text: str) -> Passage:
        return passage_from_row(json_row(text), self.columns)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Lines of ``queries.jsonl``; a folder without labels needs none."""
        path = self.folder / "queries.jsonl"
        found = existing(path)
        if found is None and not self.splits():
            return iter(())
        return read_queries(found or path, problems, self.columns)

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """Lines of ``hidden/train.tsv`` where there is one."""
        path = existing(self.folder / HIDDEN_FILE)
        return iter(()) if path is None else read_qrels(path, problems)

    def line_file(self) -> LineFile | None:
        """The corpus, unless it is gzipped."""
        return None if is_gzip(self._corpus) else LineFile(self._corpus, self._parse)

    def corpus_fingerprint(self) -> str:
        """Of the corpus file's bytes and the columns that are read."""
        return fingerprint([file_fingerprint(self._corpus), passage_columns(self.columns)])


class MsMarcoSource(FolderSource):
    """A folder of MS MARCO's tab-separated files."""

    spelling = "an MS MARCO folder (collection.tsv)"
    format = "msmarco"
    corpus_name = "collection.tsv"
    query_files = "queries.*.tsv"
    label_files = "qrels.*.tsv"

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of ``collection.tsv``."""
        return read_records(self._corpus, passage_from_tsv, problems)

    def line_file(self) -> LineFile | None:
        """The collection, unless it is gzipped."""
        return None if is_gzip(self._corpus) else LineFile(self._corpus, passage_from_tsv)


class TrecSource(FolderSource):
    """A folder of TREC documents, topics and qrels; a document spans lines, so the collection is unpacked once."""

    spelling = "a TREC folder (documents.trec)"
    format = "trec"
    corpus_name = "documents.trec"
    query_files = "topics.*.tsv"
    label_files = "qrels.*.txt"

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """The documents."""
        return read_documents(self._corpus, problems)


def split_files(folder: Path, pattern: str) -> dict[str, Path]:
    """Split name → file for names like ``qrels.*.tsv`` or ``qrels/*.tsv``; a plain file wins over its gzipped twin."""
    parent, _, pattern = pattern.rpartition("/")
    prefix, suffix = pattern.split("*")
    found: dict[str, Path] = {}
    for path in sorted(_files(folder / parent), key=lambda path: (not path.name.endswith(".gz"), path.name)):
        name = path.name.removesuffix(".gz")
        split = name[len(prefix) : len(name) - len(suffix)]
        if name.startswith(prefix) and name.endswith(suffix) and split and not name.startswith("."):
            found[split] = path
    return dict(sorted(found.items()))


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(folder)) from None


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

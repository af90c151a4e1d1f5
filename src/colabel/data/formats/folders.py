"""Folders of plain files, each plain or gzipped: BEIR, MS MARCO and TREC.

BEIR      ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``; beyond BEIR ``hidden/train.tsv``, labels set aside
          for label-quality studies
MS MARCO  ``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``
TREC      ``documents.trec``, ``topics.SPLIT.tsv``, ``qrels.SPLIT.txt``
"""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from colabel.artefacts import file_fingerprint, fingerprint, parse_manifest
from colabel.data.formats.base import Format, LineFile, Source, Stream, existing, nothing
from colabel.data.formats.columns import passage_columns
from colabel.data.text_lines import (
    BAD_COLUMNS,
    BEIR_COLUMNS,
    MISSING_FIELD,
    Located,
    Malformed,
    Problems,
    check_id,
    is_gzip,
    parse_rows,
    passage_from_json,
    passage_from_tsv,
    query_from_tsv,
    read_lines,
    read_qrels,
    read_queries,
    read_records,
)
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

HIDDEN_FILE = Path("hidden") / "train.tsv"


def open_beir(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A BEIR folder; one without labels needs no queries."""
    folder, columns = Path(name), {**BEIR_COLUMNS, **settings.columns}
    corpus = _corpus(folder, "corpus.jsonl")
    labels = _label_sets(folder, "qrels/*.tsv")
    queries = existing(folder / "queries.jsonl") or folder / "queries.jsonl"
    hidden = existing(folder / HIDDEN_FILE)
    parse = partial(passage_from_json, columns=columns)
    return Source(
        name=folder.resolve().name,
        passages=lambda problems: read_records(corpus, parse, problems),
        fingerprint=lambda: fingerprint([file_fingerprint(corpus), passage_columns(columns)]),
        provenance=_provenance(folder, "beir"),
        queries=partial(read_queries, queries, columns=columns) if labels or queries.is_file() else nothing,
        labels=labels,
        hidden=partial(read_qrels, hidden) if hidden else nothing,
        line_file=None if is_gzip(corpus) else LineFile(corpus, parse),
    )


def open_msmarco(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A folder of MS MARCO's tab-separated files."""
    _refuse_columns(name, settings)
    folder, corpus = Path(name), _corpus(Path(name), "collection.tsv")
    return Source(
        name=folder.resolve().name,
        passages=lambda problems: read_records(corpus, passage_from_tsv, problems),
        fingerprint=lambda: file_fingerprint(corpus),
        provenance=_provenance(folder, "msmarco"),
        queries=_query_files(folder, "queries.*.tsv"),
        labels=_label_sets(folder, "qrels.*.tsv"),
        line_file=None if is_gzip(corpus) else LineFile(corpus, passage_from_tsv),
    )


def open_trec(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A folder of TREC documents, topics and qrels; a document spans lines, so the collection is unpacked once."""
    _refuse_columns(name, settings)
    folder, corpus = Path(name), _corpus(Path(name), "documents.trec")
    return Source(
        name=folder.resolve().name,
        passages=partial(read_documents, corpus),
        fingerprint=lambda: file_fingerprint(corpus),
        provenance=_provenance(folder, "trec"),
        queries=_query_files(folder, "topics.*.tsv"),
        labels=_label_sets(folder, "qrels.*.txt"),
    )


def _holds(corpus: str) -> Callable[[Path], bool]:
    return lambda path: existing(path / corpus) is not None


BEIR = Format("a BEIR folder (corpus.jsonl)", open_beir, _holds("corpus.jsonl"))
MS_MARCO = Format("an MS MARCO folder (collection.tsv)", open_msmarco, _holds("collection.tsv"))
TREC = Format("a TREC folder (documents.trec)", open_trec, _holds("documents.trec"))


def _corpus(folder: Path, name: str) -> Path:
    return existing(folder / name) or folder / name


def _refuse_columns(name: str, settings: DataSettings) -> None:
    if settings.columns:
        raise UsageError(f"'data.columns' does not apply to {name}, whose files have no column names")


def _query_files(folder: Path, pattern: str) -> Stream[Query]:
    def stream(problems: Problems) -> Iterator[Located[Query]]:
        for path in _split_files(folder, pattern).values():
            yield from read_records(path, query_from_tsv, problems)

    return stream


def _label_sets(folder: Path, pattern: str) -> Mapping[str, Stream[Qrel]]:
    return {split: partial(read_qrels, path) for split, path in _split_files(folder, pattern).items()}


def _split_files(folder: Path, pattern: str) -> dict[str, Path]:
    """Split name → file for names like ``qrels.*.tsv`` or ``qrels/*.tsv``; a plain file wins over its gzipped twin."""
    parent, _, pattern = pattern.rpartition("/")
    prefix, suffix = pattern.split("*")
    try:
        files = [path for path in (folder / parent).iterdir() if path.is_file()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(folder / parent)) from None
    found: dict[str, Path] = {}
    for path in sorted(files, key=lambda path: (not path.name.endswith(".gz"), path.name)):
        name = path.name.removesuffix(".gz")
        split = name[len(prefix) : len(name) - len(suffix)]
        if name.startswith(prefix) and name.endswith(suffix) and split and not name.startswith("."):
            found[split] = path
    return dict(sorted(found.items()))


def _provenance(folder: Path, form: str) -> dict[str, str]:
    """Format and name of the folder, and the relevance cut-off if ``colabel convert`` wrote it."""
    found = {"format": form, "folder": folder.resolve().name}
    with contextlib.suppress(ArtefactError):
        cutoff = parse_manifest(folder).settings.get("relevant_from")
        if isinstance(cutoff, int):
            found["relevant_from"] = str(cutoff)
    return found


_ROLES = {"docno": "id", "title": "title", "headline": "title", "head": "title", "text": "text", "body": "text"}
_OPENING = re.compile(f"<({'|'.join(_ROLES)})>", re.IGNORECASE)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # str.lower() can change lengths


def read_documents(path: Path, problems: Problems) -> Iterator[Located[Passage]]:
    """Passages between ``<DOC>`` and ``</DOC>`` lines, with DOCNO, TITLE (or HEAD, HEADLINE) and TEXT (or BODY)."""
    return parse_rows(_bodies(path, problems), _document, problems)


def _bodies(path: Path, problems: Problems) -> Iterator[Located[str]]:
    file = str(path)
    start, offset, body = 0, 0, list[str]()
    for text, _, number, place in read_lines(path, problems):
        marker = text.strip().upper()
        if marker == "<DOC>":
            if start:
                problems.add(BAD_COLUMNS, file, number, f"<DOC> inside the <DOC> of line {start}")
            start, offset, body = number, place, []
        elif marker == "</DOC>" and start:
            yield Located("\n".join(body), file, start, offset)
            start = 0
        elif start:
            body.append(text)
        else:
            problems.add(BAD_COLUMNS, file, number, "text outside <DOC> … </DOC>")
    if start:
        problems.add(BAD_COLUMNS, file, start, "this <DOC> is never closed")


def _document(body: str) -> Passage:
    parts: dict[str, list[str]] = {"id": [], "title": [], "text": []}
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
        parts[_ROLES[tag]].append(html.unescape(body[opening.end() : closing].strip("\n")))
    if len(parts["id"]) != 1:
        raise Malformed(MISSING_FIELD, f"{len(parts['id'])} <DOCNO> elements in one <DOC>; expected one")
    return Passage(check_id(parts["id"][0].strip()), " ".join(parts["title"]), " ".join(parts["text"]))

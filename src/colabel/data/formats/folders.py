"""Folders with a collection, its queries and labels.

BEIR      ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``; beyond BEIR ``hidden/train.tsv``, labels set aside
          for label-quality studies
MS MARCO  ``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``
hf:       ``corpus``, ``queries`` and ``qrels``, as ``save_to_disk`` writes the three configurations of the BEIR and
          NanoBEIR sets on the hub; each a ``Dataset`` or a ``DatasetDict``

Files of the first two may be gzipped. ``[data.columns]`` maps other columns to roles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from colabel.artefacts import file_fingerprint, fingerprint, parse_manifest
from colabel.data.formats.base import LineFile, Source, Stream, existing, nothing
from colabel.data.text_lines import (
    BEIR_COLUMNS,
    Located,
    Problems,
    Row,
    is_gzip,
    numbered,
    parse_rows,
    passage_from_json,
    passage_from_row,
    passage_from_tsv,
    qrel_from_row,
    query_from_row,
    query_from_tsv,
    read_qrels,
    read_queries,
    read_records,
)
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Qrel, Query

T = TypeVar("T")
HIDDEN_FILE = Path("hidden") / "train.tsv"


def open_beir(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A BEIR folder; one without labels needs no queries."""
    folder, columns = Path(name), {**BEIR_COLUMNS, **settings.columns}
    corpus = existing(folder / "corpus.jsonl") or folder / "corpus.jsonl"
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
    if settings.columns:
        raise UsageError(f"'data.columns' does not apply to {name}, whose files have no column names")
    folder = Path(name)
    corpus = existing(folder / "collection.tsv") or folder / "collection.tsv"

    def queries(problems: Problems) -> Iterator[Located[Query]]:
        for path in _split_files(folder, "queries.*.tsv").values():
            yield from read_records(path, query_from_tsv, problems)

    return Source(
        name=folder.resolve().name,
        passages=lambda problems: read_records(corpus, passage_from_tsv, problems),
        fingerprint=lambda: file_fingerprint(corpus),
        provenance=_provenance(folder, "msmarco"),
        queries=queries,
        labels=_label_sets(folder, "qrels.*.tsv"),
        line_file=None if is_gzip(corpus) else LineFile(corpus, passage_from_tsv),
    )


def passage_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns on which the contents of a collection depend."""
    return {role: columns[role] for role in ("passage_id", "passage_title", "passage_text")}


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


def open_hugging_face(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """Three datasets on disk, or the corpus alone."""
    folder, columns = Path(name), {**BEIR_COLUMNS, **settings.columns}
    if not folder.is_dir():
        raise UsageError(f"hf:{name}: no such folder")

    def rows(part: str, tables: dict[str, Any], parse: Callable[[Row, Mapping[str, str]], T]) -> Stream[T]:
        def stream(problems: Problems) -> Iterator[Located[T]]:
            for split, table in tables.items():
                located = numbered(table, f"{folder / part} ({split})")
                yield from parse_rows(located, lambda row: parse(row, columns), problems)

        return stream

    def corpus_fingerprint() -> str:
        files = sorted((folder / "corpus").rglob("*.arrow"))
        return fingerprint([[file_fingerprint(path) for path in files], passage_columns(columns)])

    alone = not (folder / "queries").exists() and not (folder / "qrels").exists()
    queries, qrels = ({}, {}) if alone else (_load(folder / "queries"), _load(folder / "qrels"))
    own_name = folder.resolve().name
    return Source(
        name=own_name,
        passages=rows("corpus", _load(folder / "corpus"), passage_from_row),
        fingerprint=corpus_fingerprint,
        provenance={"format": "hf", "folder": own_name},
        queries=rows("queries", queries, query_from_row),
        labels={split: rows("qrels", {split: table}, qrel_from_row) for split, table in qrels.items()},
    )


def _load(folder: Path) -> dict[str, Any]:
    """Split name → dataset; a lone Dataset counts as the split that its own name says, else 'train'."""
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"not a dataset that `save_to_disk` wrote: {error} (expected the folders corpus, queries and qrels)",
            file=str(folder),
        ) from None
    if isinstance(loaded, datasets.DatasetDict):
        return {str(name): table for name, table in loaded.items()}
    return {str(loaded.split or "train"): loaded}

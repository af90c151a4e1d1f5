"""Rows with free column names, which ``[data.columns]`` maps to roles: Hugging Face ``datasets`` and JSON lines.

``hf:FOLDER`` holds ``corpus``, ``queries`` and ``qrels``, as ``save_to_disk`` writes them. This is the layout of the
BEIR and NanoBEIR sets on the hub: load each of the three configurations and save it under its name. Each may be a
``Dataset`` or a ``DatasetDict``; the splits of ``qrels`` become ours. The corpus is unpacked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.formats.base import LineFile, Source, Stream
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
    qrel_from_row,
    query_from_row,
    read_records,
)
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings

T = TypeVar("T")


def open_jsonl(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """One JSONL corpus file. Its queries and labels are named in ``[data] queries`` and ``labels``."""
    corpus, columns = Path(name), {**BEIR_COLUMNS, **settings.columns}
    if not corpus.is_file():
        raise UsageError(f"jsonl:{name}: no such file")
    parse = partial(passage_from_json, columns=columns)
    return Source(
        name=corpus.name.split(".")[0],
        passages=lambda problems: read_records(corpus, parse, problems),
        fingerprint=lambda: fingerprint([file_fingerprint(corpus), passage_columns(columns)]),
        provenance={"format": "jsonl", "file": corpus.name},
        line_file=None if is_gzip(corpus) else LineFile(corpus, parse),
    )


def passage_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns on which the contents of a collection depend."""
    return {role: columns[role] for role in ("passage_id", "passage_title", "passage_text")}


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

"""Rows with free column names, which ``[data.columns]`` maps to roles: Hugging Face ``datasets`` and JSON lines.

``hf:FOLDER`` holds ``corpus``, ``queries`` and ``qrels``, as ``save_to_disk`` writes them. This is the layout of the
BEIR and NanoBEIR sets on the hub: load each of the three configurations and save it under its name. Each may be a
``Dataset`` or a ``DatasetDict``; the splits of ``qrels`` become ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.formats.base import LineFile, Source
from colabel.data.text_lines import (
    BEIR_COLUMNS,
    Located,
    Malformed,
    Problems,
    is_gzip,
    json_row,
    passage_columns,
    passage_from_row,
    qrel_from_row,
    query_from_row,
    read_records,
    warn_if_empty,
)
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class HuggingFaceSource(Source):
    """Three datasets on disk, memory-mapped by ``datasets``; the corpus is unpacked once."""

    folder: Path
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(BEIR_COLUMNS))

    prefix = "hf"
    spelling = "hf:FOLDER"

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """A folder with the three."""
        if not Path(name).is_dir():
            raise UsageError(f"hf:{name}: no such folder")
        return cls(Path(name), {**BEIR_COLUMNS, **settings.columns})

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @cached_property
    def _tables(self) -> dict[str, dict[str, Any]]:
        parts = {part: self.folder / part for part in ("corpus", "queries", "qrels")}
        # A collection alone has neither queries nor labels.
        alone = not parts["queries"].exists() and not parts["qrels"].exists()
        return {part: {} if alone and part != "corpus" else _load(path) for part, path in parts.items()}

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Rows of ``corpus``."""
        for located in self._rows("corpus", None, passage_from_row, problems):
            warn_if_empty(located.value, located.file, located.line, problems)
            yield located

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Rows of ``queries``."""
        return self._rows("queries", None, query_from_row, problems)

    def splits(self) -> tuple[str, ...]:
        """The splits of ``qrels``."""
        return tuple(sorted(self._tables["qrels"]))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """Rows of one split of ``qrels``."""
        return self._rows("qrels", split, qrel_from_row, problems)

    def corpus_fingerprint(self) -> str:
        """Of the Arrow files' bytes and the columns that are read."""
        files = sorted((self.folder / "corpus").rglob("*.arrow"))
        return fingerprint([[file_fingerprint(path) for path in files], passage_columns(self.columns)])

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return {"format": "hf", "folder": self.name}

    def _rows(
        self, part: str, split: str | None, parse: Callable[[Any, Mapping[str, str]], T], problems: Problems
    ) -> Iterator[Located[T]]:
        for name, table in self._tables[part].items():
            if split is not None and name != split:
                continue
            file = f"{self.folder / part} ({name})"
            for number, row in enumerate(table, start=1):
                try:
                    yield Located(parse(row, self.columns), file, number)
                except Malformed as error:
                    problems.add(error.kind, file, number, str(error))


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


@dataclasses.dataclass(frozen=True)
class JsonlSource(Source):
    """One JSONL corpus file. Its queries and labels are named in ``[data] queries`` and ``labels``."""

    corpus: Path
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(BEIR_COLUMNS))

    prefix = "jsonl"
    spelling = "jsonl:FILE"

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """A corpus file."""
        if not Path(name).is_file():
            raise UsageError(f"jsonl:{name}: no such file")
        return cls(Path(name), {**BEIR_COLUMNS, **settings.columns})

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.corpus.name.split(".")[0]

    def _parse(self, text: str) -> Passage:
        return passage_from_row(json_row(text), self.columns)

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of the corpus file."""
        return read_records(self.corpus, self._parse, problems)

    def line_file(self) -> LineFile | None:
        """The corpus, unless it is gzipped."""
        return None if is_gzip(self.corpus) else LineFile(self.corpus, self._parse)

    def corpus_fingerprint(self) -> str:
        """Of the corpus file's bytes and the columns that are read."""
        return fingerprint([file_fingerprint(self.corpus), passage_columns(self.columns)])

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return {"format": "jsonl", "file": self.corpus.name}

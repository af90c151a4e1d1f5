"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``; each may be gzipped.

Beyond BEIR, a folder may hold ``hidden/train.tsv``: labels set aside for label-quality studies.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from colabel.artefacts import file_fingerprint, fingerprint, parse_manifest
from colabel.data.lines import is_gzip
from colabel.data.problems import Problems
from colabel.data.records import (
    BEIR_COLUMNS,
    json_row,
    passage_columns,
    passage_from_row,
    read_qrels,
    read_queries,
    read_records,
)
from colabel.data.source import LineFile, Located
from colabel.errors import ArtefactError, DataError
from colabel.types import Passage, Qrel, Query

HIDDEN_FILE = Path("hidden") / "train.tsv"


def existing(path: Path) -> Path | None:
    """The file, or its gzipped twin, or None."""
    gzipped = path.with_name(path.name + ".gz")
    return path if path.is_file() else gzipped if gzipped.is_file() else None


def split_files(folder: Path, pattern: str) -> dict[str, Path]:
    """Split name → file for names like ``qrels.*.tsv`` or ``*.tsv``; a plain file wins over its gzipped twin."""
    prefix, suffix = pattern.split("*")
    found: dict[str, Path] = {}
    for path in sorted(_files(folder), key=lambda path: (not path.name.endswith(".gz"), path.name)):
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


def folder_provenance(format_name: str, folder: Path) -> dict[str, str]:
    """Format and name of a folder, and the relevance cut-off if ``colabel convert`` wrote it."""
    found = {"format": format_name, "folder": folder.resolve().name}
    with contextlib.suppress(ArtefactError):
        cutoff = parse_manifest(folder).settings.get("relevant_from")
        if isinstance(cutoff, int):
            found["relevant_from"] = str(cutoff)
    return found


def parse_passage(text: str) -> Passage:
    """A line of ``corpus.jsonl``."""
    return passage_from_row(json_row(text), BEIR_COLUMNS)


@dataclasses.dataclass(frozen=True)
class BeirSource:
    """A BEIR folder."""

    folder: Path
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(BEIR_COLUMNS))

    @staticmethod
    def recognises(folder: Path) -> bool:
        """Whether the folder looks like BEIR."""
        return existing(folder / "corpus.jsonl") is not None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def _corpus(self) -> Path:
        return existing(self.folder / "corpus.jsonl") or self.folder / "corpus.jsonl"

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of ``corpus.jsonl``."""
        return read_records(self._corpus, self._parse, problems)

    def _parse(self, text: str) -> Passage:
        return passage_from_row(json_row(text), self.columns)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Lines of ``queries.jsonl``."""
        path = self.folder / "queries.jsonl"
        return read_queries(existing(path) or path, problems, self.columns)

    def splits(self) -> tuple[str, ...]:
        """Files in ``qrels/``."""
        return tuple(split_files(self.folder / "qrels", "*.tsv"))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """Lines of ``qrels/SPLIT.tsv``."""
        return read_qrels(split_files(self.folder / "qrels", "*.tsv")[split], problems)

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

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return folder_provenance("beir", self.folder)

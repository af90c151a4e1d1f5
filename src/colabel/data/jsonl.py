"""JSON lines with free column names: a corpus file, query files and label files, each with its own columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.lines import is_gzip
from colabel.data.problems import Problems
from colabel.data.records import BEIR_COLUMNS, json_row, passage_columns, passage_from_row, read_records
from colabel.data.source import LineFile, Located
from colabel.types import Passage, Qrel, Query


@dataclasses.dataclass(frozen=True)
class JsonlSource:
    """One JSONL corpus file. Its queries and labels are named in ``[data] queries`` and ``labels``."""

    corpus: Path
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(BEIR_COLUMNS))

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.corpus.name.split(".")[0]

    def _parse(self, text: str) -> Passage:
        return passage_from_row(json_row(text), self.columns)

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of the corpus file."""
        return read_records(self.corpus, self._parse, problems)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """None of its own."""
        return iter(())

    def splits(self) -> tuple[str, ...]:
        """None of its own."""
        return ()

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """None of its own."""
        return iter(())

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """None."""
        return iter(())

    def line_file(self) -> LineFile | None:
        """The corpus, unless it is gzipped."""
        return None if is_gzip(self.corpus) else LineFile(self.corpus, self._parse)

    def corpus_fingerprint(self) -> str:
        """Of the corpus file's bytes and the columns that are read."""
        return fingerprint([file_fingerprint(self.corpus), passage_columns(self.columns)])

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return {"format": "jsonl", "file": self.corpus.name}

"""MS MARCO folders: ``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``, ``triples.*``.

Triples come as ids (query, positive, negative) or as texts; texts are looked up in the collection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from colabel.artefacts import file_fingerprint
from colabel.data.beir import existing, folder_provenance, split_files
from colabel.data.lines import is_gzip, read_lines
from colabel.data.problems import BAD_COLUMNS, Problems
from colabel.data.records import passage_from_tsv, query_from_tsv, read_qrels, read_records
from colabel.data.source import LineFile, Located
from colabel.types import Passage, Qrel, Query


@dataclasses.dataclass(frozen=True)
class MsMarcoSource:
    """A folder of MS MARCO's tab-separated files."""

    folder: Path

    @staticmethod
    def recognises(folder: Path) -> bool:
        """Whether the folder looks like MS MARCO."""
        return existing(folder / "collection.tsv") is not None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def _corpus(self) -> Path:
        return existing(self.folder / "collection.tsv") or self.folder / "collection.tsv"

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """Lines of ``collection.tsv``."""
        return read_records(self._corpus, passage_from_tsv, problems)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """Lines of every ``queries.*.tsv``."""
        for path in split_files(self.folder, "queries.*.tsv").values():
            yield from read_records(path, query_from_tsv, problems)

    def splits(self) -> tuple[str, ...]:
        """The names between ``qrels.`` and ``.tsv``."""
        return tuple(split_files(self.folder, "qrels.*.tsv"))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """Lines of ``qrels.SPLIT.tsv``."""
        return read_qrels(split_files(self.folder, "qrels.*.tsv")[split], problems)

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """None."""
        return iter(())

    def line_file(self) -> LineFile | None:
        """The collection, unless it is gzipped."""
        return None if is_gzip(self._corpus) else LineFile(self._corpus, passage_from_tsv)

    def corpus_fingerprint(self) -> str:
        """Of the collection file's bytes."""
        return file_fingerprint(self._corpus)

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return folder_provenance("msmarco", self.folder)


def read_triple_columns(path: Path, problems: Problems) -> Iterator[Located[tuple[str, str, str]]]:
    """The three tab-separated columns of every line, ids or texts as they stand."""
    for line in read_lines(path, problems):
        columns = line.text.split("\t")
        if len(columns) != 3:
            message = f"{len(columns)} columns; expected 3: query, positive, negative"
            problems.add(BAD_COLUMNS, str(path), line.number, message)
            continue
        yield Located((columns[0], columns[1], columns[2]), str(path), line.number, line.offset)

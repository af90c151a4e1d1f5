"""MS MARCO's training triples, as ids whatever the file holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from colabel.data.dataset import Dataset
from colabel.data.msmarco import read_triple_columns
from colabel.data.passages import PassageTable
from colabel.data.problems import UNKNOWN_PASSAGE, UNKNOWN_QUERY, Problems, Strict
from colabel.data.strings import string_hash
from colabel.types import Triple


def read_triples(path: Path, dataset: Dataset, problems: Problems | None = None) -> Iterator[Triple]:
    """Yield (query, positive, negative) ids of ``triples.*`` (ids or texts) or ``qidpidtriples.*`` (ids).

    Whether a file holds ids or texts is seen from its first line. Texts are looked up in the collection; one
    that is not there is a problem with its line.
    """
    problems = problems or Strict()
    lookup: _TextLookup | None = None
    for number, located in enumerate(read_triple_columns(path, problems)):
        query, positive, negative = located.value
        if number == 0 and any(len(column.split()) > 1 for column in located.value):  # an id has no white space
            lookup = _TextLookup(dataset)
        if lookup is not None:
            query, positive, negative = lookup.ids(query, positive, negative)
        if query not in dataset.queries:
            problems.add(UNKNOWN_QUERY, located.file, located.line, _absent("query", located.value[0]))
        elif positive not in dataset.passages.ids:
            problems.add(UNKNOWN_PASSAGE, located.file, located.line, _absent("positive passage", located.value[1]))
        elif negative not in dataset.passages.ids:
            problems.add(UNKNOWN_PASSAGE, located.file, located.line, _absent("negative passage", located.value[2]))
        else:
            yield Triple(query, positive, negative)


def _absent(what: str, value: str) -> str:
    return f"the {what} {value[:60]!r} does not exist in the dataset"


class _TextLookup:
    """Text → id by hash: 16 bytes a passage, and a look at the passage itself to be sure."""

    def __init__(self, dataset: Dataset) -> None:
        self._passages: PassageTable = dataset.passages
        self._queries = {text.strip(): query_id for query_id, text in dataset.queries.items()}
        hashes = np.fromiter((_hash(passage.text) for passage in self._passages), np.uint64, len(self._passages))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def ids(self, query: str, positive: str, negative: str) -> tuple[str, str, str]:
        """The ids; the empty string (no valid id) for a text that is not there."""
        return self._queries.get(query.strip(), ""), self._passage(positive), self._passage(negative)

    def _passage(self, text: str) -> str:
        wanted = np.uint64(_hash(text))
        position = int(np.searchsorted(self._hashes, wanted))
        while position < len(self._hashes) and self._hashes[position] == wanted:
            passage = self._passages[int(self._order[position])]
            if passage.text.strip() == text.strip():
                return passage.id
            position += 1
        return ""


def _hash(text: str) -> int:
    return string_hash(text.strip().encode("utf-8"))

"""pydocs: a collection on every machine, made of the documentation of installed libraries.

A query is the summary line of an object's documentation. Relevant are the object's own passage (grade 2) and
those of its "See Also" entries (grade 1). The train split shows the former only; the latter are hidden labels.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source
from colabel.data.pydocs.collection import Collection, Entry, limited, split_of, stored_collection, whole_collection
from colabel.data.text_lines import Located, Problems
from colabel.errors import SettingsError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

OWN, RELATED = 2, 1
_SPLITS = ("dev", "test", "train")

T = TypeVar("T")


class PydocsSource(Source):
    """The documentation of installed libraries.

    Args:
        size: how many passages, at most; None: all there are.
        cache: a folder in which the collection is kept, so that the next process need not harvest it again.
    """

    prefix = "pydocs"
    spelling = "pydocs or pydocs:N"
    is_path = False
    bare = True

    def __init__(self, size: int | None = None, cache: Path | None = None) -> None:
        if size is not None and size < 1:
            raise SettingsError(f"the size of pydocs is {size}; it must be at least 1 passage, or left out for all")
        self.size, self._cache = size, cache

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """All of it, or as many passages as ``name`` says."""
        if name and not re.fullmatch(r"[1-9][0-9]{0,6}", name):
            raise UsageError(f"'pydocs:{name}': expected a number of passages, such as pydocs:4000")
        return cls(int(name) if name else None, cache)

    @property
    def name(self) -> str:
        """As users write it."""
        return "pydocs" if self.size is None else f"pydocs:{self.size}"

    @functools.cached_property
    def _collection(self) -> Collection:
        if self._cache is None:
            return limited(whole_collection(), self.size)
        return stored_collection(self._cache / "pydocs", self.size)

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """All passages in order of their ids, which are the objects' qualified names."""
        return _located(entry.passage for entry in self._collection.entries)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """All queries of all splits, in order of the objects' names."""
        return _located(query for query, _ in self._asked())

    def splits(self) -> tuple[str, ...]:
        """Always dev, test and train."""
        return _SPLITS

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """All labels of dev or test; of train only each query's own passage."""
        if split not in _SPLITS:
            raise UsageError(f"pydocs has no split '{split}'; it has {', '.join(_SPLITS)}")
        return _located(
            label
            for query, entry in self._asked()
            if split_of(query) == split
            for label in (_own(query, entry), *(_related(query, entry) if split != "train" else ()))
        )

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """The cross-references of train queries."""
        return _located(
            label for query, entry in self._asked() if split_of(query) == "train" for label in _related(query, entry)
        )

    def corpus_fingerprint(self) -> str:
        """Names the ids and texts of all passages: the same for the same versions of the libraries."""
        passages = (entry.passage for entry in self._collection.entries)
        return fingerprint([[passage.id, passage.title, passage.text] for passage in passages])

    def provenance(self) -> dict[str, str]:
        """Library → version, for the libraries that could be imported."""
        return dict(self._collection.versions)

    def _asked(self) -> Iterator[tuple[Query, Entry]]:
        return ((entry.query, entry) for entry in self._collection.entries if entry.query)


def _own(query: Query, entry: Entry) -> Qrel:
    return Qrel(query.id, entry.passage.id, OWN)


def _related(query: Query, entry: Entry) -> tuple[Qrel, ...]:
    return tuple(Qrel(query.id, passage_id, RELATED) for passage_id in entry.related)


def _located(values: Iterable[T]) -> Iterator[Located[T]]:
    return (Located(value, "pydocs", row) for row, value in enumerate(values, start=1))

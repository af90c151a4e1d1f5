"""What every collection format offers: a name by which users ask for it, and streams of records with their places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from colabel.data.text_lines import Located, Problems
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query


class LineFile(NamedTuple):
    """A plain file with one passage per line: what random access needs."""

    path: Path
    parse: Callable[[str], Passage]


class Source(ABC):
    """A collection in one format. Streams can be read any number of times; nothing is kept in memory.

    A source reports what is wrong with single records; what is wrong between records (duplicates, unknown ids) is
    found by :mod:`colabel.data.checking` and :mod:`colabel.data.load`.

    Attributes:
        prefix: what stands before the colon in ``PREFIX:NAME``; empty for formats that :meth:`recognises` finds.
        spelling: how users name a collection of this format, for messages and help.
        is_path: whether NAME is a path, relative to the recipe that names it.
        bare: whether the prefix alone names a collection, too.
    """

    prefix: ClassVar[str] = ""
    spelling: ClassVar[str]
    is_path: ClassVar[bool] = True
    bare: ClassVar[bool] = False

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a path without a prefix is of this format."""
        return False

    @classmethod
    @abstractmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """Open what stands behind the prefix; ``cache`` is a folder for what a source keeps of its own work.

        Raises:
            UsageError: there is no such collection.
        """

    @property
    @abstractmethod
    def name(self) -> str:
        """What reports call it."""

    @abstractmethod
    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """All passages in the collection's order."""

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """All queries of all splits."""
        return iter(())

    def splits(self) -> tuple[str, ...]:
        """Names of the label sets, sorted."""
        return ()

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """The labels of one split."""
        return iter(())

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """Labels of train queries that no training code may see: set aside for label-quality studies."""
        return iter(())

    def line_file(self) -> LineFile | None:
        """The corpus file if its lines can be read in place; None where it must be unpacked first."""
        return None

    @abstractmethod
    def corpus_fingerprint(self) -> str:
        """Names the contents of the corpus."""

    @abstractmethod
    def provenance(self) -> dict[str, str]:
        """Format and origin (library versions where the text comes from libraries), for manifests."""


def existing(path: Path) -> Path | None:
    """The file, or its gzipped twin, or None."""
    gzipped = path.with_name(path.name + ".gz")
    return path if path.is_file() else gzipped if gzipped.is_file() else None

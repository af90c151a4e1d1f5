"""A source: a collection in some format, as streams of records that know where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from colabel.data.problems import Problems
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")


class Located(NamedTuple, Generic[T]):
    """A record with its place: a line of a file (or a row of a table), and the byte at which the line starts."""

    value: T
    file: str
    line: int
    offset: int = -1


class LineFile(NamedTuple):
    """A plain file with one passage a line: what random access needs."""

    path: Path
    parse: Callable[[str], Passage]


class Source(Protocol):
    """What every format offers. Streams may be asked for again and again; nothing is kept in memory.

    ``splits`` are the names of the label sets; ``hidden`` are labels set aside for label-quality studies.
    A source reports what is wrong with single records; what is wrong between records (duplicates, unknown
    ids) is found by :mod:`colabel.data.checking` and :mod:`colabel.data.load`.
    """

    @property
    def name(self) -> str:
        """What reports call it."""

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """All passages in the collection's order."""

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """All queries of all splits."""

    def splits(self) -> tuple[str, ...]:
        """Names of the label sets, sorted."""

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """The labels of one split."""

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """Labels of train queries that no training code may see (empty for most sources)."""

    def line_file(self) -> LineFile | None:
        """The corpus file if its lines can be read in place; None where it must be unpacked first."""

    def corpus_fingerprint(self) -> str:
        """Names the contents of the corpus."""

    def provenance(self) -> dict[str, str]:
        """Format and origin (library versions where the text comes from libraries), for manifests."""

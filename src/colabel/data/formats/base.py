"""What every collection format gives: streams of records with their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from colabel.artefacts import fingerprint
from colabel.data.text_lines import Located, Problems
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")
Stream = Callable[[Problems], Iterator[Located[T]]]
"""Reads records from the start, any number of times; what is wrong with single records is reported."""


class LineFile(NamedTuple):
    """A plain file with one passage per line: what random access needs. ``parse`` can be pickled."""

    path: Path
    parse: Callable[[str], Passage]


def nothing(problems: Problems) -> Iterator[Any]:
    """A stream without records."""
    return iter(())


@dataclasses.dataclass(frozen=True)
class Source:
    """A collection in one format; nothing of it is kept in memory.

    What is wrong between records (duplicates, unknown ids) is found by :mod:`colabel.data.checking` and
    :mod:`colabel.data.load`.

    Attributes:
        name: what reports call it.
        fingerprint: computes the name of the corpus' contents.
        provenance: format and origin (library versions where the text comes from libraries), for manifests.
        labels: the label sets by their own names.
        hidden: labels of train queries that no training code may see: set aside for label-quality studies.
        line_file: the corpus file if its lines can be read in place; None where it must be unpacked first.
        chunk: words per piece of a long document, cut when the passages are unpacked; 0: documents stay whole.
    """

    name: str
    passages: Stream[Passage]
    fingerprint: Callable[[], str]
    provenance: Mapping[str, str]
    queries: Stream[Query] = nothing
    labels: Mapping[str, Stream[Qrel]] = dataclasses.field(default_factory=dict)
    hidden: Stream[Qrel] = nothing
    line_file: LineFile | None = None
    chunk: int = 0

    def in_pieces(self, words: int) -> Source:
        """The same collection with its long documents in pieces of so many words; 0: as it is."""
        if not words:
            return self
        return dataclasses.replace(
            self,
            chunk=words,
            line_file=None,
            fingerprint=lambda: fingerprint([self.fingerprint(), "chunk", words]),
            provenance={**self.provenance, "chunk": str(words)},
        )


class Format(NamedTuple):
    """How users name a collection of a format, and what opens it.

    Attributes:
        spelling: how users name it, for messages and help.
        open: opens what stands behind the prefix; the folder is for what a source keeps of its own work.
        recognises: whether a path without a prefix is of this format.
        prefix: what stands before the colon in ``PREFIX:NAME``; empty for formats that are recognised.
        is_path: whether NAME is a path, relative to the recipe that names it.
        bare: whether the prefix alone names a collection, too.
    """

    spelling: str
    open: Callable[[str, DataSettings, Path | None], Source]
    recognises: Callable[[Path], bool] = lambda path: False
    prefix: str = ""
    is_path: bool = True
    bare: bool = False


def existing(path: Path) -> Path | None:
    """The file, or its gzipped twin, or None."""
    gzipped = path.with_name(path.name + ".gz")
    return path if path.is_file() else gzipped if gzipped.is_file() else None

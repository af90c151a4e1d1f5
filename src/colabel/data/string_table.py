"""A table of strings: millions of ids in a few bytes each, found again by hash, memory-mapped from disk."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from colabel.errors import DataError
from colabel.types import IntArray

if TYPE_CHECKING:
    from colabel.artefacts import Workspace

_Array = np.ndarray
_PARTS = ("text", "offsets", "hashes", "order")


def string_hash(value: bytes) -> int:
    """64 bits of blake2b: the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")


class StringTableBuilder:
    """Collects strings in order; memory is their UTF-8 bytes and 16 bytes each."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._offsets = array("q", [0])
        self._hashes = array("Q")

    def append(self, value: str) -> None:
        """Add a string as the next row."""
        encoded = value.encode("utf-8")
        self._text += encoded
        self._offsets.append(len(self._text))
        self._hashes.append(string_hash(encoded))

    def finish(self) -> StringTable:
        """Sort the hashes and give the table."""
        hashes = np.frombuffer(self._hashes, dtype=np.uint64) if self._hashes else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        text = np.frombuffer(self._text, dtype=np.uint8) if self._text else np.zeros(0, np.uint8)
        return StringTable(text, np.frombuffer(self._offsets, dtype=np.int64), hashes[order], order)


class StringTable(Sequence[str]):
    """Row → string and string → row.

    Arrays (any may be memory-mapped): ``text`` uint8 [bytes], ``offsets`` int64 [n + 1], ``hashes`` uint64 [n]
    sorted, ``order`` int64 [n], the row of each sorted hash.
    """

    def __init__(self, text: _Array, offsets: _Array, hashes: _Array, order: _Array) -> None:
        self._text, self._offsets, self._hashes, self._order = text, offsets, hashes, order
        self._files: dict[str, tuple[Path, os.stat_result]] = {}

    @classmethod
    def of(cls, values: Iterable[str]) -> StringTable:
        """A table in memory; of a table, the table itself.

        >>> table = StringTable.of(["d1", "d2"])
        >>> table[1], table.row("d2"), table.row("d3")
        ('d2', 1, -1)
        """
        if isinstance(values, cls):
            return values
        builder = StringTableBuilder()
        for value in values:
            builder.append(value)
        return builder.finish()

    @classmethod
    def open(cls, folder: Path, name: str) -> StringTable:
        """Map a saved table from disk."""
        paths = {part: folder / f"{name}.{part}.npy" for part in _PARTS}
        table = cls(*map(_map, paths.values()))
        table._files = {part: (path, path.stat()) for part, path in paths.items()}
        return table

    def save(self, workspace: Workspace, name: str) -> None:
        """Write the four arrays as ``NAME.PART.npy``.

        A table that was opened from disk is linked: one collection's ids stand in a dozen artefacts, once on disk.
        """
        for part, values in zip(_PARTS, (self._text, self._offsets, self._hashes, self._order), strict=True):
            with workspace.file(f"{name}.{part}.npy") as path:
                if not self._linked(part, path):
                    with path.open("wb") as file:
                        np.save(file, values, allow_pickle=False)

    def _linked(self, part: str, target: Path) -> bool:
        """Whether ``target`` could be made another name of the file that this table was opened from."""
        try:
            path, opened = self._files[part]
            if not os.path.samestat(path.stat(), opened):  # replaced since
                return False
            target.unlink(missing_ok=True)
            target.hardlink_to(path)
        except (KeyError, OSError):  # kept in memory alone; on another file system
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Another process may see other files under the same names."""
        return {**self.__dict__, "_files": {}}

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a table with {len(self)}")
        row %= len(self)
        return bytes(self._text[self._offsets[row] : self._offsets[row + 1]]).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and self.row(value) >= 0

    def row(self, value: str) -> int:
        """The (first) row of a string, or −1."""
        encoded = value.encode("utf-8", "surrogatepass")
        wanted = np.uint64(string_hash(encoded))
        position = int(np.searchsorted(self._hashes, wanted))
        while position < len(self) and self._hashes[position] == wanted:
            row = int(self._order[position])
            if bytes(self._text[self._offsets[row] : self._offsets[row + 1]]) == encoded:
                return row
            position += 1
        return -1

    def rows(self, values: Iterable[str]) -> np.ndarray:
        """The rows of many strings, int64, −1 for unknown ones."""
        return np.fromiter((self.row(value) for value in values), dtype=np.int64)

    def known_rows(self, values: Sequence[str], lacking: str) -> IntArray:
        """The rows of many strings; where one is unknown, an error that ``lacking`` begins and the string ends."""
        rows = self.rows(values)
        if (rows < 0).any():
            raise DataError(f"{lacking} '{values[int(np.flatnonzero(rows < 0)[0])]}'")
        return rows

    @cached_property
    def first_rows(self) -> IntArray | None:
        """For each row the first of the neighbours with the same string, int64 [n]; None where no two are equal.

        Neighbours share an id where documents are in pieces.

        >>> StringTable.of(["d1", "d2", "d2"]).first_rows.tolist()
        [0, 1, 1]
        """
        if not (self._hashes[1:] == self._hashes[:-1]).any():
            return None
        hashes = np.empty(len(self), dtype=np.uint64)
        hashes[self._order] = self._hashes
        first = np.concatenate([[True], hashes[1:] != hashes[:-1]])
        return np.asarray(np.flatnonzero(first)[np.cumsum(first) - 1])

    def first_of(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """The first row of the document that each row is a piece of; −1 stays."""
        wide = np.asarray(rows, dtype=np.int64)
        return wide if self.first_rows is None else np.where(wide >= 0, self.first_rows[wide], -1)

    def all_of(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Every row of the documents that these rows are pieces of; −1 stays."""
        wide = np.asarray(rows, dtype=np.int64)
        if self.first_rows is None:
            return wide
        first = np.unique(self.first_of(wide))
        ends = np.where(first >= 0, np.searchsorted(self.first_rows, first, side="right"), 0)
        return np.concatenate([np.zeros(0, np.int64), *map(np.arange, first, ends)])

    def tie_ranks(self) -> npt.NDArray[np.int32]:
        """For each row its place when strings are sorted from the last to the first by their UTF-8 bytes, int32 [n].

        This is how trec_eval orders passages of equal score, so our rankings and every measure agree with it.

        >>> StringTable.of(["d1", "d3", "d2"]).tie_ranks().tolist()
        [2, 0, 1]
        """
        widths = np.diff(self._offsets)
        keys = np.zeros(len(self), dtype=f"S{max(1, int(widths.max(initial=1)))}")
        for row in range(len(self)):
            keys[row] = bytes(self._text[self._offsets[row] : self._offsets[row + 1]])
        ranks = np.empty(len(self), dtype=np.int32)
        ranks[np.argsort(keys, kind="stable")[::-1]] = np.arange(len(self), dtype=np.int32)
        return ranks

    def duplicates(self) -> Iterator[tuple[int, int]]:
        """Pairs (first row, later row) of equal strings, by later row."""
        same = np.flatnonzero(self._hashes[1:] == self._hashes[:-1]) + 1
        later = sorted(int(self._order[position]) for position in same)
        for row in later:
            first = self.row(self[row])
            if first < row:
                yield first, row


def _map(path: Path) -> np.ndarray:
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(values) if values.size == 0 else values

"""The passages of a collection on disk: random access by row or id without holding any text in memory."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from colabel.artefacts import Spec, Workspace, build, read_manifest
from colabel.data.formats import LineFile, Source
from colabel.data.pieces import cut_passage
from colabel.data.string_table import StringTable, StringTableBuilder
from colabel.data.text_lines import Kind, Malformed, Problems, passage_from_json
from colabel.errors import DataError
from colabel.progress import SILENT, Progress, track
from colabel.types import IntArray, Passage

_UNPACKED = "corpus.jsonl"
_READ_AHEAD = 1 << 20


class PassageTable:
    """Row → passage. ``ids`` maps rows to ids and back; ``fingerprint`` names the contents.

    Where documents are in pieces, a row is a piece, and ``ids`` has its document's id.

    ``offsets`` int64 [n + 1] holds the first byte of each passage's line and the size of the file.
    """

    def __init__(
        self, path: Path, parse: Callable[[str], Passage], offsets: np.ndarray, ids: StringTable, fingerprint: str
    ) -> None:
        self.ids = ids
        self.fingerprint = fingerprint
        self._parse = parse
        self._offsets = offsets
        self.path = path.resolve()
        self._descriptor = os.open(self.path, os.O_RDONLY)
        self._closer = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> Passage:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a collection with {len(self)} passages")
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        return self._read(os.pread(self._descriptor, end - start, start), row)

    def __iter__(self) -> Iterator[Passage]:
        """All passages in order, read sequentially."""
        return self.range(0, len(self))

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages of rows ``start`` to ``stop`` − 1, read sequentially."""
        row = start
        while row < stop:
            first = int(self._offsets[row])
            last = max(row + 1, int(np.searchsorted(self._offsets[: stop + 1], first + _READ_AHEAD, side="right")) - 1)
            block = os.pread(self._descriptor, int(self._offsets[last]) - first, first)
            for place in range(row, last):
                yield self._read(block[self._offsets[place] - first : self._offsets[place + 1] - first], place)
            row = last

    def _read(self, raw: bytes, row: int) -> Passage:
        try:
            return self._parse(raw.split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8"))
        except (Malformed, UnicodeDecodeError):
            message = f"the passage in row {row} is not what it was when the file was indexed; open the dataset again"
            raise DataError(message, file=str(self.path)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file itself."""
        return PassageTable, (self.path, self._parse, np.asarray(self._offsets), self.ids, self.fingerprint)

    def without_ids(self) -> PassageTable:
        """The texts alone, for a process that asks for them by row: a fraction of the memory."""
        return PassageTable(self.path, self._parse, self._offsets, StringTable.of(()), self.fingerprint)

    def get(self, passage_id: str) -> Passage:
        """The passage with this id."""
        return self[int(self.ids.known_rows([passage_id], f"the collection of {len(self):,} has no passage")[0])]

    def rows(self, passage_ids: Iterable[str]) -> np.ndarray:
        """Rows of many ids, int64, −1 for unknown ones."""
        return self.ids.rows(passage_ids)


class JoinedPassages(PassageTable):
    """Chosen rows of several tables, one table below the other, under ids of their own."""

    def __init__(self, parts: Sequence[tuple[PassageTable, IntArray]], ids: StringTable, fingerprint: str) -> None:
        self._parts, self.ids, self.fingerprint = parts, ids, fingerprint
        self._firsts = np.cumsum([0, *(len(rows) for _, rows in parts)])
        self.path = parts[0][0].path

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, row: int) -> Passage:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a collection with {len(self)} passages")
        number = int(np.searchsorted(self._firsts, row, side="right")) - 1
        table, rows = self._parts[number]
        return table[int(rows[row - self._firsts[number]])]

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages of rows ``start`` to ``stop`` − 1."""
        return (self[row] for row in range(start, stop))


def keep_passages(passages: PassageTable, cache: Path) -> PassageTable:
    """Copy passages into a cache, so that they can be read without their source, by :func:`open_unpacked`."""

    def write(space: Workspace) -> Mapping[str, Any]:
        offsets, end = array("q", [0]), 0
        with space.file(_UNPACKED) as path, path.open("wb", buffering=_READ_AHEAD) as file:
            for passage in passages.range(0, len(passages)):
                end += file.write(passage_line(passage).encode("utf-8"))
                offsets.append(end)
        passages.ids.save(space, "ids")
        space.save("offsets.npy", np.frombuffer(offsets, dtype=np.int64))
        return {"passages": len(passages)}

    build(cache / "passages", Spec("passages", {}, {"corpus": passages.fingerprint}, format=1), write)
    return _open(cache / "passages", None)


def open_passages(
    source: Source, problems: Problems, cache: Path | None = None, progress: Progress = SILENT
) -> PassageTable:
    """Index the passages of a source once, under ``cache``, and open them.

    A plain file with one passage per line is read in place; anything else is unpacked into the artefact. Without
    a cache the artefact lives in a temporary folder for as long as the table does.
    """
    if cache is None:
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="colabel-")
            stack.callback(folder.cleanup)
            table = open_passages(source, problems, Path(folder.name), progress)
            stack.pop_all()
            weakref.finalize(table, folder.cleanup)
            return table
    try:
        corpus = source.fingerprint()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(error.filename or source.name)) from None
    plan = Spec("passages", {"provenance": dict(source.provenance)}, {"corpus": corpus}, format=1)
    build(cache / "passages", plan, lambda space: _write(space, source, problems, progress))
    return _open(cache / "passages", source.line_file)


def open_unpacked(cache: Path) -> PassageTable | None:
    """Open passages that were unpacked into a cache, without their source; None where there are none."""
    return _open(cache / "passages", None) if (cache / "passages" / _UNPACKED).is_file() else None


def _open(folder: Path, line_file: LineFile | None) -> PassageTable:
    path, parse = line_file or LineFile(folder / _UNPACKED, passage_from_json)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    corpus = read_manifest(folder, "passages").inputs["corpus"]
    return PassageTable(path, parse, offsets, StringTable.open(folder, "ids"), corpus)


def _write(space: Workspace, source: Source, problems: Problems, progress: Progress) -> dict[str, Any]:
    """Offsets and ids of every passage; the text as well where it cannot be read in place."""
    ids, offsets, lines, end = StringTableBuilder(), array("q"), array("q"), 0
    documents = StringTableBuilder()
    file = source.name
    with ExitStack() as stack:
        unpacked: IO[bytes] | None = None
        if source.line_file is None:
            path = stack.enter_context(space.file(_UNPACKED))
            unpacked = stack.enter_context(path.open("wb", buffering=_READ_AHEAD))
        passages = track(source.passages(problems), progress, "reading passages", None, "passages")
        for located in passages:
            passage, file, line, offset = located
            lines.append(line)
            if source.chunk:
                documents.append(passage.id)
            for piece in cut_passage(passage, source.chunk) if source.chunk else (passage,):
                ids.append(passage.id)  # the document's, so that whatever names a piece names the document
                offsets.append(end if unpacked else offset)
                if unpacked:
                    end += unpacked.write(passage_line(piece).encode("utf-8"))
    offsets.append(end if source.line_file is None else source.line_file.path.stat().st_size)
    table = ids.finish()
    verify_ids(documents.finish() if source.chunk else table, file, lines, problems)
    table.save(space, "ids")
    space.save("offsets.npy", np.frombuffer(offsets, dtype=np.int64))
    return {"passages": len(table)}


def verify_ids(table: StringTable, file: str, lines: Sequence[int], problems: Problems) -> None:
    """Report an empty collection and every repeated id; ``lines`` holds the line of each row."""
    if not len(table):
        problems.add(Kind.EMPTY_FILE, file, None, "the collection has no passages")
    for first, later in table.duplicates():
        message = f"passage '{table[later]}' is also at line {lines[first]}"
        problems.add(Kind.DUPLICATE_PASSAGE, file, lines[later], message)


def passage_line(passage: Passage) -> str:
    """A passage as a line of BEIR's ``corpus.jsonl``."""
    row = {"_id": passage.id, "title": passage.title, "text": passage.text}
    metadata = {"metadata": dict(passage.metadata)} if passage.metadata else {}
    return json.dumps({**row, **metadata}, ensure_ascii=False, default=str) + "\n"

"""Lines of text files, plain or gzipped, with every way in which a file can be broken turned into a problem."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from colabel.data.problems import BAD_GZIP, BAD_UTF8, BOM, CRLF, UNREADABLE, Problems

_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"


class Line(NamedTuple):
    """A line without its end; ``offset`` is its first byte in the (unpacked) file."""

    number: int
    offset: int
    text: str


def is_gzip(path: Path) -> bool:
    """Whether the file is gzipped, judged by its first bytes and not by its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _GZIP_MAGIC
    except (OSError, ValueError):
        return False


def open_binary(path: Path) -> IO[bytes]:
    """Open for reading, unpacking gzip on the way."""
    if is_gzip(path):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def read_lines(path: Path, problems: Problems) -> Iterator[Line]:
    """Yield the non-blank lines; a line that is not UTF-8 is reported and left out."""
    name = str(path)
    carriage_returns = 0
    number = offset = 0
    try:
        with open_binary(path) as file:
            for number, raw in enumerate(file, start=1):
                start, offset = offset, offset + len(raw)
                body = raw[:-1] if raw.endswith(b"\n") else raw
                if number == 1 and body.startswith(_BOM):
                    problems.add(BOM, name, 1, "the file starts with a byte-order mark")
                    body, start = body[3:], start + 3
                if body.endswith(b"\r"):
                    carriage_returns += 1
                    body = body[:-1]
                try:
                    text = body.decode("utf-8")
                except UnicodeDecodeError as error:
                    problems.add(BAD_UTF8, name, number, f"not UTF-8 at byte {error.start + 1} of the line")
                    continue
                if text and not text.isspace():
                    yield Line(number, start, text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.add(BAD_GZIP, name, number or None, f"the gzip data breaks off or is damaged after this line: {error}")
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = getattr(error, "strerror", None) or error
        problems.add(UNREADABLE, name, None, f"cannot be read: {reason}")
    if carriage_returns:
        problems.add(CRLF, name, None, f"{carriage_returns} lines end in CR LF")

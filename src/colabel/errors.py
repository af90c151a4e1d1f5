"""Every error that colabel raises on purpose.

    ColabelError
    ├── UsageError            the call is wrong: an unknown command, option or file name     exit 2
    │   └── SettingsError     a setting is unknown, of the wrong type or out of range        exit 2
    ├── DataError             a collection, query, label or run file is wrong                exit 1
    │   └── EncodingError     a batch of passages cannot be encoded                          exit 1
    ├── ArtefactError         an output folder is foreign, damaged or of another version     exit 1
    │   └── LockedError       another process is writing to the output folder                exit 1
    ├── TrainingError         training cannot go on: not a number, out of memory             exit 1
    ├── ClusterError          work on a cluster cannot go on: no worker, a task that fails   exit 1
    └── MissingExtraError     an optional library is not installed                           exit 1

Each carries one sentence (or a few) that says what was found, where, what was expected and what to do.
The command line prints that sentence and exits with the number above; a traceback means a bug in colabel.
"""

from __future__ import annotations

from typing import ClassVar


class ColabelError(Exception):
    """Base of all errors that a user can act upon."""

    exit_code: ClassVar[int] = 1


class UsageError(ColabelError):
    """The call itself is wrong."""

    exit_code: ClassVar[int] = 2


class SettingsError(UsageError):
    """A setting is unknown, has the wrong type, is out of range or contradicts another."""


class DataError(ColabelError):
    """An input file is wrong; the message starts with the file and the line where they are known."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        self.file = file
        self.line = line
        super().__init__(f"{location(file, line)}: {message}" if file else message)


class EncodingError(DataError):
    """A batch of passages cannot be encoded; ``places`` are theirs among the texts of the call."""

    def __init__(self, message: str, places: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.places = places


class ArtefactError(ColabelError):
    """An artefact folder is foreign, damaged or cannot be replaced."""


class LockedError(ArtefactError):
    """Another process holds the output folder."""


class TrainingError(ColabelError):
    """Training cannot go on."""


class ClusterError(ColabelError):
    """Work on a cluster cannot go on."""


class MissingExtraError(ColabelError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}: pip install 'colabel[{extra}]' (in a clone: '.[{extra}]')")


def location(file: str | None, line: int | None) -> str:
    """Name a place in a file the way compilers do.

    >>> location("qrels/train.tsv", 12)
    'qrels/train.tsv:12'
    >>> location("corpus.jsonl", None)
    'corpus.jsonl'
    """
    place = file or "input"
    return place if line is None else f"{place}:{line}"

"""One writer per folder.

The lock is an ``flock`` on the folder itself: it leaves no file behind, and the system lifts it when the
process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from colabel.errors import ArtefactError, LockedError

WRITER_FILE = ".writer.json"
_ATTEMPTS = 1000
_PATIENT_SECONDS = 0.5


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made if absent) for this process; a second process gets a LockedError at once."""
    descriptor = _locked(folder)
    try:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            (folder / WRITER_FILE).write_text(json.dumps(note), encoding="utf-8")
        except OSError as error:
            raise ArtefactError(f"{folder} cannot be written: {error.strerror}") from None
        yield
    finally:
        if _still_there(descriptor, folder):  # else it was renamed, and the path may be another process's by now
            (folder / WRITER_FILE).unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def patient_lock(folder: Path) -> Iterator[None]:
    """Hold a lock that another process of this machine may hold for a while; a dead one holds nothing."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder_lock(folder))
                break
            except LockedError:
                time.sleep(_PATIENT_SECONDS)
        yield
        with contextlib.suppress(OSError):
            (folder / WRITER_FILE).unlink(missing_ok=True)
            folder.rmdir()


def _locked(folder: Path) -> int:
    """The folder, opened and locked; tried again where another process renames it away meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            if folder.is_file():
                raise ArtefactError(f"{folder} is a file; expected a folder. Choose another output folder") from None
            continue
        except OSError as error:
            raise ArtefactError(f"{folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise ArtefactError(f"{folder} cannot be locked: {error.strerror}") from None
            raise LockedError(
                f"{folder} is being written by {_writer(folder)}; wait for it to end, stop it, or choose another "
                "output folder"
            ) from None
        if _still_there(descriptor, folder):
            return descriptor
        os.close(descriptor)
    raise ArtefactError(f"{folder} is created and removed by other processes all the time; try again later")


def _still_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _writer(folder: Path) -> str:
    try:
        note = json.loads((folder / WRITER_FILE).read_text(encoding="utf-8"))
        return f"another colabel process (pid {note['pid']} on {note['host']}, since {note['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"

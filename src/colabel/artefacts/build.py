"""Build an artefact atomically and resumably.

The work happens in a hidden sibling, ``.NAME.partial``, in which files appear whole (written beside, synced, renamed):
after a kill the same call continues. When all is done the manifest is written and the folder renamed to ``NAME``.
"""

from __future__ import annotations

import contextlib
import contextvars
import fnmatch
import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from colabel.artefacts.lock import WRITER_FILE, folder_lock
from colabel.artefacts.manifest import (
    MANIFEST_FILE,
    Manifest,
    Spec,
    block_sums,
    library_versions,
    parse_manifest,
    read_manifest,
)
from colabel.errors import ArtefactError, UsageError

log = logging.getLogger(__name__)

T = TypeVar("T")

_SPEC_FILE = ".plan"
_SPENT_FILE = ".seconds"
_TEMPORARY = ".tmp-"


class Workspace:
    """The folder in which an artefact grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spent = folder / _SPENT_FILE
        self._before = float(spent.read_text(encoding="ascii") or 0) if spent.exists() else 0.0
        self._sums: dict[str, tuple[int, str]] = {}
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Time spent on this artefact, earlier interrupted attempts included up to their last file or save point."""
        return self._before + time.perf_counter() - self._start

    def keep_time(self) -> None:
        """Remember the time spent so far, for a later process that goes on from here."""
        (self.folder / _SPENT_FILE).write_text(repr(self.seconds), encoding="ascii")

    def done(self, name: str) -> bool:
        """Whether a file has been written whole, by this process or by an interrupted one."""
        return (self.folder / name).exists()

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Give a path to write to; the file bears ``name`` only after the block ended well and it was synced."""
        final = self.folder / name
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(_TEMPORARY + final.name)
        yield temporary
        sync(temporary)
        self._sums[name] = (temporary.stat().st_mtime_ns, block_sums(temporary))  # while the system still holds it
        temporary.replace(final)
        temporary.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing
        sync(final.parent)
        self.keep_time()

    def save(self, name: str, values: npt.NDArray[Any]) -> None:
        """Write an array as ``NAME``, which ends in ``.npy``."""
        with self.file(name) as path:
            np.save(path, values, allow_pickle=False)

    def sums(self, name: str) -> str:
        """The checksums of a file; it is read where it came from an interrupted process or a library wrote it."""
        written, sums = self._sums.get(name, (0, ""))
        path = self.folder / name
        return sums if written == path.stat().st_mtime_ns else block_sums(path)


Write = Callable[[Workspace], Mapping[str, Any]]
"""Fills a workspace and returns counts for the manifest; it should skip files that are ``done``."""


class Stale(Exception):  # noqa: N818 - an answer to "is it up to date?", not a mistake of anybody
    """An artefact that a dry run would have to build.

    ``differs`` are the settings in which a present artefact differs from the wanted one, else its inputs.
    """

    def __init__(self, stage: str, folder: Path, differs: Sequence[str] = ()) -> None:
        self.stage, self.folder, self.differs = stage, folder, tuple(differs)
        super().__init__(f"{self.sentence} ({folder})")

    def of(self, stage: str, keys: Mapping[str, str]) -> Stale:
        """The same, with the name that a pipeline has for the stage, and its ``keys`` for some settings."""
        return Stale(stage, self.folder, [keys.get(name, name) for name in self.differs])

    @property
    def sentence(self) -> str:
        """The stage, and what is the matter with it."""
        return f"`{self.stage}` " + (f"differs in {', '.join(self.differs)}" if self.differs else "is not made yet")


class Builder:
    """Builds artefacts, and remembers what was made of them: results, and failures.

    Stages call :func:`build`, which asks the builder of the surrounding ``with`` block, so that one and the same
    function of a stage makes its artefact, or says in a dry run why it would have to.
    """

    dry = False

    def __init__(self) -> None:
        self._results: dict[Path, Any] = {}
        self._failures: dict[Path, Exception] = {}
        self._tokens: list[contextvars.Token[Builder]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    def once(self, folder: Path, make: Callable[[], T]) -> T:
        """What ``make`` returned for a folder; an earlier failure is raised again instead of trying for hours again."""
        if folder in self._failures:
            raise self._failures[folder]
        if folder not in self._results:
            try:
                self._results[folder] = make()
            except Exception as error:
                self._failures[folder] = error
                raise
        return cast("T", self._results[folder])

    def build(self, folder: Path, spec: Spec, write: Write) -> Manifest:
        """Return the artefact of ``spec`` in ``folder``: the finished one, or one made (or continued) now."""
        folder = _final_place(folder)
        outdated = folder.with_name(f".{folder.name}.outdated")
        existing = _up_to_date(folder, spec)
        if existing is not None:
            log.debug("%s: up to date (%s)", spec.stage, folder)
            shutil.rmtree(outdated, ignore_errors=True)  # left by a kill right after the last rename
            return existing
        partial = folder.with_name(f".{folder.name}.partial")
        with folder_lock(partial):
            try:
                existing = _finished(folder, spec)  # its last writer may have finished while we came
            except ArtefactError:
                if _entries(partial) <= {WRITER_FILE}:  # nothing was done in it
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            if existing is not None:
                shutil.rmtree(partial, ignore_errors=True)
                return existing
            if _up_to_date(partial, spec) is None:  # else an earlier process was killed before the rename
                _prepare(partial, spec)
                workspace = Workspace(partial)
                manifest = _manifest(spec, workspace, write(workspace))
                with workspace.file(MANIFEST_FILE) as path:
                    path.write_text(manifest.to_json(), encoding="utf-8")
            return _publish(partial, folder, outdated)


class DryBuilder(Builder):
    """Builds nothing: what is up to date is returned, anything else is :class:`Stale`."""

    dry = True

    def build(self, folder: Path, spec: Spec, write: Write) -> Manifest:
        """The manifest of a finished artefact; raises :class:`Stale` where there is none of this very spec."""
        existing = _up_to_date(folder, spec)
        if existing is None:
            raise Stale(spec.stage, folder, explain(folder, spec))
        return existing


_CURRENT: contextvars.ContextVar[Builder] = contextvars.ContextVar("builder", default=Builder())  # noqa: B039


def current_builder() -> Builder:
    """The builder of the surrounding ``with`` block; an ordinary one where there is none."""
    return _CURRENT.get()


def explain(folder: Path, spec: Spec) -> tuple[str, ...]:
    """In which settings the artefact of a folder differs from a spec; its inputs where settings are the same.

    Empty where there is no whole artefact of that stage. What lies behind a changed input need not be said: the
    stages that made it say so themselves.
    """
    try:
        manifest = read_manifest(folder, spec.stage)
    except (ArtefactError, OSError):
        return ()
    wanted = json.loads(json.dumps(spec.settings))
    settings = [key for key in {**wanted, **manifest.settings} if wanted.get(key) != manifest.settings.get(key)]
    if spec.seed != manifest.seed:
        settings.append("seed")
    inputs = {**spec.inputs, **manifest.inputs}
    changed = [f"its {key}" for key in inputs if spec.inputs.get(key) != manifest.inputs.get(key)]
    return tuple(settings or changed or ["the format of another version"])


def build(folder: Path, spec: Spec, write: Write) -> Manifest:
    """Return the artefact of ``spec`` in ``folder``: the finished one, or one made (or continued) now.

    In a dry run, :class:`Stale` says that it would have to be made.
    """
    return _CURRENT.get().build(folder, spec, write)


def assemble(folder: Path, file: str, make: Callable[[], Mapping[str, Any]]) -> None:
    """Build the artefacts of a folder that holds several; ``file``, written last, says that they fit together.

    ``make`` builds them and returns what ``file`` holds. Where all of them are up to date nothing is written or locked.
    """
    dry = current_builder().dry
    try:
        with DryBuilder():
            table = json.loads(json.dumps(make()))
        written = None
        with contextlib.suppress(OSError, ValueError):
            written = json.loads((folder / file).read_text(encoding="utf-8"))
        if written == table or (dry and written is not None):  # as where data lies, which no artefact depends on
            log.debug("%s: up to date (%s)", folder.name, folder)
            return
        raise Stale(folder.name, folder)
    except Stale:
        if dry:
            raise
    with folder_lock(folder):
        (folder / file).unlink(missing_ok=True)  # until all parts fit together again
        write_json(folder / file, make())


def refuse_foreign(folder: Path, ours: Collection[str]) -> None:
    """Refuse an output folder for several artefacts in which something is not colabel's, before anything is written.

    An entry is ours if its name fits one of the patterns ``ours`` and it is a folder with an artefact, part of one, or
    no file at all.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder")
    for name in sorted(name for name in _entries(folder) if not name.startswith(".")):
        found = any(path.is_file() for path in (folder / name).rglob("*"))
        made = any(next((folder / name).rglob(one), None) for one in (MANIFEST_FILE, ".*.partial", "part-*.npy"))
        known = any(fnmatch.fnmatch(name, one) for one in ours)
        if not known or not (folder / name).is_dir() or (found and not made):
            raise UsageError(
                f"{folder} holds '{name}', which is not of this command; nothing was written. Choose a new folder"
            )


def write_json(path: Path, value: Any) -> None:
    """Write a small JSON file whole or not at all, outside an artefact."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, outside an artefact."""
    temporary = path.with_name(_TEMPORARY + path.name)
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def _final_place(folder: Path) -> Path:
    """The real path of an output folder; refuses places that cannot be renamed to, before any work is done."""
    folder = folder.resolve()
    if os.path.ismount(folder) or not folder.name:  # Path.is_mount() raises if the folder goes away
        raise ArtefactError(f"{folder} is a mount point, which cannot be replaced whole; choose a folder inside it")
    if folder.is_file():
        raise ArtefactError(f"{folder} is a file; expected a folder. Choose another output folder")
    return folder


def _up_to_date(folder: Path, spec: Spec) -> Manifest | None:
    """The finished result of this very spec, looked for without a lock: anything unclear counts as not there."""
    try:
        manifest = read_manifest(folder, spec.stage)
    except (ArtefactError, OSError):
        return None
    return manifest if manifest.fingerprint == spec.fingerprint else None


def _finished(folder: Path, spec: Spec) -> Manifest | None:
    """The manifest in ``folder`` if it is the result of this very spec.

    None where there is nothing yet, or an outdated or damaged artefact of the same stage, which may be replaced.
    Anything else in the folder is not ours to delete.
    """
    names = _entries(folder)
    if not names:
        return None
    try:
        manifest = parse_manifest(folder)
    except ArtefactError as error:
        raise ArtefactError(
            f"{folder} exists and is not a colabel artefact ({error}); nothing was written. Choose another output "
            "folder or move it away"
        ) from None
    if manifest.stage != spec.stage:
        raise ArtefactError(
            f"{folder} holds the result of '{manifest.stage}' and would be replaced by one of '{spec.stage}'; nothing "
            "was written. Choose another output folder"
        )
    if manifest.fingerprint == spec.fingerprint:
        try:
            return read_manifest(folder)
        except ArtefactError as error:
            log.warning("%s; it is built again", error)
    foreign = sorted(names - {MANIFEST_FILE} - {Path(name).parts[0] for name in manifest.files})
    if foreign:
        raise ArtefactError(
            f"{folder} would be built again, and holds '{foreign[0]}', which colabel did not write; nothing was "
            "written. Move it away or choose another output folder"
        )
    return None


def _entries(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise ArtefactError(f"{folder} cannot be read: {error.strerror}") from None


def _prepare(partial: Path, spec: Spec) -> None:
    """Keep what an interrupted attempt at the same spec left, clear anything else."""
    spec_file = partial / _SPEC_FILE
    same = spec_file.exists() and spec_file.read_text(encoding="ascii") == spec.fingerprint
    for entry in list(partial.iterdir()):
        if entry.name == MANIFEST_FILE or (not same and entry.name != WRITER_FILE):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for leftover in list(partial.rglob(f"{_TEMPORARY}*")):
        leftover.unlink()
    if same:
        log.info("%s: continuing an interrupted run", spec.stage)
        return
    write_text(spec_file, spec.fingerprint)


def _manifest(spec: Spec, workspace: Workspace, counts: Mapping[str, Any]) -> Manifest:
    files = {
        path.relative_to(workspace.folder).as_posix(): path.stat().st_size
        for path in sorted(workspace.folder.rglob("*"))
        if path.is_file() and path.name not in (_SPEC_FILE, _SPENT_FILE, WRITER_FILE)
    }
    return Manifest(
        stage=spec.stage,
        format=spec.format,
        fingerprint=spec.fingerprint,
        settings=json.loads(json.dumps(spec.settings)),
        inputs=dict(spec.inputs),
        seed=spec.seed,
        counts=dict(counts),
        seconds=round(workspace.seconds, 3),
        versions=library_versions(),
        files=files,
        sums={name: workspace.sums(name) for name in files},
    )


def _publish(partial: Path, folder: Path, outdated: Path) -> Manifest:
    """Give a complete workspace its final name, moving an outdated artefact out of the way first."""
    manifest = read_manifest(partial)
    usual = stat.S_IMODE((partial / MANIFEST_FILE).stat().st_mode)
    for name in manifest.files:  # safetensors lets nobody but the owner read
        (partial / name).chmod(usual)
    for name in (_SPEC_FILE, _SPENT_FILE, WRITER_FILE):
        (partial / name).unlink(missing_ok=True)
    shutil.rmtree(outdated, ignore_errors=True)
    if folder.exists():
        folder.rename(outdated)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)
    return manifest


def link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name; copy it where the disk knows no links. Artefacts are replaced whole, never changed."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        sync(Path(target))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

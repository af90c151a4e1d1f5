"""Build an artefact atomically and resumably.

The work happens in a hidden sibling folder, ``.NAME.partial``. Files appear in it whole (written beside, synced,
renamed), so after a kill at any moment the files that are there are good and the same call continues. When all
is done the manifest is written and the folder renamed to ``NAME``: there is no moment at which a half-written
artefact bears the final name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from colabel.artefacts.fingerprint import fingerprint
from colabel.artefacts.lock import WRITER_FILE, folder_lock
from colabel.artefacts.manifest import MANIFEST_FILE, Manifest, library_versions, parse_manifest, read_manifest
from colabel.errors import ArtefactError

log = logging.getLogger(__name__)

_PLAN_FILE = ".plan"
_SPENT_FILE = ".seconds"
_TEMPORARY = ".tmp-"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an artefact will be made of. Equal plans give equal artefacts."""

    stage: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    seed: int = 0
    format: int = 1

    @property
    def fingerprint(self) -> str:
        """Names everything that the result depends on."""
        return fingerprint(dataclasses.asdict(self))


class Workspace:
    """The folder in which an artefact grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = _read_seconds(folder / _SPENT_FILE)
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
        temporary.replace(final)
        sync(final.parent)
        self.keep_time()


def build(folder: Path, plan: Plan, write: Callable[[Workspace], Mapping[str, Any]]) -> Manifest:
    """Return the artefact of ``plan`` in ``folder``: the finished one, or one made (or continued) now.

    ``write`` fills the workspace and returns counts for the manifest; it should skip files that are ``done``.
    """
    folder = _final_place(folder)
    existing = _up_to_date(folder, plan)
    if existing is not None:
        log.info("%s: up to date (%s)", plan.stage, folder)
        shutil.rmtree(_outdated(folder), ignore_errors=True)  # left by a kill right after the last rename
        return existing
    partial = folder.with_name(f".{folder.name}.partial")
    with folder_lock(partial):
        try:
            existing = _finished(folder, plan)  # its last writer may have finished while we came
        except ArtefactError:
            _remove_unused(partial)
            raise
        if existing is not None:
            shutil.rmtree(partial, ignore_errors=True)
            return existing
        if not _complete(partial, plan):
            _prepare(partial, plan)
            workspace = Workspace(partial)
            counts = write(workspace)
            manifest = _manifest(plan, workspace, counts)
            with workspace.file(MANIFEST_FILE) as path:
                path.write_text(manifest.to_json(), encoding="utf-8")
        return _publish(partial, folder)


def copy_artefact(source: Path, folder: Path) -> Manifest:
    """Give a finished artefact a second place; its manifest is the same, the seconds that it took too."""
    manifest = read_manifest(source)
    plan = Plan(manifest.stage, manifest.settings, manifest.inputs, seed=manifest.seed, format=manifest.format)
    folder = _final_place(folder)
    existing = _up_to_date(folder, plan)
    if existing is not None:
        return existing
    partial = folder.with_name(f".{folder.name}.partial")
    with folder_lock(partial):
        existing = _finished(folder, plan)
        if existing is not None:
            shutil.rmtree(partial, ignore_errors=True)
            return existing
        _prepare(partial, plan)
        for name in [*manifest.files, MANIFEST_FILE]:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, partial / name)
            sync(partial / name)
        return _publish(partial, folder)


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


def _up_to_date(folder: Path, plan: Plan) -> Manifest | None:
    """The finished result of this very plan, looked for without a lock: anything unclear counts as not there."""
    try:
        manifest = read_manifest(folder, plan.stage)
    except (ArtefactError, OSError):
        return None
    return manifest if manifest.fingerprint == plan.fingerprint else None


def _remove_unused(partial: Path) -> None:
    """Remove a workspace in which nothing has been done."""
    if _entries(partial) <= {WRITER_FILE}:
        shutil.rmtree(partial, ignore_errors=True)


def _finished(folder: Path, plan: Plan) -> Manifest | None:
    """The manifest in ``folder`` if it is the result of this very plan.

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
    if manifest.stage != plan.stage:
        raise ArtefactError(
            f"{folder} holds the result of '{manifest.stage}' and would be replaced by one of '{plan.stage}'; nothing "
            "was written. Choose another output folder"
        )
    if manifest.fingerprint == plan.fingerprint:
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


def _prepare(partial: Path, plan: Plan) -> None:
    """Keep what an interrupted attempt at the same plan left, clear anything else."""
    plan_file = partial / _PLAN_FILE
    same = plan_file.exists() and plan_file.read_text(encoding="ascii") == plan.fingerprint
    for entry in list(partial.iterdir()):
        keep = same and entry.name != MANIFEST_FILE
        if keep or entry.name == WRITER_FILE:
            continue
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for leftover in list(partial.rglob(f"{_TEMPORARY}*")):
        leftover.unlink()
    if same:
        log.info("%s: continuing an interrupted run", plan.stage)
        return
    temporary = partial / f"{_TEMPORARY}plan"
    temporary.write_text(plan.fingerprint, encoding="ascii")
    sync(temporary)
    temporary.replace(plan_file)


def _manifest(plan: Plan, workspace: Workspace, counts: Mapping[str, Any]) -> Manifest:
    files = {
        path.relative_to(workspace.folder).as_posix(): path.stat().st_size
        for path in sorted(workspace.folder.rglob("*"))
        if path.is_file() and path.name not in (_PLAN_FILE, _SPENT_FILE, WRITER_FILE)
    }
    return Manifest(
        stage=plan.stage,
        format=plan.format,
        fingerprint=plan.fingerprint,
        settings=json.loads(json.dumps(plan.settings)),
        inputs=dict(plan.inputs),
        seed=plan.seed,
        counts=dict(counts),
        seconds=round(workspace.seconds, 3),
        versions=library_versions(),
        files=files,
    )


def _complete(partial: Path, plan: Plan) -> bool:
    """Whether an earlier process finished this very plan and was killed before the rename."""
    try:
        return read_manifest(partial).fingerprint == plan.fingerprint
    except ArtefactError:
        return False


def _publish(partial: Path, folder: Path) -> Manifest:
    """Give a complete workspace its final name, moving an outdated artefact out of the way first."""
    manifest = read_manifest(partial)
    _open_to_readers(partial, manifest)
    for name in (_PLAN_FILE, _SPENT_FILE, WRITER_FILE):
        (partial / name).unlink(missing_ok=True)
    outdated = _outdated(folder)
    shutil.rmtree(outdated, ignore_errors=True)
    if folder.exists():
        folder.rename(outdated)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)
    return manifest


def _open_to_readers(partial: Path, manifest: Manifest) -> None:
    """Give every file the rights that the system gives new ones: safetensors lets nobody but the owner read."""
    usual = stat.S_IMODE((partial / MANIFEST_FILE).stat().st_mode)
    for name in manifest.files:
        path = partial / name
        if stat.S_IMODE(path.stat().st_mode) != usual:
            path.chmod(usual)


def _outdated(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.outdated")


def _read_seconds(path: Path) -> float:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Fingerprints, and the manifest: how an artefact was made, and proof that it is whole.

Equal contents have equal fingerprints, on any machine. Checksums are those of a file's blocks, so that a sample of a
large artefact can be checked at little cost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from colabel.errors import ArtefactError

MANIFEST_FILE = "manifest.json"
BLOCK = 1 << 20
"""Bytes under one sum."""
SAMPLE_BLOCKS, SAMPLE_BYTES = 24, 4 << 20
"""What is read at most when a process opens an artefact for the first time; of small ones that is all."""
DIGITS = 16
"""Of the sum of a block."""
_LIBRARIES = ("numpy", "torch", "sentence-transformers", "transformers", "faiss-cpu", "bm25s", "ir-measures")
_SEED = random.SystemRandom().random()  # other blocks in every process: what lies damaged for long is found
_CHECKED: set[tuple[str, int, int]] = set()
"""Artefacts of which this process has compared a sample with its sums: folder, inode and time of the manifest."""


def fingerprint(value: Any) -> str:
    """Fingerprint of plain JSON data; the order of keys does not matter.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(canonical.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def file_fingerprint(path: Path) -> str:
    """Fingerprint of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@dataclasses.dataclass(frozen=True)
class Spec:
    """What an artefact will be made of. Equal specs give equal artefacts."""

    stage: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    seed: int = 0
    format: int = 1

    @property
    def fingerprint(self) -> str:
        """Names everything that the result depends on."""
        return fingerprint(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` holds.

    ``files`` maps each file to its size, ``sums`` to the checksums of its blocks (:func:`block_sums`), the manifest to
    its own; ``sums`` is empty in artefacts of earlier versions.
    """

    stage: str
    format: int
    fingerprint: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    seed: int
    counts: Mapping[str, Any]
    seconds: float
    versions: Mapping[str, str]
    files: Mapping[str, int]
    sums: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """The text of ``manifest.json``, with its own sum."""
        table = json.loads(json.dumps(dataclasses.asdict(self)))
        table["sums"][MANIFEST_FILE] = _table_sum(table)
        return json.dumps(table, indent=2, sort_keys=True) + "\n"


def library_versions() -> dict[str, str]:
    """Versions of colabel and of the libraries whose results an artefact may hold."""
    from colabel import __version__

    versions = {"colabel": __version__}
    for library in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[library] = metadata.version(library)
    return versions


def source_commit() -> str:
    """The commit that colabel runs from, '+' behind it where files were changed; empty where it was installed."""
    package = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        asked = ["git", "-C", str(package), *arguments]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # else the repository around an environment would be named
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def parse_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest without looking at the files it lists."""
    path = folder / MANIFEST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        what = "has no manifest.json, so it is not a finished colabel artefact" if folder.is_dir() else "does not exist"
        raise ArtefactError(f"{folder} {what}; expected the output folder of a colabel stage") from None
    except NotADirectoryError:
        raise ArtefactError(f"{folder} is a file; expected the output folder of a colabel stage") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ArtefactError(f"{path} cannot be read as a manifest: {error}") from None


def read_manifest(folder: Path, stage: str | None = None) -> Manifest:
    """Read the manifest of a finished artefact and verify its files: all sizes and, once a process, a sample."""
    manifest = parse_manifest(folder)
    if stage is not None and manifest.stage != stage:
        raise ArtefactError(f"{folder} holds the result of '{manifest.stage}'; expected one of '{stage}'")
    for name, size in manifest.files.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise ArtefactError(f"{file} {state}: the artefact is damaged; delete {folder} and build it again")
    _check_once(folder, manifest)
    return manifest


def _check_once(folder: Path, manifest: Manifest) -> None:
    """Compare some blocks of an artefact with their sums, once in a process."""
    state = (folder / MANIFEST_FILE).stat()
    key = (str(folder.resolve()), state.st_ino, state.st_mtime_ns)
    if key in _CHECKED:
        return
    if not own_sum_fits(manifest):
        raise ArtefactError(f"{folder / MANIFEST_FILE} is damaged: delete {folder} and build it again")
    sums = {name: one for name, one in manifest.sums.items() if name != MANIFEST_FILE}
    blocks = [(name, number) for name, one in sums.items() for number in range(len(one) // DIGITS)]
    left = SAMPLE_BYTES
    for name, number in random.Random(f"{_SEED} {folder}").sample(blocks, min(SAMPLE_BLOCKS, len(blocks))):
        if left <= 0:
            break
        with (folder / name).open("rb") as file:
            block = os.pread(file.fileno(), BLOCK, number * BLOCK)
        if _sum(block) != sums[name][number * DIGITS : (number + 1) * DIGITS]:
            raise ArtefactError(
                f"{folder / name} is damaged: {where(number)} is not what was written. Delete {folder} and build it "
                "again; `colabel verify` checks everything"
            )
        left -= len(block)
    _CHECKED.add(key)


def own_sum_fits(manifest: Manifest) -> bool:
    """Whether a manifest is what was written, or of a version that wrote no sums."""
    table = json.loads(json.dumps(dataclasses.asdict(manifest)))
    written = table["sums"].pop(MANIFEST_FILE, None)
    return written == _table_sum(table) if table["sums"] or written else True


def block_sums(path: Path) -> str:
    """The sums of a file's blocks one after another, 16 hexadecimal digits each; of an empty file none.

    64 bits of BLAKE2b find any damage; they are no proof against forgery.
    """
    with path.open("rb") as file:
        return "".join(iter(lambda: _sum(file.read(BLOCK)), ""))


def where(block: int) -> str:
    """A block of a file, for people."""
    return f"something in the {BLOCK >> 20} MiB from byte {block * BLOCK:,} on"


def _table_sum(table: Any) -> str:
    return _sum(json.dumps(table, sort_keys=True).encode())


def _sum(block: bytes) -> str:
    return hashlib.blake2b(block, digest_size=DIGITS // 2).hexdigest() if block else ""


def seconds_of(folder: Path) -> float | None:
    """Seconds that an artefact took; None where there is none, or a damaged one."""
    try:
        return read_manifest(folder).seconds
    except (ArtefactError, OSError):
        return None

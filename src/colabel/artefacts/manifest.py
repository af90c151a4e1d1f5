"""Fingerprints, and the manifest: how an artefact was made, and proof that it is whole.

Equal contents have equal fingerprints, on any machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from colabel.artefacts.sums import MANIFEST_FILE, check_sample, text_sum
from colabel.errors import ArtefactError

_LIBRARIES = ("numpy", "torch", "sentence-transformers", "transformers", "faiss-cpu", "bm25s", "ir-measures")
_BLOCK = 1 << 20


def fingerprint(value: Any) -> str:
    """Fingerprint of plain JSON data; the order of keys does not matter.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(canonical.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def file_fingerprint(path: Path) -> str:
    """Fingerprint of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


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

    ``fingerprint`` names stage, settings, inputs and seed; an artefact with the fingerprint that a stage would
    give its own result is reused. ``files`` maps each file to its size, so that a truncated copy is noticed, and
    ``sums`` to the checksums of its blocks (:func:`colabel.artefacts.sums.block_sums`), the manifest to its own;
    it is empty in artefacts of earlier versions.
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
        table["sums"][MANIFEST_FILE] = text_sum(table)
        return json.dumps(table, indent=2, sort_keys=True) + "\n"


def library_versions() -> dict[str, str]:
    """Versions of colabel and of the libraries whose results an artefact may hold."""
    from colabel import __version__

    versions = {"colabel": __version__}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
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
        table = json.loads(path.read_text(encoding="utf-8"))
        manifest = Manifest(**table)
        sizes = {str(name): int(size) for name, size in manifest.files.items()}
        sums = {str(name): str(value) for name, value in manifest.sums.items()}
        return dataclasses.replace(manifest, files=sizes, sums=sums)
    except FileNotFoundError:
        what = "has no manifest.json, so it is not a finished colabel artefact" if folder.is_dir() else "does not exist"
        raise ArtefactError(f"{folder} {what}; expected the output folder of a colabel stage") from None
    except NotADirectoryError:
        raise ArtefactError(f"{folder} is a file; expected the output folder of a colabel stage") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path} cannot be read as a manifest: {error}") from None


def read_manifest(folder: Path, stage: str | None = None) -> Manifest:
    """Read and verify the manifest of a finished artefact.

    Raises:
        ArtefactError: the folder is missing, is not an artefact of ``stage``, or files are gone, cut short
            or, in a sample taken when a process reads it for the first time, not what was written.
    """
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


_CHECKED: set[tuple[str, int, int]] = set()
"""Artefacts of which this process has compared a sample with its sums: folder, inode and time of the manifest."""


def _check_once(folder: Path, manifest: Manifest) -> None:
    state = (folder / MANIFEST_FILE).stat()
    key = (str(folder.resolve()), state.st_ino, state.st_mtime_ns)
    if key in _CHECKED:
        return
    if not own_sum_fits(manifest):
        raise ArtefactError(f"{folder / MANIFEST_FILE} is damaged: delete {folder} and build it again")
    check_sample(folder, manifest.sums)
    _CHECKED.add(key)


def own_sum_fits(manifest: Manifest) -> bool:
    """Whether a manifest is what was written, or of a version that wrote no sums."""
    table = json.loads(json.dumps(dataclasses.asdict(manifest)))
    written = table["sums"].pop(MANIFEST_FILE, None)
    return written == text_sum(table) if table["sums"] or written else True


def seconds_of(folder: Path) -> float | None:
    """Seconds that an artefact took; None where there is none, or a damaged one."""
    try:
        return read_manifest(folder).seconds
    except (ArtefactError, OSError):
        return None

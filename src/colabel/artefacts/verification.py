"""Check every file of every artefact, and say which command rebuilds the damaged ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from colabel.artefacts.manifest import DIGITS, MANIFEST_FILE, Manifest, block_sums, own_sum_fits, parse_manifest, where
from colabel.errors import ArtefactError
from colabel.progress import SILENT, Progress

_MAKES = {
    **dict.fromkeys(
        ("passages", "encoder", "codec", "tokens", "ivf", "statistics", "centres", "lookup", "metadata"), "index"
    ),
    **dict.fromkeys(("queries", "centroids"), "collect"),
    **dict.fromkeys(("label-export", "pylate"), "export"),
    **{"ranking": "rank", "labels": "label", "model": "train` or `colabel distil", "convert": "convert"},
}
"""Stage → the command that makes it outside a run or study."""
_MARKS = {"transfer.json": "transfer", "recipe.json": "run", "knowledge.json": "collect", "index.json": "index"}
"""A file of a folder that holds several artefacts → the command that makes them."""


@dataclasses.dataclass(frozen=True)
class Damage:
    """A damaged file, what is wrong with it, and the command that rebuilds it."""

    file: str
    problem: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found below a folder.

    Attributes:
        artefacts, files, bytes: what was compared with its sums.
        damaged: files that are not what was written.
        unchecked: artefacts of an earlier version, of which only the sizes of the files are known.
    """

    artefacts: int
    files: int
    bytes: int
    damaged: tuple[Damage, ...]
    unchecked: tuple[str, ...]


def verify(folder: Path | str, *, progress: Progress = SILENT) -> Verification:
    """Compare every file of every artefact below a folder (a run, a study, an index, an artefact) with its checksum."""
    folder = Path(folder)
    paths = sorted(folder.rglob(MANIFEST_FILE))
    found = [one.parent for one in paths if not any(part[0] == "." for part in one.relative_to(folder).parts)]
    if not found:
        raise ArtefactError(f"{folder} holds no artefact; expected a run, a study, an index or another output folder")
    known: dict[tuple[int, int], str] = {}  # files of earlier versions of a run are often those of the present one
    damaged, unchecked, files, size = [], [], 0, 0
    task = progress.start("verifying", len(found), "artefacts")
    for artefact in found:
        task.advance()
        try:
            manifest = parse_manifest(artefact)
        except ArtefactError:
            problem = "cannot be read as a manifest of colabel"
            damaged.append(Damage(str(artefact / MANIFEST_FILE), problem, _remedy(artefact, "")))
            continue
        if not manifest.sums:
            unchecked.append(str(artefact))
        problems = dict(_problems(artefact, manifest, known))
        if not own_sum_fits(manifest):
            problems[MANIFEST_FILE] = "is not what was written"
        remedy = _remedy(artefact, manifest.stage) if problems else ""
        damaged += [Damage(str(artefact / name), problem, remedy) for name, problem in problems.items()]
        files, size = files + len(manifest.files), size + sum(manifest.files.values())
    task.close()
    return Verification(len(found), files, size, tuple(damaged), tuple(unchecked))


def _problems(folder: Path, manifest: Manifest, known: dict[tuple[int, int], str]) -> Iterator[tuple[str, str]]:
    """Damaged files with what is the matter."""
    for name, size in manifest.files.items():
        try:
            state = (folder / name).stat()
            if state.st_size != size:
                yield name, f"has {state.st_size:,} bytes instead of {size:,}"
            elif name in manifest.sums:
                inode = (state.st_dev, state.st_ino)
                sums = known[inode] = known.get(inode) or block_sums(folder / name)
                blocks = [(sums[at : at + DIGITS], at) for at in range(0, len(sums), DIGITS)]
                wrong = [at for block, at in blocks if block != manifest.sums[name][at : at + DIGITS]]
                if wrong:
                    more = f", and {len(wrong) - 1} more such blocks" if len(wrong) > 1 else ""
                    yield name, f"is not what was written: {where(wrong[0] // DIGITS)}{more}"
        except FileNotFoundError:
            yield name, "is missing"
        except OSError as error:
            yield name, f"cannot be read: {error.strerror}"


def _remedy(folder: Path, stage: str) -> str:
    """The command that rebuilds an artefact: that of the run, study or index around it, else of its stage."""
    delete = f"delete {folder} and repeat the"
    for outer in folder.absolute().parents:
        if outer.name == "live" and (outer.parent / "recipe.json").is_file():
            return f"delete {outer} and repeat each `colabel index {outer.parent} --add …` that changed it"
    for file, command in _MARKS.items():
        for outer in folder.absolute().parents:
            if (outer / file).is_file():
                if outer.parent.name == "versions":
                    return "an earlier version is not rebuilt: repeat `colabel run` with its settings in a new folder"
                study = command == "run" and ((outer / "study.json").exists() or any(outer.glob("seed-*")))
                return f"{delete} `colabel {'study' if study else command}` that wrote {outer}"
    return f"{delete} `colabel {_MAKES[stage]}` that wrote it" if stage in _MAKES else f"{delete} command that wrote it"

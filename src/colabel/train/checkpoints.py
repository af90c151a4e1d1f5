"""Save points of a run: folders ``checkpoint-STEP`` that count only once they are whole."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from colabel.artefacts.build import sync

_COMPLETE = "complete"


def mark_complete(folder: Path, step: int) -> None:
    """Say that every file of a save point has been written; without that word it does not count."""
    place = folder / f"checkpoint-{step}"
    for path in place.rglob("*"):
        if path.is_file():
            sync(path)
    (place / _COMPLETE).touch()
    sync(place)


def drop_outdated(folder: Path, keep: set[int]) -> None:
    """Remove all save points but those of some steps."""
    for step, place in _save_points(folder):
        if step not in keep:
            shutil.rmtree(place, ignore_errors=True)


def last_checkpoint(folder: Path) -> str | None:
    """The last whole save point; those that a kill left half-written are removed."""
    found = None
    for _, place in sorted(_save_points(folder)):
        if (place / _COMPLETE).exists():
            found = place
        else:
            shutil.rmtree(place, ignore_errors=True)
    return None if found is None else str(found)


def _save_points(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    names = ((re.fullmatch(r"checkpoint-(\d+)", place.name), place) for place in folder.iterdir())
    return [(int(match.group(1)), place) for match, place in names if match]

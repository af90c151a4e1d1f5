"""Parts of a report: figures that are taken once, so that a resumed study shows the same, and parts that may fail."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from colabel.artefacts import fingerprint, write_json
from colabel.errors import ColabelError

log = logging.getLogger(__name__)

Figures = TypeVar("Figures")
"""Plain JSON types."""
T = TypeVar("T")


def measured_once(file: Path, depends_on: object, measure: Callable[[], Figures]) -> Figures:
    """The figures in ``file``; taken, and written there, where it has none for what they depend on now."""
    key = fingerprint(depends_on)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            figures: Figures = kept["figures"]
            return figures
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not ours: they are taken again
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"key": key, "figures": found})
    return found


def part(what: str, make: Callable[[], T], missed: list[str]) -> T | None:
    """A part of the report; where it fails, None and a note: hours of training are not lost to it."""
    try:
        return make()
    except Exception as error:  # whatever a library below may raise
        log.warning("%s could not be measured: %s", what, error)
        log.debug("%s", what, exc_info=error)
        reason = str(error) if isinstance(error, ColabelError) else f"{type(error).__name__}: {error}"
        missed.append(f"Missing from this report is {what}: {reason}")
        return None

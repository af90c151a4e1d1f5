"""Figures that are taken once: a resumed study shows the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from colabel.artefacts import fingerprint, write_json

Figures = TypeVar("Figures")
"""Plain JSON types."""


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

"""Figures that are taken once: a resumed study shows the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from colabel.artefacts import fingerprint, write_json

Measured = Mapping[str, float]


def measured_once(file: Path, depends_on: object, measure: Callable[[], Measured]) -> Measured:
    """The figures in ``file``; taken, and written there, where it has none for what they depend on now."""
    key = fingerprint(depends_on)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return dict(kept["figures"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not ours: they are taken again
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"key": key, "figures": found})
    return found

"""Which settings have changed since a folder was last run with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colabel.artefacts import write_json
from colabel.errors import UsageError
from colabel.pipeline.systems import TUNED
from colabel.settings import Recipe

RECIPE_FILE = "recipe.json"
"""All settings of a run or study, defaults included: what `transfer` goes by."""
_WITHOUT_EFFECT = ("save_every", "save_seconds", "log_every", "tensorboard", "batch_tokens")
ROWS = ("study.systems", "study.seeds", "study.repeated")
"""What a report has other rows with; those that it had stay as they are."""


def note_settings(recipe: Recipe, out: Path) -> None:
    """Write down what a folder is run with."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / RECIPE_FILE, recipe.as_dict())


def check_folder(out: Path) -> None:
    """Refuse a folder in which a file of somebody else has the name of the settings.

    Raises:
        UsageError: it has.
    """
    path = out / RECIPE_FILE
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected a folder")
    if not path.exists():
        return
    try:
        ours = {"data", "train", "distil"} <= set(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        ours = False
    if not ours:
        raise UsageError(f"{path} does not hold the settings of a study or run; move it away or choose another folder")


def changed_settings(recipe: Recipe, out: Path) -> list[str]:
    """Keys whose values differ from those that ``out`` was last run with; what depends on them is made again.

    Settings that change no result of a row ([compute], most of [study], how often training is saved) are left out.
    """
    try:
        before = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    was, now = _deciding(before), _deciding(json.loads(json.dumps(recipe.as_dict())))
    return [key for key, value in now.items() if was.get(key, value) != value]


def _deciding(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the results depend on, by their keys."""
    chosen = recipe.get("study", {})
    found = {"seed": recipe.get("seed"), "study.trials": chosen.get("trials", []), "study.seeds": chosen.get("seeds")}
    found |= {f"study.{key}": sorted(chosen.get(key, [])) for key in ("systems", "repeated")}
    if any(slug.endswith(f"-{TUNED}") for slug in chosen.get("systems", ())):
        found["study.measures"] = chosen.get("measures", [])[:1]  # by which β is tuned
    for section, table in recipe.items():
        if isinstance(table, dict) and section not in ("study", "compute"):
            found |= {f"{section}.{key}": value for key, value in table.items() if key not in _WITHOUT_EFFECT}
    return found

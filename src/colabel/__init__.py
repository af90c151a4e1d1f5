"""Train retrievers from incomplete relevance labels.

Everything the command line does is a function here with the same name. Names are imported when first used,
so ``import colabel`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from colabel.data import Dataset, check, convert, hide_labels, load_dataset
    from colabel.errors import ColabelError
    from colabel.pipeline import demo, run
    from colabel.recipe import load_recipe
    from colabel.settings import CollectiveSettings, DataSettings, Recipe

_HOMES = {
    "CollectiveSettings": "colabel.settings",
    "ColabelError": "colabel.errors",
    "DataSettings": "colabel.settings",
    "Dataset": "colabel.data",
    "Recipe": "colabel.settings",
    "check": "colabel.data",
    "convert": "colabel.data",
    "demo": "colabel.pipeline",
    "hide_labels": "colabel.data",
    "load_dataset": "colabel.data",
    "load_recipe": "colabel.recipe",
    "run": "colabel.pipeline",
}

__all__ = [
    "ColabelError",
    "CollectiveSettings",
    "DataSettings",
    "Dataset",
    "Recipe",
    "check",
    "convert",
    "demo",
    "hide_labels",
    "load_dataset",
    "load_recipe",
    "run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'colabel' has no attribute '{name}'")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

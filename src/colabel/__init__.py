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
    from colabel.encode import Encoder
    from colabel.errors import ColabelError
    from colabel.evaluation import evaluate
    from colabel.index import Index, build_index
    from colabel.pipeline import demo, run
    from colabel.ranking import Bm25, LateInteraction, rank, search
    from colabel.recipe import load_recipe
    from colabel.settings import CollectiveSettings, DataSettings, EncoderSettings, IndexSettings, RankSettings, Recipe

_HOMES = {
    "Bm25": "colabel.ranking",
    "ColabelError": "colabel.errors",
    "CollectiveSettings": "colabel.settings",
    "DataSettings": "colabel.settings",
    "Dataset": "colabel.data",
    "Encoder": "colabel.encode",
    "EncoderSettings": "colabel.settings",
    "Index": "colabel.index",
    "IndexSettings": "colabel.settings",
    "LateInteraction": "colabel.ranking",
    "RankSettings": "colabel.settings",
    "Recipe": "colabel.settings",
    "build_index": "colabel.index",
    "check": "colabel.data",
    "convert": "colabel.data",
    "demo": "colabel.pipeline",
    "evaluate": "colabel.evaluation",
    "hide_labels": "colabel.data",
    "load_dataset": "colabel.data",
    "load_recipe": "colabel.recipe",
    "rank": "colabel.ranking",
    "run": "colabel.pipeline",
    "search": "colabel.ranking",
}

__all__ = [
    "Bm25",
    "ColabelError",
    "CollectiveSettings",
    "DataSettings",
    "Dataset",
    "Encoder",
    "EncoderSettings",
    "Index",
    "IndexSettings",
    "LateInteraction",
    "RankSettings",
    "Recipe",
    "build_index",
    "check",
    "convert",
    "demo",
    "evaluate",
    "hide_labels",
    "load_dataset",
    "load_recipe",
    "rank",
    "run",
    "search",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'colabel' has no attribute '{name}'")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

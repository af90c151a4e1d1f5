"""Train retrievers from incomplete relevance labels.

Everything the command line does is a function here with the same name. Names are imported when first used,
so ``import colabel`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from colabel.collective import Knowledge, PrfRanker, collect, inspect, open_knowledge
    from colabel.data import Dataset, check, convert, hide_labels, load_dataset
    from colabel.encode import Encoder
    from colabel.errors import ColabelError
    from colabel.evaluation import compare, evaluate, response_times
    from colabel.evaluation.label_quality import label_quality
    from colabel.evaluation.sweeping import sweep
    from colabel.index import Index, build_index
    from colabel.labels import Labels, export_labels, label, missing_labels, open_labels, report_labels
    from colabel.pipeline import demo, run, study, transfer
    from colabel.ranking import Bm25, LateInteraction, rank, search
    from colabel.recipe import load_recipe
    from colabel.reporting import report
    from colabel.settings import (
        CollectiveSettings,
        DataSettings,
        EncoderSettings,
        IndexSettings,
        LabelSettings,
        RankSettings,
        Recipe,
    )
    from colabel.teachers import CollectiveTeacher, SelfTeacher

_HOMES = {
    "SelfTeacher": "colabel.teachers",
    "CollectiveTeacher": "colabel.teachers",
    "study": "colabel.pipeline",
    "transfer": "colabel.pipeline",
    "sweep": "colabel.evaluation.sweeping",
    "open_knowledge": "colabel.collective",
    "inspect": "colabel.collective",
    "collect": "colabel.collective",
    "PrfRanker": "colabel.collective",
    "Knowledge": "colabel.collective",
    "Bm25": "colabel.ranking",
    "ColabelError": "colabel.errors",
    "CollectiveSettings": "colabel.settings",
    "DataSettings": "colabel.settings",
    "Dataset": "colabel.data",
    "Encoder": "colabel.encode",
    "EncoderSettings": "colabel.settings",
    "Index": "colabel.index",
    "IndexSettings": "colabel.settings",
    "LabelSettings": "colabel.settings",
    "Labels": "colabel.labels",
    "LateInteraction": "colabel.ranking",
    "RankSettings": "colabel.settings",
    "Recipe": "colabel.settings",
    "build_index": "colabel.index",
    "check": "colabel.data",
    "compare": "colabel.evaluation",
    "convert": "colabel.data",
    "demo": "colabel.pipeline",
    "evaluate": "colabel.evaluation",
    "export_labels": "colabel.labels",
    "hide_labels": "colabel.data",
    "label": "colabel.labels",
    "label_quality": "colabel.evaluation.label_quality",
    "load_dataset": "colabel.data",
    "load_recipe": "colabel.recipe",
    "missing_labels": "colabel.labels",
    "open_labels": "colabel.labels",
    "rank": "colabel.ranking",
    "report": "colabel.reporting",
    "report_labels": "colabel.labels",
    "response_times": "colabel.evaluation",
    "run": "colabel.pipeline",
    "search": "colabel.ranking",
}

__all__ = [
    "Bm25",
    "ColabelError",
    "CollectiveSettings",
    "CollectiveTeacher",
    "DataSettings",
    "Dataset",
    "Encoder",
    "EncoderSettings",
    "Index",
    "IndexSettings",
    "Knowledge",
    "LabelSettings",
    "Labels",
    "LateInteraction",
    "PrfRanker",
    "RankSettings",
    "Recipe",
    "SelfTeacher",
    "build_index",
    "check",
    "collect",
    "compare",
    "convert",
    "demo",
    "evaluate",
    "export_labels",
    "hide_labels",
    "inspect",
    "label",
    "label_quality",
    "load_dataset",
    "load_recipe",
    "missing_labels",
    "open_knowledge",
    "open_labels",
    "rank",
    "report",
    "report_labels",
    "response_times",
    "run",
    "search",
    "study",
    "sweep",
    "transfer",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'colabel' has no attribute '{name}'")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

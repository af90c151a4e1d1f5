"""Train retrievers from incomplete relevance labels.

Everything the command line does is a function here with the same name. Names are imported when first used,
so ``import colabel`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "colabel.artefacts": ("verify",),
    "colabel.collective": ("Knowledge", "PrfRanker", "collect", "inspect", "open_knowledge"),
    "colabel.data": ("Dataset", "check", "hide_labels", "load_dataset", "load_recipe"),
    "colabel.data.conversion": ("convert",),
    "colabel.encode": ("Encoder",),
    "colabel.errors": ("ColabelError",),
    "colabel.evaluation": ("label_quality", "response_times"),
    "colabel.evaluation.comparison": ("compare",),
    "colabel.evaluation.evaluations": ("evaluate",),
    "colabel.evaluation.sweep": ("sweep",),
    "colabel.index": ("Index", "build_index"),
    "colabel.labels": (
        *("Labels", "Verdict", "apply_verdicts", "export_labels", "label", "missing_labels", "open_labels"),
    ),
    "colabel.pipeline.demo": ("demo",),
    "colabel.pipeline.folder": ("Run", "open_run"),
    "colabel.pipeline.run": ("run",),
    "colabel.pipeline.study": ("study",),
    "colabel.pipeline.transfer": ("transfer",),
    "colabel.ranking": ("Bm25", "Hybrid", "LateInteraction", "rank", "search"),
    "colabel.ranking.serving": ("export_index",),
    "colabel.reporting": ("report",),
    "colabel.settings": (
        *("CollectiveSettings", "DataSettings", "EncoderSettings", "IndexSettings", "LabelSettings", "RankSettings"),
        "Recipe",
    ),
    "colabel.teachers": ("CollectiveTeacher", "SelfTeacher"),
}
"""Home → the names that it exports; a test holds the imports for type checkers below against it."""
_HOMES = {name: home for home, names in _EXPORTS.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605

if TYPE_CHECKING:
    # fmt: off
    # isort: off
    from colabel.artefacts import verify as verify
    from colabel.collective import Knowledge as Knowledge, PrfRanker as PrfRanker, collect as collect
    from colabel.collective import inspect as inspect, open_knowledge as open_knowledge
    from colabel.data import Dataset as Dataset, check as check, hide_labels as hide_labels
    from colabel.data.conversion import convert as convert
    from colabel.data import load_dataset as load_dataset, load_recipe as load_recipe
    from colabel.encode import Encoder as Encoder
    from colabel.errors import ColabelError as ColabelError
    from colabel.evaluation import label_quality as label_quality
    from colabel.evaluation.comparison import compare as compare
    from colabel.evaluation import response_times as response_times
    from colabel.evaluation.evaluations import evaluate as evaluate
    from colabel.evaluation.sweep import sweep as sweep
    from colabel.index import Index as Index, build_index as build_index
    from colabel.labels import Labels as Labels, export_labels as export_labels, label as label
    from colabel.labels import missing_labels as missing_labels, open_labels as open_labels
    from colabel.labels import Verdict as Verdict, apply_verdicts as apply_verdicts
    from colabel.pipeline.demo import demo as demo
    from colabel.pipeline.folder import Run as Run, open_run as open_run
    from colabel.pipeline.run import run as run
    from colabel.pipeline.study import study as study
    from colabel.pipeline.transfer import transfer as transfer
    from colabel.ranking import Bm25 as Bm25, Hybrid as Hybrid, LateInteraction as LateInteraction
    from colabel.ranking import rank as rank, search as search
    from colabel.ranking.serving import export_index as export_index
    from colabel.reporting import report as report
    from colabel.settings import CollectiveSettings as CollectiveSettings, DataSettings as DataSettings
    from colabel.settings import EncoderSettings as EncoderSettings, IndexSettings as IndexSettings
    from colabel.settings import LabelSettings as LabelSettings, RankSettings as RankSettings, Recipe as Recipe
    from colabel.teachers import CollectiveTeacher as CollectiveTeacher, SelfTeacher as SelfTeacher
    # isort: on
    # fmt: on


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'colabel' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

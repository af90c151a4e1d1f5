"""The whole method, stage after stage. So far: data, encoder, index, rankings, measures."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from colabel.artefacts import folder_lock, write_json
from colabel.data import Dataset, load_dataset
from colabel.data.splits import TEST
from colabel.evaluation import Evaluation, evaluate
from colabel.index import Index, build_index
from colabel.progress import SILENT, Progress
from colabel.ranking import Bm25, LateInteraction, Ranker, rank, search
from colabel.settings import DataSettings, EncoderSettings, Recipe

log = logging.getLogger(__name__)

DEMO_RECIPE = Recipe(data=DataSettings(source="pydocs:4000"), encoder=EncoderSettings(passage_length=96))
DEMO_QUESTIONS = ("smooth a noisy signal", "how do I find eigenvalues of a sparse matrix", "shortest path in a graph")
_MEASURES = ("nDCG@10", "RR@10", "R@100")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run ends with: a table, examples, and the next command to type."""

    header: list[str]
    rows: list[list[str]]
    next_step: str
    examples: list[str] = dataclasses.field(default_factory=list)


def run(recipe: Recipe, out: Path, *, progress: Progress = SILENT) -> RunResult:
    """Run a recipe in the folder ``out``; finished stages are reused."""
    dataset, _, evaluation = _stages(recipe, out, progress)
    next_step = f'Next: colabel search {out / "index"} "your question"'
    if evaluation is None:
        return RunResult([dataset.name], [["no test labels: indexed, not evaluated"]], next_step)
    return RunResult(*_table(evaluation), next_step)


def demo(out: Path, *, progress: Progress = SILENT) -> RunResult:
    """Run what there is on ``pydocs``, the collection that is on every machine."""
    _, index, evaluation = _stages(DEMO_RECIPE, out, progress)
    examples = []
    for question in DEMO_QUESTIONS:
        best = ", ".join(hit.passage_id for hit in search(index, question, 3))
        examples.append(f"{question}  →  {best}")
    next_step = f'Next: colabel search {out / "index"} "your question", or your own data: colabel check FOLDER'
    header, rows = _table(evaluation) if evaluation else ([], [])
    return RunResult(header, rows, next_step, ["", *examples, ""])


def _stages(recipe: Recipe, out: Path, progress: Progress) -> tuple[Dataset, Index, Evaluation | None]:
    """Data → index → rankings → measures, each reused where it is up to date."""
    with folder_lock(out):
        dataset = load_dataset(recipe.data, cache=out / "index" / "data", progress=progress)
        log.info("%s: %d passages, splits %s", dataset.name, len(dataset.passages), ", ".join(dataset.splits))
        index = build_index(
            dataset, out / "index", data=recipe.data, encoder=recipe.encoder, index=recipe.index, progress=progress
        )
        if TEST not in dataset.splits:
            return dataset, index, None
        rankers: dict[str, Ranker] = {
            "bm25": Bm25(dataset.passages, recipe.rank, out / "bm25", progress),
            "zero-shot": LateInteraction(index, "zero-shot"),
        }
        queries = dataset.split_queries(TEST)
        runs = {}
        for name, ranker in rankers.items():
            ranking = rank(ranker, queries, out / "runs" / name, depth=recipe.rank.depth, progress=progress)
            runs[name] = ranking.run()
        evaluation = evaluate(dataset, runs, measures=_MEASURES)
        write_json(out / "evaluation.json", evaluation.as_dict())
    return dataset, index, evaluation


def _table(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    rows = [[name, *(f"{values[measure]:.4f}" for measure in _MEASURES)] for name, values in evaluation.means.items()]
    return [f"{evaluation.dataset} {evaluation.split}", *_MEASURES], rows

"""The whole method, stage after stage."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from colabel.artefacts import folder_lock
from colabel.data import Dataset, load_dataset
from colabel.data.splits import TRAIN
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings, Recipe

log = logging.getLogger(__name__)

DEMO_DATASET = "pydocs:4000"


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run ends with: a table, examples, and the next command to type."""

    header: list[str]
    rows: list[list[str]]
    next_step: str
    examples: list[str] = dataclasses.field(default_factory=list)


def run(recipe: Recipe, out: Path, *, progress: Progress = SILENT) -> RunResult:
    """Run a recipe in the folder ``out``; finished stages are reused."""
    with folder_lock(out):
        dataset = load_dataset(recipe.data, cache=out / "data", progress=progress)
    return RunResult(*_split_table(dataset), next_step=f"{len(dataset.passages):,} passages ready in {out / 'data'}")


def demo(out: Path, *, progress: Progress = SILENT) -> RunResult:
    """Run what there is on ``pydocs``, the collection that is on every machine."""
    with folder_lock(out):
        dataset = load_dataset(DataSettings(source=DEMO_DATASET), cache=out / "data", progress=progress)
    examples = ["", "Three training queries, each with the one passage that is labelled:"]
    for query_id, passages in list(dataset.positives(TRAIN).items())[:3]:
        examples.append(f"  {dataset.queries[query_id]}  →  {', '.join(passages)}")
    next_step = "Next, look at your own collection: colabel check FOLDER"
    return RunResult(*_split_table(dataset), next_step=next_step, examples=[*examples, ""])


def _split_table(dataset: Dataset) -> tuple[list[str], list[list[str]]]:
    rows = []
    for split in dataset.splits:
        positives = dataset.positives(split)
        relevant = sum(len(passages) for passages in positives.values())
        rows.append([split, f"{len(positives):,}", f"{relevant:,}", f"{relevant / max(1, len(positives)):.2f}"])
    return [dataset.name, "queries", "relevant", "relevant/query"], rows

"""The paper's method end to end: a page of code over the stages."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from colabel.artefacts import folder_lock, write_json
from colabel.data.splits import TEST
from colabel.evaluation import Evaluation, compare, evaluate
from colabel.pipeline.chain import Chain
from colabel.pipeline.changes import changed_settings, check_folder, note_settings
from colabel.pipeline.checks import check_run
from colabel.pipeline.planning import plan_run, time_left
from colabel.pipeline.systems import System, collective_slug, parse_system
from colabel.pipeline.workbench import Workbench
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker, rank
from colabel.settings import Recipe

log = logging.getLogger(__name__)

MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run ends with: a table, the student, and the next command to type."""

    header: list[str]
    rows: list[list[str]]
    student: Path
    next_step: str


def run(recipe: Recipe, out: Path, *, teacher: str = "collective", progress: Progress = SILENT) -> RunResult:
    """Train θ, index, rank, collect, label, distil, index the student, and evaluate where there are test labels.

    Finished stages are reused: the same call continues an interrupted run, and ends at once if all is done.

    Args:
        teacher: whose labels the student learns: collective, self, uniform, cross-encoder, ensemble, mixed, scores,
            or 'hard' for hard negatives without a teacher (ColBERT-HN).
    """
    system = student_system(teacher, recipe)
    check_run(system, recipe)
    check_folder(out, "run")
    with folder_lock(out), Workbench(recipe, out, progress) as bench:
        chain = Chain(bench, out, recipe.seed)
        folder = chain.student_folder(system)
        data = bench.dataset
        changed = {*changed_settings(recipe, out, data), *changed_settings(recipe, folder, data)}  # last run, and own
        stages = plan_run(bench, chain, system, sorted(changed))
        log.info("%s", "\n".join(["the plan:", *map(str, stages), time_left(stages)]))
        note_settings(recipe, out, data)
        evaluation = evaluate_run(bench, chain, system)
        note_settings(recipe, folder, data)
    next_step = f'Next: colabel search {folder / "index"} "your question"'
    if system.target in ("collective", "self"):
        next_step += f", or the labels that seem to be missing: colabel missing {out / 'labels' / system.slug} DATASET"
    if evaluation is None:
        return RunResult([bench.dataset.name], [["no test labels"]], folder / "model", next_step)
    return RunResult(*result_table(evaluation), folder / "model", next_step)


def student_system(teacher: str, recipe: Recipe) -> System:
    """The row of the comparison that a teacher's student is."""
    slugs = {"hard": "colbert-hn", "uniform": "smoothing", "self": "self-kd", "cross-encoder": "ce-kd"}
    slugs |= {"ensemble": "ce3-kd", "scores": "scores-kd", "collective": collective_slug(recipe.collective.beta)}
    return parse_system(slugs.get(teacher, teacher))


def evaluate_run(bench: Workbench, chain: Chain, system: System) -> Evaluation | None:
    """The student beside BM25, the untrained encoder and θ, on the test split; None where it has no labels."""
    student = chain.student_index(system)
    if TEST not in bench.dataset.splits:
        return None
    rankers: dict[str, Ranker] = {
        "bm25": bench.bm25,
        "zero-shot": LateInteraction(bench.zero_shot, "zero-shot", progress=bench.progress),
        "colbert": LateInteraction(chain.index, "colbert", progress=bench.progress),
        system.slug: LateInteraction(student, system.slug, progress=bench.progress),
    }
    queries = bench.dataset.split_queries(TEST)
    depth, runs = bench.recipe.rank.depth, {}
    for name, ranker in rankers.items():
        runs[name] = rank(ranker, queries, bench.out / "runs" / name, depth=depth, progress=bench.progress).run
    evaluation = evaluate(bench.dataset, runs, measures=MEASURES)
    write_json(bench.out / "evaluation.json", evaluation.as_dict())
    return evaluation


def result_table(evaluation: Evaluation, baseline: str = "colbert") -> tuple[list[str], list[list[str]]]:
    """Means of every system, and p of its difference to the baseline on the first measure (paired t-test)."""
    pairs = {pair.system: pair.test.t_test for pair in compare(evaluation, MEASURES[0], baseline=baseline).pairs}
    rows = []
    for name, values in evaluation.means.items():
        p = pairs.get(name)
        rows.append([name, *(f"{values[measure]:.4f}" for measure in MEASURES), "" if p is None else f"{p:.3f}"])
    return [f"{evaluation.dataset} {evaluation.split}", *MEASURES, f"p against {baseline}"], rows

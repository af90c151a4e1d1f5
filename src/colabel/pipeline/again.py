"""Train a run again with what people have judged since, and say what it changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from colabel.data import load_dataset
from colabel.data.splits import DEV, TEST
from colabel.errors import UsageError
from colabel.evaluation import evaluate
from colabel.evaluation.comparison import compare
from colabel.labels import apply_verdicts, decide
from colabel.measures import Run as Answers
from colabel.pipeline.folder import Run, open_run
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import (
    Learned,
    check_folder,
    learned,
    noted_recipe,
    noted_system,
    run_of,
    verdict_store,
)
from colabel.pipeline.run import RunResult, forced, run_system
from colabel.pipeline.stages import MEASURES
from colabel.pipeline.versions import versions
from colabel.progress import SILENT, Progress
from colabel.ranking.rankings import as_run
from colabel.systems import OWN
from colabel.teachers import Teacher
from colabel.teachers.guarded import CheckedTeacher


@dataclasses.dataclass(frozen=True)
class Change:
    """A mean before and after, the 95 % interval of the difference, and p of the paired t-test, where defined."""

    system: str
    measure: str
    before: float
    after: float
    low: float | None
    high: float | None
    p: float | None


@dataclasses.dataclass(frozen=True)
class Retrained:
    """What training again came to.

    Attributes:
        added, negatives, unsure: pairs that became labels, judged negatives, or stayed open.
        contested: verdicts against a label of the dataset, which stays.
        left_out: verdicts that were not learned: of dev or test queries, or of passages that are gone.
        before: the earlier result, a run folder of its own; None where there is none.
        split: whose queries compare the two, test or else dev; empty where there are neither.
        changes: of the student with BM25 (hybrid, what searches by default) and alone, by every measure.
    """

    folder: Path
    result: RunResult
    added: int
    negatives: int
    unsure: int
    contested: int
    left_out: int
    before: Path | None
    split: str
    queries: int
    changes: tuple[Change, ...]

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return open_run(self.folder)


def run_again(
    folder: Path | str,
    *,
    teacher: Teacher | None = None,
    programs: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
) -> Retrained:
    """Train a run again: the same recipe, its labels and all verdicts of people in its folder.

    Pairs found relevant are added to the labels, pairs found not relevant are hard negatives that no teacher gives any
    probability, and pairs left open change nothing. The earlier result is kept in ``versions/``. Where nothing new was
    judged, an interrupted run is continued.

    Args:
        teacher: the teacher object, where the run was made with one of the user's own.
        programs: learn what programs judged as well, about pairs that no person has judged.
        force: take the trained student, with a warning, even where dev says to keep θ; later calls do so as well.
    """
    folder = Path(folder)
    check_folder(folder, "run")
    if run_of(folder) != folder:
        raise UsageError(f"{folder} is an earlier result of {run_of(folder)}; train that one again")
    recipe, _ = noted_recipe(folder)
    recipe = forced(recipe) if force else recipe
    system = noted_system(folder)
    if teacher is not None and system.teacher_name != OWN:
        raise UsageError(f"{folder}: the student '{system.slug}' learned from no teacher object; leave 'teacher' out")
    own = None if teacher is None else CheckedTeacher(teacher)
    known = Learned(verdict_store(folder).last, programs)
    result = run_system(recipe, folder, system, own=own, verdicts=known, progress=progress)
    verdicts = learned(folder, known)
    applied = apply_verdicts(load_dataset(recipe.data, cache=Layout.of(folder).data), verdicts)
    kept = versions(folder)
    split, queries, changes = compared(open_run(kept[-1]), open_run(folder)) if kept else ("", 0, ())
    return Retrained(
        folder=folder,
        result=result,
        added=applied.added,
        negatives=sum(map(len, applied.negatives.values())),
        unsure=sum(one.relevant is None for one in decide(verdicts).values()),
        contested=len(applied.contested),
        left_out=applied.left_out,
        before=kept[-1] if kept else None,
        split=split,
        queries=queries,
        changes=changes,
    )


def compared(before: Run, after: Run) -> tuple[str, int, tuple[Change, ...]]:
    """The split that two results are compared on, its queries, and the changes."""
    data = after.dataset
    split = next((name for name in (TEST, DEV) if name in data.splits and data.positives(name)), "")
    found: list[Change] = []
    count = 0
    for ranker in ("hybrid", "student") if split else ():
        answers = {"before": answered(before, ranker, split), "after": answered(after, ranker, split)}
        evaluation = evaluate(data, answers, split=split, measures=MEASURES)
        count, means = evaluation.queries, evaluation.means
        for measure in MEASURES:
            test = compare(evaluation, measure, baseline="before").pairs[0].test
            values = (means["before"][measure], means["after"][measure])
            found.append(Change(ranker, measure, *values, test.difference.low, test.difference.high, test.t_test))
    return split, count, tuple(found)


def answered(run: Run, ranker: str, split: str) -> Path | Answers:
    """How a run ranks the queries of a split: as it did, or else once more."""
    kinds = ("",) if ranker == "student" else ("memory-", "hybrid-")
    names = [f"{kind}{run.system.slug}" for kind in kinds]
    stored = next((run.rankings[name] for name in names if name in run.rankings), None)
    if split == TEST and stored is not None:
        return stored
    queries, chosen = run.dataset.split_queries(split), run.ranker(ranker)
    found = chosen.rank(list(queries.values()), min(run.recipe.rank.depth, len(chosen.ids)))
    return as_run(queries, *found, chosen.ids)

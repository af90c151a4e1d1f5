"""The paper's method end to end, top to bottom."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from colabel.artefacts import Builder, DryBuilder, Stale
from colabel.evaluation import Evaluation
from colabel.index import Index
from colabel.pipeline.capacity import duration, measure_rates, stage_seconds
from colabel.pipeline.folder import keep_version, versions, write_page
from colabel.pipeline.preflight import (
    check_labels,
    check_run,
    check_same_settings,
    check_training,
    hold_folder,
    note_recipe,
)
from colabel.pipeline.stages import Layout, Stages, settle, uses_checkpoint
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker
from colabel.settings import Recipe
from colabel.systems import System, student_of
from colabel.train import TrainedModel

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run ends with.

    Attributes:
        dataset: the collection's name.
        evaluation: the student beside BM25, the plain encoder and θ on the test split; None without test labels.
        student, index: its checkpoint, and the collection indexed by it.
        labels: its teacher's labels; None where it has no teacher.
        report: a short page of how good the student is, where it lies, and what to do next.
    """

    system: System
    dataset: str
    evaluation: Evaluation | None
    student: Path
    index: Path
    labels: Path | None
    report: Path | None = None


def run(recipe: Recipe, out: Path | str, *, teacher: str | None = None, progress: Progress = SILENT) -> RunResult:
    """Train θ, index, rank, collect, label, distil, index the student, and evaluate where there are test labels.

    A collection without training labels gets queries made of its passages (``recipe.pseudo``); see :func:`settle`.

    Finished stages are reused: the same call continues an interrupted run, and ends at once if all is done. With other
    settings or labels, the earlier result is kept in ``out/versions``, a run folder of its own.

    Args:
        teacher: whose labels the student learns: collective, self, uniform, cross-encoder, ensemble, mixed, scores,
            or 'hard' for hard negatives without a teacher (ColBERT-HN). Left out: collective, or views without labels.
    """
    out = Path(out)
    recipe, teacher, case = settle(recipe, teacher)
    log.info("%s", case)
    system, at = student_of(teacher, recipe), Layout.of(out)
    check_run(system, recipe)
    builder = Builder()
    with hold_folder(out, "run"):
        left, stale = what_is_left(recipe, at, system, builder)
        log.info("%s", left)
        if stale is not None and keep_version(out, recipe, system, stale):
            log.info("the earlier result is kept: %s", versions(out)[-1])
        note_recipe(out, recipe, system)
        with Stages(recipe, at, progress=progress, builder=builder, pseudo=True) as do:
            result = run_stages(do, system)
            page = write_page(out, do.dataset(), system, result.evaluation, recipe.seed)
            return dataclasses.replace(result, report=page)


def run_stages(do: Stages, system: System) -> RunResult:
    """Train a student, index the collection with it, and evaluate it beside BM25, the plain encoder and θ."""
    student = train_student(do, system)
    data = do.dataset()
    theta = LateInteraction(theta_index(do), "colbert", progress=do.progress)
    searches = student_ranker(do, system, student)
    joined = f"hybrid-{system.slug}"
    rankers: dict[str, Ranker] = {"bm25": do.bm25(data)}
    if not uses_checkpoint(do.recipe):  # else it is θ, and the collection would be encoded twice
        rankers["zero-shot"] = LateInteraction(plain_index(do), "zero-shot", progress=do.progress)
    rankers |= {
        "colbert": theta,
        system.slug: searches,
        "hybrid": do.hybrid(data, theta, "hybrid"),
        joined: do.hybrid(data, searches, joined),
    }
    evaluation = do.evaluate(data, rankers)
    labels = do.at.labels(system) if system.learns_scores and not system.from_plain else None
    return RunResult(system, data.name, evaluation, student.folder, searches.index.folder, labels)


def train_student(do: Stages, system: System) -> TrainedModel:
    """θ, index, rank, collect, teach, distil: the paper's method, top to bottom."""
    data = do.dataset()
    bm25 = do.bm25(data)
    plain = do.encoder(data)
    theta = do.train_theta(data, plain, bm25)
    index = do.index(data, theta, do.at.index)
    known = do.collect(data, index)  # θ's ranking of the training queries, their collective centroids, σ
    teacher = do.teacher(system, data, known)  # None: hard labels
    start, groups = theta, do.groups(data, known.ranking)
    if system.from_plain:
        start, groups = plain, do.bm25_groups(data, bm25)
    taught = do.teach(system, data, known, teacher, groups)  # the teacher itself, or its labels
    if system.query_side:
        return do.train_query_side(system, data, bm25, theta, known, teacher)
    return do.distil(system, data, start, groups, taught, do.dev_set(data, index))


def student_ranker(do: Stages, system: System, student: TrainedModel) -> LateInteraction:
    """What answers queries with a student: over θ's index where its query side alone was trained, else over its own."""
    if system.query_side:
        return LateInteraction(theta_index(do), system.slug, student=student.folder, progress=do.progress)
    index = do.index(do.dataset(), student.folder, do.at.student_index(system))
    return LateInteraction(index, system.slug, progress=do.progress)


def theta_index(do: Stages) -> Index:
    """The collection indexed by θ."""
    data = do.dataset()
    theta = do.train_theta(data, do.encoder(data), do.bm25(data))
    return do.index(data, theta, do.at.index)


def plain_index(do: Stages) -> Index:
    """The collection indexed by the encoder before training."""
    data = do.dataset()
    return do.index(data, do.encoder(data), do.at.plain_index)


def train(recipe: Recipe, out: Path, *, progress: Progress = SILENT) -> Path:
    """θ alone, for ``colabel train``: the first stages of a run; processes of ``torchrun`` train it together."""
    recipe, _, _ = settle(recipe)
    check_training(recipe, student=False)
    check_same_settings(Path(out), recipe)
    with Stages(recipe, Layout.of(out), progress=progress, builder=Builder(), pseudo=True) as do:
        data = do.dataset()
        return do.train_theta(data, do.encoder(data), do.bm25(data))


def distil_student(
    recipe: Recipe, out: Path, *, teacher: str | None = None, progress: Progress = SILENT
) -> TrainedModel:
    """A student without its index, for ``colabel distil``; processes of ``torchrun`` train it together."""
    recipe, teacher, _ = settle(recipe, teacher)
    system = student_of(teacher, recipe)
    check_run(system, recipe)
    check_same_settings(Path(out), recipe)
    with Stages(recipe, Layout.of(out), progress=progress, builder=Builder(), pseudo=True) as do:
        return train_student(do, system)


def what_is_left(recipe: Recipe, at: Layout, system: System, builder: Builder) -> tuple[str, Stale | None]:
    """What a run will do, by walking its stages with a dry builder, and the first stage that it will make.

    The collection that it read is kept in ``builder``.
    """
    with Stages(recipe, at, builder=DryBuilder(), pseudo=True) as dry:
        data = dry.dataset()
        check_labels(data, recipe)
        if dry.kept_data:
            builder.once(at.data, lambda: data)
        try:
            run_stages(dry, system)
            return "everything is up to date", None
        except Stale as stale:
            seconds = stage_seconds(recipe, system, data, measure_rates(recipe, data), whole_run=True)
            names = list(seconds)
            first = names.index(stale.stage) if stale.stage in names else 0
            return f"{stale.sentence}; about {duration(sum(list(seconds.values())[first:]))} left", stale

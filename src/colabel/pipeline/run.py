"""The paper's method end to end, top to bottom."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from colabel.artefacts import Builder, DryBuilder, Stale
from colabel.data import Dataset
from colabel.evaluation import Evaluation
from colabel.index import Index
from colabel.pipeline.budget import Budget, apply, fit_recipe, note, noted
from colabel.pipeline.capacity import Counts, Rates, duration, from_stage, measure_rates, stage_seconds
from colabel.pipeline.folder import write_page
from colabel.pipeline.layout import Layout
from colabel.pipeline.live import refuse_loss, settle_live
from colabel.pipeline.preflight import (
    Learned,
    check_labels,
    check_run,
    check_same_settings,
    check_training,
    hold_folder,
    learned,
    note_recipe,
    noted_verdicts,
    recipe_for,
)
from colabel.pipeline.stages import Stages, settle, uses_checkpoint
from colabel.pipeline.versions import keep_version, versions
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker
from colabel.settings import Recipe
from colabel.settings.recipe import given_keys
from colabel.systems import DEFAULT_LESSON, OWN, System, for_student, student_of
from colabel.teachers import Teacher
from colabel.teachers.guarded import CheckedTeacher
from colabel.train import TrainedModel
from colabel.train.pulling import verdict

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run ends with.

    Attributes:
        dataset: the collection's name.
        evaluation: the student beside BM25, the plain encoder and θ on the test split; None without test labels.
        student, index: its checkpoint, and the collection indexed by it.
        labels: its teacher's labels; None where it has no teacher.
        verdict: whether dev says to take the student; empty where 'fit.keep' leaves dev no such choice.
        report: a short page of how good the student is, where it lies, and what to do next.
    """

    system: System
    dataset: str
    evaluation: Evaluation | None
    student: Path
    index: Path
    labels: Path | None
    verdict: str = ""
    report: Path | None = None


def run(
    data: Recipe | Dataset | Path | str,
    out: Path | str,
    *,
    teacher: str | Teacher = DEFAULT_LESSON,
    overrides: Iterable[str] = (),
    minutes: float | None = None,
    given: Collection[str] = (),
    force: bool = False,
    progress: Progress = SILENT,
) -> RunResult:
    """Train θ, index, rank, collect, label, distil, index the student, and evaluate where there are test labels.

    A collection without training labels gets queries made of its passages (``recipe.pseudo``); see :func:`settle`.

    Finished stages are reused: the same call continues an interrupted run, and ends at once if all is done. With other
    settings or labels, the earlier result is kept in ``out/versions``, a run folder of its own. Verdicts that the run
    has learned stay learned; :func:`colabel.pipeline.again.run_again` adds the new ones.

    Args:
        data: a recipe or the path of one, the path of a dataset, or a dataset in memory, which is kept in ``out``.
        overrides: settings such as ``"train.steps=500"``, where ``data`` is no ``Recipe``.
        teacher: what the student learns. 'views', the default, and 'hard-query' train the query side alone, in
            minutes; collective, self, uniform, cross-encoder, ensemble, mixed and scores train both sides, as does
            'hard', hard negatives without a teacher (ColBERT-HN). Or a teacher of your own, which trains both: an
            object as :class:`colabel.teachers.Teacher` describes it, whose fingerprint changes when its scores would.
        minutes: choose steps and evaluations such that the run takes about so long; None: those of the recipe.
        given: settings, as ``section.key``, that are not chosen.
        force: take the trained student, with a warning, even where dev says to keep θ.
    """
    overrides = tuple(overrides)
    recipe, case = settle(recipe_for(data, Path(out), "run", overrides, progress))
    recipe = forced(recipe) if force else recipe
    log.info("%s", case)
    if not isinstance(data, Recipe | Dataset):
        given = {*given, *given_keys(str(data), overrides)}
    system, own = student_and_teacher(teacher, recipe)
    budget = None if minutes is None else Budget(minutes)
    known = noted_verdicts(Path(out))
    return run_system(recipe, Path(out), system, own=own, verdicts=known, budget=budget, given=given, progress=progress)


def forced(recipe: Recipe) -> Recipe:
    """The recipe with a student that is taken even where dev says to keep θ."""
    return apply(recipe, {"fit.keep": "forced"}) if recipe.fit.pulls else recipe


def student_and_teacher(teacher: str | Teacher, recipe: Recipe) -> tuple[System, Teacher | None]:
    """The system whose student is trained, and the user's own teacher, checked, where an object was given."""
    if isinstance(teacher, str):
        return student_of(teacher, recipe), None
    return student_of(OWN, recipe), CheckedTeacher(teacher)


def run_system(
    recipe: Recipe,
    out: Path,
    system: System,
    *,
    own: Teacher | None,
    verdicts: Learned,
    budget: Budget | None = None,
    given: Collection[str] = (),
    progress: Progress,
) -> RunResult:
    """A run of one system with the labels of its recipe and the verdicts of its folder up to a number."""
    at, recipe = Layout.of(out), for_student(recipe, system)
    progress = budget.watch(progress) if budget else progress
    check_run(system, recipe)
    builder = Builder()
    with hold_folder(out, "run"):
        known: dict[str, Any] = {"verdicts": learned(out, verdicts), "own": own}
        rates, chosen = None, dict[str, Any]()
        if budget is not None:
            chosen, rates = chosen_for_run(recipe, at, system, builder, budget, given, **known)
            recipe = apply(recipe, chosen)
        left, stale = what_is_left(recipe, at, system, builder, rates, **known)
        log.info("%s", left)
        if at.live.exists():
            with Stages(recipe, at, builder=DryBuilder(), pseudo=True, **known) as dry:
                refuse_loss(at.live, dry.dataset().passages, recipe.data.source, planned_index(dry, system))
        if stale is not None and keep_version(out, recipe, system, stale, verdicts):
            log.info("the earlier result is kept: %s", versions(out)[-1])
        note_recipe(out, recipe, system, verdicts)
        if budget is not None:
            note(out, budget.minutes, chosen, sorted(given))
        with Stages(recipe, at, progress=progress, builder=builder, pseudo=True, **known) as do:
            result = run_stages(do, system)
            settle_live(at.live, Index.open(result.index), recipe.rank)
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
    both = do.hybrid(data, searches, joined)
    plain = do.hybrid(data, theta, "hybrid")
    rankers |= {"colbert": theta, system.slug: searches, "hybrid": plain, joined: both}
    remembers = do.remembering(data, [plain, both] if system.query_side else [both], f"memory-{system.slug}")
    if remembers.memory is not None:  # two similar training queries share an answer
        rankers[remembers.name] = remembers
    evaluation = do.evaluate(data, rankers)
    if evaluation is None:
        do.unjudged(data, rankers, system.slug)
    do.relevance(data, remembers)
    labels = do.at.labels(system) if system.teacher and not system.from_plain else None
    index = searches.index.folder
    return RunResult(system, data.name, evaluation, student.folder, index, labels, verdict(student.folder))


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

    def make() -> LateInteraction:
        if system.query_side:
            return LateInteraction(theta_index(do), system.slug, student=student.folder, progress=do.progress)
        index = do.index(do.dataset(), student.folder, do.at.student_index(system))
        return LateInteraction(index, system.slug, progress=do.progress)

    return do.builder.once(do.at.run(system.slug) / str(do.seed), make)  # a hybrid asks it the same queries


def theta_index(do: Stages) -> Index:
    """The collection indexed by θ."""
    data = do.dataset()
    theta = do.train_theta(data, do.encoder(data), do.bm25(data))
    return do.index(data, theta, do.at.index)


def planned_index(dry: Stages, system: System) -> Index | None:
    """The index that a student will search, where it is up to date."""
    try:
        return theta_index(dry) if system.query_side else student_ranker(dry, system, train_student(dry, system)).index
    except Stale:
        return None


def plain_index(do: Stages) -> Index:
    """The collection indexed by the encoder before training."""
    data = do.dataset()
    return do.index(data, do.encoder(data), do.at.plain_index)


def train(recipe: Recipe, out: Path, *, progress: Progress = SILENT) -> Path:
    """θ alone, for ``colabel train``: the first stages of a run; processes of ``torchrun`` train it together."""
    recipe, _ = settle(recipe)
    check_training(recipe, student=False)
    check_same_settings(Path(out), recipe)
    known = learned(Path(out))
    with Stages(recipe, Layout.of(out), progress=progress, builder=Builder(), verdicts=known, pseudo=True) as do:
        data = do.dataset()
        return do.train_theta(data, do.encoder(data), do.bm25(data))


def distil_student(
    recipe: Recipe, out: Path, *, teacher: str | Teacher = DEFAULT_LESSON, progress: Progress = SILENT
) -> TrainedModel:
    """A student without its index, for ``colabel distil``; processes of ``torchrun`` train it together."""
    recipe, _ = settle(recipe)
    system, own = student_and_teacher(teacher, recipe)
    recipe = for_student(recipe, system)
    check_run(system, recipe)
    check_same_settings(Path(out), recipe)
    known: dict[str, Any] = {"verdicts": learned(Path(out)), "own": own}
    with Stages(recipe, Layout.of(out), progress=progress, builder=Builder(), pseudo=True, **known) as do:
        return train_student(do, system)


def chosen_for_run(
    recipe: Recipe, at: Layout, system: System, builder: Builder, budget: Budget, given: Collection[str], **known: Any
) -> tuple[dict[str, Any], Rates | None]:
    """The settings that let a run end within its minutes: those of an earlier call, or by measuring this machine."""
    earlier = noted(at.out, budget.minutes, sorted(given))
    if earlier is not None:
        return earlier[1], None
    with Stages(recipe, at, builder=DryBuilder(), pseudo=True, **known) as dry:
        data = dry.dataset()
        check_labels(data, recipe)
        rates, rows = measure_rates(recipe, data), [(system, recipe.seed)]
        chosen, said = fit_recipe(recipe, rows, Counts.of(data), rates, budget, given, whole_run=True)
        if dry.kept_data:
            builder.once(at.data, lambda: data)
    log.info("%s", said)
    return chosen, rates


def what_is_left(
    recipe: Recipe, at: Layout, system: System, builder: Builder, rates: Rates | None = None, **known: Any
) -> tuple[str, Stale | None]:
    """What a run will do, by walking its stages with a dry builder, and the first stage that it will make.

    The collection that it read is kept in ``builder``; ``known`` are verdicts and a teacher for the stages.
    """
    with Stages(recipe, at, builder=DryBuilder(), pseudo=True, **known) as dry:
        data = dry.dataset()
        check_labels(data, recipe)
        if dry.kept_data:
            builder.once(at.data, lambda: data)
        try:
            run_stages(dry, system)
            return "everything is up to date", None
        except Stale as stale:
            rates = rates or measure_rates(recipe, data)
            seconds = stage_seconds(recipe, system, Counts.of(data), rates, whole_run=True)
            left = duration(sum(from_stage(seconds, stale.stage).values()))
            return f"{stale.sentence}; about {left} left", stale

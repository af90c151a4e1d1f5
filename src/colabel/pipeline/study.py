"""The paper's whole comparison: the stages of a run over systems and seeds, ranked, measured and reported."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

from colabel.artefacts import Builder, DryBuilder, Spec, Stale, copy_artefact, read_manifest, seconds_of, write_json
from colabel.collective import Knowledge, PrfRanker
from colabel.data import Dataset
from colabel.data.splits import TEST
from colabel.encode.colbert import choose_device, load_checkpoint
from colabel.errors import ArtefactError, ColabelError, DataError, SettingsError, TrainingError, UsageError
from colabel.evaluation.sweep import SweepPoint, sweep, tuned_beta
from colabel.findings import StudyDocument, read_study, write_study
from colabel.findings.records import STUDY_FILE, Trial
from colabel.findings.results import TrainingTimes, describe, measured_once, training_times
from colabel.index import Index
from colabel.labels import Labels
from colabel.measures import measure_from, parse_measure, unreachable
from colabel.pipeline.capacity import duration, passages_per_second, stage_seconds, stages_of
from colabel.pipeline.preflight import check_folder, check_system, check_training, hold_folder, note_recipe, refused
from colabel.pipeline.run import plain_index, student_ranker, theta_index, train_student
from colabel.pipeline.stages import Layout, Lesson, Stages, StudentSettings, own_settings, uses_checkpoint
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker, Ranking
from colabel.reporting import ReportFiles, report
from colabel.settings import DistilSettings, LabelSettings, Recipe
from colabel.settings.declare import nearest
from colabel.systems import System, parse_system, repeated_in, systems_of
from colabel.teachers import CrossEncoderTeacher
from colabel.train import DevSet, TrainedModel

log = logging.getLogger(__name__)

MANIFEST_FILE = "study.manifest.json"
"""What ``study.json`` was measured from: its settings and rankings, or a note that the models are newer."""
OWN_TRIAL = "as in the recipe"
TRIED = ("learning_rate", "temperature", "teacher_temperature", "teacher_scale", "floor", "hard_weight")
"""What a trial may change of [distil]: neither the passages that students see nor how many."""
SMOOTHING = "smoothing"
"""ε of [labels], which uniform smoothing alone has."""


def study(
    recipe: Recipe, out: Path, *, recipe_text: str = "", progress: Progress = SILENT
) -> tuple[StudyDocument, ReportFiles]:
    """Train and evaluate every system of a recipe and write the report; the same call continues an interrupted study.

    A system that fails is reported with its reason and does not stop the others.
    """
    check_training(recipe)
    rows = Study(recipe, out, progress)
    with hold_folder(out, "study"), rows:
        begin(rows, recipe_text)
        rows.rank_all()
        return end(rows, recipe_text)


def begin(rows: Study, recipe_text: str) -> None:
    """Check the collection, say what is to do, and note that the report of a study with stale models is outdated."""
    rows.check_data()
    plan = plan_study(rows.recipe, rows.out, recipe_text=recipe_text, data=rows.dataset)
    for line in plan.lines:
        log.info("%s", line)
    note_recipe(rows.out, rows.recipe)
    if plan.stale and (rows.out / STUDY_FILE).exists():
        write_json(rows.out / MANIFEST_FILE, {"outdated": True})


def end(rows: Study, recipe_text: str) -> tuple[StudyDocument, ReportFiles]:
    """Measure and report what is not reported yet."""
    spec = rows.spec(recipe_text)
    if not up_to_date(rows.out, spec):
        write_study(rows.out, describe(rows, recipe_text))
        table = dataclasses.asdict(spec)
        write_json(rows.out / MANIFEST_FILE, {**table, "fingerprint": spec.fingerprint})
    return read_study(rows.out), report(rows.out)


def up_to_date(out: Path, spec: Spec) -> bool:
    """Whether ``study.json`` was measured from these very rankings and settings."""
    try:
        found = json.loads((out / MANIFEST_FILE).read_text(encoding="utf-8"))
        return bool((out / STUDY_FILE).exists() and found.get("fingerprint") == spec.fingerprint)
    except (OSError, ValueError, AttributeError):
        return False


def outdated(out: Path) -> bool:
    """Whether a study's models were, or are being, rebuilt since its ``study.json`` was written."""
    try:
        return bool(json.loads((out / MANIFEST_FILE).read_text(encoding="utf-8")).get("outdated"))
    except (OSError, ValueError, AttributeError):
        return False


@dataclasses.dataclass(frozen=True)
class PlannedRow:
    """One system and seed of a dry run.

    Attributes:
        stale: the first stage that would be made; None: all are up to date.
        seconds: what its stages take, without those that earlier rows share with it.
        refused: why it will fail, as far as that is known.
    """

    system: System
    seed: int
    stale: Stale | None = None
    seconds: float = 0.0
    refused: str = ""

    def __str__(self) -> str:
        name = f"{self.system.slug}, seed {self.seed}"
        if self.refused:
            return f"{name}: will fail"
        if self.stale is None:
            return f"{name}: up to date"
        return f"{name}: {self.stale.sentence}{_what_follows(self.system, self.stale)}; about {duration(self.seconds)}"


def _what_follows(system: System, stale: Stale) -> str:
    stages = stages_of(system)
    after = stages[stages.index(stale.stage) + 1 :] if stale.stage in stages else stages
    if not after:
        return ""
    if len(after) > 2:
        return "; everything after it follows"
    return "; its index and ranking follow" if len(after) == 2 else "; its ranking follows"


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """What a study would do, by walking its stages without making any."""

    rows: tuple[PlannedRow, ...]
    report_stale: bool
    trained_once: tuple[str, ...]

    @property
    def stale(self) -> bool:
        """Whether some system would be trained or ranked."""
        return any(row.stale is not None for row in self.rows)

    @property
    def lines(self) -> list[str]:
        """All that a dry run prints."""
        lines = [str(row) for row in self.rows]
        if self.stale:
            lines.append(f"left: about {duration(sum(row.seconds for row in self.rows))}, and the report")
        else:
            lines.append("the report is written again" if self.report_stale else "nothing is left to do")
        if self.trained_once:
            names = ", ".join(self.trained_once)
            lines.append(f"trained with one seed, since 'study.repeated' does not name them: {names}")
        return [*lines, *dict.fromkeys(row.refused for row in self.rows if row.refused)]


def plan_study(recipe: Recipe, out: Path, *, recipe_text: str = "", data: Dataset | None = None) -> StudyPlan:
    """What a study would do, with estimated times; trains nothing and writes nothing.

    Args:
        data: the collection, where it is read already.

    Raises:
        DataError: the study would be refused, as that of a collection without test labels.
    """
    check_training(recipe)
    check_folder(out, "study")
    dry = Study(recipe, out, builder=DryBuilder())
    if data is not None:
        dry.stages.builder.once(dry.at.data, lambda: data)
    with dry:
        dry.check_data()
        refusals, found = refused(dry.systems, recipe), []
        for system, seed in dry.rows:
            if system.slug in refusals:
                found.append(PlannedRow(system, seed, refused=refusals[system.slug]))
                continue
            try:
                dry.runs.setdefault(system.slug, {})[seed] = dry.rank(dry.resolve(system), seed)
                found.append(PlannedRow(system, seed))
            except Stale as stale:
                found.append(PlannedRow(system, seed, stale))
            except ColabelError as error:
                found.append(PlannedRow(system, seed, refused=f"{system.slug} will fail: {error}"))
        if any(row.stale is not None for row in found):
            found = _with_seconds(dry, found)
        unmeasured = any(row.stale is not None for row in found) or not up_to_date(out, dry.spec(recipe_text))
    repeated = repeated_in(recipe) if recipe.study.seeds > 1 else None
    once = () if repeated is None else (one.slug for one in dry.systems if one.student and one.slug not in repeated)
    return StudyPlan(tuple(found), unmeasured, tuple(once))


def _with_seconds(dry: Study, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
    """The rows with estimates; what rows share is charged to the first of them."""
    rate, charged, found = passages_per_second(dry.stages, dry.dataset), set(), []
    for row in rows:
        if row.stale is None:
            found.append(row)
            continue
        seconds, begun = 0.0, False
        for stage, needed in stage_seconds(dry.at_seed(row.seed), dry.dataset, row.system, rate).items():
            begun = begun or stage == row.stale.stage or row.stale.stage not in stages_of(row.system)
            shared = {"encoder": -1, "bm25": -1}.get(stage, row.seed), stage
            own = stage in ("label", "distil", "student index", "plain index", "rank")
            if begun and (own or shared not in charged):
                charged.add(shared)
                seconds += needed
        found.append(dataclasses.replace(row, seconds=seconds))
    return found


class Rows(abc.ABC):
    """Systems on one collection; one that fails is kept with its reason and does not stop the others.

    Attributes:
        runs: slug → seed → ranking of the test queries.
        failed: slug → why it has none of the first seed.
        lost: a sentence for every later seed that failed; the system then stands on the others.
    """

    def __init__(self, recipe: Recipe, out: Path, systems: Sequence[System], stages: Stages) -> None:
        self.recipe, self.out, self.stages = recipe, out, stages
        self.at, self.progress = stages.at, stages.progress
        self.systems = list(systems)
        slugs = [system.slug for system in self.systems]
        twice = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
        if twice is not None:
            raise SettingsError(f"'study.systems' names '{twice}' twice")
        for measure in recipe.study.measures:
            parse_measure(measure)  # a wrong name is refused now, and not after everything is trained
        self.failed: dict[str, str] = {}
        self.lost: list[str] = []
        self.runs: dict[str, dict[int, Ranking]] = {}

    def __enter__(self) -> Rows:
        self.stages.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.stages.__exit__(*error)

    @property
    @abc.abstractmethod
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with, in the order of the work."""

    @abc.abstractmethod
    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a system, of the first seed unless another is named."""

    def resolve(self, system: System) -> System:
        """A system with all that had to be found out about it first."""
        return system

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds, labelled pairs and passes of a transformer that a system took, by the names of the report."""
        return {}

    @property
    def dataset(self) -> Dataset:
        """The collection."""
        return self.stages.dataset()

    def finished(self, slug: str) -> bool:
        """Whether a system has rankings."""
        return slug in self.runs and slug not in self.failed

    def system(self, slug: str) -> System:
        """A system by its slug, with all that was found out about it."""
        return next(system for system in self.systems if system.slug == slug)

    @property
    def shallow(self) -> list[str]:
        """A sentence for every measure that looks deeper than rankings go."""
        depth = self.recipe.rank.depth
        if depth >= len(self.dataset.passages):
            return []
        cutoffs = {name: parse_measure(name).params.get("cutoff", 0) for name in self.recipe.study.measures}
        return [
            f"{name} was measured on rankings of {depth:,} passages ('rank.depth'); what lies deeper does not count."
            for name, cutoff in cutoffs.items()
            if cutoff > depth
        ]

    @property
    def unreachable(self) -> list[str]:
        """A sentence for every measure that asks for a grade which no label of the test queries has."""
        return unreachable(self.recipe.study.measures, self.dataset.labels(TEST))

    def check_data(self) -> None:
        """Refuse a collection without anything to find, and measures that cannot be taken of it."""
        dataset = self.dataset
        if TEST not in dataset.splits:
            raise DataError(
                f"{dataset.name} has no test labels, which a comparison needs; it has: {', '.join(dataset.splits)}"
            )
        for measure in self.recipe.study.measures:
            measure_from(measure, dataset.relevant_from)
        if not self.stages.builder.dry:
            for sentence in (*self.shallow, *self.unreachable):
                log.warning("%s", sentence)
        if not dataset.positives(TEST):
            raise DataError(
                f"no test query of {dataset.name} has a passage of grade {dataset.relevant_from} or higher, so there "
                "is nothing to find; lower 'data.relevant_from'"
            )

    def rank_all(self) -> None:
        """Rank the test queries with every system."""
        task = self.progress.start("study", len(self.rows), "rows")
        for system, seed in self.rows:
            if system.slug not in self.failed:  # without its first seed a system is not shown
                log.info("%s, seed %d", system.title, seed)
                try:
                    self.runs.setdefault(system.slug, {})[seed] = self.rank(self.resolve(system), seed)
                except ColabelError as error:
                    self.fail(system, seed, str(error))
                except Exception as error:  # of the libraries below: the other systems go on
                    log.debug("%s", system.slug, exc_info=error)
                    self.fail(system, seed, f"{type(error).__name__}: {error}")
            task.advance()
        task.close()
        if not any(self.finished(system.slug) for system in self.systems):
            reasons = "; ".join(f"{slug}: {reason}" for slug, reason in self.failed.items())
            raise DataError(f"no system of the comparison on {self.dataset.name} has finished ({reasons})")

    def fail(self, system: System, seed: int, reason: str) -> None:
        """Take note of a system without a ranking."""
        log.warning("%s, seed %d, failed: %s", system.slug, seed, reason)
        if seed == self.recipe.seed:
            self.failed[system.slug] = reason
        else:
            self.lost.append(f"{system.title} failed with seed {seed} and stands on its other seeds: {reason}")

    def rank(self, system: System, seed: int) -> Ranking:
        """A system's ranking of the test queries; that of the first seed has the system's own name."""
        name = system.slug if seed == self.recipe.seed else f"{system.slug}-seed-{seed}"
        queries, depth = self.dataset.split_queries(TEST), self.recipe.rank.depth
        return self.stages.rank(self.ranker(system, seed), queries, self.at.run(name), depth, tag=name)


class Study(Rows):
    """The systems of a study: trains what they need."""

    def __init__(
        self, recipe: Recipe, out: Path, progress: Progress = SILENT, *, builder: Builder | None = None
    ) -> None:
        at = Layout.of(out, recipe.seed)
        stages = Stages(recipe, at, None, progress, builder=builder or Builder())
        super().__init__(recipe, out, systems_of(recipe), stages)
        self._seeds = {recipe.seed: self.stages}
        self._repeated = repeated_in(recipe)
        self.trials = Trials(recipe)

    def at_seed(self, seed: int) -> Stages:
        """The stages of one seed."""
        if seed not in self._seeds:
            self._seeds[seed] = self.stages.with_seed(seed, Layout.of(self.out, seed))
        return self._seeds[seed]

    @cached_property
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with: a first result of all before the second seed of any."""
        counts = {
            system: self.recipe.study.seeds if system.slug in self._repeated and system.seeded else 1
            for system in self.systems
        }
        found = [(system, self.recipe.seed + number) for system, count in counts.items() for number in range(count)]
        return sorted(found, key=lambda row: row[1])

    def spec(self, recipe_text: str) -> Spec:
        """What ``study.json`` is measured from."""
        from colabel import __version__

        kept = {key: value for key, value in self.recipe.as_dict().items() if key not in ("data", "compute")}
        kept["encoder"] = {key: value for key, value in kept["encoder"].items() if key != "device"}
        runs = {
            f"{slug}/{seed}": ranking.manifest.fingerprint
            for slug, seeds in self.runs.items()
            for seed, ranking in seeds.items()
        }
        inputs = {**runs, "labels": self.dataset.labels_fingerprint(TEST), "recipe": recipe_text}
        return Spec("study", {**json.loads(json.dumps(kept)), "version": __version__}, inputs)

    @property
    def uses_checkpoint(self) -> bool:
        """Whether θ is the recipe's model as it is."""
        return uses_checkpoint(self.recipe)

    @property
    def has_theta(self) -> bool:
        """Whether some finished system has θ and its index, be it a system of its own or not."""
        return any(self.finished(system.slug) for system in self.systems if "theta" in system.needs)

    def resolve(self, system: System) -> System:
        """A system with its β, where that is to be tuned."""
        if not system.tuned:
            return system
        found = system.with_beta(self.tuned_beta())
        self.systems = [found if one.slug == found.slug else one for one in self.systems]
        return found

    def tuned_beta(self) -> float:
        """The β with which collective knowledge ranks dev queries best, all else as in the recipe."""
        return tuned_beta(self.sweep(), self.recipe.collective, self.recipe.study.measures[0])

    def sweep(self) -> list[SweepPoint]:
        """The sweep over (f_p, f_c, f_e, β) on dev queries, with θ of the first seed."""
        index, at = self.index(), self.at.sweep

        def make() -> list[SweepPoint]:
            return sweep(
                self.dataset,
                index,
                at,
                settings=self.recipe.collective,
                measures=self.recipe.study.measures,
                depth=self.recipe.rank.depth,
                seed=self.recipe.seed,
                progress=self.progress,
            )

        return self.stages.builder.once(at, make)

    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a system; trains what must be trained for it."""
        do = self.at_seed(self.recipe.seed if seed is None else seed)
        if not system.needs:
            return do.bm25(self.dataset)
        if system.hybrid_of:
            late = self.ranker(parse_system(system.hybrid_of), do.seed)
            return do.hybrid(self.dataset, cast(LateInteraction, late), system.slug)
        if system.student:
            check_system(system, self.recipe)
            student = train_student(do, system, lambda one, lesson: self._choose(do, one, lesson))
            return student_ranker(do, system, student)
        if "theta" not in system.needs:
            return LateInteraction(plain_index(do), system.slug)
        if system.beta is None:
            return LateInteraction(theta_index(do), system.slug)
        settings = dataclasses.replace(self.recipe.collective, beta=system.beta)
        return PrfRanker(theta_index(do), settings, rerank=system.rerank, seed=do.seed)

    def _choose(self, do: Stages, system: System, lesson: Lesson) -> StudentSettings:
        """The settings of a student: those of the first seed's best trial, for all seeds."""
        if len(self.trials) == 1 or system.from_plain:
            return own_settings(system, self.recipe)
        if do is not self.stages:
            self.ranker(system)  # its trials
        return self.trials.choose(self, system, lesson)

    def index(self) -> Index:
        """The collection indexed by θ of the first seed."""
        return theta_index(self.stages)

    def knowledge(self) -> Knowledge:
        """θ's ranking of the training queries and their collective knowledge, of the first seed."""
        return self.stages.collect(self.dataset, self.index())

    def labels(self, system: System) -> Labels:
        """The labels that a system's student learnt, of the first seed."""
        do, data, known = self.stages, self.dataset, self.knowledge()
        teacher = do.teacher(system, data, known, do.cross_encoders(data, known, system))
        if teacher is None:
            raise UsageError(f"'{system.slug}' has no teacher, and so no labels")
        return do.label(system, data, known, teacher, do.groups(data, known.ranking))

    def dev_set(self) -> DevSet | None:
        """What students are evaluated on while they are trained."""
        return self.stages.dev_set(self.dataset, self.index())

    def cross_encoders(self, system: System) -> tuple[CrossEncoderTeacher, ...]:
        """The cross-encoders that teach a system with the first seed, with the scores that they gave before."""
        return self.stages.cross_encoders(self.dataset, self.knowledge(), system)

    def cross_encoder_verdicts(self, system: System) -> list[str]:
        """Whether each of a system's cross-encoders beats θ on dev."""
        return self.stages.compare_cross_encoders(self.dataset, self.index(), self.cross_encoders(system))

    def times(self, system: System) -> TrainingTimes | None:
        """The training log of a system's first seed."""
        measure = self.recipe.fit.measure
        if system.student:
            settings = own_settings(system, self.recipe).distil
            return training_times(self.at.student(system) / "model", settings, measure)
        is_theta = "theta" in system.needs and system.group == "hard labels"
        return training_times(self.at.theta, self.recipe.train, measure) if is_theta else None

    def seconds_before(self, system: System) -> float | None:
        """Seconds from the plain encoder to a student's labels: θ, its ranking of the training queries, cross-encoders.

        Cross-encoders that the recipe brings as checkpoints were trained by others and take none. A system that starts
        from the plain encoder is not charged with θ, whose ranking its cross-encoders had negatives from.
        """
        trained = 0 if self.recipe.cross_encoder.checkpoints else system.cross_encoder_count(self.recipe)
        parts = [seconds_of(self.at.cross_encoder(number)) for number in range(trained)]
        if not system.from_plain:
            parts.append(self._ranking_seconds())
            parts.append(0.0 if uses_checkpoint(self.recipe) else seconds_of(self.at.theta))
        known = [seconds for seconds in parts if seconds is not None]
        return sum(known) if len(known) == len(parts) else None

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds of a system's first seed, labelled pairs and passes of a transformer.

        "hard negatives" is encoding the collection and the training queries with θ and ranking them.
        """
        if not system.student:
            trained = system.group == "hard labels" and not uses_checkpoint(self.recipe)
            return {"seconds": {"training": seconds_of(self.at.theta)}} if trained else {}
        training, readers = seconds_of(self.at.student(system) / "model"), system.cross_encoder_count(self.recipe)
        if system.from_plain:
            do = self.stages
            pairs = len(do.bm25_groups(self.dataset, do.bm25(self.dataset)).pairs())
            seconds = {"annotation": self._labelling_seconds(system, pairs), "training": training}
            return {"seconds": seconds, "pairs": pairs, "encoder_passes": readers * pairs}
        before = {"hard negatives": self._ranking_seconds()}
        labels = self.at.labels(system)
        if not labels.exists():
            return {"seconds": {**before, "training": training}}
        manifest = read_manifest(labels)
        pairs = int(manifest.counts["scored"])
        passes = readers * pairs
        if "vectors" in system.needs:
            passes += len(self.dataset.passages) + int(manifest.counts["queries"])
        annotation = self._labelling_seconds(system, pairs, manifest.seconds)
        found = {**before, "annotation": annotation, "training": training}
        return {"seconds": found, "pairs": pairs, "encoder_passes": passes}

    def _labelling_seconds(self, system: System, pairs: int, measured: float | None = None) -> float | None:
        """Seconds of labelling; for cross-encoders by what a pair took, since systems share pairs that were scored."""
        rates = [reader.seconds_per_pair for reader in self.cross_encoders(system)]
        known = [rate for rate in rates if rate is not None]
        seconds = sum(known) * pairs if rates and len(known) == len(rates) else measured
        extracted = self.knowledge().seconds if "knowledge" in system.needs else 0.0
        return None if seconds is None else seconds + extracted

    def _ranking_seconds(self) -> float:
        index, at = self.index(), self.at
        folders = (
            at.index / ("tokens" if (at.index / "tokens").exists() else "statistics"),
            *([at.index / "ivf"] if index.engine == "ivf" else []),  # of a large collection
            at.knowledge / "queries",
            at.knowledge / "ranking",
        )
        return sum(seconds_of(folder) or 0.0 for folder in folders)


class Trials:
    """Trains a student with every trial, with the first seed, and keeps the best on dev for all seeds.

    They are compared on θ's top passages of more dev queries than training looks at. A student that was trained before
    there were trials is the first of them and is not trained again.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.settings = {OWN_TRIAL: StudentSettings(recipe.distil, recipe.labels.smoothing)}
        for table in recipe.study.trials:
            self.settings[", ".join(f"{key} = {value}" for key, value in table.items())] = _changed(recipe, table)
        self._found: dict[str, tuple[Trial, ...]] = {}

    def __len__(self) -> int:
        return len(self.settings)

    def found(self, system: System) -> tuple[Trial, ...]:
        """What the trials of a system gave; nothing where it was not tuned."""
        return self._found.get(system.made_as, ())

    def choose(self, study: Study, system: System, lesson: Lesson) -> StudentSettings:
        """The settings with the best value on dev, the earlier of equals, tried with the first seed's ``lesson``."""
        if system.made_as not in self._found:
            self._found[system.made_as] = self._try(study, system, lesson)
        chosen = next(trial.name for trial in self._found[system.made_as] if trial.chosen)
        return self.settings[chosen]

    def _try(self, study: Study, system: System, lesson: Lesson) -> tuple[Trial, ...]:
        do, out = study.stages, study.at.trials(system)
        pool = do.dev_set(lesson.data, study.index(), choosing=True)
        if pool is None:
            raise UsageError(
                "'study.trials' are compared on dev: the collection needs dev labels (data.holdout makes some)"
            )
        found: dict[str, Trial] = {}
        models: dict[str, TrainedModel] = {}
        tried: list[StudentSettings] = []
        own = study.at.student(system) / "model"
        if not (out / _folder(OWN_TRIAL)).exists():
            with contextlib.suppress(ArtefactError, Stale):  # not trained yet, or damaged: it is trained here
                copy_artefact(own, out / _folder(OWN_TRIAL))
        for name, settings in self.settings.items():
            effective = _effective(system, settings, own_settings(system, study.recipe))
            if effective in tried:
                found[name] = Trial(name, None, "no part of its loss")
                continue
            tried.append(effective)
            try:
                models[name] = do.distil(system, lesson, settings, out / _folder(name))
            except TrainingError as error:
                log.warning("%s, trial '%s', failed: %s", system.slug, name, error)
                found[name] = Trial(name, None, "failed")
                continue
            value = _value(do, models[name], pool, out / f"{_folder(name)}.json")
            found[name] = Trial(name, value, queries=len(pool.query_ids))
        if not models:
            raise TrainingError("training diverged with every trial of 'study.trials'; lower the learning rates")
        best = max(models, key=lambda name: found[name].value or 0.0)
        copy_artefact(models[best].folder, own)
        return tuple(msgspec.structs.replace(trial, chosen=trial.name == best) for trial in found.values())


def _changed(recipe: Recipe, table: Mapping[str, Any]) -> StudentSettings:
    """The settings of a student that a trial changes: some of [distil], and ε."""
    changed = dict(table)
    spread = {SMOOTHING: changed.pop(SMOOTHING)} if SMOOTHING in changed else {}
    for key in changed:
        if key not in TRIED:
            raise SettingsError(f"'study.trials': a trial cannot change '{key}'{nearest(key, (*TRIED, SMOOTHING))}")
    return StudentSettings(
        DistilSettings.from_mapping({**recipe.distil.as_dict(), **changed}),
        LabelSettings.from_mapping({**recipe.labels.as_dict(), **spread}).smoothing,
    )


def _folder(name: str) -> str:
    """Where a trial is: its name without what folders cannot have.

    >>> _folder("learning_rate = 6e-05, floor = none")
    'learning_rate=6e-05,floor=none'
    """
    return re.sub(r"[^\w.,=+-]+", "", name.replace(OWN_TRIAL, "own"))


def _value(do: Stages, model: TrainedModel, pool: DevSet, file: Path) -> float:
    """``fit.measure`` of a trained student."""
    measure, encoder = do.recipe.fit.measure, do.recipe.encoder

    def evaluate() -> dict[str, float]:
        if do.builder.dry:
            raise Stale("distil", model.folder)
        loaded = load_checkpoint(str(model.folder), choose_device(encoder.device), torch.float32)
        return pool.evaluate(loaded, [measure])

    return measured_once(file, [model.fingerprint, pool.fingerprint, measure], evaluate)[measure]


def _effective(system: System, settings: StudentSettings, own: StudentSettings) -> StudentSettings:
    """The settings without what has no part in a system's loss: with hard labels there is no teacher."""
    distil, smoothing = settings.distil, settings.smoothing if system.smooths else own.smoothing
    if not system.learns_scores:
        distil = dataclasses.replace(own.distil, **distil.effective())
    return StudentSettings(distil, smoothing)

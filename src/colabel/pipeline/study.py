"""The paper's whole comparison: the stages of a run over systems and seeds, ranked, measured and reported."""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from colabel.artefacts import Builder, DryBuilder, Spec, Stale, read_manifest, seconds_of, write_json
from colabel.collective import Knowledge, PrfRanker
from colabel.data import Dataset
from colabel.data.splits import TEST
from colabel.errors import ColabelError, DataError, SettingsError, UsageError
from colabel.evaluation.sweep import SweepPoint, sweep, tuned_beta
from colabel.findings import StudyDocument, read_study, write_study
from colabel.findings.records import FORMAT, STUDY_FILE
from colabel.findings.results import describe, reason_of
from colabel.index import Index
from colabel.labels import Labels
from colabel.measures import measure_from, parse_measure, unreachable
from colabel.pipeline.budget import Budget, apply, fit_recipe, note, noted
from colabel.pipeline.capacity import (
    Counts,
    Rates,
    charged_to,
    duration,
    from_stage,
    measure_rates,
    stage_seconds,
    stages_of,
)
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import (
    check_folder,
    check_system,
    check_training,
    hold_folder,
    note_recipe,
    read_note,
    recipe_for,
    refused,
)
from colabel.pipeline.run import plain_index, student_ranker, theta_index, train_student
from colabel.pipeline.stages import Stages, uses_checkpoint
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker, Ranking
from colabel.reporting import ReportFiles, report
from colabel.settings import Recipe
from colabel.systems import System, parse_system, repeated_in, systems_of
from colabel.teachers import CrossEncoderTeacher

log = logging.getLogger(__name__)

MANIFEST_FILE = "study.manifest.json"
"""What ``study.json`` was measured from: its settings and rankings, or a note that the models are newer."""


def study(
    data: Recipe | Dataset | Path | str,
    out: Path | str,
    *,
    overrides: Iterable[str] = (),
    recipe_text: str = "",
    minutes: float | None = None,
    given: Collection[str] = (),
    progress: Progress = SILENT,
) -> tuple[StudyDocument, ReportFiles]:
    """Train and evaluate every system of a recipe and write the report; the same call continues an interrupted study.

    A system that fails is reported with its reason and does not stop the others.

    Args:
        data, overrides: as in :func:`colabel.run`.
        recipe_text: the recipe as it was written, for the report.
        minutes: choose steps and evaluations such that the study takes about so long; None: those of the recipe.
        given: settings, as ``section.key``, that are not chosen.
    """
    out = Path(out)
    recipe = recipe_for(data, out, "study", overrides, progress)
    check_training(recipe)
    budget = None if minutes is None else Budget(minutes)
    rows, rates = Study(recipe, out, budget.watch(progress) if budget else progress), None
    with hold_folder(out, "study"), rows.stages:
        if budget is not None:
            chosen, rates, added = _chosen(rows, budget, given)
            rows, recipe_text = rows.with_recipe(apply(recipe, chosen)), recipe_text + added
        begin(rows, recipe_text, rates)
        if budget is not None:
            note(out, budget.minutes, chosen, sorted(given))
        rows.rank_all()
        return end(rows, recipe_text)


def _chosen(rows: Study, budget: Budget, given: Collection[str]) -> tuple[dict[str, Any], Rates | None, str]:
    """The settings that let a study end within its minutes, this machine's rates, and what the recipe's text adds.

    The settings of an earlier call stay, and nothing is measured.
    """
    earlier, rates = noted(rows.out, budget.minutes, sorted(given)), None
    if earlier is not None:
        chosen = earlier[1]
    else:
        rows.check_data()
        rates = measure_rates(rows.recipe, rows.dataset)
        chosen, said = fit_recipe(rows.recipe, rows.rows, Counts.of(rows.dataset), rates, budget, given)
        log.info("%s", said)
    added = "".join(f"# --minutes {budget.minutes:g}: {name} = {value}\n" for name, value in chosen.items())
    return chosen, rates, added


def begin(rows: Study, recipe_text: str, rates: Rates | None = None, *, timed: bool = True) -> None:
    """Check the collection, say what is to do, and note that the report of a study with stale models is outdated."""
    rows.check_data()
    plan = plan_study(rows.recipe, rows.out, recipe_text=recipe_text, data=rows.dataset, rates=rates, timed=timed)
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
        write_json(rows.out / MANIFEST_FILE, {**dataclasses.asdict(spec), "fingerprint": spec.fingerprint})
    return read_study(rows.out), report(rows.out)


def up_to_date(out: Path, spec: Spec) -> bool:
    """Whether ``study.json`` was measured from these very rankings and settings."""
    return (out / STUDY_FILE).exists() and read_note(out / MANIFEST_FILE).get("fingerprint") == spec.fingerprint


def outdated(out: Path) -> bool:
    """Whether a study's models were, or are being, rebuilt since its ``study.json`` was written."""
    return bool(read_note(out / MANIFEST_FILE).get("outdated"))


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
        stages = stages_of(self.system)
        after = stages[stages.index(self.stale.stage) + 1 :] if self.stale.stage in stages else stages
        follows = ("", "; its ranking follows", "; its index and ranking follow", "; everything after it follows")
        return f"{name}: {self.stale.sentence}{follows[min(len(after), 3)]}; about {duration(self.seconds)}"


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


def plan_study(
    recipe: Recipe,
    out: Path,
    *,
    recipe_text: str = "",
    minutes: float | None = None,
    given: Collection[str] = (),
    data: Dataset | None = None,
    rates: Rates | None = None,
    timed: bool = True,
) -> StudyPlan:
    """What a study would do, with estimated times; trains nothing and writes nothing.

    Args:
        minutes, given: as in :func:`study`.
        data: the collection, where it is read already.
        rates: how fast this machine is, where that is known already.
        timed: whether to estimate times, for which this machine is measured.

    Raises:
        DataError: the study would be refused, as that of a collection without test labels.
    """
    check_training(recipe)
    check_folder(out, "study")
    dry = Study(recipe, out, builder=DryBuilder())
    if data is not None:
        dry.stages.builder.once(dry.at.data, lambda: data)
    with dry.stages:
        if minutes is not None:
            chosen, rates, added = _chosen(dry, Budget(minutes), given)
            recipe, recipe_text = apply(recipe, chosen), recipe_text + added
            dry = dry.with_recipe(recipe)
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
        stale_rows = any(row.stale is not None for row in found)
        if stale_rows and timed:
            found = _with_seconds(recipe, dry.dataset, found, rates or measure_rates(recipe, dry.dataset))
        unmeasured = stale_rows or not up_to_date(out, dry.spec(recipe_text))
    repeated = repeated_in(recipe)
    once = (one.slug for one in dry.systems if one.student and one.slug not in repeated)
    return StudyPlan(tuple(found), unmeasured, tuple(once) if recipe.study.seeds > 1 else ())


def _with_seconds(recipe: Recipe, data: Dataset, rows: Sequence[PlannedRow], rates: Rates) -> list[PlannedRow]:
    """The rows with estimates; what rows share is charged to the first of them."""
    found, counts = [], Counts.of(data)
    charged: set[tuple[str, int, str]] = set()
    for row in rows:
        needed = from_stage(stage_seconds(recipe, row.system, counts, rates), row.stale.stage) if row.stale else {}
        whose = {charged_to(row.system, row.seed, stage): seconds for stage, seconds in needed.items()}
        own = sum(seconds for shared, seconds in whose.items() if shared not in charged)
        found.append(dataclasses.replace(row, seconds=own))
        charged |= whose.keys()
    return found


class Rows(abc.ABC):
    """Systems on one collection; one that fails is kept with its reason and does not stop the others.

    Attributes:
        runs: slug → seed → ranking of the test queries.
        failed: slug → why it has none of the first seed.
        lost: a sentence for every later seed that failed; the system then stands on the others.
    """

    def __init__(self, systems: Sequence[System], stages: Stages) -> None:
        self.systems, self.stages, self.recipe = list(systems), stages, stages.recipe
        self.at, self.out, self.progress = stages.at, stages.at.out, stages.progress
        slugs = [system.slug for system in self.systems]
        twice = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
        if twice is not None:
            raise SettingsError(f"'study.systems' names '{twice}' twice")
        for measure in self.recipe.study.measures:
            parse_measure(measure)  # a wrong name is refused now, and not after everything is trained
        self.failed: dict[str, str] = {}
        self.lost: list[str] = []
        self.runs: dict[str, dict[int, Ranking]] = {}

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

    def rank_all(self, slugs: Collection[str] | None = None) -> None:
        """Rank the test queries with every system, or with some."""
        rows = [row for row in self.rows if slugs is None or row[0].slug in slugs]
        task = self.progress.start("study", len(rows), "rows")
        for system, seed in rows:
            if system.slug not in self.failed:  # without its first seed a system is not shown
                log.info("%s, seed %d", system.title, seed)
                try:
                    self.runs.setdefault(system.slug, {})[seed] = self.rank(self.resolve(system), seed)
                except Exception as error:  # also of the libraries below: the other systems go on
                    log.debug("%s", system.slug, exc_info=error)
                    self.fail(system, seed, reason_of(error))
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
        stages = Stages(recipe, Layout.of(out, recipe.seed), None, progress, builder=builder or Builder())
        super().__init__(systems_of(recipe), stages)
        self._seeds = {recipe.seed: self.stages}
        repeated_in(recipe)  # a wrong name is refused now

    def with_recipe(self, recipe: Recipe) -> Study:
        """The same study with other settings, which shares the collection and all that was made."""
        return Study(recipe, self.out, self.progress, builder=self.stages.builder)

    def at_seed(self, seed: int) -> Stages:
        """The stages of one seed."""
        if seed not in self._seeds:
            at = Layout.of(self.out, seed)
            if self.uses_checkpoint:  # θ is not trained: what it encoded serves every seed
                at.theta, at.index = self.at.theta, self.at.index
            self._seeds[seed] = self.stages.with_seed(seed, at)
        return self._seeds[seed]

    @cached_property
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with: a first result of all before the second seed of any."""
        repeated, first = repeated_in(self.recipe), self.recipe.seed
        return [
            (system, seed)
            for seed in range(first, first + self.recipe.study.seeds)
            for system in self.systems
            if seed == first or (system.seeded and system.slug in repeated)
        ]

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
        return Spec("study", {**json.loads(json.dumps(kept)), "version": __version__, "format": FORMAT}, inputs)

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
        found = system.with_beta(tuned_beta(self.sweep(), self.recipe.collective, self.recipe.study.measures[0]))
        self.systems = [found if one.slug == found.slug else one for one in self.systems]
        return found

    def sweep(self) -> list[SweepPoint]:
        """The sweep over (f_p, f_c, f_e, β) on dev queries, with θ of the first seed."""
        index, recipe, at = self.index(), self.recipe, self.at.sweep
        how: dict[str, Any] = {"measures": recipe.study.measures, "depth": recipe.rank.depth, "seed": recipe.seed}
        how |= {"settings": recipe.collective, "progress": self.progress}
        return self.stages.builder.once(at, lambda: sweep(self.dataset, index, at, **how))

    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a system; trains what must be trained for it."""
        do = self.at_seed(self.recipe.seed if seed is None else seed)
        if not system.needs:
            return do.bm25(self.dataset)
        inner = parse_system(system.hybrid_of) if system.hybrid_of else system
        if inner.unlabelled:
            do = do.without_labels()
        if system.hybrid_of:
            late, data = cast(LateInteraction, self.ranker(inner, do.seed)), do.dataset()
            if not system.remembers:
                return do.hybrid(data, late, system.slug)
            hybrids = [do.hybrid(data, late, system.slug.replace("memory", "hybrid", 1))]
            if inner.query_side and not inner.unlabelled:  # θ's own vectors are there as well
                theta = cast(LateInteraction, self.ranker(parse_system("colbert"), do.seed))
                hybrids.insert(0, do.hybrid(data, theta, "hybrid"))
            return do.remembering(data, hybrids, system.slug)
        if system.student:
            check_system(system, self.recipe)
            return student_ranker(do, system, train_student(do, system))
        if "theta" not in system.needs:
            return LateInteraction(plain_index(do), system.slug)
        if system.beta is None:
            make = functools.partial(LateInteraction, theta_index(do), system.slug)
            return do.builder.once(do.at.index / system.slug, make)  # its hybrid asks it the same queries
        settings = dataclasses.replace(self.recipe.collective, beta=system.beta)
        return PrfRanker(theta_index(do), settings, rerank=system.rerank, seed=do.seed)

    def index(self) -> Index:
        """The collection indexed by θ of the first seed."""
        return theta_index(self.stages)

    def knowledge(self) -> Knowledge:
        """θ's ranking of the training queries and their collective knowledge, of the first seed."""
        return self.stages.collect(self.dataset, self.index())

    def labels(self, system: System) -> Labels:
        """The labels that a system's student learnt, of the first seed."""
        do, data, known = self.stages, self.dataset, self.knowledge()
        teacher = do.teacher(system, data, known)
        if teacher is None:
            raise UsageError(f"'{system.slug}' has no teacher, and so no labels")
        return do.label(system, data, known, teacher, do.groups(data, known.ranking))

    def cross_encoders(self, system: System) -> tuple[CrossEncoderTeacher, ...]:
        """The cross-encoders that teach a system with the first seed, with the scores that they gave before."""
        return self.stages.cross_encoders(self.dataset, self.knowledge(), system)

    def cross_encoder_verdicts(self, system: System) -> list[str]:
        """Whether each of a system's cross-encoders beats θ on dev."""
        return self.stages.compare_cross_encoders(self.dataset, self.index(), self.cross_encoders(system))

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds of a system's first seed, labelled pairs and passes of a transformer.

        "hard negatives" is encoding the collection and the training queries with θ and ranking them.
        """
        if not system.student:
            trained = system.group == "hard labels" and not uses_checkpoint(self.recipe)
            return {"seconds": {"training": seconds_of(self.at.theta)}} if trained else {}
        training, readers = seconds_of(self.at.model(system)), system.cross_encoder_count(self.recipe)
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

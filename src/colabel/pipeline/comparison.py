"""The paper's whole comparison: every system trained, ranked and measured; shared work is done once."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from colabel.artefacts import folder_lock, read_manifest
from colabel.artefacts.manifest import MANIFEST_FILE
from colabel.collective import PrfRanker
from colabel.data import Dataset
from colabel.errors import ColabelError
from colabel.evaluation.sweeping import SweepPoint, sweep, tuned_beta
from colabel.pipeline.chain import Chain, StudentSettings
from colabel.pipeline.changes import (
    Changes,
    changed_settings,
    changes_since,
    check_folder,
    forget_earlier_settings,
    note_changed_settings,
)
from colabel.pipeline.checks import check_system, check_training
from colabel.pipeline.efficiency import TrainingTimes, training_times
from colabel.pipeline.findings import describe
from colabel.pipeline.planning import (
    Stage,
    affects_data,
    passages_per_second,
    plan_cross_encoders,
    plan_measuring,
    plan_student,
    plan_theta,
    seconds_of,
)
from colabel.pipeline.rows import SEEDLESS, Rows
from colabel.pipeline.systems import System, cross_encoder_count, parse_system
from colabel.pipeline.trials import Trials
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker
from colabel.reporting import ReportFiles, StudyDocument, report, write_study
from colabel.reporting.render import REPORT_FILES
from colabel.reporting.study_file import STUDY_FILE
from colabel.settings import Recipe
from colabel.teachers import CrossEncoderTeacher

log = logging.getLogger(__name__)


def study(
    recipe: Recipe, out: Path, *, recipe_text: str = "", progress: Progress = SILENT
) -> tuple[StudyDocument, ReportFiles]:
    """Train and evaluate every system of a recipe and write the report; the same call continues an interrupted study.

    A row that fails is reported with its reason and does not stop the others.
    """
    check_training(recipe)
    comparison = Study(recipe, out, progress)
    check_folder(out, "study")
    with folder_lock(out):
        comparison.check_data()  # before the report of a finished study is set aside for this one
        begin(recipe, out, comparison.bench.dataset)
        for sentence in comparison.refused.values():
            log.warning("%s", sentence)
        with comparison.bench:
            comparison.run_all()
            document = describe(comparison, recipe_text)
        end(comparison, document)
        return document, report(out)


def begin(recipe: Recipe, out: Path, dataset: Dataset) -> None:
    """Note the settings of a study; until all models are of one recipe again, there is neither study nor report."""
    if changed_settings(recipe, out, dataset):
        set_report_aside(out)
    note_changed_settings(recipe, out, dataset)


def end(comparison: Study, document: StudyDocument) -> None:
    """Write what a study has found; all its models are of one recipe now, unless a row or a seed of one failed."""
    write_study(comparison.out, document)
    if not comparison.failed and not comparison.lost:
        forget_earlier_settings(comparison.out)


def set_report_aside(out: Path) -> None:
    """Rename study and report, so that nobody takes them for those of the models that are being made."""
    for name in (STUDY_FILE, *REPORT_FILES):
        path = out / name
        if path.exists():
            path.replace(path.with_name(f"{path.stem}.outdated{path.suffix}"))


def trained_once(recipe: Recipe) -> list[str]:
    """Students that have one seed in a study of several."""
    if recipe.study.seeds == 1:
        return []
    repeated = {parse_system(slug) for slug in recipe.study.repeated}
    systems = [parse_system(slug) for slug in recipe.study.systems]
    return [system.slug for system in systems if system.kind == "student" and system not in repeated]


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """What a study would do: its stages, what has changed since it was last run, and why rows will fail."""

    stages: list[Stage]
    changes: Changes
    refused: dict[str, str]


def plan_study(recipe: Recipe, out: Path, *, begun: bool = False) -> StudyPlan:
    """What a study would do, with estimated times; trains nothing.

    Nothing is written either, unless it has ``begun``: then the data and the untrained encoder stay for it in ``out``.

    Raises:
        DataError: the study would be refused, as that of a collection without test labels.
    """
    check_training(recipe)
    check_folder(out, "study")
    comparison = Study(recipe, out, SILENT)
    bench = comparison.bench
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        if not begun:
            bench.cache = Path(place)
        comparison.check_data()
        changes = changes_since(recipe, out, bench.dataset)
        if (out / "start" / MANIFEST_FILE).exists() and not affects_data(changes.keys):
            bench.cache = out  # the untrained encoder is there, and of these settings
        rate = passages_per_second(bench)
        rows = [(comparison.chain(seed), system) for system, seed in comparison.rows]
        stages = [
            *plan_theta(rows, rate, changes),
            *plan_cross_encoders(rows, rate, changes),
            *(_planned(plan_student(*row, rate, changes), row[1].slug in comparison.refused) for row in rows),
        ]
        finished = (out / STUDY_FILE).exists() and not changes.last
        stages.append(plan_measuring(bench, rows, rate, finished=finished))
    return StudyPlan(stages, changes, comparison.refused)


def _planned(stage: Stage, refused: bool) -> Stage:
    return dataclasses.replace(stage, seconds=0.0, done=False, refused=True) if refused else stage


class Study(Rows):
    """The rows of a study: trains what they need."""

    def __init__(self, recipe: Recipe, out: Path, progress: Progress = SILENT) -> None:
        super().__init__(recipe, out, [parse_system(slug) for slug in recipe.study.systems], progress)
        self._repeated = [parse_system(slug) for slug in recipe.study.repeated]
        self._chains: dict[int, Chain] = {}
        self.trials = Trials(recipe, out / "trials")

    def chain(self, seed: int) -> Chain:
        """The stages of one seed."""
        made = Chain(self.bench, self.out / f"seed-{seed}", seed, settings=self._settings)
        return self._chains.setdefault(seed, made)

    def _settings(self, system: System) -> StudentSettings:
        return self.trials.choose(self.first, system)

    @property
    def refused(self) -> dict[str, str]:
        """Slug → why a row cannot be made, where that can be told before anything is trained."""
        found = {}
        for system in self.systems:
            try:
                check_system(system.with_beta(1.0) if system.tuned else system, self.recipe)
            except ColabelError as error:
                found[system.slug] = f"{system.slug} will fail: {error}"
        return found

    @property
    def first(self) -> Chain:
        """The stages of the first seed."""
        return self.chain(self.recipe.seed)

    @property
    def has_theta(self) -> bool:
        """Whether some finished row has θ and its index, be it a row of its own or not."""
        return any(
            self.finished(system.slug)
            for system in self.systems
            if system.slug == "colbert" or (system.kind in ("student", "search") and not system.from_plain)
        )

    @cached_property
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with, in the order of the work."""
        settings = self.recipe.study
        found = []
        for system in self.systems:
            count = settings.seeds if system in self._repeated and system.slug not in SEEDLESS else 1
            found += [(system, self.recipe.seed + number) for number in range(count)]
        return sorted(found, key=lambda row: row[1])  # a first result of every system before the second seed

    def resolve(self, system: System) -> System:
        """A row with its β, where that is to be tuned."""
        if not system.tuned:
            return system
        found = system.with_beta(self.tuned_beta)
        self.systems = [found if one.slug == found.slug else one for one in self.systems]
        return found

    @cached_property
    def tuned_beta(self) -> float:
        """The β with which collective knowledge ranks dev queries best, all else as in the recipe."""
        found = tuned_beta(self.sweep(), self.recipe.collective, self.recipe.study.measures[0])
        log.info("β = %g is the best on dev", found)
        return found

    def sweep(self) -> list[SweepPoint]:
        """The sweep over (f_p, f_c, f_e, β) on dev queries, with θ of the first seed."""
        return sweep(
            self.bench.dataset,
            self.first.index,
            self.out / "sweep",
            settings=self.recipe.collective,
            measures=self.recipe.study.measures,
            depth=self.recipe.rank.depth,
            seed=self.recipe.seed,
            progress=self.progress,
        )

    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a row; trains what must be trained for it."""
        chain = self.first if seed is None else self.chain(seed)
        if system.slug == "bm25":
            return self.bench.bm25
        if system.slug == "zero-shot":
            return LateInteraction(self.bench.zero_shot, system.slug)
        if system.slug == "colbert":
            return LateInteraction(chain.index, system.slug)
        if system.kind == "search" and system.beta is not None:
            settings = dataclasses.replace(self.recipe.collective, beta=system.beta)
            return PrfRanker(chain.index, settings, rerank=system.rerank, seed=chain.seed)
        return LateInteraction(chain.student_index(system), system.slug)

    def cross_encoders(self, system: System) -> tuple[CrossEncoderTeacher, ...]:
        """The cross-encoders that teach a system with the first seed, with the scores that they gave before."""
        cache = self.first.out / "pairs"
        return tuple(self.bench.cross_encoder(str(folder), cache) for folder in self.first.cross_encoders(system))

    def times(self, system: System) -> TrainingTimes | None:
        """The training log of a row's first seed."""
        if system.slug == "colbert":
            return training_times(self.first.out / "theta", self.recipe.train)
        settings = self.first.paper_settings if system.from_plain else self.recipe.distil
        return training_times(self.first.student_folder(system) / "model", settings)

    def seconds_before(self, system: System) -> float | None:
        """Seconds from the plain encoder to a student's labels: θ, its ranking of the training queries, cross-encoders.

        Cross-encoders that the recipe brings as checkpoints were trained by others and take none. A row that starts
        from the plain encoder is not charged with θ, whose ranking its cross-encoders had negatives from.
        """
        if self.recipe.cross_encoder.checkpoints:
            readers: list[float | None] = []
        else:
            folder = self.first.out / "cross-encoders"
            readers = [seconds_of(folder / str(number)) for number in range(self._models(system))]
        before = 0.0 if system.from_plain or self.bench.takes_teacher else seconds_of(self.first.out / "theta")
        ranked = 0.0 if system.from_plain else self._ranking_seconds()
        known = [seconds for seconds in (before, *readers) if seconds is not None]
        return sum(known) + ranked if len(known) == 1 + len(readers) else None

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds of a row's first seed, labelled pairs and passes of a transformer.

        "hard negatives" is encoding the collection and the training queries with θ and ranking them.
        """
        chain = self.first
        if system.kind != "student" and system.slug != "colbert":
            return {}
        if system.slug == "colbert":
            return {} if self.bench.takes_teacher else {"seconds": {"training": seconds_of(chain.theta)}}
        training = seconds_of(chain.student_folder(system) / "model")
        if system.from_plain:
            pairs = len(chain.bm25_groups.pairs())
            annotation = self._labelling_seconds(system, pairs)
            return {
                "seconds": {"annotation": annotation, "training": training},
                "pairs": pairs,
                "encoder_passes": self._models(system) * pairs,
            }
        found: dict[str, Any] = {"hard negatives": self._ranking_seconds()}
        labels = chain.out / "labels" / system.made_as
        if not labels.exists():
            return {"seconds": {**found, "training": training}}
        manifest = read_manifest(labels)
        pairs = int(manifest.counts["scored"])
        found["annotation"] = self._labelling_seconds(system, pairs, manifest.seconds)
        passes = self._models(system) * pairs
        if system.target in ("self", "collective", "mixed"):
            passes += len(self.bench.dataset.passages) + int(manifest.counts["queries"])
        return {"seconds": {**found, "training": training}, "pairs": pairs, "encoder_passes": passes}

    def _models(self, system: System) -> int:
        """How many cross-encoders score each of its pairs."""
        return cross_encoder_count(system, self.recipe)

    def _labelling_seconds(self, system: System, pairs: int, measured: float | None = None) -> float | None:
        """Seconds of labelling; for cross-encoders by what a pair took, since rows share pairs that were scored."""
        rates = [reader.seconds_per_pair for reader in self.cross_encoders(system)]
        known = [rate for rate in rates if rate is not None]
        seconds = sum(known) * pairs if rates and len(known) == len(rates) else measured
        extracted = self.first.knowledge.seconds if system.target in ("collective", "mixed") else 0.0
        return None if seconds is None else seconds + extracted

    def _ranking_seconds(self) -> float:
        index = self.first.index.folder
        folders = (
            index / ("tokens" if (index / "tokens").exists() else "statistics"),
            *([index / "ivf"] if self.first.index.engine == "ivf" else []),  # of a large collection
            self.first.out / "knowledge" / "queries",
            self.first.out / "knowledge" / "ranking",
        )
        return sum(seconds_of(folder) or 0.0 for folder in folders)

"""The paper's whole comparison: every system trained, ranked and measured; shared work is done once."""

from __future__ import annotations

import dataclasses
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

from colabel.artefacts import folder_lock, read_manifest
from colabel.collective import PrfRanker
from colabel.data.splits import TEST
from colabel.errors import ColabelError, DataError
from colabel.pipeline.chain import Chain
from colabel.pipeline.findings import describe
from colabel.pipeline.planning import Stage, passages_per_second, plan_student, seconds_of
from colabel.pipeline.systems import System, parse_system
from colabel.pipeline.workbench import Workbench
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker, Ranking, rank
from colabel.reporting import ReportFiles, StudyDocument, report, write_study
from colabel.settings import Recipe

log = logging.getLogger(__name__)


def study(
    recipe: Recipe, out: Path, *, recipe_text: str = "", progress: Progress = SILENT
) -> tuple[StudyDocument, ReportFiles]:
    """Train and evaluate every system of a recipe and write the report; the same call continues an interrupted study.

    A row that fails is reported with its reason and does not stop the others.
    """
    with folder_lock(out):
        comparison = Study(recipe, out, progress)
        with comparison.bench:
            comparison.run_all()
            document = describe(comparison, recipe_text)
        write_study(out, document)
    return document, report(out)


def plan_study(recipe: Recipe, out: Path) -> list[Stage]:
    """What a study would do, with estimated times; trains nothing."""
    comparison = Study(recipe, out, SILENT)
    rate = passages_per_second(comparison.bench)
    return [stage for system, seed in comparison.rows for stage in plan_student(comparison.chain(seed), system, rate)]


class Study:
    """The rows of a study and their rankings of the test queries."""

    def __init__(self, recipe: Recipe, out: Path, progress: Progress = SILENT) -> None:
        self.recipe, self.out, self.progress = recipe, out, progress
        self.bench = Workbench(recipe, out, progress)
        self.systems = [parse_system(slug) for slug in recipe.study.systems]
        self.failed: dict[str, str] = {}
        self.runs: dict[str, dict[int, Ranking]] = {}
        self._chains: dict[int, Chain] = {}

    def chain(self, seed: int) -> Chain:
        """The stages of one seed."""
        return self._chains.setdefault(seed, Chain(self.bench, self.out / f"seed-{seed}", seed))

    @property
    def first(self) -> Chain:
        """The stages of the first seed."""
        return self.chain(self.recipe.seed)

    @cached_property
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with, in the order of the work."""
        settings = self.recipe.study
        found = []
        for system in self.systems:
            count = settings.seeds if system.slug in settings.repeated and system.slug != "bm25" else 1
            found += [(system, self.recipe.seed + number) for number in range(count)]
        return sorted(found, key=lambda row: row[1])  # a first result of every system before the second seed

    def run_all(self) -> None:
        """Rank the test queries with every row."""
        dataset = self.bench.dataset
        if TEST not in dataset.splits:
            raise DataError(
                f"{dataset.name} has no test labels, which a study needs; it has: {', '.join(dataset.splits)}"
            )
        task = self.progress.start("study", len(self.rows), "rows")
        for system, seed in self.rows:
            log.info("%s, seed %d", system.title, seed)
            try:
                self.runs.setdefault(system.slug, {})[seed] = self._rank(system, seed)
            except ColabelError as error:
                self._fail(system, seed, str(error))
            except (RuntimeError, ValueError, OSError) as error:  # of the libraries below: the other rows go on
                self._fail(system, seed, f"{type(error).__name__}: {error}")
            task.advance()
        task.close()

    def _fail(self, system: System, seed: int, reason: str) -> None:
        log.warning("%s, seed %d, failed: %s", system.slug, seed, reason)
        self.failed.setdefault(system.slug, reason)

    def _rank(self, system: System, seed: int) -> Ranking:
        out = self.out / "runs" / (system.slug if seed == self.recipe.seed else f"{system.slug}-seed-{seed}")
        queries = self.bench.dataset.split_queries(TEST)
        ranker = self.ranker(system, seed)
        return rank(ranker, queries, out, depth=self.recipe.rank.depth, progress=self.progress)

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

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds of annotation and training of a row's first seed, labelled pairs and passes of a transformer."""
        chain = self.first
        if system.kind != "student" and system.slug != "colbert":
            return {}
        model = chain.theta if system.slug == "colbert" else chain.student_folder(system) / "model"
        found: dict[str, Any] = {"seconds": {"training": seconds_of(model)}}
        labels = chain.out / "labels" / system.slug
        if not labels.exists():
            return found
        manifest = read_manifest(labels)
        pairs, dataset = int(manifest.counts["scored"]), self.bench.dataset
        annotation = manifest.seconds + chain.knowledge.seconds
        passes = len(dataset.passages) + int(manifest.counts["queries"])
        if system.needs_cross_encoder:
            models = len(chain.cross_encoders) if system.target == "ensemble" else 1
            annotation, passes = manifest.seconds, models * pairs
        found["seconds"]["annotation"] = annotation
        return {**found, "pairs": pairs, "encoder_passes": passes}

"""The rows of a comparison and their rankings of the test queries, whatever the systems were trained on."""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colabel.data.splits import TEST
from colabel.errors import ColabelError, DataError, SettingsError
from colabel.measures import measure_from, parse_measure, unreachable
from colabel.pipeline.systems import System
from colabel.pipeline.workbench import Workbench
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranker, Ranking, rank
from colabel.reporting import records
from colabel.settings import Recipe

log = logging.getLogger(__name__)

SEEDLESS = records.SEEDLESS
"""Systems that draw nothing at random: one run of theirs stands for every seed."""


def run_name(system: System, seed: int, recipe: Recipe) -> str:
    """What the folder of a row's ranking is called: the first seed has the system's own name."""
    return system.slug if seed == recipe.seed else f"{system.slug}-seed-{seed}"


class Rows(abc.ABC):
    """Systems on one collection; a row that fails is kept with its reason and does not stop the others.

    Attributes:
        runs: slug → seed → ranking of the test queries.
        failed: slug → why it has none of the first seed.
        lost: a sentence for every later seed that failed; the row then stands on the others.
    """

    def __init__(self, recipe: Recipe, out: Path, systems: Sequence[System], progress: Progress = SILENT) -> None:
        self.recipe, self.out, self.progress = recipe, out, progress
        self.systems = list(systems)
        if not self.systems:
            raise SettingsError("'study.systems' names no row; name some, such as 'colbert' and 'collective-0.5'")
        slugs = [system.slug for system in self.systems]
        twice = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
        if twice is not None:
            raise SettingsError(f"'study.systems' names '{twice}' twice")
        for measure in recipe.study.measures:
            parse_measure(measure)  # a wrong name is told now, and not after everything is trained
        self.bench = Workbench(recipe, out, progress)
        self.failed: dict[str, str] = {}
        self.lost: list[str] = []
        self.runs: dict[str, dict[int, Ranking]] = {}

    @property
    @abc.abstractmethod
    def rows(self) -> list[tuple[System, int]]:
        """Every system with every seed it is run with, in the order of the work."""

    @abc.abstractmethod
    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a row, of the first seed unless another is named."""

    def resolve(self, system: System) -> System:
        """A row with all that had to be found out about it first; the rows of the report are the same."""
        return system

    def costs(self, system: System) -> dict[str, Any]:
        """Seconds, labelled pairs and passes of a transformer that a row took, by the names of the report's fields."""
        return {}

    def finished(self, slug: str) -> bool:
        """Whether a row has rankings."""
        return slug in self.runs and slug not in self.failed

    def system(self, slug: str) -> System:
        """A row's system."""
        return next(system for system in self.systems if system.slug == slug)

    @property
    def shallow(self) -> list[str]:
        """A sentence for every measure that looks deeper than rankings go."""
        depth = self.recipe.rank.depth
        if depth >= len(self.bench.dataset.passages):
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
        return unreachable(self.recipe.study.measures, self.bench.dataset.labels(TEST))

    def check_data(self) -> None:
        """Refuse a collection without anything to find, and measures that cannot be taken of it."""
        dataset = self.bench.dataset
        if TEST not in dataset.splits:
            raise DataError(
                f"{dataset.name} has no test labels, which a comparison needs; it has: {', '.join(dataset.splits)}"
            )
        for measure in self.recipe.study.measures:
            measure_from(measure, dataset.relevant_from)
        for sentence in (*self.shallow, *self.unreachable):
            log.warning("%s", sentence)
        if not dataset.positives(TEST):
            raise DataError(
                f"no test query of {dataset.name} has a passage of grade {dataset.relevant_from} or higher, so there "
                "is nothing to find; lower 'data.relevant_from'"
            )

    def run_all(self) -> None:
        """Rank the test queries with every row."""
        self.check_data()
        task = self.progress.start("study", len(self.rows), "rows")
        for system, seed in self.rows:
            if system.slug in self.failed:  # without its first seed a row is not shown
                task.advance()
                continue
            log.info("%s, seed %d", system.title, seed)
            try:
                self.runs.setdefault(system.slug, {})[seed] = self._rank(self.resolve(system), seed)
            except ColabelError as error:
                self.fail(system, seed, str(error))
            except Exception as error:  # of the libraries below: the other rows go on
                log.debug("%s", system.slug, exc_info=error)
                self.fail(system, seed, f"{type(error).__name__}: {error}")
            task.advance()
        task.close()
        if not any(self.finished(system.slug) for system in self.systems):
            reasons = "; ".join(f"{slug}: {reason}" for slug, reason in self.failed.items())
            raise DataError(f"no system of the comparison on {self.bench.dataset.name} has finished ({reasons})")

    def fail(self, system: System, seed: int, reason: str) -> None:
        """Take note of a row without a ranking."""
        log.warning("%s, seed %d, failed: %s", system.slug, seed, reason)
        if seed == self.recipe.seed:
            self.failed[system.slug] = reason
        else:
            self.lost.append(f"{system.title} failed with seed {seed} and stands on its other seeds: {reason}")

    def _rank(self, system: System, seed: int) -> Ranking:
        name, depth = run_name(system, seed, self.recipe), self.recipe.rank.depth
        queries = self.bench.dataset.split_queries(TEST)
        ranker = self.ranker(system, seed)
        return rank(ranker, queries, self.out / "runs" / name, depth=depth, tag=name, progress=self.progress)

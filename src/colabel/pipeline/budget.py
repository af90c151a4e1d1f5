"""A time budget: steps, evaluations and, for the demo, the size of the collection, chosen so that the minutes suffice.

What is chosen is noted in the output folder: the same command with the same minutes continues with the same settings,
so nothing is made twice. Settings that somebody wrote down are never changed.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from colabel.artefacts import write_json
from colabel.errors import UsageError
from colabel.pipeline.capacity import (
    Counts,
    Rates,
    report_seconds,
    stage_seconds,
    takes_checkpoint,
    work_seconds,
)
from colabel.pipeline.preflight import read_note
from colabel.pipeline.stages import made_queries
from colabel.progress import Progress, Task
from colabel.settings import Recipe
from colabel.systems import System
from colabel.train.query_side import MOST_PASSES

BUDGET_FILE = "budget.json"
"""The minutes that a folder was given, and what was chosen for them."""
FEWEST_STEPS = 10
"""Fewer teach nothing."""
MOST_TIMES = 8
"""Times the recipe's own steps that are taken at most: more would learn the labels by heart."""
EVALUATIONS = 4
"""Evaluations on dev during a training of both sides."""
FIRST_SHARE = 0.3
"""Share of the demo's minutes until the collection is searched and missing labels are shown."""
DEMO_SIZES = (300, 400, 500, 600, 800, 1000, 1250, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 7000, 8000, 10_000)
_AIM = 0.95  # of the minutes: what is not estimated takes time, too
_EVALUATED = 0.25  # share of the minutes that evaluations on dev may take

Chosen = Mapping[str, Any]
"""``section.key`` → value."""


class Budget:
    """Minutes that began when this was made."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not minutes > 0 or math.isinf(minutes):
            raise UsageError(f"the budget is {minutes:g} minutes; expected a number above 0, such as --minutes 5")
        self.minutes, self._clock, self._begun = minutes, clock, clock()

    @property
    def spent(self) -> float:
        """Seconds that are over."""
        return self._clock() - self._begun

    @property
    def left(self) -> float:
        """Seconds until the aim, which lies a little before the end; negative where that is over."""
        return _AIM * 60 * self.minutes - self.spent

    def remaining(self) -> str:
        """What is left of all the minutes, as the clock says."""
        left = self.minutes - self.spent / 60
        over = f"0 of {self.minutes:g} min left, {-left:.1f} over"
        return over if left < 0 else f"{left:.1f} of {self.minutes:g} min left"

    def watch(self, progress: Progress) -> Progress:
        """The same progress, each task with what is left of the budget when it begins."""

        def start(what: str, total: int | None, unit: str) -> Task:
            return progress.start(f"{what} (begun with {self.remaining()})", total, unit)

        return cast("Progress", SimpleNamespace(start=start))


def apply(recipe: Recipe, chosen: Chosen) -> Recipe:
    """A recipe with other settings."""
    for name, value in chosen.items():
        section, key = name.split(".")
        changed = dataclasses.replace(getattr(recipe, section), **{key: value})
        recipe = dataclasses.replace(recipe, **{section: changed})
    return recipe


def noted(out: Path, minutes: float | None, call: Sequence[str] = ()) -> tuple[float, dict[str, Any]] | None:
    """The minutes and the choice of an earlier call in this folder; None where there is none, or it was another.

    Args:
        minutes: None: whatever they were.
        call: what else the choice depends on, such as the settings that were given.
    """
    found = read_note(out / BUDGET_FILE)
    same = bool(found) and minutes in (None, found["minutes"]) and list(call) == found["call"]
    return (float(found["minutes"]), dict(found["chosen"])) if same else None


def note(out: Path, minutes: float, chosen: Chosen, call: Sequence[str] = ()) -> None:
    """Write a choice down."""
    write_json(out / BUDGET_FILE, {"minutes": minutes, "call": list(call), "chosen": dict(chosen)})


def choose_steps(
    recipe: Recipe,
    systems: Iterable[System],
    given: Collection[str],
    cost: Callable[[Recipe], float],
    seconds: float,
    queries: int,
) -> tuple[dict[str, Any], float]:
    """Steps and evaluations with which a recipe takes ``seconds``, and the least seconds that it could take.

    All trainings get the same multiple of the recipe's own steps. Where even the least is too long, it is the choice.

    Args:
        given: settings, as ``section.key``, that stay as they are.
        queries: training queries, over which the query side makes a few passes at most.
    """
    systems = list(systems)
    queries = max([queries, *(made_queries(recipe, system, queries) for system in systems)])
    most = {"query_side": MOST_PASSES * -(-queries // recipe.query_side.batch_queries)}
    trained = [name for name in _trained(recipe, systems) if f"{name}.steps" not in given]

    def scaled(times: float, evaluated: bool = True) -> dict[str, Any]:
        steps = {name: max(FEWEST_STEPS, round(times * getattr(recipe, name).steps)) for name in trained}
        found = {f"{name}.steps": min(count, most.get(name, count)) for name, count in steps.items()}
        both = [count for name, count in steps.items() if name in ("train", "distil")]
        if not both or "fit.evaluate_every" in given or not recipe.fit.evaluate_every or recipe.fit.patience:
            return found
        return {**found, "fit.evaluate_every": max(1, min(both) // EVALUATIONS) if evaluated else 0}

    if not trained:
        return {}, cost(recipe)
    affordable = cost(apply(recipe, scaled(1.0))) - cost(apply(recipe, scaled(1.0, False))) <= _EVALUATED * seconds
    least = cost(apply(recipe, scaled(0.0, False)))
    low, high = 0.0, float(MOST_TIMES)
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(apply(recipe, scaled(middle, affordable))) <= seconds else (low, middle)
    fits = cost(apply(recipe, scaled(low, affordable))) <= seconds
    return scaled(low, affordable and fits), least


def _trained(recipe: Recipe, systems: Sequence[System]) -> list[str]:
    """Sections whose steps matter for some systems."""
    students = [system for system in systems if system.student]
    needs_theta = any("theta" in system.needs for system in systems)
    readers = any(system.needs_cross_encoder for system in students) and not recipe.cross_encoder.checkpoints
    found = {
        "train": needs_theta and not takes_checkpoint(recipe),
        "cross_encoder": readers,
        "distil": any(not system.query_side for system in students),
        "query_side": any(system.query_side for system in students),
    }
    return [name for name, matters in found.items() if matters]


def fit_recipe(
    recipe: Recipe,
    rows: Sequence[tuple[System, int]],
    counts: Counts,
    rates: Rates,
    budget: Budget,
    given: Collection[str],
    *,
    whole_run: bool = False,
) -> tuple[dict[str, Any], str]:
    """What is chosen for a run (one row, ``whole_run``) or a study, and a sentence about it.

    Raises:
        UsageError: the minutes are not enough for the least.
    """
    systems = [system for system, _ in rows]
    reported = report_seconds(recipe, 0 if whole_run else len(set(systems)), counts, rates)
    if whole_run:  # beside the student: BM25, θ, and two hybrids, whose weights are fitted on dev
        reported += (
            4 * stage_seconds(recipe, systems[0], counts, rates)["rank"] * (1 + counts.dev / max(1, counts.test))
        )

    def cost(changed: Recipe) -> float:
        return reported + work_seconds(changed, rows, counts, rates, whole_run=whole_run)

    chosen, least = choose_steps(recipe, systems, given, cost, budget.left, counts.train)
    if least > max(budget.left, 0.0) / _AIM:
        encoding = counts.passages / rates.encoded
        raise UsageError(
            f"{budget.minutes:g} minutes are too few: {counts.passages:,} passages alone take about "
            f"{_minutes(encoding)} to encode, and the least for all of it is about {_minutes(budget.spent + least)}; "
            f"take --minutes {_whole(budget.spent + least)}, a smaller collection, or no --minutes"
        )
    if not chosen:
        return {}, f"all steps are given: about {_minutes(cost(recipe))} of {budget.minutes:g}"
    longer, _ = choose_steps(recipe, systems, given, cost, 120 * budget.minutes - budget.spent, counts.train)
    more = f"{2 * budget.minutes:g} minutes would buy {_listed(longer)}" if longer != chosen else "more buys nothing"
    return chosen, f"chosen for {budget.minutes:g} minutes: {_listed(chosen)}; {more}"


def _listed(chosen: Chosen) -> str:
    return ", ".join(f"{name} = {value}" for name, value in chosen.items())


def choose_demo(
    recipe: Recipe,
    systems: Sequence[System],
    counts: Callable[[int], Counts],
    rates: Rates,
    seconds: float,
    *,
    spent: float = 0.0,
    given: Collection[str] = (),
) -> tuple[int, int, float]:
    """Passages and steps of a demo that ends ``seconds`` after its beginning, and the least seconds that one takes.

    The largest collection that is indexed and searched in ``FIRST_SHARE`` of the time, then as many steps as fit.

    Args:
        counts: how much there is to do with so many passages.
        given: as in :func:`choose_steps`; a size that is given is that of ``counts(0)``.
    """
    rows = [(system, recipe.seed) for system in systems]
    sizes = [0] if "data.source" in given else [size for size in DEMO_SIZES if counts(size).passages >= size] or [0]

    def steps(size: int, within: float) -> tuple[int, float]:
        held = counts(size)

        def cost(changed: Recipe) -> float:
            return demo_seconds(changed, rows, held, rates)

        chosen, least = choose_steps(recipe, systems, given, cost, within, held.train)
        return int(chosen.get("query_side.steps", recipe.query_side.steps)), spent + least

    least = steps(sizes[0], 0.0)[1]
    first = [size for size in sizes if spent + first_seconds(recipe, counts(size), rates) <= FIRST_SHARE * seconds]
    size = max(first, default=sizes[0])
    return size, steps(size, seconds - spent)[0], least


def demo_seconds(recipe: Recipe, rows: Sequence[tuple[System, int]], counts: Counts, rates: Rates) -> float:
    """Estimated seconds of a whole demo, after the machine was measured."""
    work = work_seconds(recipe, rows, counts, rates)
    return work + report_seconds(recipe, len(rows), counts, rates)


def first_seconds(recipe: Recipe, counts: Counts, rates: Rates) -> float:
    """Estimated seconds until missing labels are shown: encoder, index, three searches, collecting, labelling."""
    from colabel.systems import parse_system

    views = stage_seconds(recipe, parse_system("views"), counts, rates)
    return sum(seconds for stage, seconds in views.items() if stage != "query side") + 2 * views["rank"]


def demo_sentence(minutes: float, chosen: tuple[int, int], longer: tuple[int, int]) -> str:
    """What was chosen for a demo, and what four times the minutes would buy."""
    (size, steps), (more, further) = chosen, longer
    passages = f"{size:,} passages" if size else "the collection as it is"
    bought = [f"{more:,} passages"] if more != size else []
    bought += [f"{further:,} steps"] if further != steps else []
    buys = f"--minutes {4 * minutes:g} would buy {' and '.join(bought)}" if bought else "more would buy nothing"
    return f"Chosen to fit {minutes:g} minutes on this machine: {passages}, {steps:,} training steps. {buys}."


def too_few(minutes: float, least: float) -> UsageError:
    """Why a demo does not begin."""
    return UsageError(
        f"{minutes:g} minutes are too few: the least that the demo takes on this machine is about {_minutes(least)}; "
        f"take --minutes {_whole(least)}"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes"


def _whole(seconds: float) -> int:
    return math.ceil(1.1 * seconds / 60)

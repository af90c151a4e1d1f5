"""The demo: a small study on ``pydocs`` that fits some minutes, told in parts as they are there."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from colabel.data import load_dataset, load_recipe
from colabel.data.pydocs import query_counts
from colabel.data.splits import DEV, TEST, TRAIN, stable_fraction
from colabel.errors import ColabelError, UsageError
from colabel.evaluation import suggestion_precision
from colabel.evaluation.hidden_labels import SuggestionPrecision, count_hidden, hidden_positives
from colabel.findings import StudyDocument
from colabel.labels import MissingLabel, find_missing, missing_labels
from colabel.pipeline.budget import (
    Budget,
    choose_demo,
    choose_steps,
    demo_seconds,
    demo_sentence,
    first_seconds,
    note,
    noted,
    too_few,
)
from colabel.pipeline.capacity import Counts, Rates, measure_rates
from colabel.pipeline.preflight import hold_folder, note_recipe
from colabel.pipeline.study import Study, begin, end
from colabel.progress import SILENT, Progress
from colabel.settings import Recipe
from colabel.settings.recipe import recipe_text
from colabel.systems import System, systems_of

log = logging.getLogger(__name__)

DEMO_RECIPE = Path(__file__).with_name("demo.toml")
MINUTES = 5.0
BASELINE = "colbert"
SEARCHES = ("bm25", BASELINE, "hybrid")
"""What answers the first examples, side by side."""
_SHOWN = 3  # passages of an example
_ASKED = 2  # examples of search before any training; afterwards the two that gain most and the one that loses most
_MISSING = 5
_SIZE, _STEPS = "data.source", "query_side.steps"
_SAMPLED = "pydocs:300"  # what this machine is measured on
_LIKELY = (1.0, 2.0)  # measured time of the first part by the estimated one, as far as the rest is thought to follow

Answers = tuple[tuple[str, bool], ...]
"""Passage ids, each with whether it is relevant."""


@dataclasses.dataclass(frozen=True)
class Indexed:
    """The collection: its passages, and training queries with their visible and hidden labels."""

    passages: int
    queries: int
    labels: int
    hidden: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """A test query with the first answers of each search: slug → answers."""

    query: str
    answers: dict[str, Answers]


@dataclasses.dataclass(frozen=True)
class Searched:
    """Some test queries, before any training."""

    examples: tuple[SideBySide, ...]


@dataclasses.dataclass(frozen=True)
class Suspected:
    """Missing labels, found before any training.

    Attributes:
        shares: how many of the suggested labels are hidden ones, at one suggestion a query, two and five.
        missing: the first suggestions, each with whether its label was hidden.
    """

    shares: tuple[SuggestionPrecision, ...]
    missing: tuple[tuple[MissingLabel, bool], ...]


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained next: how many models, their steps at most, and the seconds that all of it will take."""

    models: int
    steps: int
    seconds: float | None


@dataclasses.dataclass(frozen=True)
class BeforeAfter:
    """A test query with ColBERT's best passages and the student's; values of the study's first measure."""

    query: str
    before: Answers
    after: Answers
    values: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """What the demo ends with.

    Attributes:
        index: what it searches: θ's index where its query side alone was trained, else its own.
    """

    document: StudyDocument
    student: str
    model: Path
    index: Path
    examples: tuple[BeforeAfter, ...]
    suspected: Suspected
    report: Path


Part = str | Indexed | Searched | Suspected | Training | DemoResult
"""A part of the story; a text says what was chosen to fit the minutes."""


def demo(
    out: Path | str,
    *,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    progress: Progress = SILENT,
    show: Callable[[Part], None] = lambda part: None,
) -> DemoResult:
    """Run the method on ``pydocs``, the collection that is on every machine, and write the report.

    Finished stages are reused: the same call continues an interrupted demo, and ends in seconds if all is done. The
    size of the collection, once chosen for a folder, stays.

    Args:
        minutes: how long all of it may take; default: as long as in an earlier call in this folder, else 5.
        show: is given each part of the story as soon as it is there.
    """
    out = Path(out)
    with hold_folder(out, "study"):
        story = _Story(out, minutes, overrides, progress, show)
        story.choose_size()
        story.search()
        story.choose_steps()
        return story.compare()


@dataclasses.dataclass
class _Story:
    """The parts, in their order."""

    out: Path
    minutes: float | None
    overrides: Sequence[str]
    progress: Progress
    show: Callable[[Part], None]
    rates: Rates | None = None
    ratio: float = 1.0

    def __post_init__(self) -> None:
        earlier = noted(self.out, self.minutes)
        self.budget = Budget(earlier[0] if earlier else MINUTES if self.minutes is None else self.minutes)
        self.chosen: dict[str, Any] = earlier[1] if earlier else {}
        self.given = {override.partition("=")[0].strip() for override in self.overrides}
        self.progress = self.budget.watch(self.progress)
        self.settings()  # wrong ones are refused now

    def settings(self) -> tuple[Recipe, str]:
        """The recipe as far as it is chosen, and its text."""
        written = [f"{key}={json.dumps(value)}" for key, value in self.chosen.items() if key not in self.given]
        changed = [*written, *self.overrides]
        return load_recipe(DEMO_RECIPE, changed), recipe_text(DEMO_RECIPE, changed)

    def choose_size(self) -> None:
        """The collection's size, unless it was chosen earlier or is given."""
        if self.chosen or {_SIZE, _STEPS} <= self.given:
            return
        recipe = load_recipe(DEMO_RECIPE, self.overrides)
        log.info("reading the documentation of the Python libraries that are installed, and timing this machine")
        with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
            source = recipe.data if _SIZE in self.given else dataclasses.replace(recipe.data, source=_SAMPLED)
            data = load_dataset(source, cache=Path(place))
            held = Counts.of(data)
            self.rates = measure_rates(recipe, data)
        systems = systems_of(recipe)

        @functools.cache
        def counts(size: int) -> Counts:
            if not size:
                return held
            passages, queries = query_counts(size)
            return Counts(passages, queries.get(TRAIN, 0), queries.get(DEV, 0), queries.get(TEST, 0))

        spent, seconds = self.budget.spent, self.budget.spent + self.budget.left
        choose = functools.partial(choose_demo, recipe, systems, counts, self.rates, spent=spent, given=self.given)
        size, steps, least = choose(seconds)
        if least > 60 * self.budget.minutes:
            raise too_few(self.budget.minutes, least)
        if size:
            self.chosen[_SIZE] = f"pydocs:{size}"
        longer = choose(4 * seconds)
        self.show(demo_sentence(self.budget.minutes, (size, steps), longer[:2]))

    def search(self) -> None:
        """Index, search three ways, and find missing labels: all without training."""
        recipe, text = self.settings()
        self.study = study = Study(recipe, self.out, self.progress)
        with study.stages:
            self.student = _shown_student(study)
            begin(study, text, timed=False)
            note(self.out, self.budget.minutes, self.chosen)
            begun, fresh = time.monotonic(), not study.at.index.exists()
            index = study.index()
            dataset = study.dataset
            labels = sum(len(held) for held in dataset.labels(TRAIN).values())
            queries, hidden = len(dataset.positives(TRAIN)), count_hidden(dataset)
            self.show(Indexed(len(index.store), queries, labels, hidden, time.monotonic() - begun))
            study.rank_all(SEARCHES)
            self.show(Searched(_side_by_side(study)))
            self.suspected = _suspected(study, self.student)
            self.show(self.suspected)
            taken = time.monotonic() - begun
        if self.rates is not None and fresh:
            low, high = _LIKELY
            estimated = first_seconds(recipe, Counts.of(study.dataset), self.rates)
            self.ratio = min(max(taken / estimated, low), high)
            log.debug("the first part took %.1f s, %.1f s were expected", taken, estimated)

    def choose_steps(self) -> None:
        """As many steps as the time that is left is worth, unless they were chosen earlier or are given."""
        study, expected = self.study, None
        recipe, systems = study.recipe, study.systems
        trained = [one for one in systems if one.query_side]
        if trained and _STEPS not in self.given and _STEPS not in self.chosen:
            self.rates = self.rates or measure_rates(recipe, study.dataset)
            rows = [(system, recipe.seed) for system in systems]
            counts, rates = Counts.of(study.dataset), self.rates.slowed(self.ratio)
            done = first_seconds(recipe, counts, rates)

            def cost(changed: Recipe) -> float:
                return demo_seconds(changed, rows, counts, rates) - done

            found, _ = choose_steps(recipe, trained, (), cost, self.budget.left, counts.train)
            self.chosen[_STEPS] = found[_STEPS]
            expected = len(trained) * rates.step * found[_STEPS]
            note(self.out, self.budget.minutes, self.chosen)
        steps = int(self.chosen.get(_STEPS, recipe.query_side.steps))
        self.show(Training(len(trained), steps, expected))

    def compare(self) -> DemoResult:
        """Train, measure, and write the page."""
        recipe, text = self.settings()
        study, student = self.study.with_recipe(recipe), self.student
        with study.stages:
            note_recipe(self.out, recipe)
            study.rank_all()
            for slug in (BASELINE, student.slug):
                if slug in study.failed:
                    raise ColabelError(f"the demo stopped at {slug}: {study.failed[slug]}")
            document, files = end(study, text)
            model, index = study.at.model(student), study.at.student_index(student)
            examples = _examples(study, student, document)
        result = DemoResult(document, student.slug, model, index, examples, self.suspected, files.html)
        self.show(result)
        return result


def _shown_student(study: Study) -> System:
    """The student that the demo shows beside ColBERT; refuses settings without the two, or without hidden labels."""
    students = [system for system in study.systems if system.needs >= {"theta", "knowledge"} and not system.tuned]
    if not students or BASELINE not in (system.slug for system in study.systems):
        raise UsageError(
            f"the demo shows '{BASELINE}' and a student such as 'views', and 'study.systems' does not name "
            "both; `colabel study` takes any rows"
        )
    if not count_hidden(study.dataset):
        raise UsageError(
            f"no labels of {study.dataset.name} are hidden, so the demo cannot show which are found again; set "
            "data.keep_labels=1, or take `colabel study`"
        )
    return students[0]


def _answers(study: Study, slug: str, query_id: str) -> Answers:
    """The first passages of a search."""
    relevant, names = study.dataset.positives(TEST).get(query_id, ()), study.dataset.passages.ids
    rows = study.runs[slug][study.recipe.seed].query(query_id)[0][:_SHOWN]
    return tuple((names[int(row)], names[int(row)] in relevant) for row in rows)


def _side_by_side(study: Study) -> tuple[SideBySide, ...]:
    """The first test queries, in the order of a hash, for which the searches disagree: no choice of ours."""
    slugs = [slug for slug in SEARCHES if study.finished(slug)]
    found = []
    for query_id in sorted(study.dataset.positives(TEST), key=lambda query: stable_fraction(query, "demo")):
        answers = {slug: _answers(study, slug, query_id) for slug in slugs}
        if len(set(answers.values())) == len(slugs):
            found.append(SideBySide(study.dataset.queries[query_id], answers))
        if len(found) == _ASKED:
            break
    return tuple(found)


def _suspected(study: Study, student: System) -> Suspected:
    """Suggested labels against the hidden ones, and the first few of them."""
    dataset, labels = study.dataset, study.labels(student)
    pairs = find_missing(labels, dataset, limit=5 * len(labels))
    shares = suggestion_precision([(one.query_id, one.row) for one in pairs], dataset, queries=len(labels))
    found = missing_labels(labels, study.knowledge(), dataset, limit=_MISSING)
    right = hidden_positives([(one.query_id, one.passage_id) for one in found], dataset)
    return Suspected(tuple(shares), tuple(zip(found, right, strict=True)))


def _examples(study: Study, student: System, document: StudyDocument) -> tuple[BeforeAfter, ...]:
    """The two test queries that gain most and the one that loses most: no choice of ours."""
    measure = document.measures[0]
    before, after = (document.per_query[slug][measure] for slug in (BASELINE, student.slug))
    values = {query_id: (before[query_id] or 0.0, after[query_id] or 0.0) for query_id in before}
    order = sorted(values, key=lambda query_id: (values[query_id][0] - values[query_id][1], query_id))
    found = []
    for query_id in dict.fromkeys([*order[:2], *order[-1:]]):
        first, then = (_answers(study, slug, query_id) for slug in (BASELINE, student.slug))
        found.append(BeforeAfter(study.dataset.queries[query_id], first, then, values[query_id]))
    return tuple(found)

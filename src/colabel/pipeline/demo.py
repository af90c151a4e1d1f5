"""The demo: a small study on ``pydocs``, and of what it found the parts that one wants to see first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from colabel.collective import PrfRanker
from colabel.data import load_recipe
from colabel.data.splits import TEST
from colabel.errors import ColabelError, UsageError
from colabel.evaluation import suggestion_precision
from colabel.evaluation.hidden_labels import SuggestionPrecision, count_hidden, hidden_positives
from colabel.findings import StudyDocument
from colabel.labels import MissingLabel, find_missing, missing_labels
from colabel.pipeline.preflight import hold_folder
from colabel.pipeline.study import Study, begin, end
from colabel.progress import SILENT, Progress
from colabel.settings.recipe import recipe_text
from colabel.systems import System

DEMO_RECIPE = Path(__file__).with_name("demo.toml")
BASELINE = "colbert"
_SHOWN = 3  # passages of an example; examples are the two queries that gain most and the one that loses most
_MISSING = 5
_FULL = "--full: all systems of the paper, and the sweep"


@dataclasses.dataclass(frozen=True)
class BeforeAfter:
    """A test query with ColBERT's best passages, the student's, and the expansion tokens of ColBERT's feedback.

    Passages are ids, each with whether it is relevant; ``values`` are the study's first measure before and after.
    """

    query: str
    tokens: tuple[str, ...]
    before: tuple[tuple[str, bool], ...]
    after: tuple[tuple[str, bool], ...]
    values: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """What the demo shows.

    Attributes:
        document: the whole study.
        student: slug of the student that is shown.
        model: its checkpoint.
        index: what it searches: θ's index where its query side alone was trained, else its own.
        suggested: how many of the suggested labels are hidden ones, at one suggestion a query, two and five.
        missing: the first suggestions, each with whether its label was hidden.
    """

    document: StudyDocument
    student: str
    model: Path
    index: Path
    examples: tuple[BeforeAfter, ...]
    suggested: tuple[SuggestionPrecision, ...]
    missing: tuple[tuple[MissingLabel, bool], ...]
    report: Path


def demo(out: Path, *, full: bool = False, overrides: Sequence[str] = (), progress: Progress = SILENT) -> DemoResult:
    """Run the method on ``pydocs``, the collection that is on every machine, and write the report.

    Finished stages are reused: the same call continues an interrupted demo, and ends in seconds if all is done.

    Args:
        full: compare all systems of the paper, not BM25, ColBERT, the two-view student and their hybrids alone.
        overrides: settings other than those of the demo's recipe, as ``section.key=value``.
    """
    recipe = load_recipe(DEMO_RECIPE, overrides)
    if full:
        every = dataclasses.replace(recipe.study, systems=(), sweep=True)
        recipe = dataclasses.replace(recipe, study=every)
    study = Study(recipe, out, progress)
    text = recipe_text(DEMO_RECIPE, overrides, note=_FULL if full else "")
    with hold_folder(out, "study"), study:
        student = _shown_student(study)
        begin(study, text)
        study.rank_all()
        for slug in (BASELINE, student.slug):
            if slug in study.failed:
                raise ColabelError(f"the demo stopped at {slug}: {study.failed[slug]}")
        document, files = end(study, text)
        suggested, missing = _missing(study, student)
        model, index = study.at.model(student), study.at.student_index(student)
        examples = _examples(study, student, document)
        return DemoResult(document, student.slug, model, index, examples, suggested, missing, files.html)


def _shown_student(study: Study) -> System:
    """The student that the demo shows beside ColBERT; refuses settings without the two, or without hidden labels."""
    students = [system for system in study.systems if "knowledge" in system.needs and not system.tuned]
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


def _examples(study: Study, student: System, document: StudyDocument) -> tuple[BeforeAfter, ...]:
    """The two test queries that gain most and the one that loses most: no choice of ours."""
    measure, slugs = document.measures[0], (BASELINE, student.slug)
    before, after = (document.per_query[slug][measure] for slug in slugs)
    values = {query_id: (before[query_id] or 0.0, after[query_id] or 0.0) for query_id in before}
    order = sorted(values, key=lambda query_id: (values[query_id][0] - values[query_id][1], query_id))
    dataset, settings, index = study.dataset, study.recipe.collective, study.index()
    ranker = PrfRanker(index, settings, seed=study.recipe.seed)
    found = []
    for query_id in dict.fromkeys([*order[:2], *order[-1:]]):
        relevant = dataset.positives(TEST).get(query_id, ())
        rows = [study.runs[slug][study.recipe.seed].query(query_id)[0] for slug in slugs]
        ids = [[dataset.passages.ids[int(row)] for row in ranked[:_SHOWN]] for ranked in rows]
        answers = [tuple((name, name in relevant) for name in shown) for shown in ids]
        named = ranker.centroids(rows[0][None, : settings.feedback_passages].astype("int64")).token_ids[0]
        tokens = tuple(dict.fromkeys(index.encoder.tokens([token for token in named.tolist() if token >= 0])))
        found.append(BeforeAfter(dataset.queries[query_id], tokens, answers[0], answers[1], values[query_id]))
    return tuple(found)


def _missing(
    study: Study, student: System
) -> tuple[tuple[SuggestionPrecision, ...], tuple[tuple[MissingLabel, bool], ...]]:
    """Suggested labels against the hidden ones, and the first few of them."""
    dataset = study.dataset
    labels = study.labels(student)
    pairs = find_missing(labels, dataset, limit=5 * len(labels))
    shares = suggestion_precision([(one.query_id, one.row) for one in pairs], dataset, queries=len(labels))
    found = missing_labels(labels, study.knowledge(), dataset, limit=_MISSING)
    right = hidden_positives([(one.query_id, one.passage_id) for one in found], dataset)
    return tuple(shares), tuple(zip(found, right, strict=True))

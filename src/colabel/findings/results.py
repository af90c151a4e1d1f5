"""The figures of a study: means and tests of its systems, what they cost, and how it was run."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from msgspec.structs import replace

from colabel.artefacts import fingerprint, read_manifest, write_json
from colabel.artefacts.manifest import library_versions, seconds_of, source_commit
from colabel.data import Dataset
from colabel.data.splits import DEV, TEST
from colabel.encode.colbert import choose_device
from colabel.errors import ColabelError
from colabel.evaluation import Evaluation, bootstrap_mean, compare, evaluate, merge_seeds, values_by_seed
from colabel.evaluation.hidden_labels import count_hidden
from colabel.evaluation.novelty import novel_queries
from colabel.evaluation.sweep import SweepPoint
from colabel.evaluation.timing import ResponseTimes, response_times_of
from colabel.findings.records import (
    DatasetSummary,
    Environment,
    NewQueries,
    Ratio,
    Setting,
    StudyDocument,
    SystemResult,
)
from colabel.findings.teacher_quality import label_findings
from colabel.measures import PerQuery
from colabel.settings import CollectiveSettings, Recipe
from colabel.systems import System, parse_system

log = logging.getLogger(__name__)

Study = Any
"""A study or transfer of :mod:`colabel.pipeline`, which lies to the right of this package."""
T = TypeVar("T")

TIMED_QUERIES = 50
"""Test queries whose response times are taken, of every system."""
_IN_TURNS = "in turns"  # how times are taken: those of systems asked one after another do not compare with them
_PAPER = {
    "feedback": "top",
    "feedback_passages": "3",
    "clusters": "24",
    "centroids": "10",
    "token": "nearest",
    "expansion_scale": "paper",
}
"""What the paper says of [collective]; β is that of each system, and where k-means starts it leaves open."""


def describe(study: Study, recipe_text: str) -> StudyDocument:
    """The document of a finished study."""
    missed: list[str] = []
    quality, suggestions = optional_section("the quality of labels", lambda: label_findings(study), missed) or ((), {})
    verdicts = optional_section("whether cross-encoders beat θ", lambda: _cross_encoder_notes(study), missed) or ()
    document = measured(study, recipe_text, missed)  # after all pairs are scored: costs go by the time that a pair took
    return replace(
        document,
        sweep=optional_section("the sweep", lambda: _sweep(study), missed) or (),
        label_quality=quality,
        suggestions=suggestions,
        ratios=ratios(document.systems),
        seconds=_stage_seconds(study),
        notes=(*study.lost, *study.shallow, *study.unreachable, *verdicts, *_shares_taken(study), *missed),
    )


def measured(study: Study, recipe_text: str, missed: list[str]) -> StudyDocument:
    """What the report of a study and of a transfer have in common: the table, its tests, and how it was run.

    ``missed`` takes a sentence for every part that fails and can be left out.
    """
    recipe, document = study.recipe, compared(study)
    times = optional_section("the response times", lambda: response_times(study), missed) or {}
    costs = {system.slug: study.costs(system) for system in study.systems if study.finished(system.slug)}
    readers = max((system.cross_encoder_count(recipe) for system in study.systems), default=0)
    return replace(
        document,
        systems=tuple(
            replace(one, milliseconds=times.get(one.slug), **costs.get(one.slug, {})) for one in document.systems
        ),
        recipe=recipe_text,
        models=_models(recipe, readers, recipe_text),
        collective=collective_settings(recipe.collective),
        environment=_environment(recipe.encoder.device),
    )


def compared(study: Study) -> StudyDocument:
    """Systems on the test queries: means with intervals, and tests on the seeds that two systems have in common."""
    slugs = [system.slug for system in study.systems if study.finished(system.slug)]
    groups = {slug: {number: f"{slug}/{number}" for number in study.runs[slug]} for slug in slugs}
    every = {name: study.runs[slug][number].run for slug, held in groups.items() for number, name in held.items()}
    apart = evaluate(study.dataset, every, measures=study.recipe.study.measures)
    merged, spreads = merge_seeds(apart, {slug: list(held.values()) for slug, held in groups.items()})
    seeds = values_by_seed(apart, groups, [system.slug for system in study.systems if not system.seeded])
    how: dict[str, Any] = {"seeds": seeds, "seed": study.recipe.seed, "failed": study.failed}
    document = evaluated(study.dataset, study.systems, merged, **how)
    return replace(
        document,
        systems=tuple(
            replace(one, seeds=len(groups[one.slug]), spread=spreads.get(one.slug, {})) if one.slug in groups else one
            for one in document.systems
        ),
        per_seed={
            slug: {str(number): apart.per_query[name] for number, name in held.items()}
            for slug, held in groups.items()
            if len(held) > 1
        },
    )


def evaluated(
    dataset: Dataset,
    systems: Sequence[System],
    evaluation: Evaluation,
    *,
    seeds: Mapping[str, Mapping[int, PerQuery]] | None = None,
    seed: int = 0,
    failed: Mapping[str, str] | None = None,
    student: str | None = None,
) -> StudyDocument:
    """An evaluation of some systems as a document: means with intervals, and tests between every two.

    Args:
        seeds: slug → seed → values, where some systems have several.
        student: slug of the system that the report is about; default: the first collective student.
    """
    groups = list(dict.fromkeys(system.group for system in systems))
    ordered = sorted(systems, key=lambda system: groups.index(system.group))  # as tables letter them
    per_query = {one.slug: evaluation.per_query[one.slug] for one in ordered if one.slug in evaluation.per_query}
    evaluation = dataclasses.replace(evaluation, per_query=per_query)
    measures = tuple(next(iter(per_query.values()), ()))
    tested = measures if len(per_query) > 1 else ()
    comparisons = {name: compare(evaluation, name, seeds=seeds, seed=seed) for name in tested}

    def result(system: System) -> SystemResult:
        slug, values = system.slug, per_query.get(system.slug)
        row = SystemResult(slug, system.title, system.group, system.beta, system.about, system.seeded)
        if values is None:
            return replace(row, failed=(failed or {}).get(slug, "it was not run"))
        means = {name: line.mean for name, one in comparisons.items() for line in one.lines if line.system == slug}
        means = means or {name: bootstrap_mean(list(held.values()), seed=seed) for name, held in values.items()}
        return replace(
            row,
            means=evaluation.means[slug],
            intervals={name: (mean.low, mean.high) for name, mean in means.items()},
            unjudged_share=evaluation.unjudged_share.get(slug),
            unanswered=evaluation.unanswered.get(slug),
        )

    return StudyDocument(
        name=dataset.name,
        measures=measures,
        relevant_from=dataset.relevant_from,
        without_relevant=evaluation.without_relevant,
        student=student or next((one.slug for one in systems if one.collective and one.slug in per_query), None),
        dataset=_summary(dataset),
        systems=tuple(map(result, ordered)),
        per_query=per_query,
        comparisons=comparisons,
        new_queries=_new_queries(dataset, per_query, measures),
    )


def _new_queries(
    dataset: Dataset, per_query: Mapping[str, PerQuery], measures: Sequence[str]
) -> tuple[NewQueries, ...]:
    """Means over the test queries that are new in one way or another."""
    found = []
    for name, queries in novel_queries(dataset).items() if measures else ():
        values = {slug: [held[measures[0]][query] for query in queries] for slug, held in per_query.items()}
        means = {slug: sum(held) / len(held) for slug, held in values.items() if held}
        found.append(NewQueries(name, len(queries), means))
    return tuple(found)


def response_times(study: Study) -> dict[str, ResponseTimes]:
    """Response times of all finished systems, taken in turns: a resumed study shows the same figures.

    Where a system is new or has changed, all are taken again, since times of different hours do not compare.
    """
    dataset = study.dataset
    depth = min(study.recipe.rank.depth, len(dataset.passages))
    rankers = {system.slug: study.ranker(system) for system in study.systems if study.finished(system.slug)}

    def measure() -> dict[str, dict[str, float]]:
        texts = list(dataset.split_queries(TEST).values())[:TIMED_QUERIES]
        found = response_times_of(list(rankers.values()), texts, k=depth)
        return {slug: times.as_dict() for slug, times in zip(rankers, found, strict=True)}

    names = {slug: ranker.fingerprint for slug, ranker in rankers.items()}
    kept = measured_once(study.out / "timing.json", [_IN_TURNS, names, TIMED_QUERIES, depth], measure)
    return {slug: ResponseTimes(**found) for slug, found in kept.items()}


def _models(recipe: Recipe, cross_encoders: int, recipe_text: str) -> dict[str, str]:
    """The encoder, and the cross-encoders that some system learns from; folders that the recipe does not name are
    those of the machine and left out."""
    named = (recipe.cross_encoder.checkpoints or recipe.cross_encoder.models)[:cross_encoders]
    found = {"encoder": recipe.encoder.model}
    found |= {f"cross-encoder {number}": name for number, name in enumerate(named, start=1)}
    places = {role: name for role, name in found.items() if name.startswith(("/", "~")) and name not in recipe_text}
    return found | {role: f"…/{Path(name).name}" for role, name in places.items()}


def collective_settings(settings: CollectiveSettings) -> tuple[Setting, ...]:
    """How collective knowledge was made, with the paper's values where it has some."""
    return tuple(
        Setting(name, f"{value:g}" if isinstance(value, float) else str(value), _PAPER.get(name, ""))
        for name, value in settings.as_dict().items()
    )


def _environment(device: str) -> Environment:
    """What this machine is, and what a model computes on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    chosen = choose_device(device)
    on = torch.cuda.get_device_name(chosen) if chosen.startswith("cuda") else chosen
    return Environment(
        versions={"Python": platform.python_version(), **library_versions()},
        cpu=named or platform.processor() or platform.machine(),
        cores=os.cpu_count(),
        commit=source_commit(),
        memory=memory,
        device=f"computed on {on}",
    )


def _summary(dataset: Dataset) -> DatasetSummary:
    labels = {split: dataset.labels(split) for split in dataset.splits}
    return DatasetSummary(
        dataset.name,
        len(dataset.passages),
        {split: len(found) for split, found in labels.items()},
        {split: sum(map(len, found.values())) for split, found in labels.items()},
        count_hidden(dataset),
    )


def _shares_taken(study: Study) -> tuple[str, ...]:
    """How much of each student dev took, as a sentence."""
    made = {one: study.at.model(one) for one in study.systems if one.student and study.finished(one.slug)}
    counts = {one.title: read_manifest(at).counts for one, at in made.items() if at.exists()}
    taken = [f"{title} {found['alpha']:g}" for title, found in counts.items() if "alpha" in found]
    if not taken:
        return ()
    return (f"Students are α·student + (1 − α)·θ with the α that is best on dev (first seed): {', '.join(taken)}.",)


def _cross_encoder_notes(study: Study) -> tuple[str, ...]:
    finished = [system for system in study.systems if system.needs_cross_encoder and study.finished(system.slug)]
    return tuple(dict.fromkeys(note for one in finished for note in study.cross_encoder_verdicts(one)))


def _sweep(study: Study) -> tuple[SweepPoint, ...]:
    if not study.recipe.study.sweep or DEV not in study.dataset.splits or not study.has_theta:
        return ()
    return tuple(study.sweep())


def ratios(systems: Sequence[SystemResult]) -> tuple[Ratio, ...]:
    """Annotation and training of cross-encoder systems by those of the collective student, as run and for equal pairs.

    As run, annotation is all that came before training, on both sides. For equal pairs it is counted as the paper does:
    on our side encoding the collection and ranking the queries is part of it, on theirs reading pairs alone.
    """
    ours = next((one for one in systems if one.pairs and not one.failed and parse_system(one.slug).collective), None)
    if ours is None or ours.pairs is None:
        return ()
    mine, training = _before_training(ours), ours.seconds.get("training")
    found: list[Ratio] = []
    for system in systems:
        paper = parse_system(system.slug).paper
        if paper is None or system.failed or not system.pairs:
            continue
        annotation, theirs = system.seconds.get("annotation"), system.seconds.get("training")
        whole, factor = _before_training(system), ours.pairs / system.pairs
        scaled = None if annotation is None else annotation * factor
        sides = {
            "annotation_as_run": (whole, mine),
            "training": (theirs, training),
            "overall_as_run": (_added(whole, theirs), _added(mine, training)),
            "annotation": (scaled, mine),
            "overall": (_added(scaled, theirs), _added(mine, training)),
        }
        values = {name: one / other for name, (one, other) in sides.items() if one is not None and other}
        reported = {"paper_annotation": paper[0], "paper_overall": paper[1]}
        found.append(Ratio(system.slug, ours.slug, **values, factor=factor, **reported))
    return tuple(found)


def _added(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _before_training(system: SystemResult) -> float | None:
    values = [value for part in ("hard negatives", "annotation") if (value := system.seconds.get(part)) is not None]
    return sum(values) if values else None


def _stage_seconds(study: Study) -> dict[str, float]:
    """Seconds of the shared stages; what lies there of earlier settings is left out."""
    at = study.at
    approximate = study.has_theta and study.index().engine == "ivf"
    readers = max((system.cross_encoder_count(study.recipe) for system in study.systems), default=0)
    places = {
        "BM25": at.bm25,
        **({} if study.uses_checkpoint else {"training θ": at.theta}),
        "encoding the collection": at.index / "tokens",
        "encoding the collection in shards": at.index / "statistics",
        **({"approximate index": at.index / "ivf"} if approximate else {}),
        "ranking the training queries": at.knowledge / "ranking",
        "collective knowledge": at.knowledge / "centroids",
    }
    for number in range(0 if study.recipe.cross_encoder.checkpoints else readers):
        places[f"training cross-encoder {number + 1}"] = at.cross_encoder(number)
    return {name: seconds for name, folder in places.items() if (seconds := seconds_of(folder)) is not None}


def measured_once(file: Path, depends_on: object, measure: Callable[[], T]) -> T:
    """The figures in ``file``, JSON types; taken, and written there, where it has none for what they depend on now."""
    key = fingerprint(depends_on)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            figures: T = kept["figures"]
            return figures
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not ours: they are taken again
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"key": key, "figures": found})
    return found


def optional_section(what: str, make: Callable[[], T], missed: list[str]) -> T | None:
    """A part of the report; where it fails, None and a note: hours of training are not lost to it."""
    try:
        return make()
    except Exception as error:  # whatever a library below may raise
        log.warning("%s could not be measured: %s", what, error)
        log.debug("%s", what, exc_info=error)
        missed.append(f"Missing from this report is {what}: {reason_of(error)}")
        return None


def reason_of(error: Exception) -> str:
    """An error as a report gives it; one of a library with the name of its class."""
    return str(error) if isinstance(error, ColabelError) else f"{type(error).__name__}: {error}"

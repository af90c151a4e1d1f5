"""The rows of a comparison measured: means, tests on common seeds, response times."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import torch

from colabel.artefacts.manifest import library_versions, source_commit
from colabel.data import Dataset
from colabel.data.splits import TEST
from colabel.encode.prepare import choose_device
from colabel.evaluation import (
    Evaluation,
    Interval,
    Spread,
    bootstrap_mean,
    compare,
    evaluate,
    merge_seeds,
    response_times_of,
)
from colabel.evaluation.comparison import Comparison
from colabel.evaluation.label_quality import count_hidden
from colabel.evaluation.timing import THREADS, WARMUP
from colabel.measures import PerQuery
from colabel.pipeline.kept import measured_once, part
from colabel.pipeline.rows import SEEDLESS, Rows
from colabel.pipeline.systems import System as Row
from colabel.pipeline.systems import cross_encoder_count
from colabel.reporting import StudyDocument
from colabel.reporting.pages import without_folders
from colabel.reporting.records import DatasetSummary, Environment, Milliseconds, Setting, System, Timing, grouped
from colabel.settings import CollectiveSettings, Recipe

_IN_TURNS = "in turns"  # how times are taken: those of rows asked one after another do not compare with them
_GROUPS = {"baseline": "baseline", "search": "search time", "student": "distilled"}
_HARD = ("colbert", "colbert-hn", "smoothing")
_PAPER = {
    "feedback": "top",
    "feedback_passages": "3",
    "clusters": "24",
    "centroids": "10",
    "token": "nearest",
    "expansion_scale": "paper",
}
"""What the paper says of [collective]; β is that of each row, and where k-means starts it leaves open."""


@dataclasses.dataclass(frozen=True)
class _Measured:
    """All rows with seeds averaged, the same on judged passages only, the spread over seeds, and each seed alone."""

    merged: Evaluation
    judged: Evaluation
    spreads: Mapping[str, Mapping[str, Spread]]
    seeds: Mapping[str, Mapping[int, PerQuery]]


def measured(rows: Rows, recipe_text: str, missed: list[str]) -> StudyDocument:
    """The part of a report that any comparison has: the table, its tests, and how it was run.

    What can be left out and fails is told in ``missed``.
    """
    dataset, measures = rows.bench.dataset, tuple(rows.recipe.study.measures)
    found = _evaluate(rows)
    times = part("the response times", lambda: _response_times(rows), missed) or {}
    everywhere = sorted({seed for held in found.seeds.values() for seed in held})
    seeds = {
        slug: dict.fromkeys(everywhere, next(iter(held.values()))) if slug in SEEDLESS else held
        for slug, held in found.seeds.items()
    }
    comparisons: dict[str, Comparison] = {}
    if len(found.merged.per_query) > 1:
        comparisons = {
            measure: compare(found.merged, measure, seeds=seeds, seed=rows.recipe.seed) for measure in measures
        }
    return StudyDocument(
        name=dataset.name,
        measures=measures,
        split=TEST,
        relevant_from=dataset.relevant_from,
        without_relevant=found.merged.without_relevant,
        dataset=_summary(dataset),
        systems=tuple(
            dataclasses.replace(_system(rows, system, found), milliseconds=times.get(system.slug))
            for system in rows.systems
        ),
        per_query=found.merged.per_query,
        per_seed={
            slug: {str(seed): values for seed, values in held.items()}
            for slug, held in found.seeds.items()
            if len(held) > 1
        },
        comparisons=comparisons,
        timing=_timing(rows) if times else None,
        recipe=recipe_text,
        settings=all_settings(rows.recipe, recipe_text),
        models=_models(rows, recipe_text),
        collective=collective_settings(rows.recipe.collective),
        environment=_environment(rows.recipe.encoder.device),
    )


def _evaluate(rows: Rows) -> _Measured:
    measures, dataset = rows.recipe.study.measures, rows.bench.dataset
    finished = {slug: rows.runs[slug] for slug in _in_order(rows)}
    runs = {f"{slug}/{seed}": ranking.run for slug, seeds in finished.items() for seed, ranking in seeds.items()}
    groups = {slug: [f"{slug}/{seed}" for seed in seeds] for slug, seeds in finished.items()}
    apart = evaluate(dataset, runs, measures=measures)
    merged, spreads = merge_seeds(apart, groups)
    judged, _ = merge_seeds(evaluate(dataset, runs, measures=measures, judged_only=True), groups)
    alone = {slug: {seed: apart.per_query[f"{slug}/{seed}"] for seed in seeds} for slug, seeds in finished.items()}
    return _Measured(merged, judged, spreads, alone)


def _in_order(rows: Rows) -> list[str]:
    """Slugs of the finished rows as the report letters them."""
    return [system.slug for system in grouped(rows.systems, _group) if rows.finished(system.slug)]


def _system(rows: Rows, system: Row, found: _Measured) -> System:
    slug = system.slug
    row = System(slug, system.title, _group(system), system.beta)
    if not rows.finished(slug):
        return dataclasses.replace(row, failed=rows.failed.get(slug, "it was not run"))
    costs = rows.costs(system)
    means: dict[str, Interval] = {
        measure: bootstrap_mean(list(values.values()), seed=rows.recipe.seed)
        for measure, values in found.merged.per_query[slug].items()
    }
    return dataclasses.replace(
        row,
        seeds=len(rows.runs[slug]),
        means=found.merged.means[slug],
        intervals={measure: (mean.low, mean.high) for measure, mean in means.items()},
        spread={measure: one.std for measure, one in found.spreads[slug].items() if one.std is not None},
        judged_only=found.judged.means[slug],
        unjudged_share=found.merged.unjudged_share.get(slug),
        unanswered=found.merged.unanswered.get(slug),
        seconds=costs.get("seconds", {}),
        pairs=costs.get("pairs"),
        encoder_passes=costs.get("encoder_passes"),
    )


def _group(system: Row) -> str:
    return "hard labels" if system.slug in _HARD else _GROUPS[system.kind]


def _response_times(rows: Rows) -> dict[str, Milliseconds]:
    """Response times of all finished rows, taken in turns: a resumed study shows the same figures.

    Where a row is new or has changed, all are taken again, since times of different hours do not compare.
    """
    wanted, dataset = rows.recipe.study.timed_queries, rows.bench.dataset
    depth = min(rows.recipe.rank.depth, len(dataset.passages))
    if not wanted:
        return {}
    rankers = {system.slug: rows.ranker(system) for system in rows.systems if rows.finished(system.slug)}

    def measure() -> dict[str, dict[str, float]]:
        texts = list(dataset.split_queries(TEST).values())[:wanted]
        found = response_times_of(list(rankers.values()), texts, k=depth)
        return {
            slug: {"median": times.median, "mean": times.mean, "p95": times.p95}
            for slug, times in zip(rankers, found, strict=True)
        }

    names = {slug: ranker.fingerprint for slug, ranker in rankers.items()}
    kept = measured_once(rows.out / "timing.json", [_IN_TURNS, names, wanted, depth], measure)
    return {slug: Milliseconds(**found) for slug, found in kept.items()}


def _timing(rows: Rows) -> Timing:
    dataset = rows.bench.dataset
    queries = min(rows.recipe.study.timed_queries, len(dataset.split_queries(TEST)))
    return Timing(queries, min(rows.recipe.rank.depth, len(dataset.passages)), THREADS, WARMUP)


def all_settings(recipe: Recipe, recipe_text: str) -> dict[str, str]:
    """Every setting of a recipe, as "section.key" → value, defaults included.

    Folders that the text of the recipe does not name are left out: they are those of the machine.
    """
    found: dict[str, object] = {}
    for section, table in recipe.as_dict().items():
        if isinstance(table, dict):
            found |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            found[section] = table
    return {key: _public(_written(value), recipe_text) for key, value in found.items()}


def _written(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _models(rows: Rows, recipe_text: str) -> dict[str, str]:
    """The encoder, and the cross-encoders that some row learns from."""
    settings = rows.recipe.cross_encoder
    count = max((cross_encoder_count(system, rows.recipe) for system in rows.systems), default=0)
    readers = list(settings.checkpoints or settings.models)[:count]
    found = {"encoder": rows.recipe.encoder.model}
    found |= {f"cross-encoder {number}": name for number, name in enumerate(readers, start=1)}
    return {role: _public(name, recipe_text) for role, name in found.items()}


def _public(value: str, recipe_text: str) -> str:
    return value if value in recipe_text else without_folders(value)


def collective_settings(settings: CollectiveSettings) -> tuple[Setting, ...]:
    """How collective knowledge was made, with the paper's values where it has some; what has no effect is left out."""
    return tuple(
        Setting(name, _shown(value), _PAPER.get(name, ""))
        for name, value in settings.as_dict().items()
        if name != "labelled_weight" or settings.feedback == "weighted"
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _environment(device: str) -> Environment:
    """What this machine is, and what a model computes on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    chosen = choose_device(device)
    on = f"computed on {torch.cuda.get_device_name(chosen)}" if chosen.startswith("cuda") else f"computed on {chosen}"
    versions = {"Python": platform.python_version(), **library_versions()}
    return Environment(versions, _processor(), os.cpu_count(), source_commit(), memory, on)


def _processor() -> str:
    """The processor's name; the kind of machine where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def _summary(dataset: Dataset) -> DatasetSummary:
    return DatasetSummary(
        dataset.name,
        len(dataset.passages),
        {split: len(dataset.labels(split)) for split in dataset.splits},
        {split: sum(len(rows) for rows in dataset.labels(split).values()) for split in dataset.splits},
        count_hidden(dataset),
        {split: _count_not_relevant(dataset, split) for split in dataset.splits},
    )


def _count_not_relevant(dataset: Dataset, split: str) -> int:
    return sum(grade < dataset.relevant_from for held in dataset.labels(split).values() for grade in held.values())

"""What a study found, gathered for its report."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

from colabel.artefacts import fingerprint, write_json
from colabel.artefacts.manifest import library_versions
from colabel.collective import PrfRanker
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.evaluation import (
    Comparison,
    Evaluation,
    Spread,
    bootstrap_difference,
    compare,
    evaluate,
    merge_seeds,
    response_times,
)
from colabel.evaluation.sweeping import sweep
from colabel.measures import measure_run
from colabel.pipeline.planning import seconds_of
from colabel.pipeline.quality import examples, label_findings
from colabel.ranking import rank
from colabel.reporting import StudyDocument
from colabel.reporting.records import (
    DatasetSummary,
    Efficiency,
    Environment,
    Mean,
    Milliseconds,
    Ratio,
    SweepRow,
    System,
    TrainingCurve,
)

if TYPE_CHECKING:
    from colabel.pipeline.comparison import Study
    from colabel.pipeline.systems import System as Row

_GROUPS = {"baseline": "baseline", "search": "search time", "student": "distilled"}
_PRF_QUERIES = 500


def describe(study: Study, recipe_text: str) -> StudyDocument:
    """The document of a finished study."""
    dataset, settings = study.bench.dataset, study.recipe.study
    measures = tuple(settings.measures)
    evaluation, judged, spreads = _evaluate(study)
    comparisons = {measure: compare(evaluation, measure) for measure in measures}
    systems = tuple(_system(study, system, evaluation, judged, spreads, comparisons) for system in study.systems)
    quality, suggestions = label_findings(study)
    return StudyDocument(
        name=dataset.name,
        measures=measures,
        split=TEST,
        relevant_from=dataset.relevant_from,
        dataset=_dataset(study),
        systems=systems,
        per_query=evaluation.per_query,
        comparisons=comparisons,
        label_quality=quality,
        suggestions=suggestions,
        prf_gain=_prf_gain(study),
        sweep=_sweep(study),
        examples=examples(study),
        training=_training(study),
        efficiency=_efficiency(systems),
        recipe=recipe_text,
        environment=Environment(library_versions(), platform.processor() or platform.machine(), os.cpu_count()),
        seconds=_stage_seconds(study),
        notes=_notes(study),
    )


def _notes(study: Study) -> tuple[str, ...]:
    notes = [f"{slug} failed: {reason}" for slug, reason in study.failed.items()]
    if any(system.needs_cross_encoder and system.slug not in study.failed for system in study.systems):
        for number, found in enumerate(study.first.cross_encoder_quality(), start=1):
            before, after = found.ranked["nDCG@10"], found.reranked["nDCG@10"]
            notes.append(
                f"Cross-encoder {number}, re-ranking θ's top 100 of {found.queries} dev queries: nDCG@10 {after:.4f}, "
                f"θ {before:.4f}."
            )
    return tuple(notes)


def _evaluate(study: Study) -> tuple[Evaluation, Evaluation, Mapping[str, Mapping[str, Spread]]]:
    """All systems with seeds averaged, the same on judged passages only, and the spread over seeds."""
    measures = study.recipe.study.measures
    runs = {f"{slug}/{seed}": ranking.run() for slug, seeds in study.runs.items() for seed, ranking in seeds.items()}
    groups = {
        slug: [f"{slug}/{seed}" for seed in seeds] for slug, seeds in study.runs.items() if slug not in study.failed
    }
    merged, spreads = merge_seeds(evaluate(study.bench.dataset, runs, measures=measures), groups)
    judged, _ = merge_seeds(evaluate(study.bench.dataset, runs, measures=measures, judged_only=True), groups)
    return merged, judged, spreads


def _system(
    study: Study,
    system: Row,
    evaluation: Evaluation,
    judged: Evaluation,
    spreads: Mapping[str, Mapping[str, Spread]],
    comparisons: Mapping[str, Comparison],
) -> System:
    slug = system.slug
    group = "hard labels" if system.slug in ("colbert", "colbert-hn", "smoothing") else _GROUPS[system.kind]
    row = System(slug, system.title, group, system.beta)
    if slug in study.failed:
        return dataclasses.replace(row, failed=study.failed[slug])
    lines = {
        measure: next(line.mean for line in comparison.lines if line.system == slug)
        for measure, comparison in comparisons.items()
    }
    costs = study.costs(system)
    return dataclasses.replace(
        row,
        seeds=len(study.runs[slug]),
        means=evaluation.means[slug],
        intervals={measure: (line.low, line.high) for measure, line in lines.items()},
        spread={measure: found.std for measure, found in spreads[slug].items() if found.std is not None},
        judged_only=judged.means[slug],
        unjudged=evaluation.mean_unjudged.get(slug),
        milliseconds=_milliseconds(study, system),
        seconds=costs.get("seconds", {}),
        pairs=costs.get("pairs"),
        encoder_passes=costs.get("encoder_passes"),
    )


def _milliseconds(study: Study, system: Row) -> Milliseconds | None:
    """Response times, measured once: a resumed study shows the same figures."""
    wanted = study.recipe.study.timed_queries
    if not wanted:
        return None
    ranker = study.ranker(system)
    file = study.out / "timing" / f"{system.slug}.json"
    key = fingerprint([ranker.fingerprint, wanted, study.recipe.rank.depth])
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return Milliseconds(**kept["milliseconds"])
    texts = list(study.bench.dataset.split_queries(TEST).values())[:wanted]
    times = response_times(ranker, texts, k=min(study.recipe.rank.depth, len(study.bench.dataset.passages)))
    found = Milliseconds(times.median, times.mean, times.p95)
    file.parent.mkdir(exist_ok=True)
    write_json(file, {"key": key, "milliseconds": dataclasses.asdict(found)})
    return found


def _dataset(study: Study) -> DatasetSummary:
    dataset = study.bench.dataset
    return DatasetSummary(
        dataset.name,
        len(dataset.passages),
        {split: len(dataset.labels(split)) for split in dataset.splits},
        {split: sum(len(rows) for rows in dataset.labels(split).values()) for split in dataset.splits},
    )


def _prf_gain(study: Study) -> dict[str, Mean]:
    """ColBERT-PRF's gain over ColBERT, re-ranking the top 100: on training queries and on test queries."""
    dataset, chain = study.bench.dataset, study.first
    measure = study.recipe.study.measures[0]
    ranker = PrfRanker(chain.index, study.recipe.collective, rerank=True, seed=chain.seed)
    gains = {}
    for split in (TRAIN, TEST):
        if split not in dataset.splits:
            continue
        queries = dict(list(dataset.split_queries(split).items())[:_PRF_QUERIES])
        plain = study.ranker(next(s for s in study.systems if s.slug == "colbert")) if _has(study, "colbert") else None
        if plain is None:
            return {}
        values = []
        for name, one in (("colbert", plain), ("prf", ranker)):
            found = rank(one, queries, study.out / "gain" / f"{name}-{split}", depth=100, progress=study.progress).run()
            labels = {query_id: dataset.labels(split)[query_id] for query_id in queries}
            values.append(measure_run(labels, found, [measure], relevant_from=dataset.relevant_from)[measure])
        order = list(queries)
        difference = bootstrap_difference([values[1][q] for q in order], [values[0][q] for q in order])
        gains[split] = Mean(difference.mean, difference.low, difference.high, difference.queries)
    return gains


def _has(study: Study, slug: str) -> bool:
    return slug in study.runs and slug not in study.failed


def _sweep(study: Study) -> tuple[SweepRow, ...]:
    if not study.recipe.study.sweep or DEV not in study.bench.dataset.splits or not _has(study, "colbert"):
        return ()
    points = sweep(
        study.bench.dataset,
        study.first.index,
        study.out / "sweep",
        settings=study.recipe.collective,
        measures=study.recipe.study.measures,
        depth=study.recipe.rank.depth,
        progress=study.progress,
    )
    return tuple(SweepRow(p.feedback_passages, p.clusters, p.centroids, p.beta, p.measures) for p in points)


def _training(study: Study) -> dict[str, TrainingCurve]:
    curves = {}
    for system in study.systems:
        folder = study.first.out / "theta" if system.slug == "colbert" else study.first.student_folder(system) / "model"
        file = folder / "training" / "log.jsonl"
        if not file.exists():
            continue
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        measure = study.recipe.distil.measure
        loss = tuple((line["step"], line["loss"]) for line in lines if "loss" in line)
        dev = tuple((line["step"], line.get("seconds"), line[measure]) for line in lines if measure in line)
        curves[system.slug] = TrainingCurve(loss, dev)
    return curves


def _efficiency(systems: tuple[System, ...]) -> Efficiency | None:
    """Annotation and training of the cross-encoder rows by those of the collective row, for equal numbers of pairs."""
    ours = next((s for s in systems if s.slug.startswith("collective-") and not s.failed), None)
    if ours is None or not ours.pairs:
        return None
    ratios = []
    for system in systems:
        if system.slug not in ("ce-kd", "ce3-kd") or system.failed or not system.pairs:
            continue
        annotation = _ratio(system.seconds.get("annotation"), ours.seconds.get("annotation"), ours.pairs / system.pairs)
        training = _ratio(system.seconds.get("training"), ours.seconds.get("training"), 1.0)
        paper = "×2.67 annotation (one), ×16 (three)"
        ratios.append(Ratio(system.slug, ours.slug, annotation, training, None, paper))
    return Efficiency(ratios=tuple(ratios))


def _ratio(theirs: float | None, ours: float | None, factor: float) -> float | None:
    return None if theirs is None or not ours else theirs * factor / ours


def _stage_seconds(study: Study) -> dict[str, float]:
    """Seconds of the shared stages."""
    chain, out = study.first, study.out
    places = {
        "BM25": out / "bm25",
        "training θ": chain.out / "theta",
        "encoding the collection": chain.out / "index" / "tokens",
        "encoding the collection in shards": chain.out / "index" / "statistics",
        "ranking the training queries": chain.out / "knowledge" / "ranking",
        "collective knowledge": chain.out / "knowledge" / "centroids",
    }
    return {name: seconds for name, folder in places.items() if (seconds := seconds_of(folder)) is not None}

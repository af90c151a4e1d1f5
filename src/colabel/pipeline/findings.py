"""What a study found, gathered for its report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from colabel.collective import PrfRanker
from colabel.data.splits import DEV, TEST, TRAIN, stable_fraction
from colabel.evaluation import bootstrap_mean, bootstrap_unpaired
from colabel.evaluation.label_quality import measure_train_run
from colabel.measures import PerQuery, Run, measure_run
from colabel.pipeline.efficiency import (
    collective_row,
    dev_target,
    equal_passes,
    pooled_step_seconds,
    ratios,
    reached,
)
from colabel.pipeline.examples import examples
from colabel.pipeline.kept import part
from colabel.pipeline.planning import seconds_of
from colabel.pipeline.quality import label_findings
from colabel.pipeline.results import measured
from colabel.pipeline.systems import cross_encoder_count, parse_system
from colabel.ranking import Ranker, rank
from colabel.reporting import StudyDocument
from colabel.reporting.records import (
    CROSS_ENCODER_STAGE,
    Efficiency,
    FeedbackGain,
    Mean,
    SweepRow,
    System,
    TrainingCurve,
)

if TYPE_CHECKING:
    from colabel.evaluation import Interval
    from colabel.pipeline.comparison import Study

_GAIN_QUERIES = 1000
_GAIN_DEPTH = 100


def describe(study: Study, recipe_text: str) -> StudyDocument:
    """The document of a finished study."""
    missed: list[str] = []
    quality, suggestions = part("the quality of labels", lambda: label_findings(study), missed) or ((), {})
    verdicts = part("whether cross-encoders beat θ", lambda: _cross_encoder_notes(study), missed) or ()
    gains, difference = part("the gain of feedback", lambda: _prf_gain(study), missed) or ({}, None)
    document = measured(study, recipe_text, missed)  # after all pairs are scored: costs go by the time that a pair took
    return dataclasses.replace(
        document,
        systems=_with_equal_passes(study, document.systems),
        prf_gain=gains,
        gain_difference=difference,
        sweep=part("the sweep", lambda: _sweep(study), missed) or (),
        examples=part("the examples", lambda: examples(study), missed) or (),
        label_quality=quality,
        suggestions={
            order: {f"{one.multiple:g}": one.precision for one in held} for order, held in suggestions.items()
        },
        suggestions_recall={
            order: {f"{one.multiple:g}": one.recall for one in held} for order, held in suggestions.items()
        },
        training=_training(study),
        efficiency=_efficiency(study, document.systems),
        trials={system.slug: found for system in study.systems if (found := study.trials.found(system))},
        seconds=_stage_seconds(study),
        notes=(*study.lost, *study.shallow, *study.unreachable, *verdicts, *missed),
    )


def _cross_encoder_notes(study: Study) -> tuple[str, ...]:
    finished = [system for system in study.systems if system.needs_cross_encoder and study.finished(system.slug)]
    return tuple(dict.fromkeys(note for one in finished for note in study.first.cross_encoder_quality(one)))


def _prf_gain(study: Study) -> tuple[dict[str, FeedbackGain], Mean | None]:
    """ColBERT-PRF's gain over ColBERT, re-ranking the top 100 with feedback from the top f_p, on train and on test;
    and on train less on test.

    Labels take no part in the feedback of either. Training queries are measured against all their labels, hidden ones
    too: test queries have all of theirs. Measured where the study has a row of ColBERT-PRF: it ranks every query twice.
    """
    if not study.has_theta or not any(system.kind == "search" for system in study.systems):
        return {}, None
    dataset, chain, settings = study.bench.dataset, study.first, study.recipe.collective
    plain = study.ranker(parse_system("colbert"))
    prf = PrfRanker(chain.index, settings, rerank=True, seed=chain.seed)
    measure, precision = study.recipe.study.measures[0], f"P@{settings.feedback_passages}"
    depth = min(_GAIN_DEPTH, len(dataset.passages))
    gains, per_query = {}, {}
    for split in (TRAIN, TEST):
        if split not in dataset.splits:
            continue
        before, after = (_drawn_run(study, ranker, split) for ranker in (plain, prf))
        values, others = (_measure(study, split, run, (measure, precision)) for run in (before, after))
        order = list(before)
        per_query[split] = [others[measure][q] - values[measure][q] for q in order]
        plainly = ([values[name][q] for q in order] for name in (measure, precision))
        gain, before_gain, relevant = (
            _mean(bootstrap_mean(each, seed=chain.seed)) for each in (per_query[split], *plainly)
        )
        gains[split] = FeedbackGain(gain, before_gain, relevant, depth)
    if len(per_query) < 2:
        return gains, None
    return gains, _mean(bootstrap_unpaired(per_query[TRAIN], per_query[TEST], seed=chain.seed))


def _drawn_run(study: Study, ranker: Ranker, split: str) -> Run:
    """A ranking of a split's queries, of some drawn by their ids where there are many."""
    queries = study.bench.dataset.split_queries(split)
    drawn = set(sorted(queries, key=lambda query_id: stable_fraction(query_id, "gain"))[:_GAIN_QUERIES])
    chosen = {query_id: text for query_id, text in queries.items() if query_id in drawn}
    out = study.out / "gain" / f"{ranker.name}-{split}"
    return rank(ranker, chosen, out, depth=_GAIN_DEPTH, progress=study.progress).run()


def _measure(study: Study, split: str, run: Run, measures: tuple[str, ...]) -> PerQuery:
    dataset = study.bench.dataset
    if split == TRAIN:
        return measure_train_run(dataset, run, measures)
    labels = {query_id: held for query_id, held in dataset.labels(split).items() if query_id in run}
    return measure_run(labels, run, measures, relevant_from=dataset.relevant_from)


def _mean(found: Interval) -> Mean:
    return Mean(found.mean, found.low, found.high, found.queries)


def _sweep(study: Study) -> tuple[SweepRow, ...]:
    if not study.recipe.study.sweep or DEV not in study.bench.dataset.splits or not study.has_theta:
        return ()
    rows = study.sweep()
    return tuple(SweepRow(p.feedback_passages, p.clusters, p.centroids, p.beta, p.measures) for p in rows)


def _training(study: Study) -> dict[str, TrainingCurve]:
    """Curves of θ and of every student; θ's own dev values are left out, since it is evaluated on other passages."""
    curves = {}
    for system in study.systems:
        times = study.times(system) if study.finished(system.slug) else None
        if times is not None:
            found = times.curve()
            curves[system.slug] = dataclasses.replace(found, dev=()) if system.slug == "colbert" else found
    return curves


def _efficiency(study: Study, systems: tuple[System, ...]) -> Efficiency:
    """Seconds of every student to a fixed value on dev, and the paper's ratios."""
    rows = {system.slug: system for system in study.systems if system.kind == "student" and study.finished(system.slug)}
    times = {slug: found for slug, system in rows.items() if (found := study.times(system)) is not None and found.dev}
    efficiency = Efficiency(study.recipe.distil.measure, ratios=ratios(systems))
    target = dev_target(times, study.recipe.study.dev_target)
    if target is None or not times:
        return efficiency
    speed = pooled_step_seconds(times.values())
    first = [
        reached(
            next(one for one in systems if one.slug == slug),
            log,
            target[0],
            start="plain encoder" if rows[slug].from_plain else "θ",
            before=study.seconds_before(rows[slug]),
            step_seconds=speed.get(log.shape),
        )
        for slug, log in times.items()
    ]
    pool = study.first.dev_pool
    queries = None if pool is None else len(pool.query_ids)
    return dataclasses.replace(efficiency, target=target[0], origin=target[1], queries=queries, reached=tuple(first))


def _with_equal_passes(study: Study, systems: tuple[System, ...]) -> tuple[System, ...]:
    """The rows with the passes that their labels would take for as many pairs as the collective row has."""
    ours = collective_row(systems)
    if ours is None or ours.pairs is None:
        return systems
    models = {system.slug: cross_encoder_count(system, study.recipe) for system in study.systems}
    return tuple(
        dataclasses.replace(one, equal_passes=equal_passes(one, ours.pairs, models[one.slug])) for one in systems
    )


def _stage_seconds(study: Study) -> dict[str, float]:
    """Seconds of the shared stages; what lies there of earlier settings is left out."""
    chain, out, settings = study.first, study.out, study.recipe.cross_encoder
    approximate = study.has_theta and chain.index.engine == "ivf"
    readers = max((cross_encoder_count(system, study.recipe) for system in study.systems), default=0)
    places = {
        "BM25": out / "bm25",
        **({} if study.bench.takes_teacher else {"training θ": chain.out / "theta"}),
        "encoding the collection": chain.out / "index" / "tokens",
        "encoding the collection in shards": chain.out / "index" / "statistics",
        **({"approximate index": chain.out / "index" / "ivf"} if approximate else {}),
        "ranking the training queries": chain.out / "knowledge" / "ranking",
        "collective knowledge": chain.out / "knowledge" / "centroids",
    }
    for number in range(0 if settings.checkpoints else readers):
        places[f"{CROSS_ENCODER_STAGE} {number + 1}"] = chain.out / "cross-encoders" / str(number)
    return {name: seconds for name, folder in places.items() if (seconds := seconds_of(folder)) is not None}

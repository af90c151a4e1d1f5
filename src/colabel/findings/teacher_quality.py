"""How good teachers are: their scores on hidden labels and judgements, the gain of feedback, and examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.collective import Knowledge, PrfRanker, collect
from colabel.data import Dataset
from colabel.data.splits import TEST, TRAIN, stable_fraction
from colabel.errors import DataError
from colabel.evaluation import (
    Interval,
    Quality,
    bootstrap_mean,
    bootstrap_unpaired,
    precision_recall,
    suggestion_precision,
)
from colabel.evaluation.hidden_labels import (
    BASE,
    TEACHER,
    LabelQuality,
    SuggestionPrecision,
    count_hidden,
    drawn_queries,
    hidden_positives,
    label_quality,
    measure_train_run,
)
from colabel.findings.records import (
    Coverage,
    Difference,
    Example,
    ExamplePassage,
    ExampleToken,
    FeedbackGain,
    Mean,
    QualitySet,
    TeacherQuality,
)
from colabel.index import Index
from colabel.labels import Flag, LabelBlock, Labels, find_missing
from colabel.measures import PerQuery, Run, measure_run
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranker, rank
from colabel.settings import CollectiveSettings
from colabel.systems import System, parse_system
from colabel.systems.registry import THETA
from colabel.teachers import CollectiveTeacher, CrossEncoderTeacher, MeanTeacher, Teacher

Study = Any
"""A study of :mod:`colabel.pipeline`, which lies to the right of this package."""
QUALITY_QUERIES = 50
"""Queries on which teachers are measured where cross-encoders take part, whose scores take long."""
EXAMPLES = 5
"""Queries that the report shows."""
_GAIN_QUERIES, _GAIN_DEPTH = 1000, 100
_SHOWN = 4  # passages of an example
_TOP = 3
PHI = "φ, θ's own score"
DEPTH = 100
"""Candidates of a judged query, as in the paper's figure."""

Suggestions = dict[str, Sequence[SuggestionPrecision]]
_Table = dict[str, dict[str, TeacherQuality]]


def label_findings(study: Study) -> tuple[tuple[QualitySet, ...], Suggestions]:
    """Precision–recall of φ and of the teachers on hidden labels, if there are any, and on judged test queries."""
    systems = [system for system in study.systems if study.finished(system.slug)]
    readers = name_readers(systems, study.cross_encoders)
    sets, suggestions = _hidden_findings(study, systems, readers)
    if not study.has_theta:
        return sets, suggestions
    judged = judged_quality(
        study.dataset,
        study.index(),
        study.out / "judged",
        settings=study.recipe.collective,
        betas=betas_of(systems),
        readers=readers,
        seed=study.recipe.seed,
        progress=study.progress,
    )
    return (*sets, *judged), suggestions


def betas_of(systems: Iterable[System]) -> list[float]:
    """Every β that some system uses, rising."""
    return sorted({system.beta for system in systems if system.beta is not None})


def name_readers(
    systems: Iterable[System], cross_encoders: Callable[[System], Sequence[CrossEncoderTeacher]]
) -> dict[str, Teacher]:
    """Name → cross-encoder, one alone and the mean of all, as far as the systems learn from them."""
    found: dict[str, Teacher] = {}
    for system in systems:
        models = cross_encoders(system) if system.needs_cross_encoder else ()
        if models:
            found.setdefault("cross-encoder", models[0])
        if len(models) > 1:
            found.setdefault(f"mean of {len(models)} cross-encoders", MeanTeacher(models))
    return found


def judged_quality(
    dataset: Dataset,
    index: Index,
    out: Path,
    *,
    settings: CollectiveSettings,
    betas: Sequence[float],
    readers: Mapping[str, Teacher],
    seed: int = 0,
    progress: Progress = SILENT,
) -> tuple[QualitySet, ...]:
    """Teachers on θ's top 100 of test queries, whose feedback is their own top f_p; nothing of it is ever labelled.

    Where passages were judged not relevant, those without a judgement are left out; elsewhere they count as not
    relevant. All queries are measured, or :data:`QUALITY_QUERIES` drawn ones where cross-encoders take part.
    """
    knowledge = collect(
        dataset, index, out / "knowledge", settings=settings, split=TEST, depth=DEPTH, seed=seed, progress=progress
    )
    labels = dataset.labels(TEST)
    judged_only = any(grade <= 0 for held in labels.values() for grade in held.values())
    query_ids, rows, base = _judged_candidates(knowledge, dataset, QUALITY_QUERIES if readers else len(labels))
    if not query_ids:
        return ()
    teachers: dict[str, Teacher] = {collective_name(beta): CollectiveTeacher(knowledge, beta=beta) for beta in betas}
    scores = {PHI: base, **{name: one.scores(query_ids, rows) for name, one in {**teachers, **readers}.items()}}
    runs = {name: _as_run(knowledge, query_ids, rows, values) for name, values in scores.items()}
    found = precision_recall(runs, labels, judged_only=judged_only, seed=seed)
    table = {name: {str(grade): _quality(one, name) for grade, one in found.items()} for name in scores}
    left_out = "passages without a judgement left out" if judged_only else "unlabelled ones not relevant"
    title = f"θ's top {DEPTH} of {len(query_ids)} test queries, {left_out}"
    return (QualitySet(title, table, coverage=_coverage(found)),)


def collective_name(beta: float) -> str:
    """What tables call the collective teacher."""
    return f"collective (β = {beta:g})"


def _judged_candidates(
    knowledge: Knowledge, dataset: Dataset, most: int
) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Some test queries with a passage above grade 0 among the candidates: ids, rows [queries, 100] and φ.

    Every grade is a cut-off of its own, the lowest too, so ``data.relevant_from`` chooses no queries here.
    """
    labels, ids = dataset.labels(TEST), knowledge.ranking.passage_ids
    positives = {query_id: [one for one, grade in held.items() if grade > 0] for query_id, held in labels.items()}
    found = {}
    for query_ids, rows, scores in knowledge.ranking.blocks():
        for query_id, line, values in zip(query_ids, rows, scores, strict=True):
            if np.isin(line, ids.rows(positives.get(query_id, ()))).any():
                found[query_id] = (np.asarray(line, dtype=np.int64), np.asarray(values))
    drawn = sorted(sorted(found, key=lambda query_id: stable_fraction(query_id, "quality"))[:most])
    if not drawn:
        return [], np.zeros((0, DEPTH), np.int64), np.zeros((0, DEPTH), np.float32)
    return drawn, np.stack([found[one][0] for one in drawn]), np.stack([found[one][1] for one in drawn])


def _as_run(
    knowledge: Knowledge, query_ids: Sequence[str], rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]
) -> Run:
    ids = knowledge.ranking.passage_ids
    return {
        query_id: {ids[row]: score for row, score in zip(line.tolist(), values.tolist(), strict=True) if row >= 0}
        for query_id, line, values in zip(query_ids, rows, scores, strict=True)
    }


def _hidden_findings(
    study: Study, systems: Sequence[System], readers: Mapping[str, Teacher]
) -> tuple[tuple[QualitySet, ...], Suggestions]:
    """Teachers on the hidden labels of all training queries, and with the cross-encoders on some of them."""
    dataset, seed, all_queries, drawn = study.dataset, study.recipe.seed, _Table(), _Table()
    held: dict[str, Coverage] = {}
    held_of_drawn: dict[str, Coverage] = {}
    orders: dict[str, Labels] = {}
    chosen: list[str] | None = None
    read: dict[str, LabelBlock] = {}
    asked = {system.beta: system for system in reversed(systems) if system.teacher_name in ("self", "collective")}
    for _, system in sorted(asked.items(), key=lambda one: -1.0 if one[0] is None else one[0]):
        labels, name = study.labels(system), _teacher_name(system)
        try:
            found = label_quality(labels, dataset, seed=seed)
        except DataError:  # nothing is hidden, or no candidate is
            return (), {}
        _add(all_queries, name, found)
        held = held or _coverage(found.grades)
        if readers:
            chosen = chosen or drawn_queries(labels, dataset, QUALITY_QUERIES)
            found = label_quality([_block(labels, chosen)], dataset, seed=seed)
            _add(drawn, name, found)
            held_of_drawn = held_of_drawn or _coverage(found.grades)
            read = read or {name: _block(labels, chosen, reader) for name, reader in readers.items()}
        orders.setdefault(PHI, _ByPhi(labels.folder))
        orders.setdefault(name, labels)
    suggestions: Suggestions = {name: _best_suggestions(labels, dataset) for name, labels in orders.items()}
    for name, block in read.items():
        _add(drawn, name, label_quality([block], dataset, seed=seed))
    what = "hidden labels among the candidates"
    sets = (
        [QualitySet(f"Training queries, {what}", all_queries, curves=not drawn, coverage=held)] if all_queries else []
    )
    if drawn:
        title = f"{len(chosen or ())} training queries with cross-encoders, {what}"
        sets.append(QualitySet(title, drawn, coverage=held_of_drawn))
    return tuple(sets), suggestions


class _ByPhi(Labels):
    """The candidates of labels with φ for a teacher."""

    def blocks(self) -> Iterator[LabelBlock]:
        """All queries, block by block."""
        return (dataclasses.replace(block, teacher=block.base) for block in super().blocks())


def _best_suggestions(labels: Labels, dataset: Dataset) -> list[SuggestionPrecision]:
    """1×, 2× and 5× as many suggested labels as queries against the hidden positives."""
    missing = find_missing(labels, dataset, limit=5 * len(labels))
    return suggestion_precision([(one.query_id, one.row) for one in missing], dataset, queries=len(labels))


def _coverage(found: Mapping[int, Quality]) -> dict[str, Coverage]:
    """What the candidates hold, for each grade."""
    return {str(grade): Coverage(one.relevant, one.found, one.left_out) for grade, one in found.items()}


def _teacher_name(system: System) -> str:
    return PHI if system.beta is None else collective_name(system.beta)


def _add(table: _Table, name: str, found: LabelQuality) -> None:
    """Put a teacher, and φ before the first, into a table of teacher → grade → quality."""
    for grade, one in found.grades.items():
        table.setdefault(PHI, {})[str(grade)] = _quality(one, BASE)
        if name != PHI:
            table.setdefault(name, {})[str(grade)] = _quality(one, TEACHER)


def _quality(found: Quality, name: str) -> TeacherQuality:
    """One system of an evaluation, with its difference to the first, φ."""
    one, against = found.systems[name], found.differences.get(name, {}).get("AP")
    pooled = one.pooled.as_dict()
    return TeacherQuality(
        queries=one.average_precision.queries,
        average_precision=_mean(one.average_precision),
        auc=None if one.auc is None else _mean(one.auc),
        difference=None
        if against is None
        else Difference(against.difference.mean, against.difference.low, against.difference.high, against.t_test),
        precision_at_recall=tuple(level.mean for level in one.precision_at_recall),
        pooled_curve=tuple(zip(pooled["recall"], pooled["precision"], strict=True)),
        base_rate=float(one.pooled.precision[-1]),  # of the lowest threshold, which all pairs pass
    )


def _block(labels: Labels, query_ids: Sequence[str], teacher: Teacher | None = None) -> LabelBlock:
    """The candidates of some queries with the labels' scores, or with those of another teacher."""
    found = [labels.query(query_id) for query_id in query_ids]
    shape = (len(found), max(len(one.rows) for one in found))
    rows, flags = np.full(shape, -1, np.int32), np.zeros(shape, np.uint8)
    base, scores = np.full(shape, -np.inf, np.float32), np.full(shape, -np.inf, np.float32)
    for place, one in enumerate(found):
        width = len(one.rows)
        rows[place, :width], flags[place, :width] = one.rows, one.flags
        base[place, :width], scores[place, :width] = one.base, one.teacher
    if teacher is not None:
        scores = teacher.scores(query_ids, rows.astype(np.int64))
    return LabelBlock(list(query_ids), rows, scores, base, flags)


def prf_gain(study: Study) -> tuple[dict[str, FeedbackGain], Mean | None]:
    """ColBERT-PRF's gain over ColBERT, re-ranking the top 100 with feedback from the top f_p, on train and on test;
    and on train less on test.

    Labels take no part in the feedback of either. Training queries are measured against all their labels, hidden ones
    too: test queries have all of theirs. Measured where the study has a row of ColBERT-PRF: it ranks every query twice.
    """
    if not study.has_theta or not any(system.betas and not system.student for system in study.systems):
        return {}, None
    dataset, seed, settings = study.dataset, study.recipe.seed, study.recipe.collective
    plain = study.ranker(parse_system(THETA))
    prf = PrfRanker(study.index(), settings, rerank=True, seed=seed)
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
        gain, before_gain, relevant = (_mean(bootstrap_mean(each, seed=seed)) for each in (per_query[split], *plainly))
        gains[split] = FeedbackGain(gain, before_gain, relevant, depth)
    if len(per_query) < 2:
        return gains, None
    return gains, _mean(bootstrap_unpaired(per_query[TRAIN], per_query[TEST], seed=seed))


def _drawn_run(study: Study, ranker: Ranker, split: str) -> Run:
    """A ranking of a split's queries, of some drawn by their ids where there are many."""
    queries = study.dataset.split_queries(split)
    drawn = set(sorted(queries, key=lambda query_id: stable_fraction(query_id, "gain"))[:_GAIN_QUERIES])
    chosen = {query_id: text for query_id, text in queries.items() if query_id in drawn}
    out = study.out / "gain" / f"{ranker.name}-{split}"
    return rank(ranker, chosen, out, depth=_GAIN_DEPTH, progress=study.progress).run()


def _measure(study: Study, split: str, run: Run, measures: tuple[str, ...]) -> PerQuery:
    dataset = study.dataset
    if split == TRAIN:
        return measure_train_run(dataset, run, measures)
    labels = {query_id: held for query_id, held in dataset.labels(split).items() if query_id in run}
    return measure_run(labels, run, measures, relevant_from=dataset.relevant_from)


def _mean(found: Interval) -> Mean:
    return Mean(found.mean, found.low, found.high, found.queries)


def examples(study: Study) -> tuple[Example, ...]:
    """Queries whose passages rose furthest into the first three places: the sum of the places that they gained.

    Labelled and feedback passages do not count: the centroids come from them, so that they rise by construction.
    """
    system = next((one for one in study.systems if one.collective and study.finished(one.slug)), None)
    if system is None:
        return ()
    labels = study.labels(system)
    changes: list[tuple[int, str]] = []
    for block in labels.blocks():
        for place, query_id in enumerate(block.query_ids):
            used = block.rows[place] >= 0
            before, after = places(block.base[place][used]), places(block.teacher[place][used])
            known = (block.flags[place][used] & (Flag.LABELLED | Flag.FEEDBACK)) != 0
            changes.append((int(np.maximum(0, before - after)[(after <= _TOP) & ~known].sum()), query_id))
    best = sorted(changes, key=lambda change: (-change[0], change[1]))[:EXAMPLES]
    return tuple(_example(study, labels, query_id, system.beta) for _, query_id in best)


def _example(study: Study, labels: Labels, query_id: str, beta: float | None) -> Example:
    knowledge, dataset, texts = study.knowledge(), study.dataset, study.recipe.study.texts
    candidates = study.recipe.labels.candidates
    centroids = knowledge.centroids([query_id])
    sigma = distinct_tokens(centroids.token_ids[0].tolist(), centroids.sigma[0].tolist())
    pieces = dict(zip(sigma, knowledge.index.encoder.tokens(list(sigma)), strict=True))
    tokens = [ExampleToken(pieces[token_id], value) for token_id, value in sigma.items()]
    found = labels.query(query_id)
    ranked = np.isin(found.rows, knowledge.ranking.query(query_id)[0][:candidates])
    before, after = places(np.where(ranked, found.base, -np.inf)), places(found.teacher)
    shown = np.argsort(after)[:_SHOWN].tolist()
    rows = [int(found.rows[place]) for place in shown]
    ids = [dataset.passages.ids[row] for row in rows]
    anything_hidden = count_hidden(dataset) > 0
    hidden = hidden_positives([(query_id, passage_id) for passage_id in ids], dataset)
    passages = []
    for place, row, passage_id, was_hidden in zip(shown, rows, ids, hidden, strict=True):
        held = set(knowledge.index.store.passage_tokens([row])[0].tolist())
        passage = dataset.passages[row]
        passages.append(
            ExamplePassage(
                passage_id,
                passage.title if texts else "",
                passage.text if texts else "",
                before=int(before[place]) if ranked[place] else None,
                after=int(after[place]),
                labelled=bool(found.flags[place] & Flag.LABELLED),
                hidden_positive=was_hidden if anything_hidden else None,
                matched=tuple(piece for token_id, piece in pieces.items() if token_id in held),
            )
        )
    query = dataset.queries[query_id] if texts else ""
    return Example(query_id, query, tuple(tokens), tuple(passages), candidates, beta)


def distinct_tokens(token_ids: Sequence[int], sigma: Sequence[float]) -> dict[int, float]:
    """Token → σ of a query's centroids, which come by falling σ: one token may name several, and is shown once.

    >>> distinct_tokens([8, 7, 7, -1], [4.0, 3.0, 2.0, 0.0])
    {8: 4.0, 7: 3.0}
    """
    found: dict[int, float] = {}
    for token_id, value in zip(token_ids, sigma, strict=True):
        if token_id >= 0:
            found.setdefault(token_id, value)
    return found


def places(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Places 1, 2, … of scores, best first, equal ones in their order.

    >>> places(np.array([0.5, 2.0, 0.5], dtype=np.float32)).tolist()
    [2, 1, 3]
    """
    found = np.empty(len(scores), dtype=np.int64)
    found[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return found

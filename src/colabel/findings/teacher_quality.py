"""How good teachers are: their scores on hidden labels and on judgements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.collective import Knowledge, collect
from colabel.data import Dataset
from colabel.data.splits import TEST, stable_fraction
from colabel.errors import DataError
from colabel.evaluation import Quality, precision_recall, suggestion_precision
from colabel.evaluation.hidden_labels import BASE, TEACHER, drawn_queries, label_quality
from colabel.findings.records import Coverage, Figures, QualitySet, TeacherQuality
from colabel.index import Index
from colabel.labels import LabelBlock, Labels, find_missing
from colabel.ranking.rankings import as_run
from colabel.systems import System
from colabel.teachers import CollectiveTeacher, CrossEncoderTeacher, MeanTeacher, Teacher

Study = Any
"""A study of :mod:`colabel.pipeline`, which lies to the right of this package."""
QUALITY_QUERIES = 50
"""Queries on which teachers are measured where cross-encoders take part, whose scores take long."""
PHI = "φ, θ's own score"
DEPTH = 100
"""Candidates of a judged query, as in the paper's figure."""


def label_findings(study: Study) -> tuple[tuple[QualitySet, ...], dict[str, Figures]]:
    """Precision–recall of φ and of the teachers on hidden labels, if there are any, and on judged test queries; and
    which share of 1×, 2× and 5× as many suggested labels as queries are hidden positives, for each order of them."""
    systems = [system for system in study.systems if study.finished(system.slug)]
    readers = name_readers(systems, study.cross_encoders)
    sets, suggestions = _hidden_findings(study, systems, readers)
    judged = judged_quality(study, study.index(), systems, readers) if study.has_theta else ()
    return (*sets, *judged), suggestions


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
    study: Study, index: Index, systems: Iterable[System], readers: Mapping[str, Teacher]
) -> tuple[QualitySet, ...]:
    """The collective teacher with every β of some systems, and cross-encoders, on θ's top 100 of test queries.

    Feedback is the queries' own top f_p; nothing of it is ever labelled. Where passages were judged not relevant, those
    without a judgement are left out; elsewhere they count as not relevant. All queries are measured, or
    :data:`QUALITY_QUERIES` drawn ones where cross-encoders take part.
    """
    dataset, seed, out = study.dataset, study.recipe.seed, study.out / "judged" / "knowledge"
    how: dict[str, Any] = {"split": TEST, "depth": DEPTH, "seed": seed, "progress": study.progress}
    knowledge = collect(dataset, index, out, settings=study.recipe.collective, **how)
    labels = dataset.labels(TEST)
    judged_only = any(grade <= 0 for held in labels.values() for grade in held.values())
    candidates = _judged_candidates(knowledge, dataset, QUALITY_QUERIES if readers else len(labels))
    if not candidates:
        return ()
    query_ids, rows = list(candidates), np.stack([rows for rows, _ in candidates.values()])
    betas = sorted({system.beta for system in systems if system.beta is not None})
    teachers: dict[str, Teacher] = {collective_name(beta): CollectiveTeacher(knowledge, beta=beta) for beta in betas}
    scores = {name: one.scores(query_ids, rows) for name, one in {**teachers, **readers}.items()}
    scores = {PHI: np.stack([phi for _, phi in candidates.values()]), **scores}
    runs = {name: as_run(query_ids, rows, values, knowledge.ranking.passage_ids) for name, values in scores.items()}
    found = precision_recall(runs, labels, judged_only=judged_only, seed=seed)
    table = {name: {str(grade): _quality(one, name) for grade, one in found.items()} for name in scores}
    left_out = "passages without a judgement left out" if judged_only else "unlabelled ones not relevant"
    title = f"θ's top {DEPTH} of {len(query_ids)} test queries, {left_out}"
    return (QualitySet(title, table, _coverage(found)),)


def collective_name(beta: float) -> str:
    """What tables call the collective teacher."""
    return f"collective (β = {beta:g})"


def _judged_candidates(
    knowledge: Knowledge, dataset: Dataset, most: int
) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """Some test queries with a passage above grade 0 among the candidates: query id → rows and φ [100].

    Every grade is a cut-off of its own, the lowest too, so ``data.relevant_from`` chooses no queries here.
    """
    labels, ids = dataset.labels(TEST), knowledge.ranking.passage_ids
    positives = {query_id: [one for one, grade in held.items() if grade > 0] for query_id, held in labels.items()}
    found = {}
    for query_ids, rows, scores in knowledge.ranking.blocks():
        for query_id, line, values in zip(query_ids, rows, scores, strict=True):
            if np.isin(ids.first_of(line), ids.rows(positives.get(query_id, ()))).any():
                found[query_id] = (np.asarray(line, dtype=np.int64), np.asarray(values))
    drawn = sorted(found, key=lambda query_id: stable_fraction(query_id, "quality"))[:most]
    return {query_id: found[query_id] for query_id in sorted(drawn)}


def _hidden_findings(
    study: Study, systems: Sequence[System], readers: Mapping[str, Teacher]
) -> tuple[tuple[QualitySet, ...], dict[str, Figures]]:
    """Teachers on the hidden labels of all training queries, and with the cross-encoders on some of them."""
    dataset, seed, what = study.dataset, study.recipe.seed, "hidden labels among the candidates"
    asked = {system.beta: system for system in reversed(systems) if system.teacher_name in ("self", "collective")}
    found: dict[str, Labels] = {}
    for beta, system in sorted(asked.items(), key=lambda one: -1.0 if one[0] is None else one[0]):
        found[PHI if beta is None else collective_name(beta)] = study.labels(system)
    if not found:
        return (), {}
    try:
        sets = [_hidden_set(f"Training queries, {what}", found, dataset, seed)]
    except DataError:  # nothing is hidden, or no candidate is
        return (), {}
    first = next(iter(found.values()))
    if readers:
        chosen = drawn_queries(first, dataset, QUALITY_QUERIES)
        drawn = {name: [_block(labels, chosen)] for name, labels in found.items()}
        drawn |= {name: [_block(first, chosen, reader)] for name, reader in readers.items()}
        sets.append(_hidden_set(f"{len(chosen)} training queries with cross-encoders, {what}", drawn, dataset, seed))
    suggestions: dict[str, Figures] = {}
    orders = {PHI: _ByPhi(first.folder), **{name: labels for name, labels in found.items() if name != PHI}}
    for name, labels in orders.items():
        missing = find_missing(labels, dataset, limit=5 * len(labels))
        shares = suggestion_precision([(one.query_id, one.row) for one in missing], dataset, queries=len(labels))
        suggestions[name] = {f"{one.multiple:g}": one.precision for one in shares}
    return tuple(sets), suggestions


def _hidden_set(
    title: str, teachers: Mapping[str, Labels | list[LabelBlock]], dataset: Dataset, seed: int
) -> QualitySet:
    """φ and some teachers on the hidden positives among their candidates."""
    table: dict[str, dict[str, TeacherQuality]] = {PHI: {}}
    coverage: dict[str, Coverage] = {}
    for name, labels in teachers.items():
        found = label_quality(labels, dataset, seed=seed).grades
        coverage = coverage or _coverage(found)
        for grade, one in found.items():
            table[PHI].setdefault(str(grade), _quality(one, BASE))
            if name != PHI:
                table.setdefault(name, {})[str(grade)] = _quality(one, TEACHER)
    return QualitySet(title, table, coverage)


class _ByPhi(Labels):
    """The candidates of labels with φ for a teacher."""

    def blocks(self) -> Iterator[LabelBlock]:
        """All queries, block by block."""
        return (dataclasses.replace(block, teacher=block.base) for block in super().blocks())


def _coverage(found: Mapping[int, Quality]) -> dict[str, Coverage]:
    """What the candidates hold, for each grade."""
    return {str(grade): Coverage(one.relevant, one.found, one.left_out) for grade, one in found.items()}


def _quality(found: Quality, name: str) -> TeacherQuality:
    """One system of an evaluation, with its difference to the first, φ."""
    one = found.systems[name]
    levels = tuple(level.mean for level in one.precision_at_recall)
    return TeacherQuality(one.average_precision, one.auc, found.differences.get(name, {}).get("AP"), levels)


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

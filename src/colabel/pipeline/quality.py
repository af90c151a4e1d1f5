"""How good teachers are: φ, collective knowledge and cross-encoders on the same candidates of the same queries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colabel.collective import Knowledge, collect
from colabel.data import Dataset
from colabel.data.splits import TEST, stable_fraction
from colabel.errors import DataError
from colabel.evaluation import Quality, precision_recall, suggestion_precision
from colabel.evaluation.label_quality import (
    BASE,
    TEACHER,
    LabelQuality,
    SuggestionPrecision,
    drawn_queries,
    label_quality,
)
from colabel.labels import LabelBlock, Labels, find_suspects
from colabel.measures import Run
from colabel.pipeline.systems import System
from colabel.progress import SILENT, Progress
from colabel.reporting.records import Coverage, QualitySet, TeacherQuality
from colabel.settings import CollectiveSettings
from colabel.teachers import CollectiveTeacher, CrossEncoderTeacher, MeanTeacher, Teacher

if TYPE_CHECKING:
    from colabel.index import Index
    from colabel.pipeline.comparison import Study

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
        study.bench.dataset,
        study.first.index,
        study.out / "judged",
        settings=study.recipe.collective,
        betas=betas_of(systems),
        readers=readers,
        most=study.recipe.study.quality_queries,
        seed=study.first.seed,
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
    most: int,
    seed: int = 0,
    progress: Progress = SILENT,
) -> tuple[QualitySet, ...]:
    """Teachers on θ's top 100 of test queries, whose feedback is their own top f_p; nothing of it is ever labelled.

    Where passages were judged not relevant, those without a judgement are left out; elsewhere they count as not
    relevant. All queries are measured, or ``most`` drawn ones where cross-encoders take part.
    """
    knowledge = collect(
        dataset, index, out / "knowledge", settings=settings, split=TEST, depth=DEPTH, seed=seed, progress=progress
    )
    labels = dataset.labels(TEST)
    judged_only = any(grade <= 0 for held in labels.values() for grade in held.values())
    query_ids, rows, base = _judged_candidates(knowledge, dataset, most if readers else len(labels))
    if not query_ids:
        return ()
    teachers: dict[str, Teacher] = {collective_name(beta): CollectiveTeacher(knowledge, beta=beta) for beta in betas}
    scores = {PHI: base, **{name: one.score(query_ids, rows) for name, one in {**teachers, **readers}.items()}}
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
    dataset, seed, all_queries, drawn = study.bench.dataset, study.recipe.seed, _Table(), _Table()
    held: dict[str, Coverage] = {}
    held_of_drawn: dict[str, Coverage] = {}
    orders: dict[str, Labels] = {}
    chosen: list[str] | None = None
    read: dict[str, LabelBlock] = {}
    asked = {system.beta: system for system in reversed(systems) if system.target in ("self", "collective")}
    for _, system in sorted(asked.items(), key=lambda one: -1.0 if one[0] is None else one[0]):
        labels, name = study.first.labels(system), _teacher_name(system)
        try:
            found = label_quality(labels, dataset, seed=seed)
        except DataError:  # nothing is hidden, or no candidate is
            return (), {}
        _add(all_queries, name, found)
        held = held or _coverage(found.grades)
        if readers:
            chosen = chosen or drawn_queries(labels, dataset, study.recipe.study.quality_queries)
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
    suspects = find_suspects(labels, dataset, limit=5 * len(labels))
    return suggestion_precision([(one.query_id, one.row) for one in suspects], dataset, queries=len(labels))


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
    return TeacherQuality.of(found.systems[name], found.differences.get(name, {}).get("AP"))


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
        scores = teacher.score(query_ids, rows.astype(np.int64))
    return LabelBlock(list(query_ids), rows, scores, base, flags)

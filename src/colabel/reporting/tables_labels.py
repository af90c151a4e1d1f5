"""The tables about labels and teachers: precision among candidates, hidden labels found, sweep."""

from __future__ import annotations

import msgspec

from colabel.evaluation.significance import PairedTest
from colabel.findings.records import QualitySet, StudyDocument, TeacherQuality
from colabel.reporting.numbers import (
    NONE,
    Cell,
    Column,
    Table,
    TableLine,
    count,
    decimal,
    marked_best,
    mean_cell,
    p_value,
    percent,
    prose,
    table,
    value_cell,
)


def grades(found: QualitySet) -> list[str]:
    """All grades that some teacher was measured at, rising."""
    return sorted({grade for quality in found.teachers.values() for grade in quality}, key=int)


def teachers_at(found: QualitySet, grade: str) -> dict[str, TeacherQuality]:
    """Teacher → quality at one grade."""
    return {name: quality[grade] for name, quality in found.teachers.items() if grade in quality}


def covered(found: QualitySet, grade: str) -> str:
    """How many of the relevant passages are candidates, as the end of a caption; nothing where that is not known."""
    one = found.coverage.get(grade)
    if one is None:
        return ""
    share = percent(one.found / one.relevant if one.relevant else None)
    relevant = f"{count(one.found)} of the {count(one.relevant)} relevant passages of these queries ({share})"
    left_out = f"; queries without any, left out: {count(one.left_out)}" if one.left_out else ""
    return f"; {relevant} are candidates{left_out}"


def label_quality(found: QualitySet, key: str, grade: str) -> tuple[Table, ...]:
    """How each teacher ranks relevant passages among the candidates, at one grade."""
    paired = "paired by query, with bootstrap interval and p of a paired t-test"
    columns = [Column("Teacher", number=False), Column("queries"), Column("AP"), Column("AUC")]
    columns.append(Column("AP − φ", hint=f"{paired}, neither corrected for the number of tests"))
    lines = []
    for teacher, quality in teachers_at(found, grade).items():
        queries = quality.average_precision.queries
        means = mean_cell(quality.average_precision), mean_cell(quality.auc), _difference_cell(quality.difference)
        lines.append(TableLine((Cell(teacher), Cell(count(queries), queries), *means)))
    caption = f"{found.title}: relevant from grade {grade}{covered(found, grade)}"
    return table(f"quality-{key}", caption, columns, marked_best(lines, (2, 3)))


def _difference_cell(found: PairedTest | None) -> Cell:
    if found is None:
        return Cell(NONE)
    cell = mean_cell(found.difference, sign=True)
    return msgspec.structs.replace(cell, detail=f"{cell.detail} p\u00a0{p_value(found.t_test)}".strip())


def suggestions(document: StudyDocument) -> tuple[Table, ...]:
    """Share of suggested labels that are hidden positives."""
    multiples = list(dict.fromkeys(name for found in document.suggestions.values() for name in found))
    hint = "of so many times as many suggestions as there are training queries, best first, the hidden positives"
    columns = [Column("Suggested by", number=False)]
    columns += [Column(f"{multiple} × queries", hint=hint) for multiple in multiples]
    lines = []
    for order, found in document.suggestions.items():
        values = (found.get(name) for name in multiples)
        lines.append(TableLine((Cell(order), *(Cell(percent(value), value) for value in values))))
    caption = "Share of suggested labels that are hidden positives"
    return table("suggestions", caption, columns, marked_best(lines, range(1, len(columns))))


def sweep(document: StudyDocument) -> tuple[Table, ...]:
    """Every setting and its measures."""
    measures = list(dict.fromkeys(name for point in document.sweep for name in point.measures))
    columns = [Column("f_p", hint="feedback passages"), Column("f_c", hint="clusters"), Column("f_e", hint="centroids")]
    columns += [Column("β"), *map(Column, measures)]
    lines = []
    for point in document.sweep:
        settings = (point.feedback_passages, point.clusters, point.centroids)
        cells = [*(Cell(count(value), value) for value in settings), Cell(decimal(point.beta, 2), point.beta)]
        lines.append(TableLine((*cells, *(value_cell(point.measures.get(name)) for name in measures))))
    return table("sweep", prose("sweep", document), columns, marked_best(lines, range(4, len(columns))))

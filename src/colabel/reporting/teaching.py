"""The tables about labels and teachers: precision among candidates, hidden labels found, feedback, the sweep."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import bounds, count, decimal, figure, percent, signed
from colabel.reporting.parts import Cell, Column, Row, Table, marked_best, table
from colabel.reporting.records import Mean, TeacherQuality


def grades(document: StudyDocument) -> list[str]:
    """All grades that some teacher was measured at, rising."""
    found = {grade for quality in document.label_quality.values() for grade in quality}
    return sorted(found, key=lambda grade: (not grade.isdecimal(), int(grade) if grade.isdecimal() else 0, grade))


def teachers_at(document: StudyDocument, grade: str) -> dict[str, TeacherQuality]:
    """Teacher → quality at one grade."""
    return {name: found[grade] for name, found in document.label_quality.items() if grade in found}


def label_quality(document: StudyDocument, place: int, grade: str) -> tuple[Table, ...]:
    """How each teacher ranks relevant passages among the candidates, at one grade."""
    levels = (0, 2, 5, 8, 10)
    columns = [Column("Teacher", number=False), Column("queries"), Column("AP"), Column("AUC")]
    columns += [Column(f"P\u00a0at\u00a0R\u00a0{level / 10:g}", hint="precision at recall") for level in levels]
    rows = []
    for teacher, found in teachers_at(document, grade).items():
        precision = found.precision_at_recall
        at_levels = [precision[level] if len(precision) == 11 else None for level in levels]
        cells = (
            Cell(teacher),
            Cell(count(found.queries), found.queries),
            _mean_cell(found.average_precision),
            _mean_cell(found.auc),
            *(Cell(figure(value), value) for value in at_levels),
        )
        rows.append(Row(cells))
    caption = f"Relevant passages among the candidates, grade {grade} or higher"
    return table(f"quality-{place}", caption, columns, marked_best(rows, range(2, len(columns))))


def suggestions(document: StudyDocument) -> tuple[Table, ...]:
    """Share of suggested labels that are hidden positives."""
    multiples = list(dict.fromkeys(name for found in document.suggestions.values() for name in found))
    columns = [Column("Order", number=False), *(Column(f"{multiple} × queries") for multiple in multiples)]
    rows = [
        Row((Cell(order), *(Cell(percent(found.get(name)), found.get(name)) for name in multiples)))
        for order, found in document.suggestions.items()
    ]
    rows = marked_best(rows, range(1, len(columns)))
    return table("suggestions", "Suggested labels that are hidden positives", columns, rows)


def feedback_gain(document: StudyDocument) -> tuple[Table, ...]:
    """Gain of ColBERT-PRF on the queries of each split."""
    columns = [Column("Queries", number=False), Column("gain"), Column("queries")]
    rows = []
    for split, found in document.prf_gain.items():
        gain = Cell(signed(found.mean), found.mean, bounds(found.low, found.high, sign=True))
        rows.append(Row((Cell(split), gain, Cell(count(found.queries), found.queries))))
    return table("feedback", f"{document.measures[0]} of ColBERT-PRF less that of ColBERT", columns, rows)


def sweep(document: StudyDocument) -> tuple[Table, ...]:
    """Every setting and its measures."""
    measures = list(dict.fromkeys(name for point in document.sweep for name in point.measures))
    names = {"f_p": "feedback passages", "f_c": "clusters", "f_e": "centroids"}
    columns = [Column(name, hint=hint) for name, hint in names.items()]
    columns += [Column("β"), *(Column(measure) for measure in measures)]
    rows = []
    for point in document.sweep:
        settings = (point.feedback_passages, point.clusters, point.centroids)
        cells = [Cell(count(value), value) for value in settings]
        cells.append(Cell(decimal(point.beta, 2), point.beta))
        cells += [Cell(figure(point.measures.get(name)), point.measures.get(name)) for name in measures]
        rows.append(Row(tuple(cells)))
    return table("sweep", "Settings of the teacher", columns, marked_best(rows, range(4, len(columns))))


def _mean_cell(found: Mean | None) -> Cell:
    return Cell(figure(None)) if found is None else Cell(figure(found.mean), found.mean, bounds(found.low, found.high))

"""The tables about labels and teachers: precision among candidates, hidden labels found, feedback, the sweep."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE, bounds, count, decimal, figure, p_value, percent, signed
from colabel.reporting.parts import Cell, Column, Row, Table, marked_best, table
from colabel.reporting.records import Difference, Mean, QualitySet, TeacherQuality

_SYMBOLS = {"feedback_passages": "f_p", "clusters": "f_c", "centroids": "f_e", "beta": "β; rows name their own"}
_SCALES = {
    "normalised": "; β is the centroids' share of the query's own tokens (expansion_scale normalised; the paper: β·σ)",
    "paper": "; β multiplies σ (expansion_scale paper)",
}


def grades(found: QualitySet) -> list[str]:
    """All grades that some teacher was measured at, rising."""
    names = {grade for quality in found.teachers.values() for grade in quality}
    return sorted(names, key=lambda grade: (not grade.isdecimal(), int(grade) if grade.isdecimal() else 0, grade))


def teachers_at(found: QualitySet, grade: str) -> dict[str, TeacherQuality]:
    """Teacher → quality at one grade."""
    return {name: quality[grade] for name, quality in found.teachers.items() if grade in quality}


def label_quality(found: QualitySet, key: str, grade: str) -> tuple[Table, ...]:
    """How each teacher ranks relevant passages among the candidates, at one grade."""
    levels = (1, 5, 9)
    teachers = teachers_at(found, grade)
    tested = any(quality.difference for quality in teachers.values())
    columns = [Column("Teacher", number=False), Column("queries"), Column("AP"), Column("AUC")]
    columns += [Column(f"P\u00a0at\u00a0R\u00a0{level / 10:g}", hint="precision at recall") for level in levels]
    best = range(2, len(columns))
    columns += [Column("AP − φ", hint="paired by query, with bootstrap interval and paired t-test")] if tested else []
    rows = []
    for teacher, quality in teachers.items():
        precision = quality.precision_at_recall
        at_levels = [precision[level] if len(precision) == 11 else None for level in levels]
        cells = (
            Cell(teacher),
            Cell(count(quality.queries), quality.queries),
            _mean_cell(quality.average_precision),
            _mean_cell(quality.auc),
            *(Cell(figure(value), value) for value in at_levels),
            *([_difference_cell(quality.difference)] if tested else []),
        )
        rows.append(Row(cells))
    caption = f"{found.title}: relevant from grade {grade}"
    return table(f"quality-{key}", caption, columns, marked_best(rows, best))


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
    """Gain of ColBERT-PRF on the queries of each split, and how good ColBERT and the feedback are there."""
    measure = document.measures[0]
    columns = [
        Column("Queries", number=False),
        Column("queries"),
        Column("gain", hint="ColBERT-PRF re-ranking less ColBERT"),
        Column(f"ColBERT's {measure}"),
        Column("relevant feedback", hint="share of the feedback passages that are relevant"),
    ]
    rows = []
    for split, found in document.prf_gain.items():
        gain = found.gain
        cells = (
            Cell(split),
            Cell(count(gain.queries), gain.queries),
            Cell(signed(gain.mean), gain.mean, bounds(gain.low, gain.high, sign=True)),
            _mean_cell(found.plain),
            _mean_cell(found.precision),
        )
        rows.append(Row(cells))
    return table("feedback", f"{measure} of ColBERT-PRF less that of ColBERT", columns, rows)


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
    return table("sweep", sweep_caption(document), columns, marked_best(rows, range(4, len(columns))))


def sweep_caption(document: StudyDocument) -> str:
    """What was swept, on which queries, and what β multiplies."""
    dev = document.dataset.queries.get("dev") if document.dataset else None
    queries = "the dev queries" if dev is None else f"the {count(dev)} dev queries"
    scale = _SCALES.get(document.setting("expansion_scale") or "", "")
    return (
        f"ColBERT-PRF as ranker (it searches again with the expanded query) on {queries}, with feedback from each "
        f"query's top f_p, never from labels{scale}"
    )


def collective_settings(document: StudyDocument) -> tuple[Table, ...]:
    """How collective knowledge was made, beside the paper."""
    columns = [Column("Setting", number=False), Column("here", number=False), Column("in the paper", number=False)]
    rows = []
    for one in document.collective:
        paper = f"{one.paper}, differs" if one.differs else one.paper or NONE
        rows.append(Row((Cell(one.name, detail=_SYMBOLS.get(one.name, "")), Cell(one.value), Cell(paper))))
    return table("collective", "Settings of collective knowledge, defaults included", columns, rows)


def _difference_cell(found: Difference | None) -> Cell:
    if found is None:
        return Cell(NONE)
    interval = bounds(found.low, found.high, sign=True)
    detail = [interval, "" if found.p is None else f"p\u00a0{_equals(found.p)}"]
    return Cell(signed(found.mean), found.mean, " ".join(part for part in detail if part))


def _equals(p: float) -> str:
    written = p_value(p)
    return written if written.startswith("<") else f"=\u00a0{written}"


def _mean_cell(found: Mean | None) -> Cell:
    return Cell(figure(None)) if found is None else Cell(figure(found.mean), found.mean, bounds(found.low, found.high))

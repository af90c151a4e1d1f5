"""The tables about labels and teachers: precision among candidates, hidden labels found, feedback, the sweep."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE, bounds, count, decimal, equals, figure, percent, signed
from colabel.reporting.parts import Cell, Column, Row, Table, Text, marked_best, table
from colabel.reporting.records import Difference, Mean, QualitySet, TeacherQuality
from colabel.reporting.results import INTERVAL

_SHAPE = {"feedback_passages": "f_p", "clusters": "f_c", "centroids": "f_e"}
_SYMBOLS = {**_SHAPE, "beta": "β; rows name their own"}
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


def quality_intro(document: StudyDocument) -> tuple[Text, ...]:
    """What is compared, and how precision is averaged."""
    if not document.label_quality:
        return ()
    return (
        Text(
            "Which score puts relevant passages first? All teachers score the same candidates of the same queries. AP, "
            "AUC and precision at a recall are computed query by query and averaged; precision is interpolated, the "
            "highest at that recall or beyond. AP and recall are of the relevant passages among the candidates, so "
            "every curve ends at recall 1, however many more there are; queries without any are left out. Curves of "
            "one threshold pool the pairs of all queries: there a score must also compare across queries, which "
            "averages do not ask for. "
            f"Intervals: {INTERVAL}."
        ),
    )


def covered(found: QualitySet, grade: str) -> str:
    """How many of the relevant passages are candidates, as the end of a caption; nothing where that is not known."""
    one = found.coverage.get(grade)
    if one is None:
        return ""
    share = percent(one.found / one.relevant if one.relevant else None)
    text = (
        f"; {count(one.found)} of the {count(one.relevant)} relevant passages of these queries ({share}) are candidates"
    )
    if one.left_out:
        text += f", none in {count(one.left_out)} {'query' if one.left_out == 1 else 'queries'}, left out"
    return text


def label_quality(found: QualitySet, key: str, grade: str) -> tuple[Table, ...]:
    """How each teacher ranks relevant passages among the candidates, at one grade."""
    levels = (1, 5, 9)
    teachers = teachers_at(found, grade)
    tested = any(quality.difference for quality in teachers.values())
    columns = [Column("Teacher", number=False), Column("queries"), Column("AP"), Column("AUC")]
    columns += [
        Column(f"P\u00a0at\u00a0R\u00a0{level / 10:g}", hint="interpolated precision at this recall of the candidates")
        for level in levels
    ]
    best = range(2, len(columns))
    columns += (
        [
            Column(
                "AP − φ",
                hint="paired by query, with bootstrap interval and p of a paired t-test, neither corrected for the "
                "number of tests",
            )
        ]
        if tested
        else []
    )
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
    caption = f"{found.title}: relevant from grade {grade}{covered(found, grade)}"
    return table(f"quality-{key}", caption, columns, marked_best(rows, best))


def suggestions(document: StudyDocument) -> tuple[Table, ...]:
    """Share of suggested labels that are hidden positives."""
    multiples = list(dict.fromkeys(name for found in document.suggestions.values() for name in found))
    hint = "of so many times as many suggestions as there are training queries, best first, the hidden positives"
    recalls = document.suggestions_recall
    caption = "Share of suggested labels that are hidden positives"
    caption += "; beside it, the share of all hidden positives that they are" if recalls else ""
    columns = [Column("Suggested by", number=False)]
    columns += [Column(f"{multiple} × queries", hint=hint) for multiple in multiples]
    rows = []
    for order, found in document.suggestions.items():
        of_all = {name: percent(value) for name, value in recalls.get(order, {}).items()}
        cells = (
            Cell(percent(found.get(name)), found.get(name), f"{of_all[name]} of all" if name in of_all else "")
            for name in multiples
        )
        rows.append(Row((Cell(order), *cells)))
    return table("suggestions", caption, columns, marked_best(rows, range(1, len(columns))))


def feedback_intro(document: StudyDocument) -> Text:
    """How the gain of feedback is measured, and how it differs between the splits."""
    beta, passages = document.setting("beta"), document.setting("feedback_passages")
    depth = next((found.depth for found in document.prf_gain.values() if found.depth is not None), None)
    top = "top passages" if depth is None else f"top {count(depth)}"
    feedback = "f_p" if passages is None else passages
    named = "ColBERT-PRF" if beta is None else f"ColBERT-PRF (β = {beta})"
    parts = [
        f"Is feedback on training queries more reliable than on new ones? {named} ranks ColBERT's {top} again; the "
        f"feedback of either split is each query's own top {feedback}, never labels."
    ]
    hidden = document.dataset.labels_hidden if document.dataset else None
    if hidden:
        parts.append(f"Training queries are measured against all their labels, the {count(hidden)} hidden ones too.")
    found = document.gain_difference
    if found is not None:
        interval = f" {bounds(found.low, found.high, sign=True)}".rstrip()
        parts.append(
            f"The gain on train less that on test is {signed(found.mean)}{interval} (the bootstrap draws each split's "
            "queries by themselves)."
        )
    return Text(" ".join(parts))


def feedback_gain(document: StudyDocument) -> tuple[Table, ...]:
    """Gain of ColBERT-PRF on the queries of each split, and how good ColBERT and the feedback are there."""
    measure = document.measures[0]
    columns = [
        Column("Split", number=False),
        Column("queries"),
        Column("gain", hint="ColBERT-PRF re-ranking less ColBERT, paired by query"),
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
    return table("feedback", f"{measure} of ColBERT-PRF less that of ColBERT; {INTERVAL}", columns, rows)


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


def best_beta(document: StudyDocument) -> tuple[Text, ...]:
    """Which β above 0 is the best on dev with the study's own f_p, f_c and f_e, and whether β = 0 is better."""
    measure = document.measures[0]
    shape = {symbol: document.setting(name) for name, symbol in _SHAPE.items()}
    found = {
        row.beta: value
        for row in document.sweep
        if all(str(getattr(row, name)) == shape[symbol] for name, symbol in _SHAPE.items())
        and (value := row.measures.get(measure)) is not None
    }
    above = sorted(beta for beta in found if beta)
    if not above:
        return ()
    best = max(above, key=lambda beta: found[beta])
    fixed = ", ".join(f"{symbol} = {value}" for symbol, value in shape.items())
    text = f"Best β above 0 on dev, with {fixed}: {best:g}, {measure} {figure(found[best])}."
    if 0.0 in found:
        word = "better" if found[0.0] > found[best] else "as good" if found[0.0] == found[best] else "worse"
        text += f" β = 0, which is ColBERT itself, is {word}: {figure(found[0.0])}."
    return (Text(text),)


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
    detail = [interval, "" if found.p is None else f"p\u00a0{equals(found.p)}"]
    return Cell(signed(found.mean), found.mean, " ".join(part for part in detail if part))


def _mean_cell(found: Mean | None) -> Cell:
    return Cell(figure(None)) if found is None else Cell(figure(found.mean), found.mean, bounds(found.low, found.high))

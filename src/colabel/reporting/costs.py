"""The tables of what systems cost: response time, annotation, training."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE, count, decimal, duration, figure, times
from colabel.reporting.parts import Cell, Column, Row, Table, table
from colabel.reporting.records import Ratio, Trial
from colabel.reporting.results import system_cell, system_letters


def response_times(document: StudyDocument) -> tuple[Table, ...]:
    """Milliseconds per query: median, mean, p95."""
    letters = system_letters(document)
    rows = []
    for system in document.finished:
        found = system.milliseconds
        if found is not None:
            cells = (Cell(decimal(value), value) for value in (found.median, found.mean, found.p95))
            rows.append(Row((system_cell(system, letters, brief=True), *cells), system.group))
    columns = [
        Column("System", number=False),
        Column("median"),
        Column("mean"),
        Column("p95", hint="95 % of the queries are answered within"),
    ]
    return table("response", "Milliseconds per query", columns, rows)


def training_costs(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds of every part of the work, labelled pairs, encoder passes."""
    letters = system_letters(document)
    costly = [system for system in document.finished if system.seconds or system.pairs or system.encoder_passes]
    parts = document.work
    columns = [
        Column("System", number=False),
        *(Column(part) for part in parts),
        Column("labelled pairs", hint="query–passage pairs that the teacher scored"),
        Column("encoder passes", hint="texts, or pairs of texts, through a transformer to make the labels"),
    ]
    equal = any(system.equal_passes is not None for system in costly)
    if equal:
        columns.append(Column("passes, equal pairs", hint="for as many labelled pairs as the collective row has"))
    rows = []
    for system in costly:
        cells = [system_cell(system, letters, brief=True)]
        cells += [Cell(duration(system.seconds.get(part)), system.seconds.get(part)) for part in parts]
        counts = (system.pairs, system.encoder_passes, *([system.equal_passes] if equal else []))
        cells += [Cell(count(value), value) for value in counts]
        rows.append(Row(tuple(cells), system.group))
    return table("costs", "Time and work per system", columns, rows)


def time_ratios(document: StudyDocument) -> tuple[Table, ...]:
    """How many times longer one system takes than another: as run, and for equal pairs, as the paper reports it."""
    found = document.efficiency.ratios if document.efficiency else ()
    with_paper = any(ratio.paper for ratio in found)
    scaled = "its annotation multiplied by the factor between the pairs, as if it had labelled as many"
    columns = [Column("System", number=False), Column("against", number=False)]
    columns += [Column("labelled pairs", hint="of the two, and the factor between them")]
    columns += [Column("annotation, as run"), Column("annotation, equal pairs", hint=scaled), Column("training")]
    columns += [Column("overall, as run"), Column("overall, equal pairs", hint=scaled)]
    columns += [Column("in the paper", number=False)] if with_paper else []
    rows = []
    for ratio in found:
        cells = [Cell(document.title(ratio.slug)), Cell(document.title(ratio.against))]
        cells.append(_pairs_cell(document, ratio))
        annotation = (ratio.annotation_as_run, ratio.annotation)
        values = (*annotation, ratio.training, ratio.overall_as_run, ratio.overall)
        cells += [Cell(times(value), value) for value in values]
        cells += [Cell(ratio.paper or NONE)] if with_paper else []
        rows.append(Row(tuple(cells)))
    caption = "Times as long: as run, and with the annotation of the first scaled to equal numbers of labelled pairs"
    return table("ratios", caption, columns, rows)


def _pairs_cell(document: StudyDocument, ratio: Ratio) -> Cell:
    systems = (document.system(slug) for slug in (ratio.slug, ratio.against))
    pairs, others = (system.pairs if system else None for system in systems)
    detail = ["" if others is None else f"against {count(others)}", "" if ratio.factor is None else times(ratio.factor)]
    return Cell(count(pairs), pairs, ", ".join(part for part in detail if part))


def time_to_target(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds until a student first had a fixed value on dev."""
    found = document.efficiency
    if found is None:
        return ()
    columns = [Column("System", number=False), Column("trained from", number=False), Column("step")]
    pooled = "steps × the median seconds of a step over all students with as many passages in one"
    columns += [Column("annotation"), Column("training until then", hint=pooled if found.origin else "")]
    columns += [
        Column("from its start", hint="annotation and training until then"),
        Column("from the plain encoder", hint="with the training of θ and its ranking, where it starts from θ"),
    ]
    rows = []
    for reached in found.reached:
        until = duration(reached.training) if reached.step is not None else "not reached"
        cells = (
            Cell(document.title(reached.slug)),
            Cell(reached.start),
            Cell(count(reached.step), reached.step),
            Cell(duration(reached.annotation), reached.annotation),
            Cell(until, reached.training),
            *(Cell(duration(value), value) for value in (reached.from_start, reached.from_plain)),
        )
        rows.append(Row(cells))
    target = "a fixed value" if found.target is None else figure(found.target)
    origin = f" ({found.origin})" if found.origin else ""
    queries = "at most distil.evaluate_queries" if found.queries is None else count(found.queries)
    caption = f"Time to reach {found.measure} {target}{origin} on {queries} dev queries"
    return table("target", caption, columns, rows)


def trials(document: StudyDocument) -> tuple[Table, ...]:
    """What was tried on dev: the same trials for every student."""
    names = list(dict.fromkeys(trial.name for found in document.trials.values() for trial in found))
    columns = [Column("System", number=False), *(Column(name) for name in names)]
    rows = []
    for slug, found in document.trials.items():
        values = {trial.name: trial for trial in found}
        cells = [_tried(values.get(name)) for name in names]
        rows.append(Row((Cell(document.title(slug)), *cells)))
    measure = document.efficiency.measure if document.efficiency else document.measures[0]
    queries = next((one.queries for found in document.trials.values() for one in found if one.queries), None)
    where = "on dev" if queries is None else f"on {queries} dev queries"
    return table("trials", f"Settings tried with every student of θ: {measure} {where}, * chosen", columns, rows)


def _tried(trial: Trial | None) -> Cell:
    if trial is None or trial.value is None:
        return Cell(trial.note if trial else "")
    return Cell(figure(trial.value) + (" *" if trial.chosen else ""), trial.value)

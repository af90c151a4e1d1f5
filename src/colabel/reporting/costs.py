"""The tables of what systems cost: response time, annotation, training."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE, count, decimal, duration, figure, times
from colabel.reporting.parts import Cell, Column, Row, Table, table
from colabel.reporting.records import Trial
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
    rows = []
    for system in costly:
        cells = [system_cell(system, letters, brief=True)]
        cells += [Cell(duration(system.seconds.get(part)), system.seconds.get(part)) for part in parts]
        cells += [Cell(count(value), value) for value in (system.pairs, system.encoder_passes)]
        rows.append(Row(tuple(cells), system.group))
    return table("costs", "Time and work per system", columns, rows)


def time_ratios(document: StudyDocument) -> tuple[Table, ...]:
    """How many times longer one system takes than another, as the paper reports it."""
    found = document.efficiency.ratios if document.efficiency else ()
    with_paper = any(ratio.paper for ratio in found)
    columns = [Column("System", number=False), Column("against", number=False)]
    columns += [Column("annotation"), Column("training"), Column("overall")]
    columns += [Column("in the paper", number=False)] if with_paper else []
    rows = []
    for ratio in found:
        cells = [Cell(document.title(ratio.slug)), Cell(document.title(ratio.against))]
        cells += [Cell(times(value), value) for value in (ratio.annotation, ratio.training, ratio.overall)]
        cells += [Cell(ratio.paper or NONE)] if with_paper else []
        rows.append(Row(tuple(cells)))
    return table("ratios", "Times as long, for equal numbers of labelled pairs", columns, rows)


def time_to_target(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds until a student first had a fixed value on dev."""
    found = document.efficiency
    if found is None:
        return ()
    columns = [Column("System", number=False), Column("trained from", number=False), Column("step")]
    columns += [Column("annotation"), Column("training until then")]
    columns += [
        Column("from its start", hint="annotation and training until then"),
        Column("from the plain encoder", hint="with the training of θ and its ranking, where it starts from θ"),
    ]
    rows = []
    for reached in found.reached:
        until = duration(reached.training) if reached.training is not None else "not reached"
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
    return table("target", f"Time to reach {found.measure} {target} on dev", columns, rows)


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
    return table("trials", f"Settings tried with every student of θ: {measure} on dev, * chosen", columns, rows)


def _tried(trial: Trial | None) -> Cell:
    if trial is None or trial.value is None:
        return Cell(trial.note if trial else "")
    return Cell(figure(trial.value) + (" *" if trial.chosen else ""), trial.value)

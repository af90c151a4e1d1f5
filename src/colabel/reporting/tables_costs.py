"""The tables of what systems cost: response time, annotation, training."""

from __future__ import annotations

import itertools

from colabel.findings.records import CROSS_ENCODER_STAGE, Efficiency, Ratio, StudyDocument
from colabel.reporting.numbers import (
    Cell,
    Column,
    Table,
    TableLine,
    count,
    decimal,
    duration,
    figure,
    prose,
    table,
    times,
)
from colabel.reporting.tables_results import system_cell


def response_times(document: StudyDocument) -> tuple[Table, ...]:
    """Milliseconds per query: median, mean, p95."""
    lines = []
    for system in document.finished:
        found = system.milliseconds
        if found is not None:
            cells = (Cell(decimal(value), value) for value in (found.median, found.mean, found.p95))
            lines.append(TableLine((system_cell(document, system, brief=True), *cells), system.group))
    columns = [
        Column("System", number=False),
        Column("median"),
        Column("mean"),
        Column("p95", hint="95 % of the queries are answered within this"),
    ]
    return table("response", "Milliseconds per query", columns, lines)


_WITHOUT_READERS = "Training the cross-encoders is not in this table; the plot of time has it as a part of its own."


def training_costs(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds of every part of the work, labelled pairs, encoder passes."""
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
        columns.append(Column("passes, equal pairs", hint="for as many labelled pairs as the collective student has"))
    lines = []
    for system in costly:
        cells = [system_cell(document, system, brief=True)]
        cells += [Cell(duration(system.seconds.get(part)), system.seconds.get(part)) for part in parts]
        counts = (system.pairs, system.encoder_passes, *([system.equal_passes] if equal else []))
        cells += [Cell(count(value), value) for value in counts]
        lines.append(TableLine(tuple(cells), system.group))
    notes = [
        prose("wall_clock"),
        *([_WITHOUT_READERS] if any(stage.startswith(CROSS_ENCODER_STAGE) for stage in document.seconds) else []),
    ]
    return table("costs", "Time and work per system", columns, lines, notes)


_RATIOS = {
    "annotation_as_run": (
        "before training as run",
        "hard negatives (ranking with θ, where a system needs it) and annotation, on both sides, for the pairs that "
        "each has labelled",
    ),
    "training": ("training", ""),
    "overall_as_run": ("overall as run", "the same and training, on both sides"),
    "annotation": (
        "annotation for equal pairs",
        "counted as in the paper: the cross-encoders' reading alone, times the factor between the pairs, by hard "
        "negatives and annotation of the collective student, which needs the encoded collection",
    ),
    "overall": ("overall for equal pairs", "that and training, on both sides"),
}
_NOT_COUNTED = "Training the cross-encoders is in none of these figures, nor is training θ: see the stages below."


def time_ratios(document: StudyDocument) -> tuple[Table, ...]:
    """How many times longer one system takes than another: as run, and for equal pairs, as the paper reports it."""
    found = document.efficiency.ratios if document.efficiency else ()
    pairs = {_pairs(document, ratio) for ratio in found}
    with_paper = any(ratio.paper_annotation or ratio.paper_overall for ratio in found)
    columns = [Column("System", number=False)]
    columns += [Column("labelled pairs", number=False)] if len(pairs) > 1 else []
    columns += [Column(title, hint=hint) for title, hint in _RATIOS.values()]
    columns += [Column("paper: annotation"), Column("paper: overall")] if with_paper else []
    lines = []
    for ratio in found:
        cells = [Cell(document.title(ratio.slug))]
        cells += [Cell(_pairs(document, ratio))] if len(pairs) > 1 else []
        cells += [_ratio_cell(ratio, name) for name in _RATIOS]
        papers = (ratio.paper_annotation, ratio.paper_overall) if with_paper else ()
        lines.append(TableLine((*cells, *(Cell(times(value), value) for value in papers))))
    than = f" as {document.title(found[0].against)}" if found else ""  # one student for all
    labelled = f"; labelled pairs: {pairs.pop()}" if len(pairs) == 1 else ""
    return table("ratios", f"Times as long{than}{labelled}", columns, lines, [_NOT_COUNTED])


def _ratio_cell(ratio: Ratio, name: str) -> Cell:
    value, sides = getattr(ratio, name), ratio.seconds.get(name)
    detail = "" if sides is None else " / ".join(duration(seconds).replace(" ", "\u00a0") for seconds in sides)
    return Cell(times(value), value, detail)


def _pairs(document: StudyDocument, ratio: Ratio) -> str:
    """How many pairs the two have labelled, and the factor between them."""
    systems = (document.system(slug) for slug in (ratio.slug, ratio.against))
    pairs, others = (system.pairs if system else None for system in systems)
    factor = "" if ratio.factor is None else f" ({times(ratio.factor)})"
    return f"{count(pairs)} against {count(others)}{factor}"


def time_to_target(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds until a student first had a fixed value on dev."""
    found = document.efficiency
    if found is None:
        return ()
    columns = [Column("System", number=False), Column("trained from", number=False), Column("step")]
    pooled = "steps × the median seconds of a step over all students with as many passages in one"
    columns += [Column("annotation"), Column("training until then", hint=pooled if found.origin else "")]
    columns += [
        Column(
            "from its start", hint="annotation and training until then, without the ranking of the training queries"
        ),
        Column(
            "from the plain encoder",
            hint="with the training of θ and its ranking, where it starts from θ, and of the "
            "cross-encoders that were trained for it",
        ),
    ]
    lines = []
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
        lines.append(TableLine(cells))
    target = "a fixed value" if found.target is None else figure(found.target)
    origin = f" ({found.origin})" if found.origin else ""
    queries = "at most fit.evaluate_queries" if found.queries is None else count(found.queries)
    steps = _evaluated(document, found)
    caption = f"Time to reach {found.measure} {target}{origin} on {queries} dev queries"
    if len(steps) < 2:
        return table("target", caption, columns, lines)
    gaps = {after - before for before, after in itertools.pairwise(steps)}
    regular = f"every {count(max(gaps))} steps from {steps[0]} to {count(steps[-1])}"
    caption += f", evaluated {regular if len(gaps) == 1 else 'at steps ' + ', '.join(map(count, steps))}"
    unseen = f"Differences of less than one interval between evaluations, {count(max(gaps))} steps, cannot be seen."
    return table("target", caption, columns, lines, [unseen])


def _evaluated(document: StudyDocument, found: Efficiency) -> list[int]:
    """The steps at which the students of the table were evaluated on dev, rising."""
    curves = [document.training[one.slug] for one in found.reached if one.slug in document.training]
    return sorted({step for curve in curves for step, _, _ in curve.dev})

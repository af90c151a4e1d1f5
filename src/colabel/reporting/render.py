"""Render what was found: ``report.html``, ``report.md``, ``report.tex`` and ``metrics.json`` from ``study.json``."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from colabel.artefacts import write_json, write_text
from colabel.evaluation.comparison import Comparison
from colabel.findings.records import Efficiency, StudyDocument, as_json, read_study
from colabel.reporting import plots, tables_costs, tables_labels
from colabel.reporting.numbers import NONE, Code, Part, Section, Text, decimal, letters, prose, section, side_by_side
from colabel.reporting.svg import style
from colabel.reporting.tables_results import (
    INTERVAL,
    about,
    explained,
    finding,
    judged_only,
    main_table,
    results_section,
)
from colabel.reporting.tables_setup import glossary, notes, setup

HTML, MARKDOWN, LATEX, METRICS = "report.html", "report.md", "report.tex", "metrics.json"
REPORT_FILES = (HTML, MARKDOWN, LATEX, METRICS)
_MARKS = "●■◆▲▼✚✖"  # as the markers of the plots
_MOST_SCATTERS = 12
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")
_LATEX_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\u00a0": "~",
    "β": r"$\beta$",
    "θ": r"$\theta$",
    "φ": r"$\phi$",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "→": r"$\rightarrow$",
    "σ": r"$\sigma$",
    "×": r"$\times$",
    **{one: f"${one}$" for one in "<>|"},
    **{one: f"\\{one}" for one in "&%$#_{}"},
}
_LATEX_SPECIAL = re.compile("|".join(map(re.escape, _LATEX_WRITTEN)))


@dataclasses.dataclass(frozen=True)
class ReportFiles:
    """Where a report was written."""

    html: Path
    markdown: Path
    latex: Path
    metrics: Path


def report(folder: Path) -> ReportFiles:
    """Render the study in a folder again, without computing anything; the same study gives the same bytes.

    Raises:
        ArtefactError: the folder holds no ``study.json``, or one that cannot be read.
    """
    return write_report(read_study(folder), folder)


def write_report(document: StudyDocument, folder: Path) -> ReportFiles:
    """Write the report of a study into an existing folder; each file appears whole, after all are rendered."""
    with style():
        chapters = sections(document)
    shown = (document.name, finding(document), about(document), chapters)
    texts = {MARKDOWN: markdown(*shown), LATEX: latex(document), HTML: page(*shown)}
    write_json(folder / METRICS, metrics(document))
    for name, text in texts.items():
        write_text(folder / name, text)
    return ReportFiles(*(folder / name for name in REPORT_FILES))


def write_run_report(document: StudyDocument, folder: Path, *, student: Path, commands: Sequence[str] = ()) -> Path:
    """Write the short report of a run, as a page and as Markdown: its table with tests, and what to do next.

    Args:
        document: the systems of the run, as :func:`colabel.findings.results.evaluated` gives them; without any
            where there was nothing to evaluate on.
        student: the folder of the trained model.
        commands: what one may want to call next.

    Returns:
        The page.
    """
    after: list[Part] = [Text(f"The trained student is in {student}.")]
    after += [Text("What to do next:"), Code("\n".join(commands), "console")] if commands else []
    lead = f"The student is trained; {document.name} has no test labels, so it could not be compared with anything."
    results = results_section(document) if document.systems else ()
    chapters = (*results, *section("next", "The student", after))
    shown = (document.name, finding(document) if results else lead, about(document) if results else (), chapters)
    write_text(folder / MARKDOWN, markdown(*shown))
    write_text(folder / HTML, page(*shown, kind="colabel run"))
    return folder / HTML


def page(
    title: str, lead: str, facts: Sequence[tuple[str, str]], chapters: Sequence[Section], *, kind: str = "colabel study"
) -> str:
    """The report as one HTML file that needs nothing else.

    Nothing is loaded, and no script runs but ours, whatever the texts of a collection hold.
    """
    look, script = _resource("report.css"), _resource("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        _templates(html=True)
        .get_template("report.html.j2")
        .render(
            title=title,
            kind=kind,
            lead=lead,
            facts=facts,
            sections=chapters,
            marks=_MARKS,
            style=Markup(look),
            script=Markup(script),
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        )
    )


def markdown(title: str, lead: str, facts: Sequence[tuple[str, str]], chapters: Sequence[Section]) -> str:
    """The report as Markdown: the same sections without plots."""
    template = _templates().get_template("report.md.j2")
    text = template.render(title=title, lead=lead, facts=facts, sections=chapters)
    return re.sub("\n{3,}", "\n\n", text).rstrip() + "\n"


def latex(document: StudyDocument) -> str:
    """The main table for a paper; intervals, unjudged passages and systems that failed are left to the report."""
    tables, seeds = main_table(document), {}
    if document.unequal_seeds:
        names = document.letters
        seeds = {names[one.slug]: str(one.seeds) if one.seeded else NONE for one in document.finished}
    caption = ""
    for table in tables:
        kept = [place for place, column in enumerate(table.columns) if not column.title.startswith("unjudged")]
        columns = tuple(table.columns[place] for place in kept)
        lines = tuple(
            dataclasses.replace(line, cells=tuple(line.cells[place] for place in kept))
            for line in table.lines
            if line.failed is None
        )
        tables = (dataclasses.replace(table, columns=columns, lines=lines),)
        bold = "" if document.compared_seed is None else ", and need not be the highest of the figures shown"
        hints = "".join(f" {one.title}: {one.hint}." for one in columns if one.hint)
        caption = f"{document.name}. {table.caption}{bold}. {explained(document, intervals=False)}{hints}"
    label = re.sub("[^a-z0-9]+", "-", document.name.lower()).strip("-")
    template = _templates(tex=True).get_template("report.tex.j2")
    return template.render(name=document.name, tables=tables, seeds=seeds, caption=caption, label=label).rstrip() + "\n"


@functools.cache
def _templates(*, html: bool = False, tex: bool = False) -> Environment:
    """Jinja's environment, with other delimiters for LaTeX.

    HTML is escaped throughout, Markdown and LaTeX where a template says ``| md`` or ``| tex``.
    """
    found = Environment(
        *(("<%", "%>", "<<", ">>", "<#", "#>") if tex else ("{%", "%}", "{{", "}}", "{#", "#}")),
        loader=PackageLoader("colabel.reporting"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "decimal": decimal,
        "direction": tables_labels.direction,
        "fence": _fence,
        "letters": letters,
        "marked_parts": tables_labels.marked_parts,
        "md": markdown_escaped,
        "move": tables_labels.move,
        "tex": latex_escaped,
        "unbroken": lambda text: text.replace(" = ", "\u00a0=\u00a0"),  # β = 1 stays in one line
    }
    return found


def _resource(name: str) -> str:
    return resources.files("colabel.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def markdown_escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> markdown_escaped("a|b *c* <script>")
    'a\\|b \\*c\\* &lt;script&gt;'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", flat)


def latex_escaped(text: str) -> str:
    r"""Text that LaTeX shows as it is, on one line.

    >>> latex_escaped("50 % of f_p (β = 0.5)")
    '50 \\% of f\\_p ($\\beta$ = 0.5)'
    """
    flat = " ".join(text.replace("\u00a0", "\0").split()).replace("\0", "\u00a0")
    return _LATEX_SPECIAL.sub(lambda found: _LATEX_WRITTEN[found.group()], flat)


def _fence(text: str) -> str:
    """Back ticks around a block of code: more than the code has in a row."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def sections(document: StudyDocument) -> list[Section]:
    """All chapters that the study has something for, in order."""
    return [
        *glossary(document),
        *results_section(document),
        *notes(document),
        *section("effect", "Effect", _effect(document)),
        *section("queries", "Query by query", _queries(document)),
        *section("unjudged", "Passages without a judgement", _unjudged(document)),
        *section("time", "Response time", _times(document)),
        *section("training", "Training", _training(document)),
        *section("labels", "Label quality", _labels(document)),
        *section("sweep", "Sweep over f_p, f_c, f_e and β", _sweep(document)),
        *tables_labels.examples_section(document),
        *setup(document),
    ]


def _effect(document: StudyDocument) -> list[Part]:
    legend = [(name, number) for name, number in plots.group_looks(document).items() if name]
    numbered = list(enumerate(document.measures))
    drawn = [draw(document, *one) for one in numbered for draw in (plots.effect, plots.difference)]
    shown = side_by_side(drawn, legend=legend)
    return [*([Text(prose("effect", INTERVAL))] if document.comparisons else []), *shown] if shown else []


def _queries(document: StudyDocument) -> list[Part]:
    reference = document.system(document.reference)
    if reference is None:
        return []
    measure = document.measures[0]
    others = [one for one in document.finished if one.slug in document.per_query and one.slug != reference.slug]
    students = [system for system in others if system.group == "distilled"] or others
    drawn = [plots.scatter(document, place, one, measure) for place, one in enumerate(students[:_MOST_SCATTERS])]
    shown = side_by_side(drawn, small=True)
    intro = f"{measure} of each query: above the line the student is better than {reference.title}, below it worse."
    return [Text(intro), *shown] if shown else []


def _unjudged(document: StudyDocument) -> list[Part]:
    found = judged_only(document)
    return [Text(prose("unjudged", document.dataset, document.split)), *found] if found else []


def _times(document: StudyDocument) -> list[Part]:
    found, drawn = tables_costs.response_times(document), side_by_side([plots.response_bars(document)])
    return [Text(prose("response_times", document.timing)), *drawn, *found] if found else []


def _training(document: StudyDocument) -> list[Part]:
    drawn = [
        plots.cost_bars(document),
        plots.loss_curves(document),
        *(plots.dev_curves(document, over_seconds=one) for one in (False, True)),
    ]
    made = (tables_costs.training_costs, tables_costs.time_ratios, tables_costs.time_to_target)
    return [*side_by_side(drawn), *(table for make in made for table in make(document))]


def _labels(document: StudyDocument) -> list[Part]:
    parts: list[Part] = [Text(prose("label_quality", INTERVAL))] if document.label_quality else []
    for place, found in enumerate(document.label_quality):
        for number, grade in enumerate(tables_labels.grades(found)):
            key = f"{place}-{number}"
            if found.curves:
                drawn = [plots.precision_recall(document, found, key, grade, pooled=one) for one in (False, True)]
                parts += side_by_side(drawn)
            parts += tables_labels.label_quality(found, key, grade)
    parts += tables_labels.suggestions(document)
    gain = tables_labels.feedback_gain(document)
    return [*parts, tables_labels.feedback_intro(document), *gain] if gain else parts


def _sweep(document: StudyDocument) -> list[Part]:
    drawn = [plots.sweep_plot(document, setting) for setting in plots.SETTINGS]
    return [*side_by_side(drawn, small=True), *tables_labels.sweep(document), *tables_labels.best_beta(document)]


def metrics(document: StudyDocument) -> dict[str, Any]:
    """``metrics.json``: the figures of a study for other programs, in plain JSON types.

    Keys: ``systems`` (slug → measure → mean), ``titles``, ``significance`` (measure → test, alpha, how many tests
    were corrected for and how many are significant then, for each slug the slugs that it beats without and with
    Holm's correction, and every pair with the seeds compared), ``seconds`` (``systems``: slug → part of the work →
    seconds; ``stages``: stage → seconds; ``to_target``: the measure, the value and when each student had it),
    ``ratios`` (slug of a cross-encoder system → how many times as long as ``against`` it takes, and the seconds of
    both), ``intervals`` and ``spread`` (slug → measure → …), ``seeds``, ``milliseconds``, ``per_seed`` (of systems
    with several: slug → seed → measure → mean), ``unjudged_share`` (of the passages in the top 10 of all queries),
    ``unanswered`` (slug → queries) and ``queries_without_relevant``, which count 0 in binary measures,
    ``label_quality`` (which queries → teacher → grade → AP), ``label_coverage`` (which queries → grade → how many
    relevant passages are candidates), ``suggestions`` and ``suggestions_recall`` (order → times as many as queries →
    share), ``feedback`` (split → gain of ColBERT-PRF …), ``feedback_difference`` (that gain on train less that on
    test), ``collective`` (setting → value), and ``failed`` (slug → sentence; those systems are nowhere else).
    """
    finished = document.finished

    def of_each(name: str) -> dict[str, Any]:
        values = {system.slug: getattr(system, name) for system in finished}
        return {slug: value for slug, value in values.items() if value is not None and value != {}}

    found: dict[str, Any] = as_json(
        {
            "name": document.name,
            "split": document.split,
            "measures": document.measures,
            "systems": {system.slug: system.means for system in finished},
            "titles": of_each("title"),
            "seeds": of_each("seeds"),
            "per_seed": document.seed_means,
            **{name: of_each(name) for name in ("intervals", "spread", "judged_only", "unjudged_share", "unanswered")},
            "queries_without_relevant": document.without_relevant,
            "milliseconds": of_each("milliseconds"),
            "significance": {name: _significance(one) for name, one in document.comparisons.items()},
            "seconds": {
                "systems": of_each("seconds"),
                "stages": document.seconds,
                "to_target": _to_target(document.efficiency),
            },
            "ratios": {ratio.slug: ratio for ratio in document.efficiency.ratios} if document.efficiency else {},
            "label_quality": {
                one.title: {
                    teacher: {grade: quality.average_precision for grade, quality in grades.items()}
                    for teacher, grades in one.teachers.items()
                }
                for one in document.label_quality
            },
            "label_coverage": {one.title: one.coverage for one in document.label_quality if one.coverage},
            "suggestions": document.suggestions,
            "suggestions_recall": document.suggestions_recall,
            "feedback": document.prf_gain,
            "feedback_difference": document.gain_difference,
            "collective": {setting.name: setting.value for setting in document.collective},
            "failed": {system.slug: system.failed for system in document.systems if system.failed is not None},
        }
    )
    return found


def _to_target(found: Efficiency | None) -> dict[str, Any] | None:
    if found is None or found.target is None:
        return None
    students = {
        one.slug: {**msgspec.structs.asdict(one), "from_start": one.from_start, "from_plain": one.from_plain}
        for one in found.reached
    }
    about_target = {"measure": found.measure, "value": found.target, "origin": found.origin, "queries": found.queries}
    return {**about_target, "students": students}


def _significance(comparison: Comparison) -> dict[str, Any]:
    slugs = {line.letter: line.system for line in comparison.lines}
    return {
        "test": comparison.test,
        "alpha": comparison.alpha,
        "baseline": comparison.baseline,
        "tests": comparison.family or len(comparison.pairs),
        "significant": comparison.significant,
        "randomisation_samples": comparison.samples,
        "beats": {line.system: [slugs.get(one, one) for one in line.beats] for line in comparison.lines},
        "beats_holm": {line.system: [slugs.get(one, one) for one in line.beats_holm] for line in comparison.lines},
        "pairs": comparison.pairs,
    }

"""Render what was found: ``report.html``, ``report.md`` and ``metrics.json`` from ``study.json``."""

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

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from colabel.artefacts import write_json, write_text
from colabel.findings.records import StudyDocument, as_json, read_study
from colabel.findings.unjudged import Unjudged
from colabel.ranking.probability import Relevance
from colabel.reporting import plots, tables_results, tables_setup
from colabel.reporting.numbers import Code, Part, Plot, Plots, Section, Text, letters, prose
from colabel.reporting.tables_results import INTERVAL, about, finding, results_section

HTML, MARKDOWN, METRICS = "report.html", "report.md", "metrics.json"
REPORT_FILES = (HTML, MARKDOWN, METRICS)
Shown = tuple[str, str, list[tuple[str, str]], list[Section]]
"""Title, lead, facts and chapters of a report."""
_MARKS = "●■◆▲▼✚✖"  # as the markers of the plots
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")


@dataclasses.dataclass(frozen=True)
class ReportFiles:
    """Where a report was written."""

    html: Path
    markdown: Path
    metrics: Path


def report(folder: Path | str) -> ReportFiles:
    """Render the study in a folder again, without computing anything; the same study gives the same bytes.

    Raises:
        ArtefactError: the folder holds no ``study.json``, or one that cannot be read.
    """
    folder = Path(folder)
    return write_report(read_study(folder), folder)


def write_report(document: StudyDocument, folder: Path) -> ReportFiles:
    """Write the report of a study into an existing folder; each file appears whole, after all are rendered."""
    with plots.style():
        chapters = sections(document)
    shown: Shown = (document.name, finding(document), about(document), chapters)
    texts = {MARKDOWN: markdown(*shown), HTML: page(*shown)}
    write_json(folder / METRICS, metrics(document))
    for name, text in texts.items():
        write_text(folder / name, text)
    return ReportFiles(*(folder / name for name in REPORT_FILES))


def write_run_report(
    document: StudyDocument,
    folder: Path,
    *,
    student: Path,
    commands: Sequence[str] = (),
    verdict: str = "",
    relevance: Relevance | None = None,
    unjudged: Unjudged | None = None,
) -> Path:
    """Write the short report of a run, as a page and as Markdown: its table with tests, and what to do next.

    Args:
        document: the systems of the run, as :func:`colabel.findings.results.evaluated` gives them; without any
            where there was nothing to evaluate on.
        unjudged: what is known without judged test queries.
    """
    after: list[Part] = [Text(verdict)] if verdict else []
    after += [Text(f"The trained student is in {student}.")]
    after += [Text("What to do next:"), Code("\n".join(commands), "console")] if commands else []
    lead = f"The student is trained; {document.name} has no test labels, so it could not be compared with anything."
    chapters = [Section("next", "The student", tuple(after))]
    if relevance is not None:
        with plots.style():
            drawn = plots.reliability(relevance.held_out)
        shares = [f"{value:.2f}" for value in relevance.labelled]
        found = relevance.held_out
        said = prose("probabilities", relevance.basis, relevance.queries, shares, found.pairs, found.ece, found.brier)
        chapters.append(Section("probabilities", "Is a hit relevant?", (Text(said), Plots((drawn,), ()))))
    if unjudged is not None:
        known = tables_results.unjudged_parts(unjudged)
        chapters.append(Section("unjudged", "What is known without judged queries", known))
    shown: Shown = (document.name, lead, [], chapters)
    if document.systems:
        new = tables_results.new_queries(document)
        unseen = [Section("new", "New queries", (Text(prose("new_queries")), *new))] if new else []
        shown = (document.name, finding(document), about(document), [results_section(document), *unseen, *chapters])
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
    return _template("report.html.j2").render(
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


def markdown(title: str, lead: str, facts: Sequence[tuple[str, str]], chapters: Sequence[Section]) -> str:
    """The report as Markdown: the same sections without plots."""
    text = _template("report.md.j2").render(title=title, lead=lead, facts=facts, sections=chapters)
    return re.sub("\n{3,}", "\n\n", text).rstrip() + "\n"


@functools.cache
def _template(name: str) -> Template:
    """A template; HTML is escaped throughout, Markdown where a template says ``| md``."""
    found = Environment(
        loader=PackageLoader("colabel.reporting"),
        autoescape="html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "fence": _fence,
        "letters": letters,
        "md": markdown_escaped,
        "unbroken": lambda text: text.replace(" = ", "\u00a0=\u00a0"),  # β = 1 stays in one line
    }
    return found.get_template(name)


def _resource(name: str) -> str:
    return resources.files("colabel.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def markdown_escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> markdown_escaped("a|b *c* <script>")
    'a\\|b \\*c\\* &lt;script&gt;'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", flat)


def _fence(text: str) -> str:
    """Back ticks around a block of code: more than the code has in a row."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def sections(document: StudyDocument) -> list[Section]:
    """All chapters that the study has something for, in order."""
    new = tables_results.new_queries(document)
    chapters: dict[tuple[str, str], Sequence[Part]] = {
        ("notes", "Notes"): tables_setup.notes(document),
        ("effect", "Effect"): _effect(document),
        ("new", "New queries"): (Text(prose("new_queries")), *new) if new else (),
        ("training", "Training"): (*tables_setup.training_costs(document), *tables_setup.time_ratios(document)),
        ("labels", "Label quality"): _labels(document),
        ("sweep", "Sweep over f_p, f_c, f_e and β"): tables_results.sweep(document),
        ("setup", "How it was run"): tables_setup.setup(document),
    }
    glossary = tables_setup.glossary(document)
    return [
        *([Section("glossary", "Systems and symbols", tuple(glossary))] if glossary else []),
        tables_results.results_section(document),
        *(Section(*name, tuple(parts)) for name, parts in chapters.items() if parts),
    ]


def _effect(document: StudyDocument) -> list[Part]:
    legend = tuple((name, number) for name, number in plots.group_looks(document).items() if name)
    drawn = [plots.difference(document, place, measure) for place, measure in enumerate(document.measures)]
    return [Text(prose("effect", INTERVAL)), *_drawn(drawn, legend)] if any(drawn) else []


def _labels(document: StudyDocument) -> list[Part]:
    parts: list[Part] = [Text(prose("label_quality", INTERVAL))] if document.label_quality else []
    for place, found in enumerate(document.label_quality):
        numbered = [(f"{place}-{number}", grade) for number, grade in enumerate(tables_results.grades(found))]
        parts += _drawn([plots.precision_recall(document, found, *one) for one in numbered])
        parts += [table for one in numbered for table in tables_results.label_quality(found, *one)]
    return [*parts, *tables_results.suggestions(document)]


def _drawn(found: Sequence[Plot | None], legend: tuple[tuple[str, int], ...] = ()) -> tuple[Plots, ...]:
    """Plots side by side, or nothing where none could be drawn."""
    drawn = tuple(plot for plot in found if plot is not None)
    return (Plots(drawn, legend),) if drawn else ()


def metrics(document: StudyDocument) -> dict[str, Any]:
    """``metrics.json``: ``study.json`` for other programs, with systems by their slugs and nothing of single queries.

    ``per_seed`` has the means of systems of several seeds: slug → seed → measure → mean.
    """
    found: dict[str, Any] = as_json(document)
    for key in ("per_query", "recipe"):
        del found[key]
    systems = {system.pop("slug"): system for system in found["systems"]}
    return {**found, "systems": systems, "per_seed": as_json(document.seed_means)}

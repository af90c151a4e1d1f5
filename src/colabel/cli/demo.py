"""``colabel demo``."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import set_option
from colabel.cli.output import emit, table, terminal_progress

if TYPE_CHECKING:
    from colabel.pipeline.showcase import BeforeAfter, DemoResult
    from colabel.reporting import StudyDocument

_QUESTION = "smooth a noisy signal"


@click.command("demo")
@click.option(
    "--out", default=Path("demo"), show_default=True, type=click.Path(path_type=Path), help="Folder for the demo."
)
@click.option("--full", is_flag=True, help="Compare all systems of the paper; takes several times as long.")
@set_option
def demo_command(out: Path, full: bool, overrides: tuple[str, ...]) -> None:
    """Show the method on the documentation of the Python libraries that are installed. No download.

    Trains ColBERT and its collective student, compares them with BM25 and the untrained encoder, shows queries
    before and after, finds labels that were hidden, and writes a report. The same folder again continues. Examples:

      colabel demo --out demo

      colabel demo --set data.source=pydocs:500 --set train.steps=5 --set distil.steps=5 --out quick
    """
    from colabel import demo

    _narrate()
    with terminal_progress() as progress:
        result = demo(out, full=full, overrides=overrides, progress=progress)
    emit("\n".join(demo_lines(result)))


def _narrate() -> None:
    """Say the plan and the rows, on a terminal or in a log; not every artefact that is up to date."""
    given = click.get_current_context().find_root().params
    if not (given["verbose"] or given["quiet"]):
        logging.getLogger("colabel").setLevel(logging.WARNING)
        logging.getLogger("colabel.pipeline").setLevel(logging.INFO)


def demo_lines(result: DemoResult) -> Iterator[str]:
    """All that the demo prints."""
    document = result.document
    yield results_table(document)
    yield ""
    yield from _significance(document, result.student)
    yield ""
    measure = document.measures[0]
    yield f"Before and after: the two test queries that gain most and the one that loses most ({measure}); * relevant"
    for example in result.examples:
        yield from _example(example)
    yield ""
    yield from _missing(result)
    yield ""
    yield f"The report: {result.report}"
    yield f"The student: {result.folder / 'model'}, a sentence-transformers checkpoint"
    index = shlex.quote(str(result.folder / "index"))
    program = _program()
    yield f'Next: {program} search {index} "{_QUESTION}" -k 3'
    yield f"      and on your own data: {program} check FOLDER, then {program} run RECIPE --out runs/mine"


def _program() -> str:
    """The command as it can be typed again: by its path where the shell does not find it."""
    path = Path(sys.argv[0])
    return shlex.quote(str(path)) if path.name == "colabel" and shutil.which("colabel") is None else "colabel"


def results_table(document: StudyDocument) -> str:
    """Measures and the median response time of every system that has figures."""
    header = [f"{document.name} {document.split}", *document.measures, "ms/query"]
    rows = []
    for system in document.finished:
        taken = system.milliseconds
        values = [f"{system.means[measure]:.4f}" for measure in document.measures]
        rows.append([system.title, *values, "" if taken is None else f"{taken.median:.1f}"])
    return table(header, rows)


def _significance(document: StudyDocument, student: str) -> Iterator[str]:
    """A line for each measure: the student's difference to ColBERT, its interval and the paired t-test."""
    titles = f"{document.title(student)} against {document.title('colbert')}"
    yield f"{titles}, {len(document.per_query[student][document.measures[0]])} queries, paired t-test:"
    for measure in document.measures:
        pair = next(p for p in document.comparisons[measure].pairs if (p.system, p.against) == (student, "colbert"))
        found, p = pair.test.difference, pair.test.t_test
        verdict = "not defined" if p is None else f"p = {p:.3f}, {'' if p < 0.05 else 'not '}significant at 0.05"
        yield f"  {measure:<8} {found.mean:+.4f}  [{found.low:+.4f}, {found.high:+.4f}]  {verdict}"


def _example(example: BeforeAfter) -> Iterator[str]:
    before, after = example.values
    yield f"\n  {textwrap.shorten(example.query, 90, placeholder=' …')}   {before:.2f} → {after:.2f}"
    yield f"    expansion tokens  {' '.join(example.tokens)}"
    for name, answers in (("ColBERT", example.before), ("student", example.after)):
        yield f"    {name:<16}  " + ", ".join(f"{'*' if one.relevant else ''}{one.passage_id}" for one in answers)


def _missing(result: DemoResult) -> Iterator[str]:
    """How many hidden labels were found, and the first suggestions."""
    from colabel.labels.missing import reason_text

    first = result.suggested[0]
    yield f"Missing labels: {first.hidden:,} labels of training queries were hidden; no training read them."
    for share in result.suggested:
        precision = "none" if share.precision is None else f"{share.precision:.1%}"
        yield (
            f"  the best {share.suggestions:,} suggestions: {share.found:,} are hidden labels, precision {precision}, "
            f"recall {share.recall:.1%}"
        )
    for one, right in result.missing:
        query = textwrap.shorten(one.query, 60, placeholder=" …")
        yield f"  {'hidden' if right else '  —   '}  {query}  →  {one.passage_id}  ({reason_text(one.reasons, 3)})"

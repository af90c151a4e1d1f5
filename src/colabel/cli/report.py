"""``colabel report``."""

from __future__ import annotations

from pathlib import Path

import click

from colabel.cli.output import emit


@click.command("report")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--pages",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Also write a page without any text of the collection, and the index of all such pages, into this folder.",
)
@click.option("--name", help="Name of the page's files; default: that of DIR.")
def report_command(folder: Path, pages: Path | None, name: str | None) -> None:
    """Render a finished study again, without computing anything.

    DIR is the output folder of `colabel study` or `colabel transfer`. Its study.json becomes report.html (one file that
    needs no network), report.md, report.tex (the main table for a paper) and metrics.json. Examples:

      colabel report studies/semanlink

      colabel report studies/semanlink --pages docs/results

    A page keeps its figures, so that it can be rendered again when the study is gone:

      colabel report docs/results/cranfield --pages docs/results
    """
    from colabel import report
    from colabel.reporting import write_pages

    if name and pages is None:
        raise click.UsageError("--name is the name of a page; add --pages FOLDER")
    files = report(folder)
    written = [files.html, files.markdown, files.latex, files.metrics]
    written += write_pages(folder, pages, name) if pages is not None else []
    emit("\n".join(map(str, written)))

"""``colabel report``."""

from __future__ import annotations

from pathlib import Path

import click

from colabel.cli.output import emit


@click.command("report")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def report_command(folder: Path) -> None:
    """Render a finished study again, without computing anything.

    DIR is the output folder of `colabel study`. Its study.json becomes report.html (one file that needs no network),
    report.md and metrics.json. Example:

      colabel report studies/semanlink
    """
    from colabel import report

    files = report(folder)
    emit("\n".join(map(str, (files.html, files.markdown, files.metrics))))

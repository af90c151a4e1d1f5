"""Render a finished study: ``report.html``, ``report.md``, ``report.tex`` and ``metrics.json`` from ``study.json``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from colabel.artefacts import write_json, write_text
from colabel.reporting.canvas import style
from colabel.reporting.document import StudyDocument
from colabel.reporting.latex import latex
from colabel.reporting.markdown import markdown
from colabel.reporting.metrics import metrics
from colabel.reporting.page import page
from colabel.reporting.sections import about, sections
from colabel.reporting.study_file import read_study

HTML, MARKDOWN, LATEX, METRICS = "report.html", "report.md", "report.tex", "metrics.json"
REPORT_FILES = (HTML, MARKDOWN, LATEX, METRICS)


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
    facts = about(document)
    texts = {
        MARKDOWN: markdown(document.name, facts, chapters),
        LATEX: latex(document),
        HTML: page(document.name, facts, chapters),
    }
    files = ReportFiles(*(folder / name for name in REPORT_FILES))
    write_json(files.metrics, metrics(document))
    for name, text in texts.items():
        write_text(folder / name, text)
    return files

"""A finished study as a page, a Markdown file and a JSON file. Nothing is computed here."""

from colabel.reporting.document import StudyDocument
from colabel.reporting.pages import results_table, write_index, write_pages
from colabel.reporting.render import ReportFiles, report, write_report
from colabel.reporting.study_file import read_study, write_study

__all__ = [
    "ReportFiles",
    "StudyDocument",
    "read_study",
    "report",
    "results_table",
    "write_index",
    "write_pages",
    "write_report",
    "write_study",
]

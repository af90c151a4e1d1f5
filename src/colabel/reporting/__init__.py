"""What was found, as a page, a Markdown file and a JSON file. Nothing is computed here."""

from colabel.reporting.render import ReportFiles, report, write_report, write_run_report

__all__ = ["ReportFiles", "report", "write_report", "write_run_report"]

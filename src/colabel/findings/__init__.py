"""What a study found: its figures, computed once and written as ``study.json``; reports only show them."""

from colabel.findings.records import StudyDocument, SystemResult, read_study, write_study

__all__ = ["StudyDocument", "SystemResult", "read_study", "write_study"]

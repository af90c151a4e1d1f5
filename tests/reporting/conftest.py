"""The full study, rendered once for all tests that only look at it."""

from __future__ import annotations

import pytest

from colabel.findings import StudyDocument, write_study
from colabel.reporting import ReportFiles, report
from tests.findings.studies import study


@pytest.fixture(scope="session")
def full_study() -> StudyDocument:
    return study()


@pytest.fixture(scope="session")
def rendered(full_study: StudyDocument, tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    """The report of the full study, from its file."""
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, full_study)
    return report(folder)

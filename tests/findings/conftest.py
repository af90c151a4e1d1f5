"""The full study, for all tests that only look at it."""

from __future__ import annotations

import pytest

from colabel.findings import StudyDocument
from tests.findings.studies import study


@pytest.fixture(scope="session")
def full_study() -> StudyDocument:
    return study()

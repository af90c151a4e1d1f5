from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from colabel import Recipe
from colabel.findings import results, teacher_quality
from tests.pipeline.small import small_recipe


@pytest.fixture(scope="module")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return small_recipe(tmp_path_factory.mktemp("pipeline") / "small", tiny_model)


@pytest.fixture(scope="package", autouse=True)
def few_queries() -> Iterator[None]:
    """Reports measure two queries where they measure fifty: tiny collections have no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "TIMED_QUERIES", 2)
        patch.setattr(teacher_quality, "QUALITY_QUERIES", 2)
        yield

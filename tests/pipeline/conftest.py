from __future__ import annotations

from pathlib import Path

import pytest

from colabel import Recipe
from tests.pipeline.small import small_recipe


@pytest.fixture(scope="module")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return small_recipe(tmp_path_factory.mktemp("pipeline") / "small", tiny_model)

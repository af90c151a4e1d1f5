"""A tiny run, trained once, and copies of it without verdicts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from starlette.testclient import TestClient

from colabel import Run, open_run, run
from colabel.serve import create_app
from tests.pipeline.small import small_recipe

Client = Callable[..., TestClient]


@pytest.fixture(scope="package")
def made(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    recipe = small_recipe(folder / "caves", tiny_model)
    corpus = folder / "caves" / "corpus.jsonl"
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    about = ({"kind": ("cave", "fjord")[place % 2], "depth": 50 + place} for place in range(len(rows)))
    lines = (json.dumps({**row, "metadata": held}) for row, held in zip(rows, about, strict=True))
    corpus.write_text("\n".join(lines) + "\n")
    run(recipe, folder / "run", teacher="collective")
    return folder / "run"


@pytest.fixture
def opened(made: Path, tmp_path: Path) -> Run:
    """The run with no verdicts; files are shared."""
    shutil.copytree(made, tmp_path / "run", copy_function=_link)
    return open_run(tmp_path / "run")


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


@pytest.fixture
def client(opened: Run) -> Iterator[TestClient]:
    with TestClient(create_app(opened), base_url="http://localhost:8765") as found:
        yield found

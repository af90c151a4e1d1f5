"""The Python of docs/training.md runs as it stands."""

from __future__ import annotations

from pathlib import Path

from colabel.data.splits import DEV, TRAIN
from colabel.pipeline import Workbench
from colabel.train import open_model
from tests.docs.pages import blocks
from tests.pipeline.small import small_recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def test_the_example_trains_two_students(tiny_model: Path, tiny_cross_encoder: Path, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path / "data", tiny_model)
    code, *_ = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.kind == "python"]
    with Workbench(recipe, tmp_path / "bench") as bench:
        given = {
            "recipe": recipe,
            "dataset": bench.dataset,
            "prepared_encoder": bench.start,
            "bm25_of_train": bench.bm25_ranking(TRAIN, 20),
            "bm25_of_dev": bench.bm25_ranking(DEV, 100),
            "cross_encoder": str(tiny_cross_encoder),
            "out": tmp_path / "out",
        }
        exec(compile(code, str(PAGE), "exec"), given)
    targets = [open_model(tmp_path / "out" / name).manifest.inputs["target"] for name in ("student", "taught")]
    assert targets[0] != targets[1]

"""The Python of docs/training.md runs as it stands."""

from __future__ import annotations

from pathlib import Path

from colabel.artefacts import Builder
from colabel.data.splits import DEV
from colabel.pipeline.layout import Layout
from colabel.pipeline.stages import Stages
from colabel.train import open_model
from tests.docs.pages import blocks
from tests.pipeline.small import small_recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def test_the_example_trains_two_students(tiny_model: Path, tiny_cross_encoder: Path, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path / "data", tiny_model)
    code, *_ = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.kind == "python"]
    with Stages(recipe, Layout.of(tmp_path / "bench"), builder=Builder()) as do:
        data = do.dataset()
        bm25 = do.bm25(data)
        given = {
            "recipe": recipe,
            "dataset": data,
            "prepared_encoder": do.encoder(data),
            "bm25_of_train": do.bm25_ranking(data, bm25),
            "bm25_of_dev": do.bm25_ranking(data, bm25, DEV),
            "cross_encoder": str(tiny_cross_encoder),
            "out": tmp_path / "out",
        }
        exec(compile(code, str(PAGE), "exec"), given)
    targets = [open_model(tmp_path / "out" / name).manifest.inputs["target"] for name in ("student", "taught")]
    assert targets[0] != targets[1]

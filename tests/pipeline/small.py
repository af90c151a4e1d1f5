"""A recipe that trains everything in seconds, shared by the tests and the programs that they start."""

from __future__ import annotations

from pathlib import Path

from colabel import CollectiveSettings, DataSettings, EncoderSettings, Recipe
from colabel.settings import (
    CrossEncoderSettings,
    DistilSettings,
    FitSettings,
    LabelSettings,
    RankSettings,
    TrainSettings,
)
from tests.train.small import write_collection


def small_recipe(folder: Path, model: Path) -> Recipe:
    """Write a collection with train, dev and test queries into a new folder; ``model`` is a tiny BERT."""
    write_collection(folder)
    judged = (folder / "qrels" / "dev.tsv").read_text().splitlines()
    half = len(judged) // 2 + 1
    (folder / "qrels" / "dev.tsv").write_text("\n".join(judged[:half]) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join([judged[0], *judged[half:]]) + "\n")
    return Recipe(
        data=DataSettings(source=str(folder)),
        encoder=EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu"),
        rank=RankSettings(depth=20),
        collective=CollectiveSettings(clusters=6, centroids=3),
        labels=LabelSettings(candidates=10),
        train=TrainSettings(steps=2, batch_queries=2),
        distil=DistilSettings(steps=2, batch_queries=2, passages=3),
        fit=FitSettings(evaluate_every=1, evaluate_queries=2, keep="best"),  # else most students would be θ itself
        cross_encoder=CrossEncoderSettings(
            models=(str(model), f"{model}:1"), steps=2, batch_queries=2, negatives=2, max_length=48
        ),
    )

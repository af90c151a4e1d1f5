"""What all systems and all seeds of a run share: the data, the untrained encoder, BM25."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Self

from colabel.data import Dataset, load_dataset
from colabel.data.splits import DEV
from colabel.encode import prepare_encoder
from colabel.encode.weights import is_late_interaction, resolve_model
from colabel.index import Index
from colabel.pipeline.engines import Engine, choose_engine
from colabel.progress import SILENT, Progress
from colabel.ranking import Bm25, Ranking, rank
from colabel.settings import Recipe
from colabel.teachers import CrossEncoderTeacher
from colabel.train import DevPool, dev_pool, is_main_process


class Workbench:
    """Shared stages in a folder; each is made when it is first asked for and reused afterwards."""

    def __init__(self, recipe: Recipe, out: Path, progress: Progress = SILENT) -> None:
        self.recipe = recipe
        self.out = out
        self.progress = progress
        self.cache = out
        """Where the data and the untrained encoder are; a plan that must write nothing has them elsewhere."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the workers go, where there are any."""
        engine: Engine | None = self.__dict__.pop("engine", None)
        if engine is not None:
            engine.close()

    @cached_property
    def dataset(self) -> Dataset:
        """The collection with its visible labels."""
        return load_dataset(self.recipe.data, cache=self.cache / "data", progress=self.progress)

    @cached_property
    def engine(self) -> Engine:
        """Who does the heavy stages: this process, or the workers of a cluster."""
        return choose_engine(self.recipe.compute)

    @property
    def takes_teacher(self) -> bool:
        """Whether the recipe's model is a late-interaction checkpoint that serves as θ without training."""
        return takes_teacher(self.recipe)

    @cached_property
    def start(self) -> Path:
        """The encoder before training, with ColBERT's conventions."""
        prepare_encoder(self.recipe.encoder, self.dataset.passages, self.cache / "start")
        return self.cache / "start"

    @cached_property
    def zero_shot(self) -> Index:
        """The index of the encoder before training."""
        return self.build_index(self.out / "zero-shot", str(self.start))

    def build_index(self, out: Path, model: str) -> Index:
        """Index the collection with a model."""
        encoder = dataclasses.replace(self.recipe.encoder, model=model)
        return self.engine.build_index(
            self.dataset, out, data=self.recipe.data, encoder=encoder, index=self.recipe.index, progress=self.progress
        )

    def cross_encoder(self, model: str, cache: Path) -> CrossEncoderTeacher:
        """A cross-encoder that reads pairs of this collection, with the scores in ``cache`` that it gave before."""
        settings, device = self.recipe.cross_encoder, self.recipe.encoder.device
        make = self.engine.predictor if is_main_process() else None
        return CrossEncoderTeacher(
            model,
            self.dataset,
            max_length=settings.max_length,
            batch_tokens=settings.batch_tokens,
            device=device,
            cache=cache,
            predictor=None if make is None else make(model, settings.max_length, device),
            progress=self.progress,
        )

    @cached_property
    def bm25(self) -> Bm25:
        """BM25 over the collection."""
        return Bm25(self.dataset.passages, self.recipe.rank, self.out / "bm25", self.progress)

    def bm25_ranking(self, split: str, depth: int) -> Ranking:
        """BM25's ranking of a split's queries."""
        queries = self.dataset.split_queries(split)
        out = self.out / "rankings" / f"bm25-{split}"
        return rank(self.bm25, queries, out, depth=depth, progress=self.progress)

    @cached_property
    def bm25_dev_pool(self) -> DevPool | None:
        """BM25's top passages of dev queries, on which θ is evaluated while it is trained."""
        settings = self.recipe.train
        if DEV not in self.dataset.splits or not settings.evaluate_every:
            return None
        ranking = self.bm25_ranking(DEV, settings.evaluate_depth)
        return dev_pool(self.dataset, ranking, queries=settings.evaluate_queries, depth=settings.evaluate_depth)


def takes_teacher(recipe: Recipe) -> bool:
    """Whether a recipe's model is a late-interaction checkpoint that serves as θ without training."""
    if recipe.train.teacher != "auto":
        return recipe.train.teacher == "take"
    return is_late_interaction(resolve_model(recipe.encoder.model))

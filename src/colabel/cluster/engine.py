"""The stages that a cluster takes over: indexes in shards and cross-encoder scores. All else stays with the driver.

All nodes see the folders of the index, of the collection and of the cross-encoders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from colabel.artefacts import fingerprint
from colabel.cluster.pool import WorkerPool
from colabel.data import Dataset, PassageTable
from colabel.encode.colbert import choose_device
from colabel.encode.weights import weights_fingerprint
from colabel.index import Index
from colabel.index.index import read_settings
from colabel.index.shard_plan import ShardCache, ShardSource
from colabel.index.shards import ShardedIndex, Shards, build_sharded, plan_shards, read_source
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, EncoderSettings, IndexSettings
from colabel.teachers.pair_model import PairBatch, PairModel, PairPredictor, load_cross_encoder
from colabel.types import FloatArray

_TITLES = {"statistics": "encoding shards", "engine": "preparing shards", "search": "searching shards"}


class Cluster:
    """The workers of a cluster, for as many indexes and teachers as a run needs."""

    def __init__(self, settings: ComputeSettings, pool: WorkerPool | None = None) -> None:
        self.settings = settings
        self.pool = pool or WorkerPool(settings)

    def build_index(
        self, dataset: Dataset, out: Path, *, encoder: EncoderSettings, index: IndexSettings, **options: Any
    ) -> Index:
        """As :func:`colabel.build_index`, in shards that the workers make; finished ones are kept."""
        source = plan_shards(dataset, out, encoder, index.storage, self.settings)
        return build_sharded(dataset, out, ClusterShards(self.pool, source), engine=index.engine, **options)

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open an index, one in shards with the workers; with its ``passages`` a lost shard can be rebuilt."""
        settings = read_settings(folder)
        if settings["shards"] is None:
            return Index.open(folder)
        source = read_source(folder, settings)
        if passages is not None and passages.fingerprint == source.layout.collection:
            source = dataclasses.replace(source, texts=passages.without_ids())
        return ShardedIndex(folder, ClusterShards(self.pool, source), passages=passages)

    def predictor(self, model: str, max_length: int, device: str) -> PairPredictor:
        """Scores pairs with a cross-encoder."""
        return ClusterPredictor(self.pool, model, max_length, device)

    def close(self) -> None:
        """The workers end with the connection."""


class ClusterShards(Shards):
    """Asks all shards at once."""

    def __init__(self, pool: WorkerPool, source: ShardSource) -> None:
        super().__init__(source)
        self._pool = pool
        self._sent: tuple[ShardSource | None, Any] = (None, None)

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask the shards; answers come as they are ready."""
        chosen = list(range(len(self.source.layout)) if numbers is None else numbers)
        if not chosen:
            return
        if self._sent[0] is not self.source:  # with the places of all passages it may be large
            self._sent = self.source, self._pool.ray.put(self.source)
        items = ((self._name(number), number) for number in chosen)
        with closing(progress.start(_TITLES.get(question, f"shards: {question}"), len(chosen), "shards")) as task:
            for place, answer in self._pool.map(_ask, items, self._sent[1], question, self._pool.ray.put(arguments)):
                task.advance()
                yield chosen[place], answer

    def _name(self, number: int) -> str:
        first, last = self.source.layout.rows(number)
        return f"shard {number} of {len(self.source.layout)} (rows {first} to {last - 1})"


def _ask(cache: ShardCache, number: int, source: ShardSource, question: str, arguments: tuple[Any, ...]) -> Any:
    """A worker's part of :meth:`ClusterShards.map`."""
    return getattr(cache.shard(source, number), question)(*arguments)


class ClusterPredictor:
    """Scores batches of pairs on all workers; the batches are those that one process would make."""

    def __init__(self, pool: WorkerPool, model: str, max_length: int, device: str) -> None:
        self._pool = pool
        key = fingerprint([weights_fingerprint(model), max_length, device])
        self._model = (key, str(Path(model).resolve()) if Path(model).is_dir() else model, max_length, device)

    def predict(self, batches: Iterable[PairBatch]) -> Iterator[tuple[int, FloatArray]]:
        """The number of each batch and its scores, in any order."""
        items = ((f"annotating {batch.name}", batch.pairs) for batch in batches)
        for number, scores in self._pool.map(_score, items, self._model):
            yield number, np.array(scores)  # arrays from another process are read-only


def _score(cache: ShardCache, pairs: list[tuple[str, str]], model: tuple[str, str, int, str]) -> FloatArray:
    """A worker's part of :meth:`ClusterPredictor.predict`."""
    key, name, max_length, device = model
    return cache.keep(
        "cross-encoder", key, lambda: PairModel(load_cross_encoder(name, choose_device(device)), max_length)
    ).predict(pairs)

"""The stages that a cluster takes over: indexes in shards and cross-encoder scores. All else stays with the driver.

Nothing but Ray need connect the nodes besides the folder or URL of the shards: texts and cross-encoders come from the
driver's machine.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from colabel.artefacts import fingerprint, patient_lock
from colabel.cluster.pool import WorkerPool, WorkItem, load_ray
from colabel.data import Dataset, PassageTable
from colabel.encode.colbert import choose_device
from colabel.encode.weights import weights_fingerprint
from colabel.errors import DataError
from colabel.index import Index
from colabel.index.index import read_settings
from colabel.index.shard_plan import ShardCache, ShardSource
from colabel.index.shards import ShardedIndex, build_sharded, plan_shards, read_source
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, EncoderSettings, IndexSettings
from colabel.teachers.pair_model import PairBatch, PairModel, PairPredictor, load_cross_encoder
from colabel.types import FloatArray, Passage

J = TypeVar("J")
R = TypeVar("R")

_AT_ONCE = 4096  # passages of one answer: a few megabytes
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
        shards = ClusterShards(self.pool, self._served(source, dataset.passages))
        return build_sharded(dataset, out, shards, engine=index.engine, **options)

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open an index, one in shards with the workers; with its ``passages`` a lost shard can be rebuilt."""
        settings = read_settings(folder)
        if settings["shards"] is None:
            return Index.open(folder)
        source = read_source(folder, settings)
        if passages is not None and passages.fingerprint == source.layout.collection:
            source = self._served(source, passages)
        return ShardedIndex(folder, ClusterShards(self.pool, source), passages=passages)

    def predictor(self, model: str, max_length: int, device: str) -> PairPredictor:
        """Scores pairs with a cross-encoder."""
        return ClusterPredictor(self.pool, model, max_length, device)

    def close(self) -> None:
        """End the workers; what they wrote stays."""
        self.pool.close()

    def _served(self, source: ShardSource, passages: PassageTable) -> ShardSource:
        """The same source for processes that do not see the collection: an actor on this node reads its texts."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray = self.pool.ray
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
        server = ray.remote(TextServer).options(**options).remote(passages.without_ids())
        return dataclasses.replace(source, texts=ServedTexts(server))


class ClusterShards:
    """Asks all shards at once, each on the node that answered for it before where that has room.

    So a node that fetched a shard from a URL is asked about it again, and an idle node helps the others.
    """

    def __init__(self, pool: WorkerPool, source: ShardSource) -> None:
        self.source = source
        self._pool = pool
        self._nodes: dict[int, str] = {}

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask the shards; answers come as they are ready."""
        chosen = list(range(len(self.source.layout)) if numbers is None else numbers)
        if not chosen:
            return
        items = [WorkItem(_ask, number, self._name(number), self._nodes.get(number, "")) for number in chosen]
        shared = (self.source, question, self._pool.ray.put(arguments))
        task = progress.start(_TITLES.get(question, f"shards: {question}"), len(chosen), "shards")
        try:
            for place, node, answer in self._pool.map(items, shared):
                self._nodes[chosen[place]] = node
                task.advance()
                yield chosen[place], answer
        finally:
            task.close()

    def run(self, function: Callable[[J], R], jobs: Iterable[J]) -> Iterator[R]:
        """Results in the order of the jobs; about two jobs per worker exist at a time."""
        items = (WorkItem(_apply, job, f"{function.__module__}.{function.__qualname__}") for job in jobs)
        early: dict[int, R] = {}
        wanted = 0
        for number, _, result in self._pool.map(items, (function,), window=2 * len(self._pool)):
            early[number] = result
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1

    def _name(self, number: int) -> str:
        first, last = self.source.layout.rows(number)
        return f"shard {number} of {len(self.source.layout)} (rows {first} to {last - 1})"


def _ask(cache: ShardCache, number: int, source: ShardSource, question: str, arguments: tuple[Any, ...]) -> Any:
    """A worker's part of :meth:`ClusterShards.map`."""
    return getattr(cache.shard(source, number), question)(*arguments)


def _apply(cache: ShardCache, job: J, function: Callable[[J], R]) -> R:
    """A worker's part of :meth:`ClusterShards.run`."""
    return function(job)


class TextServer:
    """An actor on the driver's node that reads passages for workers."""

    def __init__(self, passages: PassageTable) -> None:
        self._passages = passages

    def texts(self, start: int, stop: int) -> list[Passage] | str:
        """Passages ``start`` to ``stop`` − 1, or what is wrong with them."""
        try:
            return list(self._passages.range(start, stop))
        except DataError as error:
            return str(error)


@dataclasses.dataclass(frozen=True)
class ServedTexts:
    """A collection as workers see it."""

    server: Any

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages ``start`` to ``stop`` − 1, some thousands at a time."""
        for first in range(start, stop, _AT_ONCE):
            answer: list[Passage] | str = load_ray().get(self.server.texts.remote(first, min(first + _AT_ONCE, stop)))
            if isinstance(answer, str):
                raise DataError(answer)
            yield from answer


@dataclasses.dataclass(frozen=True)
class ServedCrossEncoder:
    """A cross-encoder as workers get it: a hub id, or an object that holds the files of a folder."""

    name: str
    key: str
    files: Any
    max_length: int
    device: str

    def load(self, cache: ShardCache) -> PairModel:
        """The model; its files are written once for all processes of a machine."""
        place = self.name
        if self.files is not None:
            folder = cache.folder / "models" / self.key
            with patient_lock(folder.with_name(f".{folder.name}.lock")):
                if not folder.exists():
                    arriving = folder.with_name(f".{folder.name}.arriving-{os.getpid()}")
                    for name, content in load_ray().get(self.files).items():
                        (arriving / name).parent.mkdir(parents=True, exist_ok=True)
                        (arriving / name).write_bytes(content)
                    arriving.rename(folder)
            place = str(folder)
        return PairModel(load_cross_encoder(place, choose_device(self.device)), self.max_length)


class ClusterPredictor:
    """Scores batches of pairs on all workers; the batches are those that one process would make."""

    def __init__(self, pool: WorkerPool, model: str, max_length: int, device: str) -> None:
        self._pool = pool
        files = None
        if (folder := Path(model)).is_dir():
            paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            files = pool.ray.put({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})
        key = fingerprint([weights_fingerprint(model), max_length, device])
        self._model = ServedCrossEncoder(model, key, files, max_length, device)

    def predict(self, batches: Iterable[PairBatch]) -> Iterator[tuple[int, FloatArray]]:
        """The number of each batch and its scores, in any order."""
        items = (WorkItem(_score, batch.pairs, f"annotating {batch.name}") for batch in batches)
        for number, _, scores in self._pool.map(items, (self._model,), window=4 * len(self._pool)):
            yield number, np.array(scores)


def _score(cache: ShardCache, pairs: list[tuple[str, str]], model: ServedCrossEncoder) -> FloatArray:
    """A worker's part of :meth:`ClusterPredictor.predict`."""
    return cache.keep("cross-encoder", model.key, lambda: model.load(cache)).predict(pairs)

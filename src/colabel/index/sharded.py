"""An index in shards: every question goes to the shards, and their answers become one.

    encoder/       as in any index
    statistics/    of the whole collection: ids, order of ties, document frequencies, lengths
    centres/       coarse centres of the collection's tokens, once nearest tokens were needed
    shard-00000/   ordinary indexes of consecutive passages, where they are not kept elsewhere
    index.json     the settings with which it was built, and where the shards are

Who asks the shards is behind :class:`Shards`: this process, one shard after another, or the workers of a cluster.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Plan, Workspace, build, folder_lock, write_json
from colabel.data import Dataset, PassageTable
from colabel.data.strings import StringTable
from colabel.encode import Encoder, prepare_encoder
from colabel.errors import ArtefactError, UsageError
from colabel.index.desk import Desk, publish_encoder, scratch_folder
from colabel.index.exact import TokenShard
from colabel.index.index import SETTINGS_FILE, Index, choose_engine
from colabel.index.lookup import LOOKUP_FROM, LOOKUP_UP_TO, centre_sample, train_centres
from colabel.index.merging import merge_nearest, merge_rankings
from colabel.index.shards import FolderModel, ShardPlan, ShardSource
from colabel.index.store import TokenStore
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, DataSettings, EncoderSettings, IndexSettings

log = logging.getLogger(__name__)

J = TypeVar("J")
R = TypeVar("R")

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


class Shards(Protocol):
    """Asks the shards of an index, wherever they are."""

    source: ShardSource

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask every shard (or some) a question, a method of :class:`~colabel.index.shard.Shard`.

        Yields the number of a shard and its answer, in any order.
        """

    def run(self, function: Callable[[J], R], jobs: Iterable[J]) -> Iterator[R]:
        """Results of a function in the order of the jobs, of which only some exist at a time."""

    def with_source(self, source: ShardSource) -> Shards:
        """The same, of other shards."""


class LocalShards:
    """Asks one shard after another in this process."""

    def __init__(self, source: ShardSource, scratch: Path) -> None:
        self.source = source
        self._desk = Desk(scratch)

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask the shards in their order."""
        chosen = range(len(self.source.plan)) if numbers is None else numbers
        task = progress.start(f"shards: {question}", len(chosen), "shards")
        try:
            for number in chosen:
                yield number, getattr(self._desk.shard(self.source, number), question)(*arguments)
                task.advance()
        finally:
            task.close()

    def run(self, function: Callable[[J], R], jobs: Iterable[J]) -> Iterator[R]:
        """One job after another."""
        return map(function, jobs)

    def with_source(self, source: ShardSource) -> LocalShards:
        """The same scratch folder, other shards."""
        return LocalShards(source, self._desk.scratch)


class ShardedStore(TokenStore):
    """The statistics of the whole collection; vectors come from the shards."""

    stage = "statistics"

    def __init__(self, folder: Path, shards: Shards) -> None:
        self._asked = shards
        super().__init__(folder)

    def _open_shards(self, count: int) -> tuple[TokenShard, ...]:
        return ()

    @property
    def fingerprint(self) -> str:
        """That of a store in one piece: rankings and labels of either are the same artefacts."""
        return self._asked.source.plan.whole

    @cached_property
    def _lengths(self) -> IntArray:
        lengths: IntArray = np.load(self.folder / "lengths.npy", mmap_mode="r", allow_pickle=False)
        return lengths

    def score(self, queries: torch.Tensor, rows: IntArray) -> FloatArray:
        """MaxSim of each query with its own rows [queries, count]; −∞ where one is −1."""
        _check_rows(rows, self.passages)
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        for _, found in self._ask("score", queries.numpy(), rows, owners=rows):
            np.maximum(scores, found, out=scores)
        return scores

    def vectors(self, rows: Sequence[int] | IntArray) -> tuple[FloatArray, IntArray]:
        """Vectors of any passages: float32 [tokens, dimension] in the order of ``rows``, and offsets."""
        wanted = np.asarray(rows, dtype=np.int64)
        return self._gather("vectors", wanted, (self.dimension,), np.dtype(np.float32))

    def passage_tokens(self, rows: Sequence[int] | IntArray) -> tuple[npt.NDArray[np.int32], IntArray]:
        """Token ids of any passages: int32 [tokens] in the order of ``rows``, and offsets."""
        wanted = np.asarray(rows, dtype=np.int64)
        return self._gather("tokens", wanted, (), np.dtype(np.int32))

    def _gather(
        self, question: str, rows: IntArray, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[npt.NDArray[Any], IntArray]:
        _check_rows(rows, self.passages)
        offsets = np.cumsum([0, *self.lengths(rows).tolist()]).astype(np.int64)
        found = np.empty((int(offsets[-1]), *shape), dtype=dtype)
        for _, (places, values) in self._ask(question, rows, owners=rows):
            first = 0
            for place in places.tolist():
                start, end = int(offsets[place]), int(offsets[place + 1])
                found[start:end] = values[first : first + end - start]
                first += end - start
        return found, offsets

    def _ask(self, question: str, *arguments: Any, owners: IntArray) -> Iterator[tuple[int, Any]]:
        """Ask the shards that hold any of the rows ``owners``."""
        return self._asked.map(question, *arguments, numbers=self._asked.source.plan.owners(owners).tolist())


class ShardedIndex(Index):
    """An opened index in shards; ranks as an index in one piece does."""

    store: ShardedStore

    def __init__(
        self, folder: Path, shards: Shards, *, passages: PassageTable | None = None, encoder: Encoder | None = None
    ) -> None:
        self.shards = shards
        super().__init__(folder, passages=passages, encoder=encoder)

    def _open_store(self) -> ShardedStore:
        return ShardedStore(self.folder / "statistics", self.shards)

    @property
    def fingerprint(self) -> str:
        """Names all that a ranking by this index depends on; exact rankings do not depend on the shards."""
        if self.engine == "exact":
            return self.store.fingerprint
        return f"{self.store.fingerprint}-ivf-{self.shards.source.plan.shard_passages}"

    def search(
        self,
        queries: torch.Tensor,
        k: int,
        *,
        allowed: npt.NDArray[np.bool_] | None = None,
        progress: Progress = SILENT,
    ) -> tuple[IntArray, FloatArray]:
        """The k best passages of each query by MaxSim; see :meth:`Index.search`."""
        self._check_width(queries)
        found = self.shards.map("search", queries.numpy(), k, allowed, progress=progress)
        return merge_rankings((answer for _, answer in found), len(queries), k, self.store.tie_ranks)

    def nearest_tokens(self, vectors: torch.Tensor, k: int = 10) -> tuple[npt.NDArray[np.int32], FloatArray]:
        """The k nearest stored tokens of the whole collection; see :meth:`Index.nearest_tokens`."""
        self._check_vectors(vectors)
        centres = self.centres if LOOKUP_FROM <= self.store.tokens <= LOOKUP_UP_TO else None
        found = self.shards.map("nearest", vectors.numpy(), k, centres, self.engine == "exact")
        return merge_nearest(((number, *answer) for number, answer in found), len(vectors), k)

    @cached_property
    def centres(self) -> FloatArray:
        """Coarse centres of the whole collection's tokens, the same that an index in one piece would learn."""
        folder = self.folder / "centres"
        build(folder, Plan("centres", {}, {"tokens": self.store.fingerprint}), self._write_centres)
        centres: FloatArray = np.load(folder / "centres.npy", allow_pickle=False)
        return centres

    def _write_centres(self, space: Workspace) -> Mapping[str, Any]:
        counts = np.zeros(len(self.shards.source.plan), dtype=np.int64)
        for number, count in self.shards.map("content"):
            counts[number] = count
        lists, chosen = centre_sample(self.store.tokens, int(counts.sum()))
        ends = np.cumsum(counts)
        sample = np.empty((len(chosen), self.store.dimension), dtype=np.float32)
        for number in range(len(counts)):  # a shard's share of the sample is its own question
            first, last = np.searchsorted(chosen, [ends[number] - counts[number], ends[number]])
            ordinals = chosen[first:last] - (ends[number] - counts[number])
            for _, vectors in self.shards.map("content_vectors", ordinals, numbers=[number] if len(ordinals) else []):
                sample[first:last] = vectors
        _save(space, "centres", train_centres(sample, lists))
        return {"lists": lists}


def plan_shards(
    dataset: Dataset, out: Path, encoder: EncoderSettings, index: IndexSettings, compute: ComputeSettings
) -> ShardSource:
    """Prepare the encoder in ``out`` and say which shards there will be, where, and what they are made from."""
    prepared = prepare_encoder(encoder, dataset.passages, out / "encoder")
    plan = ShardPlan.of(
        len(dataset.passages), dataset.passages.fingerprint, prepared.fingerprint, index, compute.shard_passages
    )
    return ShardSource(
        plan,
        compute.storage.rstrip("/") or str(out.resolve()),
        encoder=encoder,
        texts=dataset.passages,
        model=FolderModel(out / "encoder"),
        scratch=compute.scratch,
    )


def build_sharded(
    dataset: Dataset,
    out: Path,
    shards: Shards,
    *,
    data: DataSettings | None = None,
    index: IndexSettings | None = None,
    progress: Progress = SILENT,
) -> ShardedIndex:
    """Make the shards that are not there yet and the statistics of the whole collection; a stopped build continues.

    ``shards`` are those of :func:`plan_shards` for the same folder.
    """
    index = index or IndexSettings()
    with folder_lock(out):
        publish_encoder(shards.source, out / "encoder")
        (out / SETTINGS_FILE).unlink(missing_ok=True)  # until all parts fit together again, it is no index
        manifest = build(
            out / "statistics",
            _statistics_plan(shards.source.plan),
            lambda space: _write_statistics(space, dataset, shards, progress),
        )
        if not manifest.counts["tokens"]:
            raise UsageError(f"every passage of {dataset.name} is empty; there is nothing to index")
        engine = choose_engine(index.engine, int(manifest.counts["tokens"]))
        shards = shards.with_source(dataclasses.replace(shards.source, engine=engine))
        for _ in shards.map("prepare", progress=progress):
            pass
        source = shards.source
        where = None if data is None else data.with_absolute_paths().as_dict()
        table = {"engine": engine, "data": where, "batch_tokens": shards.source.encoder.batch_tokens}
        home = "" if source.shared else source.home
        where_shards = {"home": home, "plan": dataclasses.asdict(source.plan), "scratch": source.scratch}
        write_json(out / SETTINGS_FILE, {**table, "device": source.encoder.device, "shards": where_shards})
    return ShardedIndex(out, shards, passages=dataset.passages)


def open_sharded(folder: Path, settings: Mapping[str, Any]) -> ShardedIndex:
    """Open a finished index in shards for this process alone; ``settings`` are those of ``index.json``."""
    try:
        source = read_source(folder, settings)
    except (KeyError, TypeError) as error:
        raise ArtefactError(f"{folder} was not written by this version ({error}); build the index again") from None
    return ShardedIndex(folder, LocalShards(source, scratch_folder(source.scratch)))


def read_source(folder: Path, settings: Mapping[str, Any]) -> ShardSource:
    """Where the shards of a finished index are, from what ``index.json`` says."""
    table = settings["shards"]
    return ShardSource(
        ShardPlan(**table["plan"]),
        table["home"] or str(folder.resolve()),
        settings["engine"],
        EncoderSettings(batch_tokens=settings["batch_tokens"], device=settings["device"]),
        scratch=table.get("scratch", ""),
    )


def _statistics_plan(plan: ShardPlan) -> Plan:
    kept = {"storage": plan.storage, "block": plan.block_passages, "shard_passages": plan.shard_passages}
    return Plan(ShardedStore.stage, kept, {"encoder": plan.encoder, "passages": plan.collection})


def _write_statistics(space: Workspace, dataset: Dataset, shards: Shards, progress: Progress) -> Mapping[str, Any]:
    plan = shards.source.plan
    lengths = np.zeros(plan.passages, dtype=np.int32)
    frequency: IntArray | None = None
    counts: dict[str, Any] = {"passages": plan.passages, "tokens": 0, "truncated": 0, "shards": len(plan)}
    working = 0.0
    for number, found in shards.map("statistics", progress=progress):
        first, last = plan.rows(number)
        lengths[first:last] = found["lengths"]
        frequency = found["document_frequency"] + (0 if frequency is None else frequency)
        counts |= {"dimension": found["dimension"], "special_token_ids": found["special_token_ids"]}
        counts["tokens"] += found["tokens"]
        counts["truncated"] += found["truncated"]
        working += found["seconds"]
    ids = StringTable.of(dataset.passages.ids)
    ids.save(space, "ids")
    _save(space, "tie_ranks", ids.tie_ranks())
    _save(space, "lengths", lengths)
    _save(space, "df", frequency)
    return {**counts, "working_seconds": round(working, 3)}


def _save(space: Workspace, name: str, values: Any) -> None:
    with space.file(f"{name}.npy") as path, path.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _check_rows(rows: IntArray, passages: int) -> None:
    if rows.size and not -1 <= rows.min() <= rows.max() < passages:
        raise UsageError(f"rows go from {rows.min()} to {rows.max()}; the collection has {passages}")

"""An index in shards: every question goes to the shards, and their answers become one.

    encoder/, codec/   as in any index
    statistics/    of the whole collection: ids, order of ties, document frequencies, lengths
    centres/       coarse centres of the collection's tokens, once nearest tokens were needed
    shard-00000/   ordinary indexes of consecutive passages
    index.json     the settings with which it was built

Who asks the shards is a :class:`Shards`: this process, one shard after another, or the workers of a cluster.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Spec, Workspace, assemble, build
from colabel.artefacts.build import current_builder
from colabel.data import Dataset, PassageTable, resolve_paths
from colabel.data.string_table import StringTable
from colabel.encode import open_encoder, prepare_encoder
from colabel.errors import UsageError
from colabel.index import store as token_store
from colabel.index.codec import train_centres
from colabel.index.exact import NOTHING, decode_keys, encode_keys, rows_of_ranks
from colabel.index.index import SETTINGS_FILE, Index, choose_engine
from colabel.index.nearest_tokens import LOOKUP_FROM, LOOKUP_UP_TO, centre_sample
from colabel.index.shard_plan import Shard, ShardCache, ShardLayout, ShardSource
from colabel.index.store import TokenStore, prepare_codec, warn_of_cuts
from colabel.maxsim import TokenShard
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, DataSettings, EncoderSettings
from colabel.types import FloatArray, Int32Array, IntArray, Mask

log = logging.getLogger(__name__)


class Shards:
    """Asks the shards of an index, one after another in this process."""

    def __init__(self, source: ShardSource) -> None:
        self.source = source
        self._cache = ShardCache()

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask every shard (or some) a question, a method of :class:`~colabel.index.shard_plan.Shard`.

        Yields the number of a shard and its answer, elsewhere in any order.
        """
        chosen = range(len(self.source.layout)) if numbers is None else numbers
        with closing(progress.start(f"shards: {question}", len(chosen), "shards")) as task:
            for number in chosen:
                yield number, getattr(self._shard(number), question)(*arguments)
                task.advance()

    def _shard(self, number: int) -> Shard:
        return self._cache.shard(self.source, number)


def merge_rankings(
    parts: Iterable[tuple[IntArray, FloatArray]], queries: int, k: int, tie_ranks: Int32Array
) -> tuple[IntArray, FloatArray]:
    """The k best passages of each query over all shards, as one index over all of them would rank.

    ``parts`` are rows int64 [queries, any] of the whole collection and scores float32 of each shard, −1 and −∞ where
    there are fewer, in any order; of equal scores the smaller of ``tie_ranks`` int32 [passages] comes first.

    >>> first = np.array([[0]]), np.array([[1.0]], np.float32)
    >>> second = np.array([[2, 1]]), np.array([[2.0, 1.0]], np.float32)
    >>> merge_rankings([first, second], queries=1, k=2, tie_ranks=np.array([1, 0, 2], np.int32))[0].tolist()
    [[2, 1]]
    """
    best = torch.full((queries, k), NOTHING)
    for rows, scores in parts:
        ranks = torch.from_numpy(tie_ranks[np.maximum(rows, 0)].astype(np.int64))
        keys = encode_keys(torch.from_numpy(scores.astype(np.float32)), ranks)
        keys = keys.masked_fill(torch.from_numpy(rows < 0), NOTHING)
        best = torch.cat([best, keys], dim=1).topk(k).values
    scores_found, ranks_found = decode_keys(best)
    return rows_of_ranks(ranks_found, tie_ranks).numpy(), scores_found.numpy()


def merge_nearest(
    parts: Iterable[tuple[int, Int32Array, FloatArray]], vectors: int, k: int
) -> tuple[Int32Array, FloatArray]:
    """The k nearest tokens of each vector over all shards: token ids int32 [vectors, k] and similarities.

    ``parts`` are the number of a shard, its token ids [vectors, any] and similarities, nearest first; in any order.
    Equal similarities are ordered by shard.

    >>> far, near = np.array([[0.1]], np.float32), np.array([[0.9]], np.float32)
    >>> merge_nearest([(0, np.array([[7]], np.int32), far), (1, np.array([[5]], np.int32), near)], 1, 1)[0].tolist()
    [[5]]
    """
    ids = np.full((vectors, k), -1, dtype=np.int32)
    near = np.full((vectors, k), -np.inf, dtype=np.float32)
    shards = np.full((vectors, k), -1, dtype=np.int32)
    for number, found, similarities in parts:
        ids = np.concatenate([ids, found], axis=1)
        near = np.concatenate([near, similarities], axis=1)
        shards = np.concatenate([shards, np.full(found.shape, number, dtype=np.int32)], axis=1)
        order = np.lexsort((shards, -near), axis=1)[:, :k]  # stable: within a shard the order stays
        ids, near = np.take_along_axis(ids, order, axis=1), np.take_along_axis(near, order, axis=1)
        shards = np.take_along_axis(shards, order, axis=1)
    return ids, near


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
        return self._asked.source.layout.whole

    @cached_property
    def _lengths(self) -> IntArray:
        lengths: IntArray = np.load(self.folder / "lengths.npy", mmap_mode="r", allow_pickle=False)
        return lengths

    def score(self, queries: torch.Tensor, rows: IntArray) -> FloatArray:
        """MaxSim of each query with its own rows [queries, count]; −∞ where one is −1."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        for _, found in self._ask("score", rows, queries.numpy()):
            np.maximum(scores, found, out=scores)
        return scores

    def vectors(self, rows: Sequence[int] | IntArray) -> tuple[FloatArray, IntArray]:
        """Vectors of any passages: float32 [tokens, dimension] in the order of ``rows``, and offsets."""
        return self._gather("vectors", rows, np.empty((0, self.dimension), np.float32))

    def passage_tokens(self, rows: Sequence[int] | IntArray) -> tuple[Int32Array, IntArray]:
        """Token ids of any passages: int32 [tokens] in the order of ``rows``, and offsets."""
        return self._gather("tokens", rows, np.empty(0, np.int32))

    def _gather(
        self, question: str, rows: Sequence[int] | IntArray, nothing: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], IntArray]:
        wanted = np.asarray(rows, dtype=np.int64)
        parts = [nothing] * len(wanted)
        for _, (places, values) in self._ask(question, wanted):
            lengths = self.lengths(wanted[places])
            for place, part in zip(places, np.split(values, np.cumsum(lengths)[:-1]), strict=True):
                parts[place] = part
        offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64)
        return np.concatenate([nothing, *parts]).astype(nothing.dtype), offsets

    def _ask(self, question: str, rows: IntArray, *arguments: Any) -> Iterator[tuple[int, Any]]:
        """Ask the shards that hold any of the rows."""
        if rows.size and not -1 <= rows.min() <= rows.max() < self.passages:
            raise UsageError(f"rows go from {rows.min()} to {rows.max()}; the collection has {self.passages}")
        return self._asked.map(question, rows, *arguments, numbers=self._asked.source.layout.owners(rows).tolist())


class ShardedIndex(Index):
    """An opened index in shards; ranks as an index in one piece does."""

    store: ShardedStore

    def __init__(self, folder: Path, shards: Shards, *, passages: PassageTable | None = None) -> None:
        self.shards = shards
        super().__init__(folder, passages=passages)

    def _open_store(self) -> ShardedStore:
        return ShardedStore(self.folder / "statistics", self.shards)

    @property
    def fingerprint(self) -> str:
        """Names all that a ranking by this index depends on; exact rankings do not depend on the shards."""
        if self.engine == "exact":
            return self.store.fingerprint
        return f"{self.store.fingerprint}-ivf-{self.shards.source.layout.shard_passages}"

    def _search(
        self, queries: torch.Tensor, k: int, allowed: Mask | None, progress: Progress
    ) -> tuple[IntArray, FloatArray]:
        """The k best rows of each query."""
        found = self.shards.map("search", queries.numpy(), k, allowed, progress=progress)
        return merge_rankings((answer for _, answer in found), len(queries), k, self.store.tie_ranks)

    def nearest_tokens(self, vectors: torch.Tensor, k: int = 10) -> tuple[Int32Array, FloatArray]:
        """The k nearest stored tokens of the whole collection; see :meth:`Index.nearest_tokens`."""
        self._check_vectors(vectors)
        found = self.shards.map("nearest", vectors.numpy(), k, *self._nearest_by())
        return merge_nearest(((number, *answer) for number, answer in found), len(vectors), k)

    def _nearest_by(self) -> tuple[FloatArray | None, bool]:
        """The centres around which shards look tokens up, if any, and whether they read all tokens otherwise."""
        centres = self.centres if LOOKUP_FROM <= self.store.tokens <= LOOKUP_UP_TO else None
        return centres, self.engine == "exact"

    @cached_property
    def centres(self) -> FloatArray:
        """Coarse centres of the whole collection's tokens, the same that an index in one piece would learn."""
        folder = self.folder / "centres"
        build(folder, Spec("centres", {}, {"tokens": self.store.fingerprint}), self._write_centres)
        centres: FloatArray = np.load(folder / "centres.npy", allow_pickle=False)
        return centres

    def _write_centres(self, space: Workspace) -> Mapping[str, Any]:
        counts = np.zeros(len(self.shards.source.layout), dtype=np.int64)
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
        space.save("centres.npy", train_centres(sample, lists))
        return {"lists": lists}


def plan_shards(
    dataset: Dataset,
    out: Path,
    encoder: EncoderSettings,
    storage: str,
    compute: ComputeSettings,
) -> ShardSource:
    """Prepare encoder and codec in ``out`` and say which shards there will be, and what they are made from."""
    prepared = prepare_encoder(encoder, dataset.passages, out / "encoder")
    passages, block = dataset.passages, token_store.BLOCK_PASSAGES
    size = -(-compute.shard_passages // block) * block  # whole blocks, which are encoded together
    layout = ShardLayout(len(passages), size, passages.fingerprint, prepared.fingerprint, storage, block)
    model = functools.partial(open_encoder, out / "encoder", encoder.device)
    prepare_codec(storage, model, layout.encoder, passages, out / "codec")
    return ShardSource(layout, out.resolve(), device=encoder.device, texts=dataset.passages.without_ids())


def build_sharded(
    dataset: Dataset,
    out: Path,
    shards: Shards,
    *,
    data: DataSettings | None = None,
    engine: str = "auto",
    progress: Progress = SILENT,
) -> ShardedIndex:
    """Make the shards that are missing and the statistics of the whole collection; a stopped build continues.

    ``shards`` are those of :func:`plan_shards` for the same folder.
    """
    layout, dry = shards.source.layout, current_builder().dry
    kept = {"storage": layout.storage, "block": layout.block_passages, "shard_passages": layout.shard_passages}
    spec = Spec(ShardedStore.stage, kept, {"encoder": layout.encoder, "passages": layout.collection})

    def make() -> Mapping[str, Any]:
        statistics = build(
            out / "statistics", spec, lambda space: write_statistics(space, dataset.passages.ids, shards, progress)
        )
        warn_of_cuts(statistics.counts, dataset.passages.ids)
        chosen = choose_engine(engine, int(statistics.counts["tokens"]), dataset.name)
        shards.source = dataclasses.replace(shards.source, engine=chosen)
        if not dry:
            for number, found in shards.map("engine", progress=progress):
                log.debug("shard %d searches by %s", number, found)
        return {
            "engine": chosen,
            "data": None if data is None else resolve_paths(data).as_dict(),
            "device": shards.source.device,
            "shards": {"plan": dataclasses.asdict(layout)},
        }

    assemble(out, SETTINGS_FILE, make)
    return ShardedIndex(out, shards, passages=dataset.passages).keep_metadata()


def read_source(folder: Path, settings: Mapping[str, Any]) -> ShardSource:
    """The shards of a finished index, from what ``index.json`` says."""
    layout = ShardLayout(**settings["shards"]["plan"])
    return ShardSource(layout, folder.resolve(), settings["engine"], settings["device"])


def write_statistics(
    space: Workspace, passage_ids: Iterable[str], shards: Shards, progress: Progress = SILENT
) -> Mapping[str, Any]:
    """Ids, lengths and document frequencies of the whole collection, added up from its shards."""
    layout = shards.source.layout
    lengths = np.zeros(layout.passages, dtype=np.int32)
    frequency: Any = 0
    counts: dict[str, Any] = {"passages": layout.passages, "tokens": 0, "truncated": 0, "lost": 0}
    counts["shards"] = len(layout)
    working = 0.0
    for number, found in shards.map("statistics", progress=progress):
        first, last = layout.rows(number)
        lengths[first:last] = found["lengths"]
        frequency = frequency + found["document_frequency"]
        counts |= {name: found[name] for name in ("dimension", "special_token_ids", "limit")}
        for name in ("tokens", "truncated", "lost"):
            counts[name] += found[name]
        working += found["seconds"]
    ids = StringTable.of(passage_ids)
    ids.save(space, "ids")
    space.save("tie_ranks.npy", ids.tie_ranks())
    space.save("lengths.npy", lengths)
    space.save("df.npy", np.atleast_1d(frequency))
    return {**counts, "working_seconds": round(working, 3)}

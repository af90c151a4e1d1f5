"""Approximate search for large collections: faiss proposes candidates, exact MaxSim decides.

Every stored token goes into an inverted file (IVF) with product quantisation, a byte for four dimensions. A search
looks up the nearest tokens of each query token, adds up what they say about their passages (a passage that a query
token did not reach counts with that token's lowest similarity), and scores the best candidates exactly.

    coarse.faiss       the trained, empty index
    part-00000.faiss   the tokens of consecutive shards; parts bound the memory of the build
    rows.npy           int32 [tokens]: the passage of every token
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Spec, Workspace, build, fingerprint, read_manifest
from colabel.data.pieces import pack
from colabel.errors import ArtefactError
from colabel.index.codec import SEED, TRAIN_PER_LIST
from colabel.index.exact import rescore
from colabel.index.store import TokenStore
from colabel.progress import SILENT, Progress
from colabel.types import FloatArray, Int32Array, IntArray, Mask

STAGE = "ivf"
_PART_TOKENS = 2**24  # 16 M tokens: 0.7 GB while a part is built; a larger shard stands alone
_ADD_BLOCK = 2**16
TRAIN_ITERATIONS = 8
_QUANTISED_FROM = 20_000
_LOOKED_UP = 2048  # vectors whose nearest tokens are compared at a time: 144 stored vectors each, 150 MB
TOKEN_DEPTH, CANDIDATES = 1536, 1024
NEAREST_PROBES = 32
"""Lists searched for the nearest tokens of a centroid."""


def ivf_lists(tokens: int) -> int:
    """Number of inverted lists: a power of two near the square root of the number of tokens.

    >>> ivf_lists(500_000), ivf_lists(9_000_000), ivf_lists(600_000_000)
    (512, 4096, 32768)
    """
    exact = math.log2(max(1.0, math.sqrt(tokens)))
    lists: int = 2 ** min(16, max(0, round(exact)))
    while lists > 1 and lists * TRAIN_PER_LIST > tokens:
        lists //= 2
    return lists


def build_ivf(store: TokenStore, out: Path, progress: Progress = SILENT) -> None:
    """Build the approximate index of a store; an interrupted build continues with the next part."""
    settings = {"kind": factory_name(store), "part_tokens": _PART_TOKENS, "iterations": TRAIN_ITERATIONS}
    plan = Spec(STAGE, settings, {"tokens": store.manifest.fingerprint}, seed=SEED)
    build(out, plan, lambda space: _write(space, store, progress))


def factory_name(store: TokenStore) -> str:
    """What faiss calls the kind of index that a store gets, such as ``IVF4096,PQ32``: a byte for four dimensions.

    A store with too few tokens to train a quantiser keeps whole vectors.
    """
    if store.tokens < _QUANTISED_FROM:
        return f"IVF{ivf_lists(store.tokens)},Flat"
    codes = next(count for count in range(max(1, store.dimension // 4), 0, -1) if store.dimension % count == 0)
    return f"IVF{ivf_lists(store.tokens)},PQ{codes}"


class IvfIndex:
    """An opened approximate index.

    ``probes`` lists are searched for each query token, ``token_depth`` nearest tokens taken from them, and
    ``candidates`` passages (at least twice as many as are asked for) scored exactly.
    """

    def __init__(self, folder: Path, store: TokenStore) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, STAGE)
        if self.manifest.inputs.get("tokens") != store.manifest.fingerprint:
            raise ArtefactError(f"{folder} belongs to another token store than {store.folder}; build the index again")
        self.lists, parts = self.manifest.counts["lists"], self.manifest.counts["parts"]
        self.probes = max(16, self.lists // 256)  # enough for 0.99 of the exact top 10 on real collections
        self.token_depth, self.candidates = TOKEN_DEPTH, CANDIDATES
        self.rows: Int32Array = np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False)
        self.fingerprint = fingerprint([self.manifest.fingerprint, self.probes, TOKEN_DEPTH, CANDIDATES])
        self._store = store
        self._lock = threading.Lock()
        try:
            files = [folder / f"part-{number:05d}.faiss" for number in range(parts)]
            self._parts = [_open_part(file) for file in files]
        except RuntimeError as error:
            raise ArtefactError(f"{folder} cannot be read by faiss ({error}); build the index again") from None

    def search(self, queries: torch.Tensor, k: int, *, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """The k best passages of each query; see :meth:`colabel.index.Index.search`."""
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        batch = max(1, 2048 // max(1, queries.shape[1]))  # bounds the similarities held at a time to 50 MB
        for start in range(0, len(queries), batch):
            part = queries[start : start + batch]
            candidates = self.propose(part, max(self.candidates, 2 * k), allowed)
            rows[start : start + batch], scores[start : start + batch] = rescore(part, candidates, self._store, k)
        return rows, scores

    def propose(self, queries: torch.Tensor, count: int, allowed: Mask | None = None) -> IntArray:
        """Candidate rows int64 [queries, count], −1 where there are fewer, in no order that matters.

        Queries whose nearest tokens lie in fewer than half as many passages are asked again, deeper and wider.
        """
        available = len(self._store) if allowed is None else int(allowed.sum())
        enough = min(count // 2, available)
        depth, probes = self.token_depth, self.probes
        proposed = self._propose(queries, count, allowed, depth, probes)
        while depth < self._store.tokens or probes < self.lists:
            lacking = np.flatnonzero((proposed >= 0).sum(axis=1) < enough)
            if not len(lacking):
                break
            depth, probes = min(4 * depth, self._store.tokens), min(4 * probes, self.lists)
            for query in lacking:  # one at a time: a deep look-up of one query is as large as a batch
                here = slice(int(query), int(query) + 1)
                proposed[here] = self._propose(queries[here], count, allowed, depth, probes)
        return proposed

    def _propose(self, queries: torch.Tensor, count: int, allowed: Mask | None, depth: int, probes: int) -> IntArray:
        length = queries.shape[1]
        flat = queries.reshape(-1, queries.shape[2]).contiguous().numpy()
        used = np.flatnonzero(np.abs(flat).max(axis=1, initial=0.0) > 0)
        similarities = np.full((len(flat), depth), -np.inf, dtype=np.float32)
        positions = np.full((len(flat), depth), -1, dtype=np.int64)
        if len(used):
            similarities[used], positions[used] = self._lookup(flat[used], depth, probes)
        proposed = np.full((len(queries), count), -1, dtype=np.int64)

        def gather(number: int) -> None:
            here = slice(number * length, (number + 1) * length)
            rows = np.where(positions[here] >= 0, self.rows[np.maximum(positions[here], 0)], -1)
            found = best_candidates(similarities[here], rows, count, allowed)
            proposed[number, : len(found)] = found

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(gather, range(len(queries))))
        return proposed

    def nearest_tokens(self, vectors: torch.Tensor, k: int) -> tuple[Int32Array, FloatArray]:
        """See :meth:`colabel.index.Index.nearest_tokens`; the nearest by quantised vectors are compared exactly."""
        ids = np.full((len(vectors), k), -1, dtype=np.int32)
        nearest = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        wanted = min(8 * k + 64, self._store.tokens)
        for start in range(0, len(vectors), _LOOKED_UP):
            flat = np.ascontiguousarray(vectors[start : start + _LOOKED_UP].numpy(), dtype=np.float32)
            _, positions = self._lookup(flat, wanted, NEAREST_PROBES, content_only=True)
            exact = self._similarities(flat, positions)
            order = np.lexsort((positions, -exact), axis=1)[:, :k]
            kept = np.take_along_axis(positions, order, axis=1)
            here = (slice(start, start + len(flat)), slice(0, kept.shape[1]))
            ids[here] = np.where(kept >= 0, self._store.token_ids_at(np.maximum(kept, 0)), -1)
            nearest[here] = np.take_along_axis(exact, order, axis=1)
        return ids, nearest

    def _lookup(
        self, vectors: FloatArray, count: int, probes: int, *, content_only: bool = False
    ) -> tuple[FloatArray, IntArray]:
        """Nearest stored tokens over all parts: similarities and positions, nearest first, −1 where there are fewer."""
        best_near, best_ids = np.zeros((len(vectors), 0), np.float32), np.zeros((len(vectors), 0), np.int64)
        for number, part in enumerate(self._parts):
            selector = self._content[number][1] if content_only else None
            parameters = faiss.SearchParametersIVF(nprobe=min(probes, self.lists), sel=selector)
            with self._lock:  # one search at a time uses all threads; two would only wait for each other
                near, ids = part.search(vectors, count, params=parameters)
            ids = np.where(ids >= 0, ids + self._first_positions[number], -1)
            if number:
                near, ids = np.concatenate([best_near, near], axis=1), np.concatenate([best_ids, ids], axis=1)
                order = np.argsort(-near, axis=1, kind="stable")[:, :count]
                near, ids = np.take_along_axis(near, order, axis=1), np.take_along_axis(ids, order, axis=1)
            best_near, best_ids = near, ids
        return best_near, best_ids

    @cached_property
    def _first_positions(self) -> list[int]:
        sizes = [part.ntotal for part in self._parts]
        return [0, *np.cumsum(sizes)[:-1].tolist()]

    def _similarities(self, vectors: FloatArray, positions: IntArray) -> FloatArray:
        """Exact dot products with the stored vectors at ``positions`` [n, c]; −∞ where a position is −1."""
        similarities = np.full(positions.shape, -np.inf, dtype=np.float32)
        present = positions >= 0
        stored = self._store.vectors_at(positions[present])
        owner = np.nonzero(present)[0]
        similarities[present] = np.einsum("nd,nd->n", vectors[owner], stored)
        return similarities

    @cached_property
    def _content(self) -> list[tuple[npt.NDArray[np.uint8], Any]]:
        """Per part, a bit for each token (set where it is neither special nor a marker) and the selector over it."""
        special = np.array(self._store.special_token_ids, dtype=np.int32)
        selectors = []
        for first, part in zip(self._first_positions, self._parts, strict=True):
            tokens = self._store.token_ids_at(np.arange(first, first + part.ntotal))
            bits = np.packbits(~np.isin(tokens, special), bitorder="little")
            selectors.append((bits, faiss.IDSelectorBitmap(bits)))  # faiss keeps no reference to the bits
        return selectors


def _open_part(file: Path) -> Any:
    """Map a part from disk: its lists are read when they are searched, and shared between processes."""
    part = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    lists = faiss.downcast_InvertedLists(part.invlists)
    if hasattr(lists, "prefetch_nthread"):
        lists.prefetch_nthread = 0  # the system reads ahead; faiss would start 32 threads for every search
    return part


def best_candidates(
    similarities: FloatArray,
    rows: Int32Array,
    count: int,
    allowed: Mask | None = None,
) -> IntArray:
    """The passages that the nearest tokens of one query speak for most.

    Args:
        similarities: float32 [length, depth], nearest first.
        rows: int32 [length, depth], the passage of each token, −1 where there is none.

    A passage's estimate: Σ_i of the highest similarity that query token i found in it, or else i's lowest anywhere.
    """
    length = similarities.shape[0]
    present = rows >= 0
    if allowed is not None:
        present &= allowed[np.maximum(rows, 0)]
    if not present.any():
        return np.zeros(0, dtype=np.int64)
    lowest = np.where(rows >= 0, similarities, np.inf).min(axis=1)
    token = np.broadcast_to(np.arange(length)[:, None], rows.shape)[present]
    keys = rows[present].astype(np.int64) * length + token
    unique, first = np.unique(keys, return_index=True)  # nearest first: the first of a key is its maximum
    gains = (similarities - np.where(np.isfinite(lowest), lowest, 0.0)[:, None])[present][first]
    passages = unique // length
    starts = np.flatnonzero(np.r_[True, passages[1:] != passages[:-1]])
    totals = np.add.reduceat(gains, starts)
    candidates = passages[starts]
    if len(candidates) > count:
        candidates = candidates[np.argpartition(-totals, count - 1)[:count]]
    return np.asarray(candidates)


def _write(space: Workspace, store: TokenStore, progress: Progress) -> Mapping[str, Any]:
    lists = ivf_lists(store.tokens)
    if not space.done("coarse.faiss"):
        trained = _train(store, lists)
        with space.file("coarse.faiss") as path:
            faiss.write_index(trained, str(path))
    task = progress.start("building the approximate index", store.tokens, "tokens")
    parts = list(pack(store.shards, lambda shard: len(shard.vectors), _PART_TOKENS, overlap=-1))
    for number, shards in enumerate(parts):
        if not space.done(f"part-{number:05d}.faiss"):
            part = faiss.read_index(str(space.folder / "coarse.faiss"))
            for vectors in (shard.vectors for shard in shards):
                for first in range(0, len(vectors), _ADD_BLOCK):
                    part.add(vectors.vectors(slice(first, min(first + _ADD_BLOCK, len(vectors)))))
            with space.file(f"part-{number:05d}.faiss") as path:
                faiss.write_index(part, str(path))
        task.advance(sum(len(shard.vectors) for shard in shards))
    task.close()
    with space.file("rows.npy") as path:
        rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(store.tokens,))
        for first, shard in zip(store.first_tokens, store.shards, strict=False):
            numbers = np.arange(shard.first_row, shard.first_row + len(shard), dtype=np.int32)
            rows[first : first + len(shard.vectors)] = np.repeat(numbers, np.diff(shard.offsets))
        rows.flush()
    return {"lists": lists, "parts": len(parts), "tokens": store.tokens}


def _train(store: TokenStore, lists: int) -> Any:
    """Coarse centroids and product quantiser from a bounded, seeded sample of the stored tokens."""
    wanted = min(store.tokens, max(lists * TRAIN_PER_LIST, 20_000))
    positions = np.sort(np.random.default_rng(SEED).choice(store.tokens, size=wanted, replace=False))
    sample = store.vectors_at(positions)
    index = faiss.index_factory(store.dimension, factory_name(store), faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = TRAIN_ITERATIONS
    index.cp.seed = SEED
    index.cp.min_points_per_centroid = 1  # a tiny collection is no reason for a warning
    index.train(sample)
    return index

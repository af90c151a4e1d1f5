"""The stored tokens nearest to any vectors: by reading all of them, or many vectors at once, list by list.

Tokens other than special ones are grouped into lists around coarse centres. A vector is compared with the tokens of the
lists nearest to it: those whose centre's cosine is at most REACH below that of the best, at most PROBES. All vectors of
a batch that need a list are compared with it in one matrix product, so a token is read once per batch and not once per
vector; that makes it several times as fast as searching vector by vector. Vectors are compared as they
are stored; those of other storages than float16 are rounded to it where they are kept in memory.

    centres.npy   float32 [lists, dimension], of length 1
    order.npy     int64 [tokens], positions in the store, list by list
    bounds.npy    int64 [lists + 1], list i holds order[bounds[i] : bounds[i + 1]]
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.artefacts import Spec, Workspace, build, read_manifest
from colabel.errors import ArtefactError
from colabel.index.codec import CENTRE_ITERATIONS, SEED, TRAIN_PER_LIST, nearest_centres, train_centres
from colabel.index.store import TokenStore
from colabel.types import FloatArray, Int32Array, IntArray, Mask
from colabel.workers import Workers

STAGE = "lookup"
LOOKUP_FROM = 2**16
"""Stored tokens from which the look-up goes by lists; below it, reading all of them is as fast."""
LOOKUP_UP_TO = 2**26
"""Stored tokens up to which it does: reading the lists once per batch must stay cheap."""
PROBES = 64
REACH = 0.25
_BATCH = 98_304  # vectors: 4,096 queries with 24 clusters each, 50 MB
_BLOCK = 8192
_IN_MEMORY = 2**29  # bytes
_MANY = 4096  # vectors from which reading all tokens once pays
_BLOCK_TOKENS = 2**15  # with 1,024 vectors, 128 MB of similarities at a time
_BLOCK_VECTORS = 1024


def nearest_exact(
    vectors: Tensor, store: TokenStore, k: int, allowed: Mask | None = None
) -> tuple[Int32Array, FloatArray]:
    """Token ids int32 [n, k] and dot products float32 [n, k] of the k nearest stored tokens, nearest first.

    Special and marker tokens are left out, and those of passages where ``allowed``, bool [passages], is False.
    """
    ids = np.full((len(vectors), k), -1, dtype=np.int32)
    similarities = np.full((len(vectors), k), -np.inf, dtype=np.float32)
    special = np.array(store.special_token_ids, dtype=np.int32)
    for start in range(0, len(vectors), _BLOCK_VECTORS):
        block = vectors[start : start + _BLOCK_VECTORS].float()
        best = torch.full((len(block), k), -torch.inf)
        best_ids = torch.full((len(block), k), -1, dtype=torch.int32)
        for shard, token_ids in zip(store.shards, store.token_ids, strict=True):
            held = None
            if allowed is not None:
                held = np.repeat(allowed[shard.first_row : shard.first_row + len(shard)], np.diff(shard.offsets))
            for first in range(0, len(token_ids), _BLOCK_TOKENS):
                last = min(first + _BLOCK_TOKENS, len(token_ids))
                tokens = np.asarray(token_ids[first:last])
                content = ~np.isin(tokens, special)
                kept = np.flatnonzero(content if held is None else content & held[first:last])
                if not len(kept):
                    continue
                stored = torch.from_numpy(shard.vectors.vectors(slice(first, last))[kept])
                near, places = torch.topk(block @ stored.T, min(k, len(kept)), dim=1)
                here = torch.from_numpy(tokens[kept])[places]
                best, order = torch.topk(torch.cat([best, near], dim=1), k, dim=1)
                best_ids = torch.cat([best_ids, here], dim=1).gather(1, order)
        ids[start : start + len(block)] = best_ids.numpy()
        similarities[start : start + len(block)] = best.numpy()
    return ids, similarities


def lookup_lists(tokens: int) -> int:
    """Number of lists: a power of two near four times the square root of the number of tokens, at most 8,192.

    >>> lookup_lists(150_000), lookup_lists(800_000), lookup_lists(60_000_000)
    (2048, 4096, 8192)
    """
    return int(min(8192, max(1, 2 ** round(math.log2(4 * math.sqrt(max(1, tokens)))))))


def build_lookup(store: TokenStore, out: Path, centres: FloatArray | None = None) -> None:
    """Group the tokens of a store into lists, in the folder ``out``.

    ``centres`` float32 [lists, dimension] are those of a larger collection of which the store is a part; None: its own.
    """
    settings = {"lists": lookup_lists(store.tokens), "iterations": CENTRE_ITERATIONS, "train": TRAIN_PER_LIST}
    inputs = {"tokens": store.manifest.fingerprint}
    if centres is not None:
        inputs["centres"] = hashlib.blake2b(centres.tobytes(), digest_size=16).hexdigest()
    plan = Spec(STAGE, settings, inputs, seed=SEED)
    build(out, plan, lambda space: _write(space, store, centres))


def centre_sample(tokens: int, content: int) -> tuple[int, IntArray]:
    """How many lists a store gets, and which of its content tokens (neither special nor markers) teach their centres.

    Returns:
        The number of lists, and rising ordinals int64 among the content tokens.
    """
    lists = max(1, min(lookup_lists(tokens), content // TRAIN_PER_LIST))
    wanted = min(content, lists * TRAIN_PER_LIST)
    return lists, np.sort(np.random.default_rng(SEED).choice(content, size=wanted, replace=False))


def content_tokens(store: TokenStore) -> IntArray:
    """Positions in a store of the tokens that are neither special nor markers, rising."""
    ids = np.concatenate([np.zeros(0, np.int32), *store.token_ids])
    return np.flatnonzero(~np.isin(ids, np.array(store.special_token_ids, np.int32)))


class TokenLookup:
    """An opened look-up."""

    def __init__(self, folder: Path, store: TokenStore) -> None:
        manifest = read_manifest(folder, STAGE)
        if manifest.inputs.get("tokens") != store.manifest.fingerprint:
            raise ArtefactError(f"{folder} belongs to another token store than {store.folder}; remove it")
        self._store = store
        self._centres = torch.from_numpy(np.load(folder / "centres.npy", allow_pickle=False))
        self._bounds: IntArray = np.load(folder / "bounds.npy", allow_pickle=False)
        self._sorted: npt.NDArray[np.float16] | None = None
        self._order = np.load(folder / "order.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)

    def nearest(self, vectors: Tensor, k: int) -> tuple[Int32Array, FloatArray]:
        """Token ids int32 [n, k] and dot products float32 [n, k], nearest first, −1 and −∞ where there are fewer.

        Equal similarities are ordered by list and by position in the store.
        """
        positions = np.full((len(vectors), k), -1, dtype=np.int64)
        similarities = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        if len(vectors) >= _MANY and self._sorted is None:
            self._sorted = self._in_order()
        with Workers() as workers:
            for start in range(0, len(vectors), _BATCH):
                batch = vectors[start : start + _BATCH].float()
                here = slice(start, start + len(batch))
                positions[here], similarities[here] = self._nearest(batch, k, workers)
        found = positions >= 0
        token_ids = np.full(positions.shape, -1, dtype=np.int32)
        token_ids[found] = self._store.token_ids_at(positions[found])
        return token_ids, similarities

    def _nearest(self, vectors: Tensor, k: int, workers: Workers) -> tuple[IntArray, FloatArray]:
        lists, first = self._probe(vectors, workers)
        threshold = torch.full((len(vectors),), -torch.inf)
        # Each vector's best list first: its k-th similarity there keeps almost everything of the other lists out.
        found = [self._compare(vectors, lists, first, threshold, k, workers)]
        found.append(self._compare(vectors, lists, ~first, threshold, k, workers))
        owners, places, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(_keys(owners, values), kind="stable")
        owners, places, values = owners[order], places[order], values[order]
        starts = np.searchsorted(owners, np.arange(len(vectors)))
        rank = np.arange(len(owners)) - starts[owners]
        kept = rank < k
        positions = np.full((len(vectors), k), -1, dtype=np.int64)
        similarities = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        positions[owners[kept], rank[kept]] = places[kept]
        similarities[owners[kept], rank[kept]] = values[kept]
        return positions, similarities

    def _tokens(self, number: int) -> Tensor:
        """Vectors of the tokens of a list, float32 [tokens, dimension]."""
        start, end = self._bounds[number], self._bounds[number + 1]
        if self._sorted is None:
            return torch.from_numpy(self._store.vectors_at(self._order[start:end]))
        return torch.from_numpy(self._sorted[start:end]).float()

    def _in_order(self) -> npt.NDArray[np.float16] | None:
        """All tokens list by list, where they fit into half a gigabyte: reading on is faster than gathering."""
        if len(self._order) * self._store.dimension * 2 > _IN_MEMORY:
            return None
        values = np.empty((len(self._order), self._store.dimension), dtype=np.float16)
        for start in range(0, len(values), _BLOCK):
            values[start : start + _BLOCK] = self._store.vectors_at(self._order[start : start + _BLOCK])
        return values

    def _probe(self, vectors: Tensor, workers: Workers) -> tuple[Tensor, Tensor]:
        """Lists of each vector int32 [n, probes], −1 where fewer are near enough, and which of them is its best."""
        lists = torch.full((len(vectors), min(PROBES, len(self._centres))), -1, dtype=torch.int32)
        first = torch.zeros(lists.shape, dtype=torch.bool)
        first[:, 0] = True

        def work(starts: Iterator[int]) -> None:
            for start in starts:
                part = torch.nn.functional.normalize(vectors[start : start + 512], dim=1)
                near, which = (part @ self._centres.T).topk(lists.shape[1], dim=1)
                lists[start : start + 512] = which.masked_fill(near < near[:, :1] - REACH, -1).to(torch.int32)

        workers.share(range(0, len(vectors), 512), work)
        return lists, first

    def _compare(
        self, vectors: Tensor, lists: Tensor, chosen: Tensor, threshold: Tensor, k: int, workers: Workers
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Vector, position and similarity of tokens at least as near as ``threshold``; raises it where it can."""
        owners, columns = torch.nonzero(chosen & (lists >= 0), as_tuple=True)
        wanted = lists[owners, columns].to(torch.int64)
        order = torch.argsort(wanted, stable=True)
        owners, wanted = owners[order], wanted[order]
        unique, counts = torch.unique_consecutive(wanted, return_counts=True)
        numbers, groups = unique.tolist(), torch.split(owners, counts.tolist())
        found: list[tuple[IntArray, IntArray, FloatArray] | None] = [None] * len(numbers)
        once = bool((torch.bincount(owners, minlength=1) <= 1).all())  # then the threshold may rise as we go

        def work(places: Iterator[int]) -> None:
            for place in places:
                who, number = groups[place], numbers[place]
                positions = self._order[self._bounds[number] : self._bounds[number + 1]]
                if not len(positions):
                    continue
                similar = torch.mm(vectors.index_select(0, who), self._tokens(number).T)
                if once:
                    limit = similar.topk(k, dim=1).values[:, -1] if similar.shape[1] >= k else threshold[who]
                    threshold[who] = limit
                else:
                    # Most vectors find nothing in most lists, which the maximum shows at a tenth of the price.
                    limit = threshold.index_select(0, who)
                    hopeful = torch.nonzero(similar.amax(dim=1) >= limit).flatten()
                    if not len(hopeful):
                        continue
                    who, limit = who.index_select(0, hopeful), limit.index_select(0, hopeful)
                    similar = similar.index_select(0, hopeful)
                found_here = similar >= limit[:, None]
                if int(found_here.sum()) > 4 * k * len(who):  # copies of one passage are all equally near
                    best = similar.topk(min(k, similar.shape[1]), dim=1).indices
                    found_here &= torch.zeros_like(found_here).scatter_(1, best, True)
                mine, token = torch.nonzero(found_here, as_tuple=True)
                found[place] = (who[mine].numpy(), positions[token.numpy()], similar[mine, token].numpy())

        workers.share(range(len(numbers)), work)
        parts = [part for part in found if part is not None]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        owner, position, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return owner, position, value


def _keys(owners: IntArray, values: FloatArray) -> IntArray:
    """Keys that sort by owner and, within one, by falling value."""
    bits = (values + np.float32(0)).view(np.int32)
    rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    return (owners << 32) + (2**31 - 1 - rising)


def _write(space: Workspace, store: TokenStore, given: FloatArray | None) -> Mapping[str, Any]:
    content = content_tokens(store)
    if given is None:
        lists, sample = centre_sample(store.tokens, len(content))
        given = train_centres(store.vectors_at(content[sample]), lists)
    lists, centres = len(given), given
    nearest = np.empty(len(content), dtype=np.int32)

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            block = store.vectors_at(content[start : start + _BLOCK])
            nearest[start : start + _BLOCK] = nearest_centres(block, centres)

    with Workers() as workers:
        workers.share(range(0, len(content), _BLOCK), work)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(nearest, minlength=lists))]).astype(np.int64)
    order = content[np.argsort(nearest, kind="stable")]
    arrays: dict[str, npt.NDArray[Any]] = {"centres": centres, "order": order, "bounds": bounds}
    for name, values in arrays.items():
        space.save(f"{name}.npy", values)
    return {"lists": lists, "tokens": len(content)}

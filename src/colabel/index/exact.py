"""Exact late-interaction search: every query against every stored passage, in blocks.

A shard is read in windows of neighbouring passages, so that a collection larger than memory is read from disk
once and in order. Within a window passages of similar length share a block (almost no padding), every batch of
queries is scored against the blocks, and the best k of each query are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import faiss
import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from colabel.errors import UsageError
from colabel.maxsim import (
    BLOCK_QUERY_TOKENS,
    BLOCK_TOKENS,
    FloatArray,
    IntArray,
    Scorer,
    StoredVectors,
    check_queries,
    chunks_by_length,
    score_candidates,
)
from colabel.progress import SILENT, Progress
from colabel.workers import Workers

if TYPE_CHECKING:
    from colabel.index.store import TokenStore

_WINDOW_PASSAGES = 2**13  # keeps the ranking of 256 queries, all temporaries together, below 256 MB
NOTHING = -(2**63)
"""The key of no passage, below that of any passage."""

_LAST_ROW = 2**32 - 1  # a key has 32 bits for the row number


@dataclass(frozen=True)
class TokenShard:
    """Token vectors of consecutive passages.

    Attributes:
        vectors: of ``T`` tokens, passages one after another.
        offsets: ``[n + 1]`` int64; passage ``p`` of the shard has the tokens ``offsets[p]`` to ``offsets[p + 1]``.
        first_row: row number of the shard's first passage in the collection.
    """

    vectors: StoredVectors
    offsets: IntArray
    first_row: int = 0

    def __post_init__(self) -> None:
        if self.offsets.ndim != 1 or self.offsets.dtype != np.int64 or len(self.offsets) == 0:
            raise UsageError(f"offsets must be int64 [n + 1], not {self.offsets.dtype} {self.offsets.shape}")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.vectors) or (np.diff(self.offsets) < 0).any():
            raise UsageError(f"offsets must rise from 0 to the number of token vectors, {len(self.vectors)}")
        if self.first_row < 0 or self.first_row + len(self) - 1 > _LAST_ROW:
            raise UsageError(f"row numbers must lie between 0 and {_LAST_ROW}; the shard starts at {self.first_row}")

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Blocking:
    """How much is worked on at a time: decides speed and memory, never results.

    Attributes:
        passage_tokens: passage tokens in a block, per thread.
        query_tokens: query tokens scored at once against a block.
        batch_tokens: query tokens (in whole queries, at most 256) scored against a block once it is read.
        window_tokens: passage tokens sorted by length together, at most 8,192 passages.
    """

    passage_tokens: int = BLOCK_TOKENS
    query_tokens: int = BLOCK_QUERY_TOKENS
    batch_tokens: int = 4096
    window_tokens: int = 2**18

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")


def search_exact(
    queries: Tensor,
    shards: Sequence[TokenShard],
    k: int,
    *,
    allowed: npt.NDArray[np.bool_] | None = None,
    tie_ranks: npt.NDArray[np.int32] | None = None,
    blocking: Blocking | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[Tensor, Tensor]:
    """Find the k best passages of each query by the score of Eq. (1).

    Args:
        queries: ``[Q, Lq, D]`` float32, weights folded in, zero vectors as padding.
        shards: the collection, in any order; no row may be in two of them.
        k: how many passages to return.
        allowed: bool mask over row numbers; passages where it is False are neither read nor returned.
        tie_ranks: int32 ``[rows]``, a permutation: of equal scores the smaller rank comes first. None: row numbers.
        blocking: block sizes; None: those that are fastest on the reference machine.
        threads: how many threads work; None: as many as torch would use.
        progress: counts (query, passage) pairs.

    Returns:
        Scores ``[Q, k]`` float32 and row numbers ``[Q, k]`` int64, best first, equal scores in the order
        of ``tie_ranks``. With fewer than k passages the rest is −∞ and −1. Empty passages are never returned.
    """
    blocking = blocking or Blocking()
    _check(queries, shards, k, allowed)
    best = torch.full((len(queries), k), NOTHING)
    batch = max(1, min(256, blocking.batch_tokens // max(1, queries.shape[1])))
    task = progress.start("search", len(queries) * sum(len(_kept(shard, allowed)) for shard in shards), "pairs")
    try:
        with Workers(threads) as workers:
            for shard in shards:
                for window in _windows(shard, _kept(shard, allowed), blocking.window_tokens):
                    for first in range(0, len(queries), batch):
                        part = queries[first : first + batch]
                        scores = _score(part, window, workers, blocking)
                        ranks = window.rows if tie_ranks is None else tie_ranks[window.rows].astype(np.int64)
                        best[first : first + batch] = _merge(best[first : first + batch], scores, ranks)
                        task.advance(len(part) * len(window.rows))
    finally:
        task.close()
    scores, rows = decode_keys(best)
    return scores, rows if tie_ranks is None else rows_of_ranks(rows, tie_ranks)


def rows_of_ranks(ranks: Tensor, tie_ranks: npt.NDArray[np.int32]) -> Tensor:
    """The rows behind ranks ``[Q, k]``; −1 stays −1."""
    inverse = np.empty(len(tie_ranks), dtype=np.int64)
    inverse[tie_ranks] = np.arange(len(tie_ranks))
    return torch.where(ranks >= 0, torch.from_numpy(inverse)[ranks.clamp(min=0)], -1)


def score_rows(queries: Tensor, shards: Sequence[TokenShard], rows: IntArray, *, threads: int | None = None) -> Tensor:
    """Score every query against its own passages, wherever they are stored.

    Args:
        queries: ``[Q, Lq, D]`` float32, weights folded in, zero vectors as padding.
        shards: the collection; no row may be in two of them.
        rows: ``[Q, C]`` int64 row numbers of the collection; −1 where a query has fewer than others.
        threads: how many threads work; None: as many as torch would use.

    Returns:
        ``[Q, C]`` float32; −∞ where the row is −1 or an empty passage.
    """
    check_queries(queries, shards[0].vectors.dimension if shards else queries.shape[-1])
    if len(shards) == 1 and shards[0].first_row == 0:
        shard = shards[0]
        return score_candidates(queries, shard.vectors, shard.offsets, rows, threads=threads)
    owners = _owners(shards, rows)
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    stores = [shard.vectors for shard in shards]

    def work(numbers: Iterator[int]) -> None:
        scorer = Scorer(queries[:1])
        for number in numbers:
            scorer.use(queries[number : number + 1])
            pieces = []
            filled = np.flatnonzero(owners[number] >= 0)
            for row, owner in zip(rows[number, filled].tolist(), owners[number, filled].tolist(), strict=True):
                shard = shards[owner]
                place = row - shard.first_row
                pieces.append((owner, int(shard.offsets[place]), int(shard.offsets[place + 1])))
            lengths = np.array([end - start for _, start, end in pieces], dtype=np.int64)
            for chunk in chunks_by_length(lengths, queries.shape[1]):
                scores[number, filled[np.concatenate(chunk)]] = scorer.score_pieces(stores, pieces, chunk)[:, 0]

    with Workers(threads) as workers:
        workers.share(range(len(queries)), work)
    return torch.from_numpy(scores)


def rescore(queries: Tensor, candidates: IntArray, store: TokenStore, k: int) -> tuple[IntArray, FloatArray]:
    """The k best of each query's candidates [queries, count] by exact MaxSim, as :meth:`Index.search` returns them.

    Equal scores come in the order of the store's ids.
    """
    scores = store.score(queries, candidates)
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    best = np.full((len(queries), k), -np.inf, dtype=np.float32)
    order = np.lexsort((store.tie_ranks[np.maximum(candidates, 0)], -scores), axis=1)[:, :k]
    kept = np.take_along_axis(scores, order, axis=1)
    rows[:, : order.shape[1]] = np.where(np.isfinite(kept), np.take_along_axis(candidates, order, axis=1), -1)
    best[:, : order.shape[1]] = kept
    return rows, best


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Torch, faiss and BLAS with ``threads`` threads for calls from this thread; put back when the block ends.

    Our own workers are as many as torch has threads, so they are limited too.
    """
    if threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    try:
        with threadpool_limits(limits=threads, user_api="blas"):
            torch.set_num_threads(threads)
            faiss.omp_set_num_threads(threads)
            yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])


def _owners(shards: Sequence[TokenShard], rows: IntArray) -> IntArray:
    """The number of the shard that holds each row, −1 where the row is −1."""
    firsts = np.array([shard.first_row for shard in shards], dtype=np.int64)
    order = np.argsort(firsts, kind="stable")
    place = np.searchsorted(firsts[order], rows, side="right") - 1
    owners = np.where(rows >= 0, order[np.maximum(place, 0)], -1) if len(shards) else np.full(rows.shape, -1)
    ends = firsts + np.array([len(shard) for shard in shards], dtype=np.int64)
    lost = (rows < -1) | ((rows >= 0) & ((place < 0) | (rows >= ends[owners]))) if len(shards) else rows != -1
    if lost.any():
        raise UsageError(f"row {rows[lost][0]} is in no shard (−1 stands for no passage)")
    return owners


@dataclass(frozen=True)
class _Window:
    """Passages of a shard that are scored together: where they start, how long they are, their row numbers."""

    vectors: StoredVectors
    starts: IntArray
    lengths: IntArray
    rows: IntArray


def _check(queries: Tensor, shards: Sequence[TokenShard], k: int, allowed: npt.NDArray[np.bool_] | None) -> None:
    check_queries(queries, queries.shape[-1])
    if k < 1:
        raise UsageError(f"k must be at least 1, not {k}")
    for shard in shards:
        check_queries(queries, shard.vectors.dimension)
    ranges = sorted((shard.first_row, shard.first_row + len(shard)) for shard in shards if len(shard))
    for (_, end), (start, _) in pairwise(ranges):
        if start < end:
            raise UsageError(f"two shards hold row {start}")
    rows = ranges[-1][1] if ranges else 0
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.ndim != 1 or len(allowed) < rows):
        raise UsageError(f"allowed must be bool [{rows}] or longer, not {allowed.dtype} {allowed.shape}")


def _kept(shard: TokenShard, allowed: npt.NDArray[np.bool_] | None) -> IntArray:
    """Passages of the shard that have tokens and are allowed, as places in the shard."""
    keep = shard.offsets[1:] > shard.offsets[:-1]
    if allowed is not None:
        keep &= allowed[shard.first_row : shard.first_row + len(shard)]
    return np.flatnonzero(keep)


def _windows(shard: TokenShard, passages: IntArray, window_tokens: int) -> Iterator[_Window]:
    starts = shard.offsets[passages]
    lengths = shard.offsets[passages + 1] - starts
    ends = np.cumsum(lengths)
    first = 0
    while first < len(passages):
        budget = ends[first] - lengths[first] + window_tokens
        last = min(max(first + 1, int(np.searchsorted(ends, budget, side="right"))), first + _WINDOW_PASSAGES)
        here = slice(first, last)
        yield _Window(shard.vectors, starts[here], lengths[here], shard.first_row + passages[here])
        first = last


def _score(queries: Tensor, window: _Window, workers: Workers, blocking: Blocking) -> Tensor:
    """Scores ``[Q, n]`` of a batch of queries against the passages of a window."""
    scores = np.empty((len(window.rows), len(queries)), dtype=np.float32)
    tokens = len(queries) * queries.shape[1]

    def work(chunks: Iterator[list[IntArray]]) -> None:
        scorer = Scorer(queries, block_tokens=blocking.passage_tokens, block_query_tokens=blocking.query_tokens)
        for chunk in chunks:
            found = scorer.score_stored(window.vectors, window.starts, window.lengths, chunk)
            scores[np.concatenate(chunk)] = found

    workers.share(chunks_by_length(window.lengths, tokens, blocking.passage_tokens), work)
    return torch.from_numpy(scores).T


def _merge(best: Tensor, scores: Tensor, rows: IntArray) -> Tensor:
    """The k largest of the keys ``best [Q, k]`` and those of passages ``rows [n]`` with ``scores [Q, n]``."""
    keys = encode_keys(scores, torch.from_numpy(rows))
    k = best.shape[1]
    best_here = keys.topk(min(k, keys.shape[1])).values
    return torch.cat([best, best_here], dim=1).topk(k).values


def encode_keys(scores: Tensor, rows: Tensor) -> Tensor:
    """One int64 key per passage, larger for better passages: the score above, the row (smaller is better) below.

    Keys make the order of equal scores independent of block sizes and threads, at the price of one ``topk``.
    """
    bits = (scores + 0.0).contiguous().view(torch.int32)  # + 0.0: −0 and 0 are equal scores
    return (_ordered(bits).to(torch.int64) << 32) | (_LAST_ROW - rows)


def decode_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and row numbers of keys."""
    nothing = keys == NOTHING
    scores = _ordered((keys >> 32).to(torch.int32)).view(torch.float32)
    rows = _LAST_ROW - (keys & _LAST_ROW)
    return scores.masked_fill(nothing, -torch.inf), rows.masked_fill(nothing, -1)


def _ordered(bits: Tensor) -> Tensor:
    """Map float32 bits to int32 that sort like the floats; its own inverse.

    The bits of negative floats sort backwards as integers, so all but their sign are turned over.
    """
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

"""Exact late-interaction search: every query against every stored passage, in blocks.

A shard is read in windows of neighbouring passages, so that a collection larger than memory is read from disk
once and in order. Within a window passages of similar length share a block (almost no padding), every batch of
queries is scored against the blocks, and the best k of each query are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import faiss
import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from colabel.errors import UsageError
from colabel.maxsim import (
    BLOCK_QUERY_TOKENS,
    BLOCK_TOKENS,
    Scorer,
    Spans,
    TokenShard,
    check_queries,
    chunks_by_length,
)
from colabel.progress import SILENT, Progress
from colabel.types import FloatArray, Int32Array, IntArray, Mask
from colabel.workers import Workers

if TYPE_CHECKING:
    from colabel.index.store import TokenStore

BATCH_TOKENS = 4096  # query tokens, in whole queries, scored against a block of passages once it is read
WINDOW_TOKENS = 2**18  # passage tokens sorted by length together
_WINDOW_PASSAGES = 2**13  # keeps the ranking of 256 queries, all temporaries together, below 256 MB
NOTHING = -(2**63)
"""The key of no passage, below that of any passage."""

_LAST_ROW = 2**32 - 1  # a key has 32 bits for the row number


def search_exact(
    queries: Tensor,
    shards: Sequence[TokenShard],
    k: int,
    *,
    allowed: Mask | None = None,
    tie_ranks: Int32Array | None = None,
    progress: Progress = SILENT,
) -> tuple[Tensor, Tensor]:
    """Find the k best passages of each query by the score of Eq. (1).

    Args:
        queries: ``[Q, Lq, D]`` float32, weights folded in, zero vectors as padding.
        shards: the collection, in any order; no row may be in two of them.
        allowed: bool mask over row numbers; passages where it is False are neither read nor returned.
        tie_ranks: int32 ``[rows]``, a permutation: of equal scores the smaller rank comes first. None: row numbers.
        progress: counts (query, passage) pairs.

    Returns:
        Scores ``[Q, k]`` float32 and row numbers ``[Q, k]`` int64, best first, equal scores in the order
        of ``tie_ranks``. With fewer than k passages the rest is −∞ and −1. Empty passages are never returned.
    """
    for shard in shards:
        check_queries(queries, shard.vectors.dimension)
    best = torch.full((len(queries), k), NOTHING)
    batch = max(1, min(256, BATCH_TOKENS // max(1, queries.shape[1])))
    pairs = len(queries) * sum(len(_kept(shard, allowed)) for shard in shards)
    with closing(progress.start("search", pairs, "pairs")) as task, Workers() as workers:
        for shard in shards:
            for passages in _windows(shard, _kept(shard, allowed)):
                rows = shard.first_row + passages
                ranks = torch.from_numpy(rows if tie_ranks is None else tie_ranks[rows].astype(np.int64))
                for first in range(0, len(queries), batch):
                    part = queries[first : first + batch]
                    keys = encode_keys(_score(part, shard, passages, workers), ranks)
                    found = keys.topk(min(k, keys.shape[1])).values
                    best[first : first + batch] = torch.cat([best[first : first + batch], found], 1).topk(k).values
                    task.advance(len(part) * len(rows))
    scores, found_ranks = decode_keys(best)
    return scores, found_ranks if tie_ranks is None else rows_of_ranks(found_ranks, tie_ranks)


def rows_of_ranks(ranks: Tensor, tie_ranks: Int32Array) -> Tensor:
    """The rows behind ranks ``[Q, k]``; −1 stays −1."""
    inverse = np.empty(len(tie_ranks), dtype=np.int64)
    inverse[tie_ranks] = np.arange(len(tie_ranks))
    return torch.where(ranks >= 0, torch.from_numpy(inverse)[ranks.clamp(min=0)], -1)


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


def _kept(shard: TokenShard, allowed: Mask | None) -> IntArray:
    """Passages of the shard that have tokens and are allowed, as places in the shard."""
    keep = shard.offsets[1:] > shard.offsets[:-1]
    if allowed is not None:
        keep &= allowed[shard.first_row : shard.first_row + len(shard)]
    return np.flatnonzero(keep)


def _windows(shard: TokenShard, passages: IntArray) -> Iterator[IntArray]:
    """Passages that are sorted by length and scored together."""
    lengths = np.diff(shard.offsets)[passages]
    ends = np.cumsum(lengths)
    first = 0
    while first < len(passages):
        budget = ends[first] - lengths[first] + WINDOW_TOKENS
        last = min(max(first + 1, int(np.searchsorted(ends, budget, side="right"))), first + _WINDOW_PASSAGES)
        yield passages[first:last]
        first = last


def _score(queries: Tensor, shard: TokenShard, passages: IntArray, workers: Workers) -> Tensor:
    """Scores ``[Q, n]`` of a batch of queries against passages of a shard."""
    starts = shard.offsets[passages]
    lengths = shard.offsets[passages + 1] - starts
    spans = Spans(np.zeros_like(starts), starts, lengths)
    scores = np.empty((len(passages), len(queries)), dtype=np.float32)

    def work(chunks: Iterator[list[IntArray]]) -> None:
        scorer = Scorer(queries, block_tokens=BLOCK_TOKENS, block_query_tokens=BLOCK_QUERY_TOKENS)
        for chunk in chunks:
            scores[np.concatenate(chunk)] = scorer.score_stored([shard.vectors], spans, chunk)

    workers.share(chunks_by_length(lengths, len(queries) * queries.shape[1], BLOCK_TOKENS), work)
    return torch.from_numpy(scores).T


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

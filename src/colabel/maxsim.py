"""Late-interaction scores, Eq. (1) of ColBERT, plain and weighted.

    score(q, p) = Σ_i w_i · max_j q_i·p_j,   w_i ≥ 0

As no weight is negative, w_i · max_j q_i·p_j = max_j (w_i q_i)·p_j: weights are multiplied into the query
vectors once (:func:`fold_weights`) and everything below computes the plain score. For the same reason a query
may be padded with zero vectors, which add exactly 0, and a passage by repeating one of its tokens, which
leaves every maximum as it is.

Arithmetic is float32 whatever the store's type. Blocks of passages × query tokens are small enough for the
similarities to be still in cache when their maximum is taken: that, not the number of operations, decides the
speed (measured by ``benchmarks/exact_search.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.errors import UsageError
from colabel.types import FloatArray, IntArray
from colabel.workers import Workers

Decode = Callable[[Sequence[Tensor], Tensor], None]

BLOCK_TOKENS = 1440
"""Passage tokens that one thread scores at once; as float32 of 128 dimensions they fit a 1 MB L2 cache."""

BLOCK_QUERY_TOKENS = 512
"""Query tokens scored at once against them."""


@dataclass(frozen=True)
class StoredVectors:
    """Token vectors as they are stored: arrays with one row per token, and how rows become vectors.

    arrays: each ``[T, …]``, memory maps or not; decode: writes the vectors of gathered rows to a float32 ``[n, D]``.
    """

    arrays: tuple[npt.NDArray[Any], ...]
    dimension: int
    decode: Decode

    def __len__(self) -> int:
        return len(self.arrays[0])

    def vectors(self, rows: slice | IntArray) -> FloatArray:
        """Some of the vectors as float32 ``[n, D]``, a copy."""
        return self.decoded([np.array(array[rows]) for array in self.arrays])

    def decoded(self, rows: Sequence[npt.NDArray[Any]]) -> FloatArray:
        """The vectors of rows that were taken from the arrays, float32 ``[n, D]``."""
        vectors = torch.empty(len(rows[0]), self.dimension)
        self.decode([torch.from_numpy(row) for row in rows], vectors)
        return vectors.numpy()


@dataclass(frozen=True)
class TokenShard:
    """Token vectors of consecutive passages, one after another.

    Passage ``p`` of the shard has the tokens ``offsets[p]`` to ``offsets[p + 1]`` (int64 ``[n + 1]``) and the row
    ``first_row + p`` of the collection.
    """

    vectors: StoredVectors
    offsets: IntArray
    first_row: int = 0

    def __post_init__(self) -> None:
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.vectors) or (np.diff(self.offsets) < 0).any():
            raise UsageError(f"offsets must rise from 0 to the number of token vectors, {len(self.vectors)}")

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Spans(NamedTuple):
    """Where passages lie, each int64 ``[n]``: the number of the shard, the first token in it, how many tokens."""

    owners: IntArray
    starts: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, shards: Sequence[TokenShard], rows: IntArray) -> Spans:
        """Of rows of the collection."""
        firsts = np.array([shard.first_row for shard in shards], dtype=np.int64)
        owners = np.searchsorted(firsts, rows, side="right") - 1
        places = rows - firsts[owners]
        if len(shards) == 1:
            starts, ends = shards[0].offsets[places], shards[0].offsets[places + 1]
        else:
            pairs = zip(owners.tolist(), places.tolist(), strict=True)
            bounds = [shards[owner].offsets[place : place + 2] for owner, place in pairs]
            starts, ends = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
        return cls(owners, starts, ends - starts)


def plain(vectors: Tensor | npt.NDArray[Any]) -> StoredVectors:
    """float16 or float32 vectors ``[T, D]`` that are stored as they are."""
    array = vectors.detach().numpy() if isinstance(vectors, Tensor) else vectors.view(np.ndarray)
    if array.ndim != 2 or array.dtype not in (np.float16, np.float32):
        raise UsageError(f"token vectors must be float16 or float32 [T, D], not {array.dtype} {array.shape}")
    return StoredVectors((array,), array.shape[1], copy_rows)


def copy_rows(rows: Sequence[Tensor], vectors: Tensor) -> None:
    """Rows that are vectors already, of any type."""
    vectors.copy_(rows[0])


def fold_weights(vectors: Tensor, weights: Tensor) -> Tensor:
    """Multiply query token weights into query vectors, so that the plain score becomes the weighted one.

    Args:
        vectors: ``[..., L, D]`` float32.
        weights: ``[..., L]``, none negative: a negative weight would turn the maximum into a minimum.

    >>> fold_weights(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2.0, 0.5]))
    tensor([[2.0000, 0.0000],
            [0.0000, 0.5000]])
    """
    if weights.shape != vectors.shape[:-1]:
        raise UsageError(
            f"weights of shape {tuple(weights.shape)} do not fit vectors of shape {tuple(vectors.shape)}: "
            "there must be one weight per query token"
        )
    if not bool((weights >= 0).all()):  # written so that it also refuses NaN
        raise UsageError("a query token's weight is negative or not a number; late interaction needs weights ≥ 0")
    return vectors * weights.unsqueeze(-1)


def score_candidates(
    queries: Tensor, vectors: Tensor | npt.NDArray[Any] | StoredVectors, offsets: IntArray, candidates: IntArray
) -> Tensor:
    """Score every query against its own candidate passages, all of one store; see :func:`score_rows`.

    Args:
        vectors: ``[T, D]``, passages one after another, in any storage.
        offsets: ``[n + 1]`` int64; passage ``r`` is ``vectors[offsets[r] : offsets[r + 1]]``.
    """
    store = vectors if isinstance(vectors, StoredVectors) else plain(vectors)
    return score_rows(queries, [TokenShard(store, offsets)], candidates)


def score_rows(queries: Tensor, shards: Sequence[TokenShard], rows: IntArray) -> Tensor:
    """Score every query against its own passages, wherever they are stored.

    Args:
        queries: ``[Q, Lq, D]`` float32, weights folded in, zero vectors as padding.
        shards: in the order of their rows.
        rows: ``[Q, C]`` int64; −1 where a query has fewer passages than others.

    Returns:
        ``[Q, C]`` float32; −∞ where the row is −1 or an empty passage.
    """
    check_queries(queries, shards[0].vectors.dimension if shards else queries.shape[-1])
    if rows.ndim != 2 or len(rows) != len(queries):
        raise UsageError(f"rows of shape {rows.shape} do not fit {len(queries)} queries")
    end = shards[-1].first_row + len(shards[-1]) if shards else 0
    if rows.size and not -1 <= rows.min() <= rows.max() < end:
        raise UsageError(
            f"rows go from {rows.min()} to {rows.max()}, but the passages from 0 to {end - 1} (−1 stands for none)"
        )
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    stores = [shard.vectors for shard in shards]

    def work(numbers: Iterator[int]) -> None:
        scorer = Scorer(queries[:1])
        for number in numbers:
            scorer.use(queries[number : number + 1])
            filled = np.flatnonzero(rows[number] >= 0)
            spans = Spans.of(shards, rows[number, filled])
            for chunk in chunks_by_length(spans.lengths, queries.shape[1]):
                found = scorer.score_stored(stores, spans, chunk)
                scores[number, filled[np.concatenate(chunk)]] = found[:, 0]

    with Workers() as workers:
        workers.share(range(len(queries)), work)
    return torch.from_numpy(scores)


def check_queries(queries: Tensor, dimension: int) -> None:
    """Refuse queries that are not float32 ``[Q, Lq, dimension]`` in main memory."""
    if queries.ndim != 3 or queries.dtype != torch.float32 or queries.device.type != "cpu":
        raise UsageError(
            f"queries must be a float32 tensor [Q, Lq, D] on the CPU, not {queries.dtype} "
            f"{tuple(queries.shape)} on {queries.device}"
        )
    if queries.shape[2] != dimension:
        raise UsageError(f"queries have {queries.shape[2]} dimensions, passages {dimension}")


def chunks_by_length(lengths: IntArray, query_tokens: int, block_tokens: int = BLOCK_TOKENS) -> list[list[IntArray]]:
    """Group passages into blocks of similar length, and blocks into chunks that are scored in one go.

    A block has at most ``block_tokens`` tokens once its passages are padded to the longest, which comes first.
    Against few query tokens the arithmetic of one block is done sooner than the Python around it, so up to four
    blocks make a chunk. A passage longer than a block is a chunk of its own; passages without tokens are left
    out. Long ones come first, so that no thread is left with a large chunk at the end.

    >>> lengths = np.array([3, 9, 0, 2, 4, 4])
    >>> [[b.tolist() for b in chunk] for chunk in chunks_by_length(lengths, query_tokens=512, block_tokens=8)]
    [[[1]], [[4, 5]], [[0, 3]]]
    >>> [[b.tolist() for b in chunk] for chunk in chunks_by_length(lengths, query_tokens=32, block_tokens=8)]
    [[[1]], [[4, 5], [0, 3]]]
    """
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    blocks: list[IntArray] = []
    alone = start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        alone += longest > block_tokens
        end = start + max(1, block_tokens // longest)
        blocks.append(order[start:end])
        start = end
    size = max(1, min(4, BLOCK_QUERY_TOKENS // max(1, query_tokens)))
    cuts = [*range(alone), *range(alone, len(blocks), size), len(blocks)]
    return [blocks[first:last] for first, last in pairwise(cuts)]


class Scorer:
    """Scores one batch of queries against one chunk of passages after another, in buffers of its own.

    Not safe to share between threads: each thread makes one.
    """

    def __init__(
        self, queries: Tensor, *, block_tokens: int = BLOCK_TOKENS, block_query_tokens: int = BLOCK_QUERY_TOKENS
    ) -> None:
        self._block_tokens = block_tokens
        self._block_query_tokens = block_query_tokens
        self._rows: dict[tuple[int, np.dtype[Any]], _Buffer] = {}
        self._tokens, self._similarities, self._folded, self._maxima = (_Buffer() for _ in range(4))
        self.use(queries)

    def use(self, queries: Tensor) -> None:
        """Take other queries, ``[Q, Lq, D]`` float32, and keep the buffers."""
        self._count, self._length, dimension = queries.shape
        tokens = queries.detach().reshape(self._count * self._length, dimension)
        # Matrix products run at full speed for multiples of 16 columns (42 columns take longer than 48), and
        # maxima for multiples of 32: where 16 remain, two passage tokens are taken as one of twice the width.
        self._query_tokens = torch.nn.functional.pad(tokens, (0, 0, 0, -tokens.shape[0] % 16))
        self._width = self._query_tokens.shape[0]
        self._fold = 2 if self._width % 32 else 1

    def score_stored(self, stores: Sequence[StoredVectors], spans: Spans, chunk: Sequence[IntArray]) -> FloatArray:
        """Score a chunk of stored passages; returns ``[P, Q]``, the passages of its blocks one after another.

        Args:
            stores: all of one kind.
            chunk: blocks of numbers of ``spans`` as :func:`chunks_by_length` gives them.
        """
        owners, starts, lengths = spans
        first = chunk[0][0]
        store = stores[owners[first]]
        if lengths[first] > self._block_tokens:
            return self._score_long(store, int(starts[first]), int(lengths[first]))
        longest = [int(lengths[block[0]]) for block in chunk]
        shapes = [(len(block), size + size % self._fold) for block, size in zip(chunk, longest, strict=True)]
        # Beyond its end a passage repeats its last token.
        if len(stores) == 1:
            positions = [
                starts[block][:, None] + np.minimum(np.arange(size), lengths[block][:, None] - 1)
                for block, (_, size) in zip(chunk, shapes, strict=True)
            ]
            tokens = self._gather(store, np.concatenate([rows.reshape(-1) for rows in positions]))
            return self._sum(self._find_maxima(tokens, shapes))
        rows, tokens = self._take(store, sum(count * size for count, size in shapes))
        targets, place = [row.numpy() for row in rows], 0
        for block, (_, size) in zip(chunk, shapes, strict=True):
            for owner, start, length in zip(*(values[block].tolist() for values in spans), strict=True):
                for target, array in zip(targets, stores[owner].arrays, strict=True):
                    target[place : place + length] = array[start : start + length]
                    target[place + length : place + size] = array[start + length - 1]
                place += size
        if rows[0] is not tokens:
            store.decode(rows, tokens)
        return self._sum(self._find_maxima(tokens, shapes))

    def _score_long(self, vectors: StoredVectors, start: int, length: int) -> FloatArray:
        """Score one passage piece by piece, so that memory stays bounded whatever its length: ``[1, Q]``."""
        maxima = torch.full((1, self._width), -torch.inf)
        for first in range(0, length, self._block_tokens):
            size = min(self._block_tokens, length - first)
            tokens = self._gather(vectors, np.arange(start + first, start + first + size))
            torch.maximum(maxima, self._find_maxima(tokens, [(1, size)]), out=maxima)
        return self._sum(maxima)

    def _gather(self, vectors: StoredVectors, positions: IntArray) -> Tensor:
        """The vectors at ``positions [N]`` as float32 ``[N, D]``."""
        rows, tokens = self._take(vectors, len(positions))
        # NumPy gathers, as torch warns about read-only memory maps; torch converts, 15 times as fast as NumPy.
        # Positions are valid by construction, and mode "raise" would copy through a second buffer.
        for array, row in zip(vectors.arrays, rows, strict=True):
            np.take(array, positions, axis=0, out=row.numpy(), mode="clip")
        if rows[0] is not tokens:
            vectors.decode(rows, tokens)
        return tokens

    def _take(self, vectors: StoredVectors, count: int) -> tuple[list[Tensor], Tensor]:
        """Room for ``count`` stored rows and for their vectors; the same room where float32 is stored."""
        tokens = self._tokens.take(count, vectors.dimension)
        if vectors.arrays[0].dtype == np.float32:
            return [tokens], tokens
        rows = []
        for number, array in enumerate(vectors.arrays):
            buffer = self._rows.setdefault((number, array.dtype), _Buffer(array.dtype))
            rows.append(buffer.take(count, *array.shape[1:]))
        return rows, tokens

    def _find_maxima(self, tokens: Tensor, shapes: Sequence[tuple[int, ...]]) -> Tensor:
        """max_j q_i·p_j ``[P, W]`` of passages whose ``tokens [N, D]`` lie in blocks of (passages, tokens each)."""
        maxima = self._maxima.take(sum(count for count, _ in shapes), self._width)
        for first in range(0, self._width, self._block_query_tokens):
            part = self._query_tokens[first : first + self._block_query_tokens]
            similarities = self._similarities.take(tokens.shape[0], part.shape[0])
            torch.mm(tokens, part.T, out=similarities)
            self._reduce(similarities, shapes, maxima[:, first : first + part.shape[0]])
        return maxima

    def _reduce(self, similarities: Tensor, shapes: Sequence[tuple[int, ...]], maxima: Tensor) -> None:
        """Write the maxima of ``similarities [N, W]`` over the tokens of each passage to ``maxima [P, W]``."""
        width = similarities.shape[1]
        passage = token = 0
        for count, length in shapes:
            block = similarities[token : token + count * length]
            target = maxima[passage : passage + count]
            if self._fold == 1 or length % 2:
                torch.amax(block.view(count, length, width), 1, out=target)
            else:
                folded = self._folded.take(count, 2 * width)
                torch.amax(block.view(count, length // 2, 2 * width), 1, out=folded)
                torch.amax(folded.view(count, 2, width), 1, out=target)
            passage += count
            token += count * length

    def _sum(self, maxima: Tensor) -> FloatArray:
        """Sum maxima ``[P, W]`` over the tokens of each query: ``[P, Q]``."""
        real = maxima.numpy()[:, : self._count * self._length]
        if not self._length:
            return np.zeros((len(real), self._count), dtype=np.float32)
        # A running sum adds token by token, and not pairwise as np.sum does: zero vectors behind a query then change
        # nothing, whatever it is padded to.
        summed: FloatArray = np.cumsum(real.reshape(len(real), self._count, self._length), axis=2)[:, :, -1]
        return summed


class _Buffer:
    """Memory that is handed out again and again; fresh memory costs a page fault every 4 KB."""

    def __init__(self, dtype: npt.DTypeLike = np.float32) -> None:
        self._memory = torch.from_numpy(np.empty(0, dtype=dtype))

    def take(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        if self._memory.shape[0] < size:
            self._memory = torch.empty(size, dtype=self._memory.dtype)
        return self._memory[:size].view(shape)

"""What shards found, as one collection would have found it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from colabel.index.exact import NOTHING, decode_keys, encode_keys, rows_of_ranks

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


def merge_rankings(
    parts: Iterable[tuple[IntArray, FloatArray]], queries: int, k: int, tie_ranks: npt.NDArray[np.int32]
) -> tuple[IntArray, FloatArray]:
    """The k best passages of each query over all shards, as one index over all of them would rank.

    Args:
        parts: rows int64 [queries, any] of the whole collection and scores float32 of each shard, −1 and −∞ where there
            are fewer; taken one at a time and in any order.
        tie_ranks: int32 [passages]: of equal scores the smaller rank comes first.

    Returns:
        Rows int64 [queries, k] and scores float32, best first; −1 and −∞ where there are fewer.

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
    parts: Iterable[tuple[int, npt.NDArray[np.int32], FloatArray]], vectors: int, k: int
) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """The k nearest tokens of each vector over all shards: token ids int32 [vectors, k] and similarities.

    Args:
        parts: number of the shard, its token ids [vectors, any] and similarities, nearest first; in any order. Equal
            similarities are ordered by shard.

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

"""The stored tokens nearest to arbitrary vectors, by reading all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from colabel.index.store import TokenStore

_BLOCK_TOKENS = 2**15  # with 1,024 vectors, 128 MB of similarities at a time
_BLOCK_VECTORS = 1024


def nearest_exact(
    vectors: torch.Tensor, store: TokenStore, k: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Token ids int32 [n, k] and dot products float32 [n, k] of the k nearest stored tokens, nearest first.

    Special and marker tokens are left out.
    """
    ids = np.full((len(vectors), k), -1, dtype=np.int32)
    similarities = np.full((len(vectors), k), -np.inf, dtype=np.float32)
    special = np.array(store.special_token_ids, dtype=np.int32)
    for start in range(0, len(vectors), _BLOCK_VECTORS):
        block = vectors[start : start + _BLOCK_VECTORS].float()
        best = torch.full((len(block), k), -torch.inf)
        best_ids = torch.full((len(block), k), -1, dtype=torch.int32)
        for shard, token_ids in zip(store.shards, store.token_ids, strict=True):
            for first in range(0, len(token_ids), _BLOCK_TOKENS):
                last = min(first + _BLOCK_TOKENS, len(token_ids))
                tokens = np.asarray(token_ids[first:last])
                kept = np.flatnonzero(~np.isin(tokens, special))
                if not len(kept):
                    continue
                stored = torch.from_numpy(shard.read(first, last)[kept])
                near, places = torch.topk(block @ stored.T, min(k, len(kept)), dim=1)
                here = torch.from_numpy(tokens[kept])[places]
                best, order = torch.topk(torch.cat([best, near], dim=1), k, dim=1)
                best_ids = torch.cat([best_ids, here], dim=1).gather(1, order)
        ids[start : start + len(block)] = best_ids.numpy()
        similarities[start : start + len(block)] = best.numpy()
    return ids, similarities

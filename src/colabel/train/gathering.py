"""Passages of all processes, so that a query is compared with the whole step's and not with those of its process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed


def from_all_processes(passages: Tensor, mask: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Vectors [P, length, D], masks [P, length] and rows of all processes, and the place of our first passage.

    Gradients flow back to the process that encoded a passage, from all queries that met it.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return passages, mask, rows, 0
    longest = torch.tensor(passages.shape[1], device=passages.device)
    distributed.all_reduce(longest, op=distributed.ReduceOp.MAX)
    missing = int(longest) - passages.shape[1]
    passages = torch.nn.functional.pad(passages, (0, 0, 0, missing))
    mask = torch.nn.functional.pad(mask, (0, missing))
    first = distributed.get_rank() * len(passages)
    gathered: Tensor = _Gather.apply(passages)  # type: ignore[no-untyped-call]
    return gathered, _gather(mask), _gather(rows), first


class _Gather(torch.autograd.Function):
    """[P, …] of each process → [processes · P, …]; backward sums what all processes say of our part."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        ctx.size = len(local)
        return _gather(local)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        whole = gradients[0].contiguous().clone()
        distributed.all_reduce(whole)
        first = distributed.get_rank() * ctx.size
        return whole[first : first + ctx.size]


def _gather(local: Tensor) -> Tensor:
    local = local.contiguous()
    parts = [torch.empty_like(local) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, local)
    return torch.cat(parts)

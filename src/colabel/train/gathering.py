"""What makes several processes train as one: passages of all of them, and means over the queries of all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from colabel.train.losses import Outcome


def from_all_processes(passages: Tensor, mask: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Vectors [P, length, D], masks [P, length] and rows of all processes, and the place of our first passage.

    Gradients flow back to the process that encoded a passage, from all queries that met it.
    """
    if not _connected():
        return passages, mask, rows, 0
    longest = torch.tensor(passages.shape[1], device=passages.device)
    distributed.all_reduce(longest, op=distributed.ReduceOp.MAX)
    missing = int(longest) - passages.shape[1]
    passages = torch.nn.functional.pad(passages, (0, 0, 0, missing))
    mask = torch.nn.functional.pad(mask, (0, missing))
    first = distributed.get_rank() * len(passages)
    gathered: Tensor = _Gather.apply(passages)  # type: ignore[no-untyped-call]
    return gathered, _gather(mask), _gather(rows), first


def over_all_queries(outcome: Outcome) -> Outcome:
    """A process's part of the mean over the queries of all processes, and how many took part in all of them.

    Training takes the mean over processes, in which a process with few taught queries counts as much as any other; so
    the loss here is multiplied by processes · ours / all.
    """
    if not _connected():
        return outcome
    rows = torch.tensor(outcome.rows, device=outcome.loss.device)
    distributed.all_reduce(rows)
    share = distributed.get_world_size() * outcome.rows / max(1, int(rows))
    return Outcome(outcome.loss * share, outcome.entropy, int(rows))


def _connected() -> bool:
    return distributed.is_available() and distributed.is_initialized()


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

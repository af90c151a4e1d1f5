"""Several processes that train one model as if they were one.

``torchrun`` starts the same program several times. Process 0 alone writes; the others follow it into the training loop,
and only there. In a step every query is compared with the passages of all processes, and means are over the queries of
all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from colabel.artefacts import Manifest, Spec, Workspace, build, read_manifest
from colabel.errors import ColabelError, TrainingError
from colabel.train.losses import Outcome

_PATIENCE = timedelta(days=7)  # that processes wait for the first, which indexes and ranks before they train together


def process_count() -> int:
    """How many processes ``torchrun`` or ``accelerate launch`` started; 1 without them."""
    return max(1, int(os.environ.get("WORLD_SIZE", "1")))


def is_main_process() -> bool:
    """Whether this process is the one that writes."""
    return process_count() == 1 or int(os.environ.get("RANK", "0")) == 0


def connect(*, cpu: bool) -> None:
    """Join the other processes, once; nothing to do where there are none."""
    if process_count() == 1:
        return
    from accelerate import PartialState  # type: ignore[import-untyped]

    PartialState(cpu=cpu, timeout=_PATIENCE)


@contextmanager
def main_process_first(*, cpu: bool) -> Iterator[None]:
    """Run the block in process 0 first, then in the others, which find its artefacts finished.

    For every stage before training: two processes cannot write the same folder, and need not.
    """
    connect(cpu=cpu)
    if not is_main_process():
        wait_for_all()
    try:
        yield
    finally:
        if is_main_process():
            wait_for_all()


def wait_for_all() -> None:
    """Wait until every process is here."""
    if process_count() > 1 and distributed.is_initialized():
        distributed.barrier()


def tell_all(value: Any) -> Any:
    """What process 0 passes in, in every process."""
    if process_count() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def build_together(
    folder: Path, spec: Spec, write: Callable[[Workspace], Mapping[str, Any]], follow: Callable[[Path], None]
) -> Manifest:
    """:func:`colabel.artefacts.build` in process 0; the others call ``follow`` with its workspace while it writes.

    Where the artefact is up to date nobody works; where process 0 fails before the work starts, all fail.
    """
    if process_count() == 1:
        return build(folder, spec, write)
    if not is_main_process():
        word, value = tell_all(None)
        if word == "work":
            follow(Path(value))
            word, value = tell_all(None)
        if word == "failed":
            raise TrainingError(f"process 0 could not start: {value}")
        return read_manifest(folder)
    started = False

    def write_with_others(space: Workspace) -> Mapping[str, Any]:
        nonlocal started
        started = True
        tell_all(("work", str(space.folder)))
        return write(space)

    try:
        manifest = build(folder, spec, write_with_others)
    except ColabelError as error:
        if not started:
            tell_all(("failed", str(error)))
        raise  # once the work has begun, the launcher ends the others
    tell_all(("done", ""))
    return manifest


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
    queries = torch.tensor(outcome.queries, device=outcome.loss.device)
    distributed.all_reduce(queries)
    share = distributed.get_world_size() * outcome.queries / max(1, int(queries))
    return Outcome(outcome.loss * share, outcome.entropy, int(queries))


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

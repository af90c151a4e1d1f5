"""Shards that workers of a cluster make, keep and ask."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from colabel.cluster.pool import Task, WorkerPool
from colabel.index.desk import Desk
from colabel.index.shards import ShardSource
from colabel.progress import SILENT, Progress

log = logging.getLogger(__name__)

J = TypeVar("J")
R = TypeVar("R")

_TITLES = {"statistics": "encoding shards", "prepare": "preparing shards", "search": "searching shards"}


class ClusterShards:
    """Asks all shards at once, each on a node that has it where one does.

    A shard in a scratch folder is asked on its own node; only where that is gone, another node makes it again.
    """

    def __init__(self, pool: WorkerPool, source: ShardSource) -> None:
        self.source = source
        self._pool = pool
        self._holders: dict[int, set[str]] | None = None

    def map(
        self, question: str, *arguments: Any, numbers: Sequence[int] | None = None, progress: Progress = SILENT
    ) -> Iterator[tuple[int, Any]]:
        """Ask the shards; answers come as they are ready."""
        chosen = list(range(len(self.source.plan)) if numbers is None else numbers)
        if not chosen:
            return
        holders = self._where()
        tasks = [
            Task(ask, number, self._name(number), frozenset(holders.get(number, ())), strict=self.source.stays)
            for number in chosen
        ]
        shared = (self.source, question, self._pool.ray.put(arguments))
        title = _TITLES.get(question, f"shards: {question}")
        task = progress.start(title, len(chosen), "shards")
        try:
            for done, (place, about, answer) in enumerate(self._pool.map(tasks, shared), start=1):
                number = chosen[place]
                if not self.source.shared:
                    holders.setdefault(number, set()).add(about.node)
                task.advance()
                log.debug("%s: %d of %d", title, done, len(chosen))
                yield number, answer
        finally:
            task.close()

    def run(self, function: Callable[[J], R], jobs: Iterable[J]) -> Iterator[R]:
        """Results in the order of the jobs; about two jobs a worker exist at a time."""
        tasks = (Task(apply, job, f"{function.__module__}.{function.__name__}, a job of many") for job in jobs)
        early: dict[int, R] = {}
        wanted = 0
        for number, _, result in self._pool.map(tasks, (function,), window=2 * len(self._pool)):
            early[number] = result
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1

    def with_source(self, source: ShardSource) -> ClusterShards:
        """The same workers, other shards."""
        return ClusterShards(self._pool, source)

    def _name(self, number: int) -> str:
        first, last = self.source.plan.rows(number)
        return f"shard {number} of {len(self.source.plan)} (rows {first} to {last - 1})"

    def _where(self) -> dict[int, set[str]]:
        """Shard → nodes on whose disk it lies."""
        if self._holders is None:
            self._holders = {}
            if not self.source.shared:
                for about, numbers in self._pool.everywhere(held, self.source):
                    for number in numbers:
                        self._holders.setdefault(number, set()).add(about.node)
        return self._holders


def ask(desk: Desk, number: int, source: ShardSource, question: str, arguments: tuple[Any, ...]) -> Any:
    """A worker's part of :meth:`ClusterShards.map`."""
    return getattr(desk.shard(source, number), question)(*arguments)


def apply(desk: Desk, job: J, function: Callable[[J], R]) -> R:
    """A worker's part of :meth:`ClusterShards.run`."""
    return function(job)


def held(desk: Desk, source: ShardSource) -> list[int]:
    """The shards that lie on a worker's node."""
    return desk.held(source)

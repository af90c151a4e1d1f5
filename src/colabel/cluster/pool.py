"""Worker processes that share work: bounded, and with nothing lost when one of them dies.

Each worker is an actor with a :class:`~colabel.index.desk.Desk`. A call that a dead worker leaves behind goes to
another one, and a new worker takes its place as soon as the cluster has room. What fails for a reason of its own, or
again and again, ends the stage with an error that names it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from colabel.cluster.session import connect, load_ray
from colabel.errors import ClusterError, ColabelError
from colabel.index.desk import Desk, scratch_folder
from colabel.settings import ComputeSettings

log = logging.getLogger(__name__)

_DEPTH = 2  # calls a worker has at a time: the next one waits beside the one it works on
_POLL_SECONDS = 1.0
_WARN_SECONDS = 30.0
_AGAIN_SECONDS = 60.0  # that a worker gets to start on the node of the one that died


@dataclass(frozen=True)
class Task:
    """One call.

    Attributes:
        function: a function of a module, called with the worker's desk, ``argument`` and whatever all tasks share.
        name: what an error calls it.
        nodes: the nodes on which it should run, where any of their workers is alive; empty: anywhere.
        strict: wait for a worker of ``nodes`` rather than give it to an idle one elsewhere.
    """

    function: Callable[..., Any]
    argument: Any
    name: str
    nodes: frozenset[str] = frozenset()
    strict: bool = False


@dataclass(frozen=True)
class About:
    """Where a worker lives."""

    node: str
    process: int


@dataclass(frozen=True)
class _Failure:
    """A mistake that is no bug: its sentence crosses processes, the exception need not."""

    message: str


class Worker:
    """What runs in a worker process; made into an actor by :class:`WorkerPool`."""

    def __init__(self, scratch: str) -> None:
        self._desk = Desk(scratch_folder(scratch))

    def about(self) -> About:
        """Where this worker lives."""
        return About(load_ray().get_runtime_context().get_node_id(), os.getpid())

    def call(self, function: Callable[..., Any], argument: Any, *shared: Any) -> Any:
        """The result of a task."""
        try:
            return function(self._desk, argument, *shared)
        except ColabelError as error:
            return _Failure(str(error))


@dataclass(eq=False)
class _Seat:
    """A worker: being started (``about`` is None), at work, or dead and about to be replaced.

    ``wanted`` is the node of the one whose place it takes: what that had on its disk is still there.
    """

    handle: Any
    ready: Any
    wanted: str | None = None
    since: float = field(default_factory=time.monotonic)
    about: About | None = None
    dead: bool = False


@dataclass
class _Round:
    """The state of one :meth:`WorkerPool.map`."""

    waiting: deque[int] = field(default_factory=deque)
    tasks: dict[int, Task] = field(default_factory=dict)
    calls: dict[Any, tuple[_Seat, int]] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)


def worker_gpus(wanted: float, resources: Mapping[str, float]) -> float:
    """GPUs of a worker; below 0: one, where the cluster has any.

    >>> worker_gpus(-1, {"CPU": 8.0, "GPU": 2.0}), worker_gpus(-1, {"CPU": 8.0}), worker_gpus(0.5, {})
    (1.0, 0.0, 0.5)
    """
    if wanted >= 0:
        return wanted
    return 1.0 if resources.get("GPU", 0) >= 1 else 0.0


class WorkerPool:
    """The workers of a cluster."""

    def __init__(self, settings: ComputeSettings) -> None:
        self.settings = settings
        self.ray = connect(settings)
        self._gpus = worker_gpus(settings.gpus, self.ray.cluster_resources())
        self._resources: dict[str, Any] = {"num_cpus": settings.cpus, "num_gpus": self._gpus, "max_restarts": 0}
        if not self._gpus and self.ray.cluster_resources().get("GPU"):
            self._resources["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}  # Ray would show it all of them
        self._actor = self.ray.remote(Worker)
        self._seats = [self._start() for _ in range(settings.workers or self._room())]
        self._alone_since = self._arrived = time.monotonic()
        self._warned = False

    def __len__(self) -> int:
        return len(self._seats)

    def workers(self) -> list[About]:
        """The workers that are ready now."""
        return [seat.about for seat in self._seats if seat.about is not None]

    def everywhere(self, function: Callable[..., Any], argument: Any) -> Iterator[tuple[About, Any]]:
        """Ask a worker of every node; nodes of which none is alive are left out."""
        answered: set[str] = set()
        lost = False
        for attempt in range(2):
            if attempt and not lost:
                return
            self._wait_for_all()  # a worker that died while it was idle has a successor on its node
            asked = {seat.about.node: seat for seat in self._seats if seat.about is not None}
            for node, seat in asked.items():
                if node in answered:
                    continue
                try:
                    answer = self.ray.get(seat.handle.call.remote(function, argument))
                except self._lost():
                    self._replace(seat)
                    lost = True
                    continue
                answered.add(node)
                yield seat.about or About(node, 0), answer

    def map(
        self, tasks: Iterable[Task], shared: tuple[Any, ...] = (), *, window: int | None = None
    ) -> Iterator[tuple[int, About, Any]]:
        """Do all tasks; yields the number of each, who did it and the result, as they end.

        Args:
            shared: further arguments of every task; references to objects are resolved once a node.
            window: how many tasks exist at a time, taken from ``tasks`` as others end. None: all.

        Raises:
            ClusterError: a task failed, its workers died more than ``compute.retries`` times, or there has been no
                worker for ``compute.patience`` seconds.
        """
        numbered = iter(enumerate(tasks))
        state = _Round()
        self._wait_from_now()
        while True:
            room = None if window is None else max(0, window - len(state.tasks))
            for number, task in itertools.islice(numbered, room):
                state.tasks[number] = task
                state.waiting.append(number)
            if not state.tasks:
                return
            self._assign(state, shared)
            starting = {seat.ready: seat for seat in self._seats if seat.about is None}
            done, _ = self.ray.wait([*state.calls, *starting], num_returns=1, timeout=_POLL_SECONDS)
            for reference in [reference for reference in done if reference in starting]:
                self._seat(starting[reference])
                done.remove(reference)
            self._watch()
            for reference in done:
                seat, number = state.calls[reference]
                result = self._result(state, reference)
                if result is not self._LOST:
                    del state.tasks[number]
                    yield number, seat.about or About("", 0), result

    _LOST = object()

    def _result(self, state: _Round, reference: Any) -> Any:
        """The result of a call that has ended; ``_LOST`` where its worker died, and the task waits again."""
        seat, number = state.calls[reference]
        task = state.tasks[number]
        try:
            result = self.ray.get(reference)
        except self._lost() as error:
            self._replace(seat)
            self._take_back(state, seat, type(error).__name__)
            return self._LOST
        except self.ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise ClusterError(f"{task.name}: {type(cause).__name__}: {cause}") from error
        del state.calls[reference]
        if isinstance(result, _Failure):
            raise ClusterError(f"{task.name}: {result.message}")
        return result

    def _take_back(self, state: _Round, seat: _Seat, reason: str) -> None:
        """Put the calls of a dead worker back; the oldest was being worked on and may be to blame."""
        left = [(reference, number) for reference, (owner, number) in state.calls.items() if owner is seat]
        for reference, number in reversed(left):
            del state.calls[reference]
            state.waiting.appendleft(number)
        blamed = left[0][1]
        name = state.tasks[blamed].name
        state.losses[blamed] = state.losses.get(blamed, 0) + 1
        if state.losses[blamed] > self.settings.retries:
            raise ClusterError(
                f"{name}: its worker died {state.losses[blamed]} times, the last time with {reason}; the logs of Ray "
                "may say why (memory?)"
            )
        log.warning("%s: its worker died; it is done again", name)

    def _lost(self) -> tuple[type[BaseException], ...]:
        errors = self.ray.exceptions
        return (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.OutOfMemoryError)

    def _assign(self, state: _Round, shared: tuple[Any, ...]) -> None:
        """Give waiting tasks to workers that have room, one round after another so that all get some."""
        nodes = {seat.about.node for seat in self._seats if seat.about is not None} | self._coming()
        for depth in range(1, _DEPTH + 1):
            for seat in self._seats:
                busy = sum(owner is seat for owner, _ in state.calls.values())
                if seat.about is None or busy >= depth:
                    continue
                number = self._choose(state, seat.about.node, nodes)
                if number is not None:
                    state.waiting.remove(number)
                    task = state.tasks[number]
                    reference = seat.handle.call.remote(task.function, task.argument, *shared)
                    state.calls[reference] = (seat, number)

    @staticmethod
    def _choose(state: _Round, node: str, nodes: set[str]) -> int | None:
        """The first task that belongs on a node, else one that may go there."""
        for number in state.waiting:
            if node in state.tasks[number].nodes:
                return number
        for number in state.waiting:
            task = state.tasks[number]
            if not task.nodes or not task.strict or not task.nodes & nodes:
                return number
        return None

    def _coming(self) -> set[str]:
        """Nodes that live and on which a worker is being started in the place of one that died.

        Ray waits for room on such a node as long as it lives; after a while any other node will do.
        """
        starting = [seat for seat in self._seats if seat.about is None and seat.wanted is not None]
        for seat in starting:
            if time.monotonic() - seat.since > _AGAIN_SECONDS:
                self._replace(seat)
        wanted = {seat.wanted for seat in starting if not seat.dead and seat.wanted is not None}
        return wanted & {node["NodeID"] for node in self.ray.nodes() if node["Alive"]} if wanted else set()

    def _start(self, node: str | None = None) -> _Seat:
        """Start a worker, on a certain node if it is there."""
        place: Any = "SPREAD"
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            place = NodeAffinitySchedulingStrategy(node, soft=True)
        handle = self._actor.options(**self._resources, scheduling_strategy=place).remote(self.settings.scratch)
        return _Seat(handle, handle.about.remote(), node)

    def _seat(self, seat: _Seat) -> None:
        try:
            seat.about = self.ray.get(seat.ready)
            self._arrived = time.monotonic()
        except self._lost():
            self._replace(seat)
        except self.ray.exceptions.RayTaskError as error:
            raise ClusterError(f"a worker cannot start: {error.cause or error}; is colabel on all nodes?") from error

    def _replace(self, seat: _Seat) -> None:
        """Start another worker in the place of a dead one."""
        if not seat.dead:
            seat.dead = True
            self.ray.kill(seat.handle)  # where it is only out of reach, it must not go on
            node = seat.about.node if seat.about is not None else None  # one attempt on its node
            self._seats[self._seats.index(seat)] = self._start(node)

    def _wait_for_all(self) -> None:
        """Wait until all workers are ready, or some are and no more have come for a while."""
        self._wait_from_now()
        while starting := {seat.ready: seat for seat in self._seats if seat.about is None}:
            last = max(self._arrived, *(seat.since for seat in starting.values()))
            left = last + _WARN_SECONDS - time.monotonic()
            if left <= 0 and self.workers():
                return  # a node that was lost has left a place that nobody takes: it is waited for once
            done, _ = self.ray.wait(list(starting), num_returns=1, timeout=max(_POLL_SECONDS, left))
            for reference in done:
                self._seat(starting[reference])
            self._watch()

    def _wait_from_now(self) -> None:
        """Begin to count: what the driver did before had no need of workers, and nobody looked whether any is ready."""
        if not self.workers():
            self._alone_since, self._warned = time.monotonic(), False

    def _watch(self) -> None:
        """Give up, with the reason, once there has been no worker for too long."""
        now = time.monotonic()
        if self.workers():
            self._alone_since, self._warned = now, False
            return
        waited = now - self._alone_since
        if waited > min(_WARN_SECONDS, self.settings.patience) and not self._warned:
            log.warning("no worker is ready yet; %s", self._needs())
            self._warned = True
        if waited > self.settings.patience:
            self._alone_since = now
            raise ClusterError(f"no worker has been ready for {waited:.0f} seconds: {self._needs()}")

    def _needs(self) -> str:
        has = {name: value for name, value in self.ray.cluster_resources().items() if name in ("CPU", "GPU")}
        return (
            f"a worker takes {self.settings.cpus} CPU and {self._gpus:g} GPU, and the cluster has "
            f"{has.get('CPU', 0):g} CPU and {has.get('GPU', 0):g} GPU, some of them perhaps in use"
        )

    def _room(self) -> int:
        """As many workers as the cluster has room for."""
        has = self.ray.cluster_resources()
        rooms = [has.get("CPU", 0) // self.settings.cpus]
        if self._gpus:
            rooms.append(has.get("GPU", 0) // self._gpus)
        room = max(1, int(min(rooms)))
        if room < rooms[0]:
            log.warning(
                "%d workers, for each takes a GPU; where models compute on CPUs, compute.gpus = 0 allows %d",
                room,
                rooms[0],
            )
        return room

    def close(self) -> None:
        """End the workers; those of a session that has ended are gone already."""
        for seat in self._seats:
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                self.ray.kill(seat.handle)
        self._seats = []

"""Worker processes that share work: bounded, and with nothing lost when one of them dies.

Each worker is an actor with a :class:`~colabel.index.shard_plan.ShardCache`. A call that a dead worker leaves behind
goes to another one, and a new worker takes its place as soon as the cluster has room. What fails for a reason of its
own, or again and again, ends the stage with an error that names it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colabel.errors import ClusterError, ColabelError, MissingExtraError
from colabel.index.shard_plan import CACHE, ShardCache
from colabel.settings import ComputeSettings

log = logging.getLogger(__name__)

RETRIES = 3
"""How often an item is tried again after its worker died: memory may be short for a moment, not always."""
PATIENCE = 600.0
"""Seconds without any worker after which a stage gives up: a cluster that grows needs minutes to add a node."""
_CPUS = 1  # cores of a worker: torch on one core does more per core than torch on several
_DEPTH = 2  # calls a worker has at a time: the next one waits beside the one it works on
_POLL_SECONDS = 1.0
_WARN_SECONDS = 30.0


def load_ray() -> Any:
    """Ray, or a sentence that says how to install it."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtraError("ray", "ray", "'compute.engine = \"ray\"'") from None
    return ray


def connect(settings: ComputeSettings) -> Any:
    """Ray, connected to the cluster of the settings; an open connection is kept."""
    ray = load_ray()
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"address": settings.address}
    if not settings.address:
        options = {"address": "local", "include_dashboard": False}
        if settings.workers:
            options["num_cpus"] = settings.workers * _CPUS
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # noqa: BLE001, a node that does not come up is a bare Exception of Ray's
        where = settings.address or "this machine"
        raise ClusterError(
            f"no Ray cluster at '{where}': {error}. Start one with `ray start --head`, name its address in "
            "'compute.address', or leave that empty"
        ) from None
    return ray


@dataclass(frozen=True)
class WorkItem:
    """One call.

    Attributes:
        function: a function of a module, called with the worker's cache, ``argument`` and whatever all items share.
        name: what an error calls it.
        node: where it should run if a worker there has room; empty: anywhere.
    """

    function: Callable[..., Any]
    argument: Any
    name: str
    node: str = ""


@dataclass(frozen=True)
class _Failure:
    """A mistake that is no bug: its sentence crosses processes, the exception need not."""

    message: str


class Worker:
    """What runs in a worker process; made into an actor by :class:`WorkerPool`."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = ShardCache(cache or CACHE)  # the temporary folder of its own machine

    def node(self) -> str:
        """The node that it lives on."""
        return str(load_ray().get_runtime_context().get_node_id())

    def call(self, function: Callable[..., Any], argument: Any, *shared: Any) -> Any:
        """The result of an item."""
        try:
            return function(self._cache, argument, *shared)
        except ColabelError as error:
            return _Failure(str(error))


@dataclass(eq=False)
class _Seat:
    """A worker: being started (``node`` is None), at work, or dead and about to be replaced."""

    handle: Any
    ready: Any
    node: str | None = None
    dead: bool = False


@dataclass
class _Round:
    """The state of one :meth:`WorkerPool.map`."""

    waiting: deque[int] = field(default_factory=deque)
    items: dict[int, WorkItem] = field(default_factory=dict)
    calls: dict[Any, tuple[_Seat, int]] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)


class WorkerPool:
    """The workers of a cluster; each takes a core and, where the cluster has any, a GPU."""

    def __init__(
        self,
        settings: ComputeSettings,
        *,
        cpus: int = _CPUS,
        retries: int = RETRIES,
        patience: float = PATIENCE,
        cache: Path | None = None,
    ) -> None:
        self.ray = connect(settings)
        errors = self.ray.exceptions
        self._dead = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.OutOfMemoryError)
        has = self.ray.cluster_resources()
        self._cpus, self._gpus = cpus, 1 if has.get("GPU", 0) >= 1 else 0
        self._retries, self._patience, self._cache = retries, patience, cache
        self._actor = self.ray.remote(Worker).options(
            num_cpus=cpus, num_gpus=self._gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        room = has.get("GPU", 0) if self._gpus else has.get("CPU", 0) // cpus
        self._seats = [self._start() for _ in range(settings.workers or max(1, int(room)))]
        self._alone_since = time.monotonic()
        self._warned = False

    def __len__(self) -> int:
        return len(self._seats)

    def nodes(self) -> list[str]:
        """The nodes of the workers that are ready, one entry per worker."""
        return [seat.node for seat in self._seats if seat.node is not None]

    def map(
        self, items: Iterable[WorkItem], shared: tuple[Any, ...] = (), *, window: int | None = None
    ) -> Iterator[tuple[int, str, Any]]:
        """Do all items; yields the number of each, the node that did it and the result, as they end.

        Args:
            shared: further arguments of every item; references to objects are resolved once per node.
            window: how many items exist at a time, taken from ``items`` as others end. None: all.
        """
        numbered = iter(enumerate(items))
        state = _Round()
        if not self.nodes():  # what the driver did before needed no workers, and nobody looked whether any is ready
            self._alone_since, self._warned = time.monotonic(), False
        while True:
            room = None if window is None else max(0, window - len(state.items))
            for number, item in itertools.islice(numbered, room):
                state.items[number] = item
                state.waiting.append(number)
            if not state.items:
                return
            self._assign(state, shared)
            starting = {seat.ready: seat for seat in self._seats if seat.node is None}
            done, _ = self.ray.wait([*state.calls, *starting], num_returns=1, timeout=_POLL_SECONDS)
            for reference in [reference for reference in done if reference in starting]:
                self._seat(starting[reference])
                done.remove(reference)
            self._watch()
            for reference in done:
                seat, number = state.calls[reference]
                result = self._result(state, reference)
                if result is not self._LOST:
                    del state.items[number]
                    yield number, seat.node or "", result

    def close(self) -> None:
        """End the workers; those of a session that has ended are gone already."""
        for seat in self._seats:
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                self.ray.kill(seat.handle)
        self._seats = []

    _LOST = object()

    def _assign(self, state: _Round, shared: tuple[Any, ...]) -> None:
        """Give waiting items to workers that have room, one round after another so that all get some."""
        for depth in range(1, _DEPTH + 1):
            for seat in self._seats:
                busy = sum(owner is seat for owner, _ in state.calls.values())
                if seat.node is None or busy >= depth or not state.waiting:
                    continue
                own = (number for number in state.waiting if state.items[number].node == seat.node)
                free = (number for number in state.waiting if not state.items[number].node)
                number = next(own, next(free, state.waiting[0]))
                state.waiting.remove(number)
                item = state.items[number]
                state.calls[seat.handle.call.remote(item.function, item.argument, *shared)] = (seat, number)

    def _result(self, state: _Round, reference: Any) -> Any:
        """The result of a call that has ended; ``_LOST`` where its worker died, and the item waits again."""
        seat, number = state.calls[reference]
        name = state.items[number].name
        try:
            result = self.ray.get(reference)
        except self._dead as error:
            self._replace(seat)
            self._take_back(state, seat, type(error).__name__)
            return self._LOST
        except self.ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise ClusterError(f"{name}: {type(cause).__name__}: {cause}") from error
        del state.calls[reference]
        if isinstance(result, _Failure):
            raise ClusterError(f"{name}: {result.message}")
        return result

    def _take_back(self, state: _Round, seat: _Seat, reason: str) -> None:
        """Put the calls of a dead worker back; the oldest was being worked on and may be to blame."""
        left = [(reference, number) for reference, (owner, number) in state.calls.items() if owner is seat]
        for reference, number in reversed(left):
            del state.calls[reference]
            state.waiting.appendleft(number)
        blamed = left[0][1]
        name = state.items[blamed].name
        state.losses[blamed] = state.losses.get(blamed, 0) + 1
        if state.losses[blamed] > self._retries:
            raise ClusterError(
                f"{name}: its worker died {state.losses[blamed]} times, the last time with {reason}; Ray's logs may "
                "say why (memory?)"
            )
        log.warning("%s: its worker died; trying again", name)

    def _start(self) -> _Seat:
        handle = self._actor.remote(self._cache)
        return _Seat(handle, handle.node.remote())

    def _seat(self, seat: _Seat) -> None:
        try:
            seat.node = self.ray.get(seat.ready)
        except self._dead:
            self._replace(seat)
        except self.ray.exceptions.RayTaskError as error:
            raise ClusterError(f"a worker cannot start: {error.cause or error}; is colabel on all nodes?") from error

    def _replace(self, seat: _Seat) -> None:
        """Start another worker in the place of a dead one."""
        if not seat.dead:
            seat.dead = True
            self.ray.kill(seat.handle)  # where it is only out of reach, it must not go on
            self._seats[self._seats.index(seat)] = self._start()

    def _watch(self) -> None:
        """Give up, with the reason, once there has been no worker for too long."""
        now = time.monotonic()
        if self.nodes():
            self._alone_since, self._warned = now, False
            return
        waited = now - self._alone_since
        has = self.ray.cluster_resources()
        needs = (
            f"a worker takes {self._cpus} CPU and {self._gpus} GPU, and the cluster has {has.get('CPU', 0):g} CPU and "
            f"{has.get('GPU', 0):g} GPU, some of them perhaps in use"
        )
        if waited > min(_WARN_SECONDS, self._patience) and not self._warned:
            log.warning("no worker is ready yet; %s", needs)
            self._warned = True
        if waited > self._patience:
            self._alone_since = now
            raise ClusterError(f"no worker has been ready for {waited:.0f} seconds: {needs}")

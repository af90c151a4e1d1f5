"""Calls on a Ray cluster: bounded, and with nothing lost when a worker or a node dies.

A call is a Ray task, so Ray chooses the worker and starts a new one for one that died. A worker process lives on and
keeps what it opened in a :class:`~colabel.index.shard_plan.ShardCache`. A call whose worker died is tried again; what
fails for a reason of its own, or again and again, ends the stage with an error that names it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from colabel.errors import ClusterError, ColabelError, MissingExtraError
from colabel.index.shard_plan import ShardCache
from colabel.settings import ComputeSettings

log = logging.getLogger(__name__)

RETRIES = 3
"""How often a call is tried again after its worker died: memory may be short for a moment, not always."""
PATIENCE = 600.0
"""Seconds without any node for a worker after which a stage gives up: a cluster that grows needs minutes to add one."""
CPUS = 1  # cores of a worker: torch on one core does more per core than torch on several
_POLL_SECONDS = 1.0
_WARN_SECONDS = 30.0
_CACHE = ShardCache()
"""Of a worker process."""


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
            options["num_cpus"] = settings.workers * CPUS
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # noqa: BLE001, a node that does not come up is a bare Exception of Ray's
        where = settings.address or "this machine"
        raise ClusterError(
            f"no Ray cluster at '{where}': {error}. Start one with `ray start --head`, name its address in "
            "'compute.address', or leave that empty"
        ) from None
    return ray


def call(function: Callable[..., Any], argument: Any, *shared: Any) -> Any:
    """What runs in a worker: the result, or the sentence of a mistake that is no bug."""
    try:
        return function(_CACHE, argument, *shared), ""
    except ColabelError as error:  # its sentence crosses processes, the exception need not
        return None, str(error)


class WorkerPool:
    """The workers of a cluster; each takes a core and, where the cluster has any, a GPU."""

    def __init__(self, settings: ComputeSettings, *, retries: int = RETRIES, patience: float = PATIENCE) -> None:
        self.ray = connect(settings)
        errors = self.ray.exceptions
        self._dead = (
            *(errors.WorkerCrashedError, errors.NodeDiedError, errors.LocalRayletDiedError),
            *(errors.ObjectLostError, errors.OutOfMemoryError),
        )
        self._wanted, self._retries, self._patience = settings.workers, retries, patience
        self._needs = {"CPU": CPUS} | ({"GPU": 1} if self.ray.cluster_resources().get("GPU", 0) >= 1 else {})
        how = {"num_cpus": CPUS, "num_gpus": self._needs.get("GPU", 0), "scheduling_strategy": "SPREAD"}
        self._call = self.ray.remote(max_retries=0, max_calls=0, **how)(call)

    def __len__(self) -> int:
        has = self.ray.cluster_resources()
        return self._wanted or max(1, min(int(has.get(name, 0) // count) for name, count in self._needs.items()))

    def map(
        self, function: Callable[..., Any], items: Iterable[tuple[str, Any]], *shared: Any
    ) -> Iterator[tuple[int, Any]]:
        """Call a function of a module with the worker's cache, each item's argument and what all share.

        Yields the number of each item and the result, as they end. Items, each with what an error calls it, are taken
        as there are workers for them; references to objects in ``shared`` are resolved once per node.
        """
        waiting: Iterator[tuple[int, tuple[str, Any]]] = enumerate(items)
        running: dict[Any, tuple[int, tuple[str, Any]]] = {}
        losses, idle = collections.Counter[int](), 0.0
        try:
            while True:
                room = max(0, len(self) - len(running))
                for entry in itertools.islice(waiting, room):
                    running[self._call.remote(function, entry[1][1], *shared)] = entry
                if not running:
                    return
                done, _ = self.ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
                idle = 0.0 if done else self._watch(idle)
                for reference in done:
                    entry = running.pop(reference)
                    number, (name, _) = entry
                    try:
                        result, mistake = self.ray.get(reference)
                    except self._dead as error:
                        losses[number] += 1
                        if losses[number] > self._retries:
                            raise ClusterError(
                                f"{name}: its worker died {losses[number]} times, the last time with "
                                f"{type(error).__name__}; Ray's logs may say why (memory?)"
                            ) from None
                        log.warning("%s: its worker died; trying again", name)
                        waiting = itertools.chain([entry], waiting)
                        continue
                    except self.ray.exceptions.RayError as error:
                        cause = getattr(error, "cause", None) or error
                        raise ClusterError(f"{name}: {type(cause).__name__}: {cause}") from error
                    if mistake:
                        raise ClusterError(f"{name}: {mistake}")
                    yield number, result
        finally:
            for reference in running:  # what is left after an error
                with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                    self.ray.cancel(reference, force=True)

    def _watch(self, idle: float) -> float:
        """Give up, with the reason, once there has been no node for a worker for too long; seconds so far."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if any(all(node.get(name, 0) >= count for name, count in self._needs.items()) for node in nodes):
            return 0.0
        has = self.ray.cluster_resources()
        needs = (
            f"a worker takes {self._needs['CPU']} CPU and {self._needs.get('GPU', 0)} GPU, and the cluster has "
            f"{has.get('CPU', 0):g} CPU and {has.get('GPU', 0):g} GPU"
        )
        if idle < _WARN_SECONDS <= idle + _POLL_SECONDS:
            log.warning("there is no node for a worker yet; %s", needs)
        if idle >= self._patience:
            raise ClusterError(f"there has been no node for a worker for {idle:.0f} seconds: {needs}")
        return idle + _POLL_SECONDS

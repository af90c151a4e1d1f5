"""The connection to a Ray cluster."""

from __future__ import annotations

import logging
from typing import Any

from colabel.errors import ClusterError, MissingExtraError
from colabel.settings import ComputeSettings


def load_ray() -> Any:
    """Ray, or a sentence that says how to install it."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtraError("ray", "ray", "'compute.engine = \"ray\"'") from None
    return ray


def connect(settings: ComputeSettings) -> Any:
    """Ray, connected to the cluster of the settings; a connection that is there already is kept."""
    ray = load_ray()
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"address": settings.address}
    if not settings.address:
        options = {"address": "local", "include_dashboard": False}
        if settings.workers:
            options["num_cpus"] = settings.workers * settings.cpus
        if settings.memory:
            options["object_store_memory"] = settings.memory
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # noqa: BLE001, a node that does not come up is a bare Exception of Ray's
        where = settings.address or "this machine"
        raise ClusterError(
            f"no Ray cluster at '{where}': {error}. Start one with `ray start --head`, name its address in "
            "'compute.address', or leave that empty"
        ) from None
    return ray

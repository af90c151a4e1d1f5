"""One small Ray on this machine for all tests of a cluster, and the tiny collection that they run on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colabel import IndexSettings, Recipe
from colabel.settings import ComputeSettings
from tests.pipeline.small import small_recipe

if TYPE_CHECKING:
    from colabel.cluster.pool import WorkerPool


@pytest.fixture(scope="session")
def small_ray() -> Iterator[None]:
    """Room for the workers of two pools and a small object store, whatever the machine has."""
    ray = pytest.importorskip("ray", reason="ray is not installed (the extra 'ray' brings it)")
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112, Ray spells it so
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, Ray spells it so; a busy machine would starve them
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=200 * 2**20,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def pool(small_ray: None) -> WorkerPool:
    """Two workers that all tests share, since a worker takes seconds to start."""
    from colabel.cluster.pool import WorkerPool

    return WorkerPool(ComputeSettings(engine="ray", workers=2), retries=2)


@pytest.fixture(scope="session")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """In blocks of four passages, so that a tiny collection has several shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colabel.index.store.BLOCK_PASSAGES", 4)
        yield dataclasses.replace(
            small_recipe(tmp_path_factory.mktemp("cluster") / "small", tiny_model),
            index=IndexSettings(engine="exact"),
            compute=ComputeSettings(engine="ray", workers=2, shard_passages=8),
        )

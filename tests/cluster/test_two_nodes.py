"""A whole run on a cluster of two nodes, one of which is lost while it ranks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colabel import IndexSettings, Recipe, open_labels, run
from colabel.cluster.pool import WorkerPool
from colabel.labels import Labels
from colabel.settings import ComputeSettings
from tests.cluster import tasks
from tests.pipeline.small import small_recipe

SYSTEM = "collective-0.5"


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes with a processor each; the head has none to give."""
    ray = pytest.importorskip("ray", reason="ray is not installed (the extra 'ray' brings it)")
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112, Ray spells it so
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, Ray spells it so
    memory = 150 * 2**20
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        nodes.add_node(num_cpus=1, object_store_memory=memory)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def lose_one(cluster: Any) -> None:
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def labels(recipe: Recipe, out: Path) -> Labels:
    run(recipe, out, teacher="collective")
    return open_labels(out / "labels" / SYSTEM)


def same(ours: Labels, theirs: Labels) -> None:
    for mine, other in zip(ours.blocks(), theirs.blocks(), strict=True):
        assert mine.query_ids == other.query_ids
        np.testing.assert_allclose(mine.base, other.base, atol=1e-4)
        np.testing.assert_allclose(mine.teacher, other.teacher, atol=1e-4)
        differ = mine.rows != other.rows
        finite = np.where(other.rows >= 0, other.base, -1e9)  # queries with fewer candidates than others
        close = np.abs(np.diff(finite, axis=1, prepend=np.inf)) < 1e-5
        assert not (differ & ~close & ~np.roll(close, -1, axis=1)).any(), "only near ties may change places"


def test_a_tiny_run_with_a_node_lost_while_ranking(
    tiny_model: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(
        small_recipe(tmp_path / "small", tiny_model),
        index=IndexSettings(engine="exact"),
        compute=ComputeSettings(engine="ray", workers=2, shard_passages=8),
    )
    monkeypatch.setattr("colabel.index.store.BLOCK_PASSAGES", 4)
    local = labels(replace(tiny, compute=ComputeSettings()), tmp_path / "local")
    original = WorkerPool.map

    def losing(self: WorkerPool, function: Any, items: Any, *shared: Any) -> Iterator[Any]:
        if "search" in shared[1:2] and len(cluster.worker_nodes) > 1:
            lose_one(cluster)
        return original(self, function, items, *shared)

    monkeypatch.setattr(WorkerPool, "map", losing)
    same(labels(tiny, tmp_path / "ray"), local)
    assert len(cluster.worker_nodes) == 1


def test_calls_of_a_lost_node_are_done_by_another(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lose() -> None:
        while len(list(tmp_path.glob("begun-*"))) < 2:  # one on each node
            time.sleep(0.01)
        lose_one(cluster)
        (tmp_path / "lost").touch()

    thief = threading.Thread(target=lose)
    thief.start()
    pool = WorkerPool(ComputeSettings(engine="ray", workers=2))
    found = dict(pool.map(tasks.outlive, ((f"task {number}", (number, tmp_path)) for number in range(8))))
    thief.join()
    assert found == {number: number for number in range(8)}
    assert "its worker died; trying again" in caplog.text

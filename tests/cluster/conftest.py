"""One small Ray on this machine for all tests of a cluster, and the tiny collection that they run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colabel import CollectiveSettings, DataSettings, EncoderSettings, IndexSettings, Recipe
from colabel.settings import (
    ComputeSettings,
    CrossEncoderSettings,
    DistilSettings,
    LabelSettings,
    RankSettings,
    TrainSettings,
)
from tests.train.small import write_collection

if TYPE_CHECKING:
    from colabel.cluster.pool import WorkerPool

CHEAP = {"steps": 2, "batch_queries": 2, "evaluate_every": 0}


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
def pool(small_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Two workers that all tests share, since a worker takes seconds to start."""
    from colabel.cluster.pool import WorkerPool

    scratch = tmp_path_factory.mktemp("workers") / "scratch"
    workers = WorkerPool(ComputeSettings(engine="ray", workers=2, retries=2, patience=120.0, scratch=str(scratch)))
    yield workers
    workers.close()


@pytest.fixture(scope="session")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = write_collection(tmp_path_factory.mktemp("cluster") / "small")
    judged = (folder / "qrels" / "dev.tsv").read_text().splitlines()
    half = len(judged) // 2 + 1
    (folder / "qrels" / "dev.tsv").write_text("\n".join(judged[:half]) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join([judged[0], *judged[half:]]) + "\n")
    return Recipe(
        data=DataSettings(source=str(folder)),
        encoder=EncoderSettings(
            model=str(tiny_model), dimension=16, projection_sample=16, query_length=12, passage_length=24, device="cpu"
        ),
        index=IndexSettings(engine="exact", shard_passages=4),
        rank=RankSettings(depth=20),
        collective=CollectiveSettings(clusters=6, centroids=3),
        labels=LabelSettings(candidates=10),
        train=TrainSettings(**CHEAP, passages=2),
        distil=DistilSettings(**CHEAP, passages=3),
        cross_encoder=CrossEncoderSettings(
            models=(str(tiny_model), f"{tiny_model}:1"), steps=2, batch_queries=2, negatives=2, max_length=48
        ),
        compute=ComputeSettings(engine="ray", workers=2, shard_passages=8, patience=60.0),
    )

"""A whole run over a real collection on a cluster of two nodes, one of which is lost while it ranks.

1,500 passages of scifact; all 5,183 and all its training queries with ``COLABEL_WHOLE_SCIFACT=1``.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colabel import DataSettings, EncoderSettings, IndexSettings, Recipe, open_labels, run
from colabel.cluster.pool import WorkerPool
from colabel.labels import Labels
from colabel.settings import ComputeSettings, DistilSettings, FitSettings, LabelSettings, TrainSettings
from tests.cluster import tasks
from tests.pipeline.small import small_recipe

PASSAGES, QUERIES = (5183, 809) if os.environ.get("COLABEL_WHOLE_SCIFACT") else (1500, 120)
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


@pytest.fixture
def recipe(shared_data: Callable[[str], Path], tmp_path: Path) -> Recipe:
    """The first training queries of scifact, their positives and as many other passages as there is time for."""
    source, folder = shared_data("scifact"), tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    header, *lines = (source / "qrels" / "train.tsv").read_text().splitlines()
    judged = [line for line in lines if line.split("\t")[0] in {one.split("\t")[0] for one in lines[:QUERIES]}]
    (folder / "qrels" / "train.tsv").write_text("\n".join([header, *judged]) + "\n")
    shutil.copy(source / "queries.jsonl", folder / "queries.jsonl")
    with gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        passages = file.readlines()
    needed = {line.split("\t")[1] for line in judged}
    passages.sort(key=lambda line: json.loads(line)["_id"] not in needed)
    (folder / "corpus.jsonl").write_text("".join(passages[:PASSAGES]), encoding="utf-8")
    return Recipe(
        data=DataSettings(source=str(folder), holdout=0.0),
        encoder=EncoderSettings(passage_length=64, device="cpu"),
        index=IndexSettings(engine="exact"),
        labels=LabelSettings(candidates=50),
        train=TrainSettings(theta="take"),
        distil=DistilSettings(steps=2, batch_queries=2, passages=2),
        fit=FitSettings(evaluate_every=0),
        compute=ComputeSettings(engine="ray", workers=2, shard_passages=256),
    )


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
    tiny_model: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
        while len(list(tmp_path.glob("begun-*"))) - len(list(tmp_path.glob("ended-*"))) < 2:  # one on each node
            time.sleep(0.01)
        lose_one(cluster)

    thief = threading.Thread(target=lose)
    thief.start()
    pool = WorkerPool(ComputeSettings(engine="ray", workers=2))
    found = dict(pool.map(tasks.note, ((f"task {number}", (number, tmp_path)) for number in range(8))))
    thief.join()
    assert found == {number: number for number in range(8)}
    assert "its worker died; trying again" in caplog.text


@pytest.mark.slow
def test_labels_are_the_same_with_a_node_lost_while_ranking(
    recipe: Recipe, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("colabel.index.store.BLOCK_PASSAGES", 128)
    local = labels(replace(recipe, compute=ComputeSettings()), tmp_path / "local")
    lost = threading.Event()
    searching = threading.Event()
    original = WorkerPool.map

    def watched(self: WorkerPool, function: Any, items: Any, *shared: Any) -> Iterator[Any]:
        if "search" in shared[1:2]:
            searching.set()
        return original(self, function, items, *shared)

    def lose() -> None:
        """Take a node away once ranking has begun."""
        searching.wait(timeout=600)
        time.sleep(0.3)
        lose_one(cluster)
        lost.set()

    monkeypatch.setattr(WorkerPool, "map", watched)
    thief = threading.Thread(target=lose)
    thief.start()
    ours = labels(recipe, tmp_path / "ray")
    thief.join()
    assert lost.is_set()
    assert "its worker died" in caplog.text, "it was lost while it ranked"
    same(ours, local)

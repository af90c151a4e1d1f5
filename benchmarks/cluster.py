"""The overhead of Ray on one machine, and the gain of a second worker.

    python benchmarks/cluster.py [--json FILE] [--passages 2000]

The same collection (pydocs) is indexed, its training queries ranked, their knowledge collected and labelled: by the
local engine with one thread, by Ray with one worker, and by Ray with two. Overhead is the second by the first, and the
gain of a worker the third by the second; starting workers is measured separately. Needs two cores and an
otherwise idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_report

from colabel import DataSettings, EncoderSettings, IndexSettings, Recipe
from colabel.artefacts import Builder
from colabel.labels import Labels
from colabel.pipeline.layout import Layout
from colabel.pipeline.run import theta_index
from colabel.pipeline.stages import Stages
from colabel.settings import ComputeSettings, TrainSettings
from colabel.systems import parse_system

SYSTEM = "collective-0.5"
STAGES = ("index", "knowledge", "labels")


def recipe(passages: int, compute: ComputeSettings) -> Recipe:
    return Recipe(
        data=DataSettings(source=f"pydocs:{passages}"),
        encoder=EncoderSettings(passage_length=96, device="cpu"),
        index=IndexSettings(engine="exact"),
        train=TrainSettings(theta="take"),
        compute=compute,
    )


def measure(settings: Recipe, out: Path) -> tuple[dict[str, float], Labels]:
    figures = {}
    with Stages(settings, Layout.of(out), builder=Builder()) as do:
        data, system = do.dataset(), parse_system(SYSTEM)
        do.encoder(data)  # reading the collection and making the encoder are no stages of the cluster
        begin = time.perf_counter()
        engine = do.engine()
        if settings.compute.engine == "ray":
            list(engine.pool.map(_nothing, [("nothing", None)] * len(engine.pool)))  # type: ignore[attr-defined]
        figures["start of the workers"] = time.perf_counter() - begin
        begin = time.perf_counter()
        index = theta_index(do)
        indexed = time.perf_counter()
        known = do.collect(data, index)
        collected = time.perf_counter()
        teacher = do.teacher(system, data, known, ())
        assert teacher is not None
        labels = do.label(system, data, known, teacher, do.groups(data, known.ranking))
        times = (begin, indexed, collected, time.perf_counter())
    figures |= {name: end - start for name, start, end in zip(STAGES, times, times[1:], strict=False)}
    figures["all stages"] = times[-1] - times[0]
    return figures, labels


def _nothing(desk: object, argument: object) -> None:
    """Ask a worker for nothing: it has started when it answers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=2000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shards = max(128, arguments.passages // 8)
    engines = {
        "local, 1 thread": ComputeSettings(),
        "ray, 1 worker": ComputeSettings(engine="ray", workers=1, shard_passages=shards, memory=300 * 2**20),
        "ray, 2 workers": ComputeSettings(engine="ray", workers=2, shard_passages=shards, memory=300 * 2**20),
    }
    rows: list[dict[str, Any]] = []
    found: dict[str, float] = {}
    made: list[Labels] = []
    with tempfile.TemporaryDirectory(prefix="colabel-cluster-") as place:
        for number, (name, compute) in enumerate(engines.items()):
            if compute.engine == "ray":
                _fresh_ray()
            figures, labels = measure(recipe(arguments.passages, compute), Path(place) / str(number))
            found[name] = figures["all stages"]
            rows.append({"engine": name, **{key: round(value, 2) for key, value in figures.items()}})
            print(rows[-1], flush=True)
            made.append(labels)
            rows[-1]["largest difference of a label"] = _difference(made[0], labels)
    local, one, two = found.values()
    summary = {
        "passages": arguments.passages,
        "overhead_of_ray_with_one_worker": round(one / local - 1, 3),
        "time_of_two_workers_by_one": round(two / one, 3),
    }
    print(summary)
    write_report(arguments.json, {**summary, "engines": rows})


def _difference(first: Labels, second: Labels) -> float:
    largest = 0.0
    for one, other in zip(first.blocks(), second.blocks(), strict=True):
        scored = np.isfinite(one.teacher) & np.isfinite(other.teacher)
        largest = max(largest, float(np.abs(one.teacher[scored] - other.teacher[scored]).max(initial=0.0)))
    return largest


def _fresh_ray() -> None:
    """Another number of workers needs another Ray."""
    import ray

    ray.shutdown()


if __name__ == "__main__":
    main()

"""How well ``colabel plan`` predicts real runs, at three sizes.

    python benchmarks/plan.py [--json FILE] [--sizes 400 800 1600]

For each size the plan comes first, then all of `colabel run` (pydocs, one process, few steps), and the seconds of their
stages are compared. Errors are of the stages that take more than a second, and of all together. At the end MS
MARCO is planned, with MiniLM and workers of one core. Run nothing else at the same time.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import write_report

from colabel import DataSettings, EncoderSettings, IndexSettings, Recipe, load_recipe, run
from colabel.artefacts import seconds_of
from colabel.pipeline.capacity import plan_capacity
from colabel.settings import DistilSettings, FitSettings, TrainSettings

RECIPE = Path(__file__).parent.parent / "recipes" / "msmarco.toml"
WORKERS = (8, 64, 512)

PLACES = {
    "BM25": ("bm25", "rankings/bm25-train", "rankings/bm25-dev", "runs/bm25"),
    "train θ": ("theta",),
    "encode with θ": ("index/tokens",),
    "rank training queries": ("knowledge/queries", "knowledge/ranking", "rankings/dev"),
    "collective knowledge": ("knowledge/centroids",),
    "label": ("labels/collective-0.5",),
    "train the student": ("students/collective-0.5/model",),
    "encode with the student": ("students/collective-0.5/index/tokens",),
    "encode untrained": ("zero-shot/tokens",),
    "rank test queries": ("runs/zero-shot", "runs/colbert", "runs/collective-0.5"),
}
TOGETHER = {
    "rank training queries": "encode training queries",
    "rank test queries": "encode test queries",
}
"""Stages of the plan that one artefact holds together."""


def compare(passages: int, out: Path) -> list[dict[str, object]]:
    recipe = Recipe(
        data=DataSettings(source=f"pydocs:{passages}"),
        encoder=EncoderSettings(device="cpu"),
        index=IndexSettings(engine="exact"),
        train=TrainSettings(steps=12),
        distil=DistilSettings(steps=12),
        fit=FitSettings(evaluate_every=6, evaluate_queries=2),
    )
    plan = {stage.name: stage.seconds for stage in plan_capacity(recipe).stages}
    run(recipe, out)
    for name, part in TOGETHER.items():
        plan[name] += plan[part]
    real = {name: sum(seconds_of(out / place) or 0.0 for place in places) for name, places in PLACES.items()}
    plan["all"], real["all"] = sum(plan[name] for name in PLACES), sum(real.values())
    return [
        {
            "passages": passages,
            "stage": name,
            "planned_seconds": round(plan[name], 2),
            "real_seconds": round(real[name], 2),
            "error": f"{plan[name] / real[name] - 1:+.0%}" if real[name] > 1 else "",
        }
        for name in real
    ]


def plan_msmarco() -> tuple[dict[str, object], list[dict[str, object]]]:
    """Sizes, and hours of each stage by workers, of the paper's recipe on workers like this machine's cores."""
    recipe = load_recipe(RECIPE, ["encoder.model=minilm", "encoder.device=cpu", "compute.engine=ray"])
    plan = plan_capacity(recipe, passages=8_841_823, queries=502_939, test_queries=43, passage_tokens=73)
    sizes = {
        "passages": plan.passages,
        "training_queries": plan.queries,
        "token_vectors": plan.tokens,
        "engine": plan.engine,
        "shards": plan.shards,
        "disk_of_all_indexes_gb": round(plan.disk_bytes / 1e9),
        "memory_of_a_worker_gb": round(plan.worker_bytes / 1e9, 1),
        "passages_a_second_of_a_worker": round(plan.rates.encoded, 1),
    }
    rows: list[dict[str, object]] = [
        {
            "stage": stage.name + ("" if stage.shared else " (driver)"),
            **{f"hours, {count} workers": f"{stage.hours(count):,.1f}" for count in WORKERS},
        }
        for stage in plan.stages
    ]
    rows.append({"stage": "all", **{f"hours, {count} workers": f"{plan.hours(count):,.1f}" for count in WORKERS}})
    return sizes, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[400, 800, 1600])
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        for size in arguments.sizes:
            rows += compare(size, Path(place) / str(size))
            print(*rows[-len(PLACES) - 1 :], sep="\n", flush=True)
    sizes, hours = plan_msmarco()
    print(sizes, *hours, sep="\n")
    write_report(arguments.json, {"stages": rows, "msmarco": sizes, "msmarco_hours": hours})


if __name__ == "__main__":
    main()

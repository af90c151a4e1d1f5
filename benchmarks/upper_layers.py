"""What freezing lower layers costs: nDCG@10 on dev after the same training of all layers, the upper 4 and the upper 2.

    python benchmarks/upper_layers.py [--json FILE] [--data FOLDER …] [--model minilm] [--steps 300]

One label per training query is kept, as in the studies; θ is trained from the model with the default settings, and the
last weights are compared with the start. Dev queries rank BM25's first 100 passages again; test labels are never read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from common import write_report

from colabel import load_dataset
from colabel.encode import prepare_encoder
from colabel.ranking import Bm25, rank
from colabel.settings import DataSettings, EncoderSettings, FitSettings, RankSettings, TrainSettings
from colabel.train import dev_set, train_theta

LAYERS = ("all", 4, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="+", default=["pydocs:1000"])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--queries", type=int, default=300, help="dev queries, at most")
    options = parser.parse_args()
    rows = []
    for source in options.data:
        with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
            rows.append(measure(source, options.model, options.steps, options.queries, Path(folder)))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    write_report(options.json, {"model": Path(options.model).name, "steps": options.steps, "rows": rows})


def measure(source: str, model: str, steps: int, queries: int, place: Path) -> dict[str, Any]:
    data = load_dataset(DataSettings(source=source, keep_labels=1), cache=place / "data")
    prepare_encoder(EncoderSettings(model=model), data.passages, place / "start")
    bm25, fit = Bm25(data.passages, RankSettings(), place / "bm25"), FitSettings(evaluate_every=steps, keep="last")
    train, judged = (rank(bm25, data.split_queries(one), place / one, depth=1000) for one in ("train", "dev"))
    dev = dev_set(data, judged, queries=queries, depth=100)
    found: dict[str, Any] = {"collection": data.name, "dev_queries": len(dev.query_ids)}
    for layers in LAYERS:
        begun, out = time.process_time(), place / f"theta-{layers}"
        train_theta(
            data, place / "start", train, out, settings=TrainSettings(steps=steps, layers=layers), fit=fit, dev=dev
        )
        summary = json.loads((out / "training" / "summary.json").read_text(encoding="utf-8"))
        found["start"] = round(summary["start_value"], 4)
        found[str(layers)] = round(summary["kept_value"], 4)
        found[f"{layers}_cpu_minutes"] = round((time.process_time() - begun) / 60, 1)
    return found


if __name__ == "__main__":
    main()

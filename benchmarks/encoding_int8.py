"""Passages encoded in 8-bit integers against float32: speed, cosine, top ten, nDCG@10.

    python benchmarks/encoding_int8.py [--json FILE] [--passages N] [--queries N] [--model MODEL] [--data FOLDER …]

Both encode the same passages in turns of 100, and the ratio is that of their CPU time. Queries are of train and dev, in
float32, with all their labels; the passages are the relevant ones and others drawn at random. Differences are int8 −
float32, with the standard error of their mean over queries.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from common import write_report

from colabel import EncoderSettings, load_dataset
from colabel.data import Dataset
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.measures import measure_run

TURN = 100


def drawn(data: Dataset, passages: int, queries: int) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Labels of some queries, whose relevant passages are at most half of the sample, and its passage ids."""
    generator, known = random.Random(1), set(data.passages.ids)
    labels = {query: dict(held) for split in ("train", "dev") if split in data.splits
              for query, held in data.labels(split).items()}  # fmt: skip
    chosen: dict[str, dict[str, int]] = {}
    relevant: set[str] = set()
    for query in generator.sample(sorted(labels), len(labels)):
        found = {passage for passage, grade in labels[query].items() if grade > 0} & known
        if found and len(relevant | found) <= passages // 2 and len(chosen) < queries:
            chosen[query] = labels[query]
            relevant |= found
    others = sorted(known - relevant)
    return chosen, sorted(relevant) + generator.sample(others, min(len(others), passages - len(relevant)))


def compared(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One collection."""
    data = load_dataset(name)
    settings = EncoderSettings(model=options.model, device="cpu", backend="int8")
    prepare_encoder(settings, data.passages, folder)
    in_int8 = open_encoder(folder, "cpu")
    encoders = (Encoder(in_int8.model), in_int8)
    labels, ids = drawn(data, options.passages, options.queries)
    row = {passage_id: number for number, passage_id in enumerate(data.passages.ids)}
    random.Random(2).shuffle(ids)
    held = {passage_id: text for passage_id in ids if (text := data.passages[row[passage_id]].full_text)}
    ids, texts = list(held), list(held.values())
    parts: tuple[list[Any], list[Any]] = ([], [])
    times: tuple[list[float], list[float]] = ([], [])
    for encoder in encoders:
        encoder.encode_passages(texts[:8])
    for start in range(0, len(texts), TURN):
        for part, spent, encoder in zip(parts, times, encoders, strict=True):
            begin = time.process_time()
            part.append(encoder.encode_passages(texts[start : start + TURN]))
            spent.append(time.process_time() - begin)
    vectors = [np.concatenate([one.vectors for one in part]).astype(np.float32) for part in parts]
    lengths = np.concatenate([np.diff(one.offsets) for one in parts[0]])
    firsts = np.cumsum([0, *lengths[:-1]])
    runs: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    overlaps = []
    for query in labels:
        question = encoders[0].encode_queries([data.queries[query]]).vectors[0].numpy()
        tops = []
        for run, stored in zip(runs, vectors, strict=True):
            scores = np.maximum.reduceat(question @ stored.T, firsts, axis=1).sum(axis=0)
            top = np.argsort(-scores, kind="stable")[:10]
            run[query] = {ids[place]: float(scores[place]) for place in top}
            tops.append(set(top.tolist()))
        overlaps.append(len(tops[0] & tops[1]) / 10)
    values = [measure_run(labels, run, ["nDCG@10"])["nDCG@10"] for run in runs]
    differences = np.array([values[1][query] - values[0][query] for query in labels])
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    return {
        "collection": data.name,
        "passages": len(texts),
        "tokens": len(cosines),
        "queries": len(labels),
        "ratio of CPU time": round(sum(times[0]) / sum(times[1]), 2),
        "median of turns": round(median(one / other for one, other in zip(*times, strict=True)), 2),
        "mean cosine": round(float(cosines.mean()), 5),
        "first percentile": round(float(np.quantile(cosines, 0.01)), 4),
        "top 10 in common": round(float(np.mean(overlaps)), 3),
        "nDCG@10, float32": round(float(np.mean(list(values[0].values()))), 4),
        "difference": round(float(differences.mean()), 4),
        "standard error": round(float(differences.std(ddof=1) / len(differences) ** 0.5), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=250)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data", nargs="+", default=["pydocs:2000"])
    options = parser.parse_args()
    rows = []
    for name in options.data:
        with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
            rows.append(compared(name, options, Path(folder) / "encoder"))
        print(rows[-1], flush=True)
        write_report(options.json, {"threads": torch.get_num_threads(), "rows": rows})


if __name__ == "__main__":
    main()

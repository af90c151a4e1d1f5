"""8-bit storage against float16: bytes, effect on scores and rankings, speed.

python benchmarks/storage.py [--json FILE] [--data pydocs:2000]
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from common import seconds, write_report

from colabel import build_index, evaluate, load_dataset
from colabel.settings import EncoderSettings, IndexSettings


def main() -> None:
    logging.getLogger("colabel").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", default="pydocs:2000")
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    texts = dataset.split_queries("test")
    found = {}
    rows = []
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
        for storage in ("fp16", "int8"):
            settings = IndexSettings(engine="exact", storage=storage)
            index = build_index(
                dataset, Path(folder) / storage, encoder=EncoderSettings(passage_length=96), index=settings
            )
            queries = index.encoder.encode_queries(list(texts.values())).vectors
            found[storage] = index.search(queries, 100)
            run = {
                query: {index.store.ids[int(row)]: float(score) for row, score in zip(line, values, strict=True)}
                for query, line, values in zip(texts, *found[storage], strict=True)
            }
            size = sum(file.stat().st_size for file in index.store.folder.glob("shard-*"))
            rows.append(
                {
                    "storage": storage,
                    "bytes_per_token": round(size / index.store.tokens, 1),
                    "nDCG@10": round(evaluate(dataset, {"x": run}, measures=["nDCG@10"]).means["x"]["nDCG@10"], 4),
                    "ms_per_query": round(1000 * seconds(partial(index.search, queries, 100)) / len(texts), 2),
                }
            )
    (rows16, scores16), (rows8, scores8) = found["fp16"], found["int8"]
    shared = [len(set(a[:10]) & set(b[:10])) / 10 for a, b in zip(rows16.tolist(), rows8.tolist(), strict=True)]
    figures = {
        "queries": len(texts),
        "mean_score": round(float(scores16[:, 0].mean()), 3),
        "largest_difference_of_the_best_score": round(float(np.abs(scores16[:, 0] - scores8[:, 0]).max()), 4),
        "top_10_in_common": round(float(np.mean(shared)), 4),
        "rows": rows,
    }
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print({name: value for name, value in figures.items() if name != "rows"})
    write_report(options.json, figures)


if __name__ == "__main__":
    main()

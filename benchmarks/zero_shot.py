"""Effect before any training: BM25, and MiniLM with a PCA or a random projection, with and without [MASK] expansion.

    python benchmarks/zero_shot.py [--json FILE] [--data FOLDER ...] [--expansion]

Without ``--data`` it measures pydocs.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from common import write_report

from colabel import Bm25, LateInteraction, build_index, evaluate, load_dataset, rank
from colabel.settings import EncoderSettings, IndexSettings, RankSettings

MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")


def measure(source: str, work: Path, length: int, *, expansion: bool) -> list[dict[str, Any]]:
    dataset = load_dataset(source, cache=work / "data")
    queries = dataset.split_queries("test")
    rankers: dict[str, Any] = {"bm25": Bm25(dataset.passages, RankSettings(), work / "bm25")}
    for projection in ("pca", "random"):
        for expand in (False, True) if expansion and projection == "pca" else (False,):
            name = f"minilm {projection}{' [MASK]' if expand else ''}"
            settings = EncoderSettings(projection=projection, passage_length=length, expand_queries=expand)
            index = build_index(dataset, work / name, encoder=settings, index=IndexSettings(engine="exact"))
            rankers[name] = LateInteraction(index)
    rows = []
    for name, ranker in rankers.items():
        run = rank(ranker, queries, work / "runs" / name, depth=1000).run()
        means = evaluate(dataset, {name: run}, measures=MEASURES).means[name]
        rows.append({"collection": dataset.name, "system": name, **{key: round(means[key], 4) for key in MEASURES}})
        print("  ".join(str(value) for value in rows[-1].values()), flush=True)
    return rows


def main() -> None:
    logging.getLogger("colabel").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="*", default=["pydocs:2000"])
    parser.add_argument("--length", type=int, default=180, help="tokens of a passage")
    parser.add_argument("--expansion", action="store_true", help="also fill queries up with [MASK]")
    options = parser.parse_args()
    print("collection  system  " + "  ".join(MEASURES))
    rows = []
    for source in options.data:
        with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
            rows += measure(source, Path(folder), options.length, expansion=options.expansion)
    write_report(options.json, {"passage_length": options.length, "rows": rows})


if __name__ == "__main__":
    main()

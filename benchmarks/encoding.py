"""Encoding a collection against ``MultiVectorEncoder.encode_document`` on the same texts, and the cost per passage.

    python benchmarks/encoding.py [--json FILE] [--passages 1000]

Both get the same texts (pydocs), model (MiniLM, 180 tokens) and threads, and take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from common import write_report

from colabel import load_dataset
from colabel.encode import open_encoder, prepare_encoder
from colabel.settings import EncoderSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    settings = EncoderSettings()
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
        passages = load_dataset("pydocs:2000").passages
        prepare_encoder(settings, passages, Path(folder) / "encoder")
        encoder = open_encoder(Path(folder) / "encoder", settings.device)
    texts = [passages[row].full_text for row in range(options.passages)]
    encoder.encode_passages(texts[:64])
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(options.repeats):
        start = time.perf_counter()
        encoded = encoder.encode_passages(texts)
        middle = time.perf_counter()
        encoder.model.encode_document(texts, convert_to_numpy=True, show_progress_bar=False)
        end = time.perf_counter()
        times["ours"].append(middle - start)
        times["theirs"].append(end - middle)
    figures = {
        "passages": len(texts),
        "tokens_per_passage": round(len(encoded.token_ids) / len(texts), 1),
        "threads": torch.get_num_threads(),
        "passages_per_second": round(len(texts) / median(times["ours"]), 1),
        "sentence_transformers_passages_per_second": round(len(texts) / median(times["theirs"]), 1),
        "ratio": round(median([b / a for a, b in zip(times["ours"], times["theirs"], strict=True)]), 3),
    }
    for name, value in figures.items():
        print(f"{name:45} {value}")
    write_report(options.json, figures)


if __name__ == "__main__":
    main()

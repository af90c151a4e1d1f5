"""How many token vectors an index holds per passage: the basis of size and time estimates for larger collections.

    python benchmarks/passage_tokens.py [--json FILE] [--data pydocs:2000 …] [--passages 600]

Encodes passages spread evenly over each collection (MiniLM's tokens, which are BERT's; at most 180). Nothing is timed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import write_report

from colabel import load_dataset
from colabel.encode import open_encoder, prepare_encoder
from colabel.settings import EncoderSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="+", default=["pydocs:2000"])
    parser.add_argument("--passages", type=int, default=600)
    options = parser.parse_args()
    rows = []
    for source in options.data:
        with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
            passages = load_dataset(source, cache=Path(folder) / "data").passages
            prepare_encoder(EncoderSettings(), passages, Path(folder) / "encoder")
            encoder = open_encoder(Path(folder) / "encoder")
            step = max(1, len(passages) // options.passages)
            texts = [passages[row].full_text for row in range(0, len(passages), step)][: options.passages]
        tokens = len(encoder.encode_passages(texts).token_ids) / len(texts)
        rows.append(
            {
                "collection": Path(source).name,
                "passages": len(passages),
                "sampled": len(texts),
                "tokens_per_passage": round(tokens, 1),
            }
        )
        print(rows[-1], flush=True)
    write_report(options.json, {"rows": rows})


if __name__ == "__main__":
    main()

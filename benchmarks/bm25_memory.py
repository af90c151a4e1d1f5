"""How much memory BM25 needs to index, per passage.

    python benchmarks/bm25_memory.py [--json FILE] [--passages 200000] [--words 50]

Generated passages of words from a vocabulary of 50,000, read one after another as a collection is. The figure is the
growth of this process's peak.
"""

from __future__ import annotations

import argparse
import random
import resource
from collections.abc import Iterator
from pathlib import Path

from common import write_report

from colabel.ranking.bm25 import word_index
from colabel.settings import RankSettings

VOCABULARY = 50_000


def generated(passages: int, words: int) -> Iterator[str]:
    choose = random.Random(0)
    known = [f"word{chr(97 + number % 26)}{number}" for number in range(VOCABULARY)]
    for _ in range(passages):
        yield " ".join(choose.choices(known, k=words))


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--words", type=int, default=50)
    options = parser.parse_args()
    word_index(generated(100, options.words), RankSettings())  # what the libraries take for themselves
    before = peak_gigabytes()
    word_index(generated(options.passages, options.words), RankSettings())
    grown = peak_gigabytes() - before
    found = {
        "passages": options.passages,
        "words_per_passage": options.words,
        "gigabytes": round(grown, 3),
        "gigabytes_per_million_passages": round(grown * 1e6 / options.passages, 2),
    }
    print(found)
    write_report(options.json, found)


if __name__ == "__main__":
    main()

"""How close exact search comes to the machine's float32 matrix product, and the cost per query.

    python benchmarks/exact_search.py [--json FILE] [--tokens 500000] [--repeats 7]

Vectors are random, lengths those of passages (lognormal, 20 to 180 tokens); vectors are read from a float16
memory map reopened in every repeat (from the page cache). Each repeat measures all figures one after another,
so that other work on the machine affects them equally; each figure is the median over the repeats. A repeat
during which other processes took more than a tenth of a core is repeated, up to three times as many in all as
requested, after which the quietest count: no figure decides what is kept. The peak is the best square matrix
product of the repeats kept, the hardest denominator; the median ratio within repeats stands beside it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from common import write_report
from sentence_transformers.util.similarity import maxsim

from colabel.index.exact import search_exact
from colabel.maxsim import TokenShard, plain, score_candidates

DIMENSION, QUERIES, QUERY_TOKENS, FEEDBACK_TOKENS = 128, 64, 32, 42
CANDIDATES, K, SQUARE, BATCH = 100, 100, 2048, 256
QUIET = 0.1  # cores that other processes may take


@dataclass(frozen=True)
class Collection:
    file: Path
    offsets: npt.NDArray[np.int64]

    @property
    def tokens(self) -> int:
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def open(self) -> TokenShard:
        return TokenShard(plain(np.load(self.file, mmap_mode="r")), self.offsets)


def write_collection(folder: Path, tokens: int, rng: np.random.Generator) -> Collection:
    lengths = np.clip(rng.lognormal(4.4, 0.45, tokens // 20), 20, 180).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    offsets = offsets[offsets <= tokens]
    vectors = np.empty((int(offsets[-1]), DIMENSION), dtype=np.float16)
    for start in range(0, len(vectors), 50_000):
        part = rng.standard_normal((len(vectors[start : start + 50_000]), DIMENSION), dtype=np.float32)
        vectors[start : start + 50_000] = part / np.linalg.norm(part, axis=1, keepdims=True)
    np.save(folder / "vectors.npy", vectors)
    return Collection(folder / "vectors.npy", offsets)


def padded_batches(collection: Collection) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of 256 passages padded to their longest, and masks, as a user of sentence-transformers holds them."""
    shard, batches = collection.open(), []
    for first in range(0, len(collection), BATCH):
        offsets = collection.offsets[first : first + BATCH + 1]
        lengths = np.diff(offsets)
        inside = np.arange(lengths.max())
        places = offsets[:-1, None] + np.minimum(inside, lengths[:, None] - 1)
        mask = torch.from_numpy(inside < lengths[:, None])
        batches.append((torch.from_numpy(np.asarray(shard.vectors)[places].astype(np.float32)), mask))
    return batches


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def best_product(rows: int, inner: int, columns: int) -> float:
    """GFLOPS of the best of five products [rows, inner] × [inner, columns]."""
    left, right, out = torch.randn(rows, inner), torch.randn(inner, columns), torch.empty(rows, columns)
    return 2 * rows * inner * columns / min(seconds(lambda: torch.mm(left, right, out=out)) for _ in range(5)) / 1e9


@dataclass(frozen=True)
class Repeat:
    """One round of all measurements: products in GFLOPS, actions in seconds, cores that others kept busy."""

    square: float
    inner: float
    times: dict[str, float]
    elsewhere: float


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds so far of all processes and of this one; zeros where the system does not tell (not Linux)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 0.0
    user, nice, system, _, _, interrupts, soft, steal = (int(x) for x in stat.read_text().split()[1:9])
    mine = os.times()
    every = (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")
    return every, mine.user + mine.system


def measure_once(actions: dict[str, Callable[[], object]]) -> Repeat:
    start, (every, mine) = time.perf_counter(), cpu_seconds()
    square = best_product(SQUARE, SQUARE, SQUARE)
    inner = best_product(8192, DIMENSION, QUERIES * QUERY_TOKENS)
    times = {name: seconds(action) for name, action in actions.items()}
    every_after, mine_after = cpu_seconds()
    others = (every_after - every) - (mine_after - mine)
    return Repeat(square, inner, times, max(0.0, others / (time.perf_counter() - start)))


def measure(actions: dict[str, Callable[[], object]], repeats: int) -> tuple[list[Repeat], int]:
    """The repeats to count, and how many were made."""
    for action in actions.values():
        action()
    made: list[Repeat] = []
    while len(made) < 3 * repeats and sum(repeat.elsewhere <= QUIET for repeat in made) < repeats:
        made.append(measure_once(actions))
    return sorted(made, key=lambda repeat: repeat.elsewhere)[:repeats], len(made)


def all_actions(collection: Collection, rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    def queries(count: int, length: int) -> torch.Tensor:
        random = torch.from_numpy(rng.standard_normal((count, length, DIMENSION), dtype=np.float32))
        return torch.nn.functional.normalize(random, dim=-1)

    batch, longer, single = queries(QUERIES, QUERY_TOKENS), queries(QUERIES, FEEDBACK_TOKENS), queries(1, QUERY_TOKENS)
    rows = np.stack([rng.choice(len(collection), CANDIDATES, replace=False) for _ in range(QUERIES)])
    padded = padded_batches(collection)

    def candidates(vectors: torch.Tensor) -> object:
        shard = collection.open()
        return score_candidates(vectors, shard.vectors, shard.offsets, rows)

    return {
        "search": lambda: search_exact(batch, [collection.open()], K),
        "search_42": lambda: search_exact(longer, [collection.open()], K),
        "single": lambda: search_exact(single, [collection.open()], K),
        "candidates_32": lambda: candidates(batch),
        "candidates_42": lambda: candidates(longer),
        "theirs": lambda: [maxsim(batch, passages, b_mask=mask) for passages, mask in padded],
    }


def figures(tokens: int, repeats: list[Repeat]) -> dict[str, float]:
    def gflops(query_tokens: int, taken: float) -> float:
        return 2 * tokens * QUERIES * query_tokens * DIMENSION / taken / 1e9  # padding does not count

    times = {name: median(repeat.times[name] for repeat in repeats) for name in repeats[0].times}
    peak = max(repeat.square for repeat in repeats)
    search = gflops(QUERY_TOKENS, times["search"])
    return {
        "peak_gflops": peak,
        "peak_inner_128_gflops": max(repeat.inner for repeat in repeats),
        "search_gflops": search,
        "search_fraction_of_peak": search / peak,
        "search_fraction_of_peak_within_repeats": median(
            gflops(QUERY_TOKENS, repeat.times["search"]) / repeat.square for repeat in repeats
        ),
        "search_42_tokens_fraction_of_peak": gflops(FEEDBACK_TOKENS, times["search_42"]) / peak,
        "search_ms_per_query": times["search"] / QUERIES * 1e3,
        "single_query_ms": times["single"] * 1e3,
        "candidates_32_tokens_ms_per_query": times["candidates_32"] / QUERIES * 1e3,
        "candidates_42_tokens_ms_per_query": times["candidates_42"] / QUERIES * 1e3,
        "sentence_transformers_seconds": times["theirs"],
        "search_times_as_fast_as_sentence_transformers": times["theirs"] / times["search"],
        "cores_busy_with_other_processes": max(repeat.elsewhere for repeat in repeats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        collection = write_collection(Path(folder), options.tokens, rng)
        repeats, made = measure(all_actions(collection, rng), options.repeats)
    found = figures(collection.tokens, repeats)
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<50}{value:10.3f}")
    setup = {
        "passages": len(collection),
        "tokens": collection.tokens,
        "queries": QUERIES,
        "query_tokens": QUERY_TOKENS,
        "k": K,
        "candidates": CANDIDATES,
        "repeats": options.repeats,
        "repeats_made": made,
    }
    write_report(options.json, {**setup, **{name: round(value, 3) for name, value in found.items()}})


if __name__ == "__main__":
    main()

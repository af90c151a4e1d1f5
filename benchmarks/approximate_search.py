"""Approximate against exact search: recall, speed, size and build time, and how each grows.

    python benchmarks/approximate_search.py [--json FILE] [--sizes 10000 100000 300000] [--real FOLDER]

The generated collections keep real pairs of token id and vector: MiniLM's over pydocs, cut into spans, mixed into new
passages, with noise. Queries are 32 real tokens each. ``--real`` measures recall on a collection as it is, encoded with
MiniLM, its test queries as queries. Both engines get the same queries, batch and threads, in one run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import seconds, write_report

from colabel import build_index, load_dataset
from colabel.artefacts import fingerprint
from colabel.encode.encoder import EncodedPassages
from colabel.index.codec import make_codec
from colabel.index.exact import search_exact
from colabel.index.ivf import IvfIndex, build_ivf
from colabel.index.nearest_tokens import nearest_exact
from colabel.index.store import TokenStore, build_store
from colabel.settings import EncoderSettings, IndexSettings
from colabel.types import Passage

QUERIES, DEPTH, NOISE = 32, 100, 0.02  # noise per dimension: a vector of length 1 gets one of length 0.23


@dataclass
class Generated:
    """Stands in for a passage table and an encoder at once: passage i is made from the seed i."""

    count: int
    vectors: np.ndarray
    token_ids: np.ndarray
    offsets: np.ndarray
    vocabulary_size: int
    special_token_ids: tuple[int, ...]
    dimension: int = 128
    passage_limit: int = 180

    @property
    def ids(self) -> list[str]:
        return [f"p{number}" for number in range(self.count)]

    @property
    def fingerprint(self) -> str:
        return fingerprint({"generated": self.count, "noise": NOISE})

    def __len__(self) -> int:
        return self.count

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        return (Passage(str(number), "", "x") for number in range(start, stop))

    def encode_passages(self, texts: list[str], progress: Any = None) -> EncodedPassages:
        start = getattr(self, "_next", 0)
        self._next = start + len(texts)
        rng = np.random.default_rng(start)
        parts = []
        for _ in texts:
            sources = rng.integers(0, len(self.offsets) - 1, size=2)
            for source in sources:  # half of one real passage, half of another
                first, last = self.offsets[source], self.offsets[source + 1]
                half = max(1, (last - first) // 2)
                begin = first + rng.integers(0, last - first - half + 1)
                parts.append(np.arange(begin, begin + half))
        rows = np.concatenate(parts)
        lengths = [len(a) + len(b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        vectors = self.vectors[rows] + NOISE * rng.standard_normal((len(rows), self.dimension), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        offsets = np.cumsum([0, *lengths]).astype(np.int64)
        return EncodedPassages(vectors.astype(np.float16), self.token_ids[rows], offsets, 0, 0)


def compare(store: TokenStore, ivf: IvfIndex, queries: torch.Tensor) -> dict[str, Any]:
    exact: dict[str, Any] = {}

    def run_exact() -> None:
        exact["scores"], exact["rows"] = search_exact(queries, store.shards, DEPTH)

    exact_seconds = seconds(run_exact, 1 if store.tokens > 5_000_000 else 3)
    ivf_seconds = seconds(lambda: ivf.search(queries, DEPTH), 5)
    rows, _ = ivf.search(queries, DEPTH)
    one = seconds(lambda: ivf.search(queries[:1], DEPTH), 9)
    shared = {
        depth: float(
            np.mean(
                [
                    len(set(a[:depth]) & set(b[:depth])) / depth
                    for a, b in zip(exact["rows"].tolist(), rows.tolist(), strict=True)
                ]
            )
        )
        for depth in (10, 100)
    }
    files = sum(file.stat().st_size for file in ivf.folder.glob("*"))
    centroids = torch.from_numpy(
        np.stack([store.vectors([row])[0][5:15].mean(axis=0) for row in range(0, len(store), len(store) // 200)])
    )
    wanted, _ = nearest_exact(centroids, store, 10)
    nearest, _ = ivf.nearest_tokens(centroids, 10)
    return {
        "passages": len(store),
        "tokens": store.tokens,
        "lists": ivf.lists,
        "probes": ivf.probes,
        "recall@10": round(shared[10], 4),
        "recall@100": round(shared[100], 4),
        "nearest_token_recall@10": round(
            float(np.mean([_overlap(a, b) for a, b in zip(wanted, nearest, strict=True)])), 4
        ),
        "exact_ms_per_query": round(1000 * exact_seconds / len(queries), 2),
        "ivf_ms_per_query": round(1000 * ivf_seconds / len(queries), 2),
        "speedup": round(exact_seconds / ivf_seconds, 1),
        "ivf_ms_single_query": round(1000 * one, 1),
        "ivf_bytes_per_token": round(files / store.tokens, 1),
        "store_bytes_per_token": round(sum(f.stat().st_size for f in store.folder.glob("shard-*")) / store.tokens, 1),
        "build_seconds": round(ivf.manifest.seconds, 1),
    }


def _overlap(wanted: np.ndarray, found: np.ndarray) -> float:
    """Share of ``wanted`` (with repeats) that is in ``found``."""
    return sum((Counter(wanted.tolist()) & Counter(found.tolist())).values()) / len(wanted)


def base_index(work: Path) -> Any:
    dataset = load_dataset("pydocs:2000", cache=work / "data")
    settings = EncoderSettings(query_length=32, passage_length=180)
    return build_index(dataset, work / "base", encoder=settings, index=IndexSettings(engine="exact"))


def generated(work: Path, base: Any, size: int) -> dict[str, Any]:
    store = base.store
    every = [
        (shard.read(0, len(shard.vectors)), np.asarray(tokens))
        for shard, tokens in zip(store.shards, store.token_ids, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(shard.offsets) for shard in store.shards]))])
    source = Generated(
        size,
        np.concatenate([vectors for vectors, _ in every]),
        np.concatenate([tokens for _, tokens in every]),
        offsets[np.r_[True, np.diff(offsets) > 1]],
        base.encoder.vocabulary_size,
        base.encoder.special_token_ids,
    )
    folder = work / f"generated-{size}"
    codec = make_codec("fp16")
    build_store(lambda: source, "generated", source, codec, folder / "tokens", block_passages=16384)  # type: ignore
    made = TokenStore(folder / "tokens")
    build_ivf(made, folder / "ivf")
    rng = np.random.default_rng(1)
    texts = [base.passages[int(row)].full_text for row in rng.choice(len(base.passages), QUERIES, replace=False)]
    queries = base.encoder.encode_queries(texts).vectors
    return compare(made, IvfIndex(folder / "ivf", made), queries)


def real(work: Path, folder: Path) -> dict[str, Any]:
    dataset = load_dataset(str(folder), cache=work / "real-data")
    index = build_index(dataset, work / f"real-{folder.name}", index=IndexSettings(engine="ivf"))
    texts = list(dataset.split_queries("test").values())[:256]
    queries = index.encoder.encode_queries(texts).vectors
    figures = compare(index.store, index.ivf, queries)
    return {"collection": folder.name, **figures}


def show(figures: dict[str, Any]) -> None:
    print("  ".join(f"{name} {value}" for name, value in figures.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000, 300_000])
    parser.add_argument("--real", type=Path, help="a real collection with test queries")
    parser.add_argument("--work", type=Path, help="keep the collections here; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as temporary:
        work = options.work or Path(temporary)
        rows = []
        if options.sizes:
            base = base_index(work)
            for size in options.sizes:
                rows.append({"collection": f"generated {size:,}", **generated(work, base, size)})
                show(rows[-1])
        if options.real is not None:
            rows.append(real(work, options.real))
            show(rows[-1])
    write_report(options.json, {"threads": torch.get_num_threads(), "queries": QUERIES, "depth": DEPTH, "rows": rows})


if __name__ == "__main__":
    main()

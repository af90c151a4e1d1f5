"""What collective knowledge and teacher labels cost, against the straightforward program and a cross-encoder.

    python benchmarks/extraction.py [--json FILE] [--data pydocs] [--work FOLDER] [--queries 512] [--many]

Real text, real MiniLM vectors, one index. The straightforward program handles one query after another: scikit-learn's
KMeans from the same start, then a faiss IVF look-up of its 24 centroids with 32 probes (whole vectors, special tokens
left out; lists near the square root of the tokens, and four times as many). Both run with the same threads, in turns,
to the same stopping rule; recall is of the ten nearest tokens against reading all of them. Time and memory of 1,000 and
10,000 queries (--many: 100,000 as well) are measured in separate processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import torch
from common import write_report
from sentence_transformers import CrossEncoder
from sklearn.cluster import KMeans

from colabel.collective import choose_feedback, expand, extract
from colabel.collective.centroids import NEIGHBOURS, cluster_feedback
from colabel.collective.kmeans import spread_start
from colabel.data import load_dataset
from colabel.encode.weights import resolve_model
from colabel.index import Index, build_index
from colabel.index.ivf import ivf_lists
from colabel.index.nearest_tokens import nearest_exact
from colabel.maxsim import score_rows
from colabel.ranking.rankings import BLOCK
from colabel.settings import CollectiveSettings, DataSettings

SETTINGS = CollectiveSettings(feedback="top")
PROBES, CANDIDATES, CROSS_QUERIES, RECALL_QUERIES = 32, 100, 6, 64


def open_index(source: str, work: Path) -> tuple[Any, Index]:
    data = DataSettings(source=source)
    dataset = load_dataset(data, cache=work / "data")
    return dataset, build_index(dataset, work / "index", data=data)


class Straightforward:
    """One query after another with the usual libraries."""

    def __init__(self, index: Index, lists: int) -> None:
        self.store = index.store
        self.lists = lists
        ids = np.concatenate(self.store.token_ids)
        self.content = np.flatnonzero(~np.isin(ids, np.array(self.store.special_token_ids)))
        vectors = self.store.vectors_at(self.content)
        self.ivf = faiss.index_factory(self.store.dimension, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        self.ivf.train(vectors[np.random.default_rng(0).choice(len(vectors), lists * 40, replace=False)])
        self.ivf.add(vectors)
        self.ivf.nprobe = PROBES

    def cluster(self, rows: np.ndarray) -> np.ndarray:
        points, offsets = self.store.vectors(rows)
        start = points[spread_start(np.diff(offsets).tolist(), SETTINGS.clusters)]
        return KMeans(len(start), init=start, n_init=1, algorithm="lloyd").fit(points).cluster_centers_

    def nearest(self, centroids: np.ndarray) -> np.ndarray:
        _, places = self.ivf.search(np.ascontiguousarray(centroids, dtype=np.float32), NEIGHBOURS)
        return self.store.token_ids_at(self.content[np.maximum(places, 0)])

    def run(self, feedback: np.ndarray) -> tuple[float, float]:
        """Seconds of clustering and of the look-up."""
        start = time.perf_counter()
        found = [self.cluster(rows) for rows in feedback]
        middle = time.perf_counter()
        for centroids in found:
            self.nearest(centroids)
        return middle - start, time.perf_counter() - middle


def ours(index: Index, feedback: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Seconds of clustering alone and of everything (look-up, tokens, σ, sorting)."""
    start = time.perf_counter()
    cluster_feedback(index.store, feedback, SETTINGS)
    middle = time.perf_counter()
    extract(index, feedback, SETTINGS)
    return middle - start, time.perf_counter() - middle


def recall(index: Index, plain: Straightforward, feedback: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Share of the ten nearest tokens that ours and the straightforward look-up find, by similarity."""
    part = feedback[:RECALL_QUERIES]
    centroids, _ = cluster_feedback(index.store, part, SETTINGS)
    flat = centroids.reshape(-1, centroids.shape[2])
    _, truth = nearest_exact(flat, index.store, NEIGHBOURS)
    _, found = index.nearest_tokens(flat, NEIGHBOURS)
    similar, _ = plain.ivf.search(flat.numpy(), NEIGHBOURS)
    limit = truth[:, -1:] - 1e-5
    return float((found >= limit).mean()), float((similar >= limit).mean())


def at_equal_recall(
    index: Index, program: Straightforward, feedback: npt.NDArray[np.int64], wanted: float, ours_ms: float
) -> dict[str, Any]:
    """The straightforward program with as many probes as our recall takes."""
    for probes in (32, 64, 128, 256, 512):
        program.ivf.nprobe = probes
        reached = recall(index, program, feedback)[1]
        if reached >= wanted - 0.005:
            break
    part = feedback[:256]
    taken = median(sum(program.run(part)) for _ in range(3)) * 1e3 / len(part)
    return {
        "lists": program.lists,
        "probes": probes,
        "recall_at_10": reached,
        "all": taken,
        "ours_is_times_as_fast": taken / ours_ms,
    }


def label_seconds(index: Index, queries: torch.Tensor, ranked: np.ndarray) -> float:
    """Extraction and the scores of 100 candidates, ranking excluded."""
    start = time.perf_counter()
    centroids = extract(index, choose_feedback(ranked, SETTINGS), SETTINGS).first(SETTINGS.centroids)
    score_rows(expand(queries, centroids, 0.5, "normalised"), index.store.shards, ranked)
    return time.perf_counter() - start


def cross_encoder_seconds(dataset: Any, texts: list[str], ranked: np.ndarray) -> float:
    """A cross-encoder of MiniLM's size on the same pairs, longest first as sentence-transformers sorts them."""
    model = CrossEncoder(resolve_model("minilm"), num_labels=1, device="cpu", max_length=256)
    pairs = [
        (text, dataset.passages[int(row)].full_text) for text, rows in zip(texts, ranked, strict=False) for row in rows
    ]
    model.predict(pairs[:32], batch_size=32, show_progress_bar=False)
    start = time.perf_counter()
    model.predict(pairs, batch_size=32, show_progress_bar=False)
    return time.perf_counter() - start


def many(work: Path, ranked: np.ndarray, counts: tuple[int, ...]) -> list[dict[str, float]]:
    """Time and peak memory of ever more queries, each in a process of its own."""
    np.save(work / "ranked.npy", ranked[:, : SETTINGS.feedback_passages])
    rows = []
    for count in counts:
        command = [sys.executable, __file__, "--work", str(work), "--growth", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def grow(work: Path, count: int) -> None:
    """Extract for ``count`` queries, block by block as `colabel collect` does, into files that are then removed."""
    index = Index.open(work / "index")
    feedback = choose_feedback(np.load(work / "ranked.npy"), SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for first in range(0, count, BLOCK):
            places = np.arange(first, min(first + BLOCK, count)) % len(feedback)
            found = extract(index, feedback[places], SETTINGS).first(10)
            np.save(Path(folder) / f"{first}.npy", found.vectors.numpy())
        seconds = time.perf_counter() - start
    # not ru_maxrss: a child starts with its parent's
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"queries": count, "ms_per_query": seconds / count * 1e3, "peak_megabytes": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--work", type=Path, help="folder in which the index is kept for the next time")
    parser.add_argument("--queries", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--growth", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.growth:
        grow(options.work, options.growth)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        dataset, index = open_index(options.data, work)
        faiss.omp_set_num_threads(torch.get_num_threads())
        texts = list(dataset.split_queries("train").values())[: options.queries]
        queries = index.encoder.encode_queries(texts).vectors
        start = time.perf_counter()
        ranked, _ = index.search(queries, CANDIDATES)
        ranking = (time.perf_counter() - start) / len(texts)
        feedback = choose_feedback(ranked, SETTINGS)
        start = time.perf_counter()
        extract(index, feedback, SETTINGS)  # builds the look-up once and warms up
        build = time.perf_counter() - start
        lists = ivf_lists(index.store.tokens)
        plain, finer = Straightforward(index, lists), Straightforward(index, 4 * lists)
        plain.run(feedback[:16])
        part = feedback[:256]
        runs = [(plain.run(part), finer.run(part), ours(index, feedback)) for _ in range(options.repeats)]
        few = 1e3 / len(part)
        scale = 1e3 / len(texts)
        figures: dict[str, Any] = {
            "data": Path(options.data).name,
            "tokens": index.store.tokens,
            "queries": len(texts),
            "tokens_per_query": float(index.store.lengths(feedback).sum(axis=1).mean()),
            "threads": torch.get_num_threads(),
            "lookup_build_seconds": build,
            "ours_ms": {
                "k-means": median(run[2][0] for run in runs) * scale,
                "all": median(run[2][1] for run in runs) * scale,
            },
        }
        for place, program in enumerate((plain, finer)):
            found, theirs = recall(index, program, feedback)
            figures["ours_ms"]["recall_at_10"] = found
            figures[f"straightforward_ms, {program.lists} lists"] = {
                "k-means": median(run[place][0] for run in runs) * few,
                "look-up": median(run[place][1] for run in runs) * few,
                "all": median(sum(run[place]) for run in runs) * few,
                "recall_at_10": theirs,
                "ours_is_times_as_fast": median(sum(run[place]) * few / (run[2][1] * scale) for run in runs),
            }
        figures["straightforward_ms, at our recall"] = at_equal_recall(
            index, finer, feedback, figures["ours_ms"]["recall_at_10"], figures["ours_ms"]["all"]
        )
        del plain, finer, program
        labelling = median(label_seconds(index, queries, ranked) for _ in range(options.repeats)) / len(texts)
        cross = cross_encoder_seconds(dataset, texts[:CROSS_QUERIES], ranked) / CROSS_QUERIES
        figures["labelling"] = {
            "candidates": CANDIDATES,
            "ms_per_query": labelling * 1e3,
            "exact_ranking_ms_per_query": ranking * 1e3,
            "cross_encoder_ms_per_query": cross * 1e3,
            "times_as_fast": cross / labelling,
            "times_as_fast_with_ranking": cross / (labelling + ranking),
        }
        figures["growth"] = many(work, ranked, (1_000, 10_000, 100_000) if options.many else (1_000, 10_000))
    for name, value in figures.items():
        print(f"{name}: {value}")
    write_report(options.json, figures)


if __name__ == "__main__":
    main()

"""Our engines beside other multi-vector indexes: real passages, the same vectors and threads, one run.

    python benchmarks/peers.py [--json FILE] [--passages 100000] [--data FOLDER] [--peers FOLDER] [--work FOLDER]

Passages are those of the collections in ``--data``, without duplicates, cut at 64 tokens and encoded with MiniLM in
8-bit integers; queries are theirs. Vectors are encoded once and kept in ``--work``; an interrupted call continues.
Each engine builds and searches in processes of its own, a peer in its environment ``--peers``/NAME (``python -m
venv``, its package and NumPy); one that is not installed is left out with a sentence. Recall is the share of the
exact engine's passages. Of each query, and of each batch of 32, the best of three times counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

COLLECTIONS = ("medqa", "wikiqa", "trec-dl19-pool", "cosqa", "scifact", "nfcorpus", "semanlink", "cranfield")
QUERIES, BATCH, DEPTH, LENGTH, REPEATS = 96, 32, 100, 64, 3

Vectors = Sequence[np.ndarray]  # of each query, float32 [tokens, dimension]
Search = Callable[[Vectors], list[list[int]]]


class Collection:
    """What every engine is given: float16 [tokens, 128], token ids, passages' offsets and queries."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.vectors = np.load(work / "vectors.npy", mmap_mode="r")
        self.token_ids = np.load(work / "token_ids.npy", mmap_mode="r")
        self.offsets = np.load(work / "offsets.npy")

    @property
    def queries(self) -> list[np.ndarray]:
        padded = np.load(self.work / "queries.npy")
        return [one[np.abs(one).max(axis=1) > 0] for one in padded]

    def passages(self, start: int, stop: int) -> list[np.ndarray]:
        return [self.vectors[self.offsets[row] : self.offsets[row + 1]] for row in range(start, stop)]

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Ours:
    """This package: the store that the collection was encoded to, and an approximate index of it."""

    package = "colabel"
    settings: tuple[dict[str, Any], ...] = ({},)

    def store(self, given: Collection) -> Any:
        from colabel.index.store import TokenStore

        return TokenStore(given.work / "index" / "tokens")

    def build(self, given: Collection, out: Path) -> None:
        """The store is there."""

    def files(self, given: Collection, out: Path) -> list[Path]:
        """What a search reads."""
        return list(self.store(given).folder.glob("shard-*"))

    def open(self, given: Collection, out: Path, threads: int) -> Callable[[dict[str, Any]], Search]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        torch.set_num_threads(threads)
        find = self.finder(given, out)

        def search(queries: Vectors) -> list[list[int]]:
            batch = pad_sequence([torch.from_numpy(one) for one in queries], batch_first=True)
            return [list(map(int, line)) for line in find(batch)]

        return lambda settings: search

    def finder(self, given: Collection, out: Path) -> Callable[[Any], Any]:
        from colabel.index.exact import search_exact

        shards = self.store(given).shards
        return lambda batch: search_exact(batch, shards, DEPTH)[1]


class OurIvf(Ours):
    """The same through faiss."""

    def build(self, given: Collection, out: Path) -> None:
        from colabel.index.ivf import build_ivf

        build_ivf(self.store(given), out / "ivf")

    def files(self, given: Collection, out: Path) -> list[Path]:
        return [*super().files(given, out), *out.rglob("*")]

    def finder(self, given: Collection, out: Path) -> Callable[[Any], Any]:
        from colabel.index.ivf import IvfIndex

        index = IvfIndex(out / "ivf", self.store(given))
        return lambda batch: index.search(batch, DEPTH)[0]


class LanceDb:
    """A column of multi-vectors with IVF-PQ, and exact scores of the best where ``refine`` is set."""

    package = "lancedb"
    settings = ({"nprobes": 20, "refine": 10}, {"nprobes": 100, "refine": 10})

    def build(self, given: Collection, out: Path) -> None:
        import lancedb
        import pyarrow as pa
        from lancedb.index import IvfPq

        kind = pa.list_(pa.list_(pa.float16(), given.vectors.shape[1]))
        schema = pa.schema([("row", pa.int32()), ("vectors", kind)])

        def blocks() -> Any:
            for start in range(0, len(given), 1024):
                stop = min(start + 1024, len(given))
                flat = np.ascontiguousarray(given.vectors[given.offsets[start] : given.offsets[stop]])
                inner = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), type=kind.value_type)
                places = pa.array((given.offsets[start : stop + 1] - given.offsets[start]).astype(np.int32))
                columns = [pa.array(np.arange(start, stop, dtype=np.int32)), pa.ListArray.from_arrays(places, inner)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        reader = pa.RecordBatchReader.from_batches(schema, blocks())
        table = lancedb.connect(out).create_table("passages", reader, mode="overwrite")
        table.create_index("vectors", config=IvfPq(distance_type="cosine"))

    def files(self, given: Collection, out: Path) -> list[Path]:
        return list(out.rglob("*"))

    def open(self, given: Collection, out: Path, threads: int) -> Callable[[dict[str, Any]], Search]:
        import lancedb

        table = lancedb.connect(out).open_table("passages")

        def with_settings(settings: dict[str, Any]) -> Search:
            def one(query: np.ndarray) -> list[int]:
                asked = table.search(query, vector_column_name="vectors").metric("cosine").limit(DEPTH)
                asked = asked.nprobes(settings["nprobes"]).refine_factor(settings["refine"]).select(["row"])
                found: list[int] = asked.to_arrow()["row"].to_pylist()
                return found

            return lambda queries: [one(query) for query in queries]

        return with_settings


class Tachiom:
    """Clusters of each token type, and product quantisation of what is left; no exact scores."""

    package = "tachiom"
    settings = (
        {},
        {"k_centroids": 40, "k_docs_to_score": 1000, "ef_search": 60},
        {"k_centroids": 80, "k_docs_to_score": 2000, "ef_search": 120, "alpha": 0.3},
    )

    def build(self, given: Collection, out: Path) -> None:
        import tachiom

        lengths = np.diff(given.offsets).astype(np.int32)
        vectors, token_ids = np.ascontiguousarray(given.vectors), np.ascontiguousarray(given.token_ids)
        how = (vectors.view(np.uint16), token_ids.astype(np.uint32), lengths)
        tachiom.Tachiom.build_from_arrays(*how).save(str(out / "index.bin"))

    def files(self, given: Collection, out: Path) -> list[Path]:
        return list(out.rglob("*"))

    def open(self, given: Collection, out: Path, threads: int) -> Callable[[dict[str, Any]], Search]:
        import tachiom

        index = tachiom.Tachiom.load(str(out / "index.bin"))

        def with_settings(settings: dict[str, Any]) -> Search:
            def search(queries: Vectors) -> list[list[int]]:
                if len(queries) == 1:
                    return [index.search(np.ascontiguousarray(queries[0]), DEPTH, **settings)[1].tolist()]
                ends = np.cumsum([0, *map(len, queries)]).astype(np.uint64)
                how = {"offsets": ends, "num_threads": threads, **settings}
                found: list[list[int]] = index.batch_search(np.concatenate(queries), len(queries), DEPTH, **how)[
                    1
                ].tolist()
                return found

            return search

        return with_settings


class FastPlaid:
    """PLAID in Rust, which PyLate's PLAID calls as well."""

    package = "fast_plaid"
    settings = ({}, {"n_ivf_probe": 32, "n_full_scores": 8192})

    def build(self, given: Collection, out: Path) -> None:
        import torch
        from fast_plaid import search

        texts = [torch.from_numpy(np.array(one, dtype=np.float32)) for one in given.passages(0, len(given))]
        search.FastPlaid(index=str(out / "plaid"), device="cpu").create(documents_embeddings=texts)

    def files(self, given: Collection, out: Path) -> list[Path]:
        return list(out.rglob("*"))

    def open(self, given: Collection, out: Path, threads: int) -> Callable[[dict[str, Any]], Search]:
        import torch
        from fast_plaid import search

        torch.set_num_threads(threads)
        index = search.FastPlaid(index=str(out / "plaid"), device="cpu")

        def with_settings(settings: dict[str, Any]) -> Search:
            def find(queries: Vectors) -> list[list[int]]:
                asked = [torch.from_numpy(one) for one in queries]
                found = index.search(asked, top_k=DEPTH, show_progress=False, **settings)
                return [[row for row, _ in line] for line in found]

            return find

        return with_settings


ENGINES: dict[str, Any] = {
    "exact": Ours(),
    "ivf": OurIvf(),
    "lancedb": LanceDb(),
    "tachiom": Tachiom(),
    "fast-plaid": FastPlaid(),
}


def step(name: str, what: str, work: Path, threads: int) -> dict[str, Any]:
    """Build or search, in a process of its own; every library may use the same cores."""
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    os.sched_setaffinity(0, cores)
    engine, given, out = ENGINES[name], Collection(work), work / "engines" / name
    if what == "build":
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        start = time.perf_counter()
        engine.build(given, out)
        found: dict[str, Any] = {"build_seconds": round(time.perf_counter() - start, 1)}
        size = sum(path.stat().st_size for path in engine.files(given, out) if path.is_file())
        return {**found, "bytes_per_token": round(size / len(given.vectors), 1), "build_mb": peak()}
    opened, queries, rows = engine.open(given, out, threads), given.queries, []
    for settings in engine.settings:
        search = opened(settings)
        search(queries[:1])  # warm
        single = [seconds(search, [query]) for query in queries]
        batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
        batch = [seconds(search, batch) / len(batch) for batch in batches]
        rows.append(
            {
                "settings": settings,
                "ms_p50": round(1000 * median(single), 2),
                "ms_p95": round(1000 * quantiles(single, n=20)[-1], 2),
                "ms_in_batch": round(1000 * median(batch), 2),
                "rows": [search([query])[0] for query in queries],
            }
        )
    return {"searches": rows, "search_mb": peak()}


def seconds(search: Search, queries: Vectors) -> float:
    """The best of a few times, since others may use the machine."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        search(queries)
        times.append(time.perf_counter() - start)
    return min(times)


def peak() -> int:
    """The most memory that this process held, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # getrusage counts the parent before exec as well
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def prepare(work: Path, data: Path, count: int) -> None:
    """Gather passages and queries, encode them once, and save them for every engine."""
    from colabel import build_index, load_dataset
    from colabel.settings import EncoderSettings

    if (work / "queries.npy").exists():
        return
    texts = gather(work, data, count)
    how = EncoderSettings(passage_length=LENGTH, backend="int8")
    index = build_index(load_dataset(work / "collection"), work / "index", encoder=how)
    store = index.store
    shape = (store.tokens, store.dimension)
    vectors = np.lib.format.open_memmap(work / "vectors.npy", mode="w+", dtype=np.float16, shape=shape)
    for first, shard in zip(store.first_tokens, store.shards, strict=False):
        for start in range(0, len(shard.vectors), 2**16):
            stop = min(start + 2**16, len(shard.vectors))
            vectors[first + start : first + stop] = shard.vectors.vectors(slice(start, stop))
    vectors.flush()
    np.save(work / "token_ids.npy", np.concatenate([np.asarray(one) for one in store.token_ids]).astype(np.int32))
    np.save(work / "offsets.npy", np.cumsum([0, *store.lengths(np.arange(len(store)))]).astype(np.int64))
    np.save(work / "queries.tmp.npy", index.encoder.encode_queries(texts).vectors.numpy())
    (work / "queries.tmp.npy").rename(work / "queries.npy")  # the last: all is there


def gather(work: Path, data: Path, count: int) -> list[str]:
    """Write passages of all collections that are there, mixed, without duplicates; returns queries of theirs."""
    from colabel import load_dataset
    from colabel.data.splits import stable_fraction

    passages, queries = dict[str, str](), list[list[str]]()
    for name in COLLECTIONS:
        if not (data / name).is_dir():
            print(f"{name} is not in {data}: left out")
            continue
        given = load_dataset(data / name)
        for one in given.passages:
            text = " ".join(one.full_text.split())
            if text:
                passages.setdefault(text.casefold(), text)
        asked = given.split_queries("test" if "test" in given.splits else given.splits[0])
        queries.append(sorted(asked.values(), key=lambda text: stable_fraction(text, "peers")))
    if not passages:
        raise SystemExit(f"{data} has none of {', '.join(COLLECTIONS)}; name their folder with --data")
    chosen = sorted(passages, key=lambda text: stable_fraction(text, "peers"))[:count]
    (work / "collection").mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"_id": f"p{place}", "title": "", "text": passages[key]}) for place, key in enumerate(chosen))
    (work / "collection" / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(chosen):,} of {len(passages):,} passages", flush=True)
    mixed = [text for line in zip_longest(*queries) for text in line if text]  # as many of each collection
    return mixed[:QUERIES]


def interpreter(name: str, peers: Path) -> str:
    """The Python that has an engine's package; empty where there is none."""
    package = ENGINES[name].package
    if package == "colabel":
        return sys.executable
    own = peers / name / "bin" / "python"
    for python in (str(own), sys.executable):
        asked = [python, "-c", f"import {package}"]
        if Path(python).exists() and not subprocess.run(asked, capture_output=True, check=False).returncode:
            return python
    return ""


def run(name: str, what: str, python: str, work: Path, threads: int) -> dict[str, Any] | None:
    """A step in a process of its own; None, with a sentence, where it failed."""
    command = [python, __file__, "--step", what, "--only", name, "--work", str(work), "--threads", str(threads)]
    pools = ("OMP", "MKL", "OPENBLAS", "RAYON", "TOKIO_WORKER", "LANCE_CPU")
    limits = {f"{pool}_{'THREADS' if '_' in pool else 'NUM_THREADS'}": str(threads) for pool in pools}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **limits}, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        print(f"{name}: `{what}` failed ({done.returncode}): {last[0]}", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def recall(wanted: list[list[int]], found: list[list[int]], depth: int) -> float:
    shares = [len(set(a[:depth]) & set(b[:depth])) / depth for a, b in zip(wanted, found, strict=True)]
    return round(float(np.mean(shares)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=100_000)
    shared = Path(os.environ.get("COLABEL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument("--data", type=Path, default=shared / "data", help="folders of the collections")
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "peers", help="their environments")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "colabel-peers", help="is kept")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(ENGINES), help="engines; exact is needed for recall")
    parser.add_argument("--step", choices=("build", "search"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print("\n" + json.dumps(step(options.only[0], options.step, options.work, options.threads)))
        return
    from common import write_report

    work = options.work / f"passages-{options.passages}"
    prepare(work, options.data, options.passages)
    given, rows, wanted = Collection(work), list[dict[str, Any]](), list[list[int]]()
    print(f"{len(given):,} passages, {len(given.vectors):,} tokens, {QUERIES} queries, {options.threads} threads")
    for name in [one for one in ENGINES if one in {*options.only, "exact"}]:
        python = interpreter(name, options.peers)
        if not python:
            print(f"{name}: not installed in {options.peers / name}, left out", flush=True)
            continue
        built = run(name, "build", python, work, options.threads)
        found = built and run(name, "search", python, work, options.threads)
        for one in found["searches"] if built and found else ():
            answers = one.pop("rows")
            wanted = wanted or answers
            shares = {f"recall@{depth}": recall(wanted, answers, depth) for depth in (10, 100)}
            rows.append({"engine": name, **shares, **one, **built, "search_mb": found["search_mb"]})
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    about = {"passages": len(given), "tokens": len(given.vectors), "queries": QUERIES, "threads": options.threads}
    write_report(options.json, {**about, "depth": DEPTH, "rows": rows})


if __name__ == "__main__":
    main()

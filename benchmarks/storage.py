"""Storages against float16, on the same vectors: bytes, rankings, the collective teacher, speed.

    python benchmarks/storage.py [--json FILE] [--work FOLDER] [--choices] [--data pydocs:2000 …]

Each collection is indexed once as float16; its stored vectors are then written again by every other storage. nDCG@10
is over dev and test queries; teacher AP over the hidden labels, of queries that have one among the candidates of both;
knowledge is collected anew from every storage. ``--choices`` adds what was tried instead of the residual codec as it
is: its vectors, decoded, are stored as float16.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import seconds, write_report

from colabel import DataSettings, EncoderSettings, Index, IndexSettings, build_index, load_dataset
from colabel.collective import collect
from colabel.data import Dataset
from colabel.encode.encoder import EncodedPassages
from colabel.evaluation.hidden_labels import TEACHER, label_quality
from colabel.index.codec import learn, make_codec, nearest_centres, train_centres
from colabel.index.store import TokenStore, build_store, prepare_codec
from colabel.labels import label
from colabel.measures import measure_run
from colabel.teachers import CollectiveTeacher
from colabel.types import Passage

Vectors = npt.NDArray[np.float32]


class Stored:
    """A store as the encoder and the passages of another; a passage's text is its row."""

    def __init__(self, store: TokenStore, change: Callable[[Vectors], Vectors] = lambda vectors: vectors) -> None:
        self.store, self.change, self.ids = store, change, store.ids
        self.fingerprint = store.manifest.inputs["passages"]
        self.dimension, self.vocabulary_size = store.dimension, len(store.document_frequency)
        self.special_token_ids, self.passage_limit = store.special_token_ids, store.manifest.counts["limit"]

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, row: int) -> Passage:
        return Passage(self.ids[row], "", str(row))

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        return map(self.__getitem__, range(start, stop))

    def encode_passages(self, texts: Sequence[str], _: Callable[[int], None]) -> EncodedPassages:
        rows = np.array(texts, dtype=np.int64)
        vectors, offsets = self.store.vectors(rows)
        half = self.change(vectors).astype(np.float16)
        return EncodedPassages(half, self.store.passage_tokens(rows)[0], offsets, 0, 0)


def stored_as(index: Index, storage: str, folder: Path, change: Callable[[Vectors], Vectors] | None = None) -> Index:
    source: Any = Stored(index.store, change) if change else Stored(index.store)
    encoder = index.store.manifest.inputs["encoder"]
    codec = prepare_codec(storage, lambda: source, encoder, source, folder / "codec")
    build_store(lambda: source, encoder, source, codec, folder / "tokens")
    if not (folder / "encoder").exists():
        (folder / "encoder").symlink_to(index.encoder_folder.resolve())
    (folder / "index.json").write_text(json.dumps({"engine": "exact", "data": None}))
    return Index(folder, passages=index.passages)


def choices(store: TokenStore) -> dict[str, Callable[[Vectors], Vectors]]:
    """What the residual codec could have been."""
    rng = np.random.default_rng(0)
    positions = np.sort(rng.choice(store.tokens, min(store.tokens, 100_000), replace=False))
    sample = store.vectors_at(positions)
    made = make_codec("residual", learn(sample.astype(np.float16)))
    made_choices: dict[str, Callable[[Vectors], Vectors]] = {
        "residual, decoded vectors of length 1": lambda vectors: _unit(_through(made, vectors))
    }
    for count in (512, 2048, 4096):
        centres = train_centres(sample, count)
        differences = sample - centres[nearest_centres(sample, centres)]
        for bits, per in ((2, "all dimensions"), (2, "each dimension"), (4, "each dimension")):
            if bits == 2 or count == 2048:
                levels = _levels(differences, bits, per == "each dimension")
                name = f"{count} centroids, {bits} bits by quantiles of {per}"
                made_choices[name] = partial(_scalar, centres, *levels)
    return made_choices


def _through(codec: Any, vectors: Vectors) -> Vectors:
    decoded: Vectors = codec.stored(codec.encode(vectors.astype(np.float16)), vectors.shape[1]).vectors(slice(None))
    return decoded


def _levels(differences: Vectors, bits: int, apart: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Cut-offs [levels − 1, D] and values [levels, D], as PLAID takes them from quantiles."""
    shares = np.arange(1, 2 ** (bits + 1)) / 2 ** (bits + 1)
    found = np.quantile(differences, shares, axis=0 if apart else None)
    wide = np.broadcast_to(found.reshape(len(shares), -1), (len(shares), differences.shape[1]))
    return wide[1::2], wide[::2]


def _scalar(centres: Vectors, cuts: npt.NDArray[Any], values: npt.NDArray[Any], vectors: Vectors) -> Vectors:
    nearest = centres[nearest_centres(vectors, centres)]
    level = (vectors - nearest > cuts[:, None]).sum(axis=0)
    return _unit(nearest + np.take_along_axis(values, level, axis=0).astype(np.float32))


def _unit(vectors: Vectors) -> Vectors:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


class Measured:
    """An index, and what it says of a dataset."""

    def __init__(self, dataset: Dataset, index: Index, folder: Path, first: Measured | None) -> None:
        self.index, store = index, index.store
        self.texts = {q: text for split in _held(dataset) for q, text in dataset.split_queries(split).items()}
        self.queries = first.queries if first else index.encoder.encode_queries(list(self.texts.values())).vectors
        self.rows, scores = index.search(self.queries, 100)
        run = {
            query: {store.ids[int(row)]: float(score) for row, score in zip(line, values, strict=True) if row >= 0}
            for query, line, values in zip(self.texts, self.rows, scores, strict=True)
        }
        labels = {query: held for split in _held(dataset) for query, held in dataset.labels(split).items()}
        found = measure_run(labels, run, ["nDCG@10"], relevant_from=dataset.relevant_from)
        self.ndcg = float(np.mean(list(found["nDCG@10"].values())))
        if first is not None and not (folder / "knowledge" / "queries").exists():
            shutil.copytree(first.folder / "knowledge" / "queries", folder / "knowledge" / "queries")
        self.folder = folder
        known = collect(dataset, index, folder / "knowledge")
        labelled = label(known, dataset, CollectiveTeacher(known), folder / "labels")
        self.precision = _by_query(label_quality(labelled, dataset).grades)
        self.names = known.centroids(list(known.ranking.query_ids)).token_ids

    def against(self, first: Measured) -> dict[str, Any]:
        common = sorted(self.precision.keys() & first.precision.keys())
        pairs = zip(self.rows.tolist(), first.rows.tolist(), strict=True)
        sample = np.arange(0, self.index.store.tokens, 37)
        mine, theirs = (one.index.store.vectors_at(sample) for one in (self, first))
        length = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
        same = [len(set(a) & set(b)) / max(1, len(set(b))) for a, b in zip(self.names, first.names, strict=True)]
        precision, reference = (np.mean([one.precision[query] for query in common]) for one in (self, first))
        return {
            "mean_cosine": round(float(((mine * theirs).sum(axis=1) / length).mean()), 4),
            "top_10_in_common": round(float(np.mean([len(set(a[:10]) & set(b[:10])) / 10 for a, b in pairs])), 3),
            "centroid_tokens_in_common": round(float(np.mean(same)), 3),
            "nDCG@10": round(self.ndcg, 4),
            "nDCG@10_difference": round(self.ndcg - first.ndcg, 4),
            "teacher_AP": round(float(precision), 4),
            "teacher_AP_difference": round(float(precision - reference), 4),
        }


def _held(dataset: Dataset) -> list[str]:
    return [split for split in ("dev", "test") if split in dataset.splits]


def _by_query(grades: Mapping[int, Any]) -> dict[str, float]:
    return dict(grades[min(grades)].systems[TEACHER].per_query["AP"])


def float16(dataset: Dataset, folder: Path) -> Index:
    """The index of a dataset, built where it is not there yet."""
    if (folder / "index.json").exists():
        return Index.open(folder)
    settings = EncoderSettings(model="minilm", passage_length=128)
    return build_index(dataset, folder, encoder=settings, index=IndexSettings(engine="exact"))


def size(store: TokenStore) -> float:
    return sum(file.stat().st_size for file in store.folder.glob("shard-*.npy")) / store.tokens


def speed(indexes: Mapping[str, Index], queries: Any) -> dict[str, dict[str, float]]:
    """Seconds of exact search, best of several turns that alternate between the storages."""
    found: dict[str, dict[str, float]] = {}
    for name, count in (("batch", 128), ("one_query", 1)):
        best = dict.fromkeys(indexes, np.inf)
        for _ in range(7):
            for storage, index in indexes.items():
                best[storage] = min(best[storage], seconds(partial(index.search, queries[:count], 100), 1))
        found[name] = {storage: best["fp16"] / taken for storage, taken in best.items()}
    return found


def main() -> None:
    logging.getLogger("colabel").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["pydocs:2000"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "colabel-storage")
    parser.add_argument("--choices", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []
    for source in options.data:
        dataset = load_dataset(DataSettings(source=source, keep_labels=1))
        work = options.work / Path(source).name
        index = float16(dataset, work / "index")
        first = Measured(dataset, index, work, None)
        indexes = {"fp16": index}
        for storage in ("int8", "residual"):
            indexes[storage] = stored_as(index, storage, work / storage)
        speeds = speed(indexes, first.queries)
        changes = choices(index.store) if options.choices else {}
        indexes |= {name: stored_as(index, "fp16", work / name, change) for name, change in changes.items()}
        for storage, one in indexes.items():
            row: dict[str, Any] = {"collection": Path(source).name, "storage": storage, "tokens": index.store.tokens}
            if storage not in changes:
                row["bytes_per_token"] = round(size(one.store), 1)
                row |= {f"speed_{name}": round(float(found[storage]), 2) for name, found in speeds.items()}
            measured = first if storage == "fp16" else Measured(dataset, one, work / storage, first)
            row |= measured.against(first)
            (tried if storage in changes else rows).append(row)
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    write_report(options.json, {"rows": rows, "tried": tried})


if __name__ == "__main__":
    main()

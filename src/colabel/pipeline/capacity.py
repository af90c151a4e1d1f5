"""What a run will take: seconds of each stage, and disk, from how fast this machine encodes passages now.

On a Ray cluster the workers share the stages of ``SHARED``; training and BM25 stay with the driver.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from colabel.artefacts import Builder
from colabel.data import Dataset, load_dataset
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.encode import open_encoder, prepare_encoder
from colabel.index.index import choose_engine
from colabel.pipeline.stages import settle, training_data, uses_checkpoint
from colabel.settings import DistilSettings, Recipe, TrainSettings
from colabel.systems import System, student_of
from colabel.train.cross_encoders import share_of_layers
from colabel.train.dev import EVALUATE_DEPTH

log = logging.getLogger(__name__)

SHARED = ("plain index", "index", "collect", "label", "student index", "rank")
_SAMPLE = 48
_LISTS_READ = 0.02  # share of an approximate index that a query reads
_TRAINING_PASS = 3.2  # a training step's time by that of encoding the same passages: forward, backward, update
_PAIR_PASS = 1.1  # a cross-encoder's time for a pair by that of encoding its passage with the same layers
_QUERY_SECONDS, _COLLECT_SECONDS = 0.05, 0.02  # of a query: ranking it with all around the search, and clustering
_SEARCHED = 1e7  # stored tokens per second that exact search compares with a query
_WORDED, _MATCHED = 10_000, 2e7  # passages per second that BM25 indexes, and that it scores for a query


@dataclasses.dataclass(frozen=True)
class Rates:
    """Passages that this machine encodes per second, their stored tokens, and the size of a token's vector."""

    encoded: float
    tokens: float
    dimension: int


def measure_rates(recipe: Recipe, data: Dataset) -> Rates:
    """Encode a few passages of a collection."""
    step = max(1, len(data.passages) // _SAMPLE)
    found = (data.passages[row].full_text for row in range(0, len(data.passages), step))
    texts = [text for text in found if text][:_SAMPLE] or ["a"]
    log.info("timing this machine on %d passages", len(texts))
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place, Builder():
        prepare_encoder(recipe.encoder, data.passages, Path(place) / "encoder")
        encoder = open_encoder(Path(place) / "encoder", recipe.encoder)
    encoder.encode_passages(texts[:8])  # the first batch pays for what torch sets up
    times = []
    for _ in range(2):
        start = time.perf_counter()
        vectors = encoder.encode_passages(texts).vectors
        times.append(time.perf_counter() - start)
    return Rates(len(texts) / min(times), len(vectors) / len(texts), vectors.shape[1])


def stages_of(system: System, *, whole_run: bool = False) -> tuple[str, ...]:
    """The stages that a system goes through, in order; a run ranks with the plain encoder as well."""
    if not system.needs:
        return ("bm25", "rank")
    if "theta" not in system.needs and not system.student:
        return ("encoder", "plain index", "rank")
    learns: tuple[str, ...] = ("collect", "cross-encoder", "label", "distil", "student index")
    if system.query_side:
        learns = ("collect", "label", "query side")
    also = ("plain index",) if whole_run else ()
    return ("encoder", "bm25", "train", "index", *(learns if system.student else ()), *also, "rank")


def stage_seconds(
    recipe: Recipe, system: System, data: Dataset, rates: Rates, *, whole_run: bool = False
) -> dict[str, float]:
    """Stage → its seconds for a system, in the order of ``stages_of``."""
    passages, rate = len(data.passages), rates.encoded
    queries, dev, tests = (len(data.positives(split)) if split in data.splits else 0 for split in (TRAIN, DEV, TEST))

    def training(settings: TrainSettings | DistilSettings) -> float:
        passes = settings.steps * settings.batch_queries * settings.passages * _TRAINING_PASS
        if recipe.fit.evaluate_every:
            pool = min(passages, min(recipe.fit.evaluate_queries, dev) * EVALUATE_DEPTH)
            passes += (1 + settings.steps // recipe.fit.evaluate_every) * pool
        return passes / rate

    distil, reader, side = recipe.distil, recipe.cross_encoder, recipe.query_side
    readers = system.cross_encoder_count(recipe)
    layers = 0.0 if reader.checkpoints else sum(share_of_layers(model) for model in reader.models[:readers])
    reading = reader.steps * reader.batch_queries * (1 + reader.negatives) * _TRAINING_PASS * _PAIR_PASS
    taken, indexing, tokens = uses_checkpoint(recipe), passages / rate, passages * rates.tokens
    approximate = choose_engine(recipe.index.engine, round(tokens), data.name) == "ivf"
    search = _QUERY_SECONDS + tokens * (_LISTS_READ if approximate else 1.0) / _SEARCHED
    found = {
        "encoder": 10.0,
        "bm25": passages / _WORDED + (queries + dev + tests) * passages / _MATCHED,
        "train": 0.0 if taken else training(recipe.train),
        "index": indexing,
        "collect": queries * (search + _COLLECT_SECONDS),
        "cross-encoder": reading * layers / rate,
        "label": readers * distil.steps * distil.batch_queries * distil.passages * _PAIR_PASS / rate,
        "query side": side.steps * side.batch_queries / rate,  # with the scores about as long as a passage each
        "distil": training(distil),
        "student index": indexing,
        "plain index": 0.0 if whole_run and (taken or not tests) else indexing,
        "rank": tests * search,
    }
    workers = max(1, recipe.compute.workers) if recipe.compute.engine == "ray" else 1
    return {name: found[name] / (workers if name in SHARED else 1) for name in stages_of(system, whole_run=whole_run)}


def plan_run(recipe: Recipe, *, teacher: str | None = None) -> dict[str, Any]:
    """What a run takes, as plain JSON types: passages, stored tokens, bytes on disk, and seconds of each stage."""
    recipe, teacher, _ = settle(recipe, teacher)
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        data = training_data(load_dataset(recipe.data, cache=Path(place) / "data"), recipe)
        rates = measure_rates(recipe, data)
        seconds = stage_seconds(recipe, student_of(teacher, recipe), data, rates, whole_run=True)
        tokens = round(len(data.passages) * rates.tokens)
    engine = choose_engine(recipe.index.engine, tokens, data.name)
    vector = 4 + (rates.dimension + 2 if recipe.index.storage == "int8" else 2 * rates.dimension)
    vector += rates.dimension // 4 + 8 if engine == "ivf" else 0
    indexes = sum(1 for name, taken in seconds.items() if name.endswith("index") and taken)
    sizes = {"passages": len(data.passages), "tokens": tokens, "engine": engine}
    return {**sizes, "disk_bytes": indexes * tokens * vector, "encoded_per_second": rates.encoded, "seconds": seconds}


def duration(seconds: float) -> str:
    """A rough time in words.

    >>> duration(40), duration(400), duration(9000)
    ('1 min', '7 min', '2.5 h')
    """
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

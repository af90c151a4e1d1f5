"""What a run will take: seconds of each stage, and disk, from how fast this machine encodes passages now.

On a Ray cluster the workers share the stages of ``SHARED``; training and BM25 stay with the driver.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch

from colabel.data import Dataset, load_dataset
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.encode import Encoder
from colabel.encode.colbert import PROJECTION_SAMPLE, choose_device, load_or_convert
from colabel.encode.weights import is_late_interaction, resolve_model
from colabel.evaluation.timing import WARMUP
from colabel.findings.results import TIMED_QUERIES
from colabel.index.codec import vector_bytes
from colabel.index.index import choose_engine
from colabel.pipeline.stages import made_queries, settle, training_data
from colabel.settings import DistilSettings, Recipe, TrainSettings
from colabel.systems import DEFAULT_LESSON, System, for_student, student_of
from colabel.train.cross_encoders import share_of_layers
from colabel.train.dev import EVALUATE_DEPTH
from colabel.train.pulling import ALPHAS
from colabel.train.query_side import COARSE, DEV_QUERIES, step_seconds, steps_of

log = logging.getLogger(__name__)

T = TypeVar("T")

OWN = ("label", "query side", "distil", "student index", "plain index", "rank")
"""Stages that every system goes through by itself."""
SHARED = ("plain index", "index", "label", "student index", "rank")
_SAMPLE = 48
_TRAINING_PASS = 3.2  # a training step's time by that of encoding the same passages: forward, backward, update
_PAIR_PASS = 1.1  # a cross-encoder's time for a pair by that of encoding its passage with the same layers
_LISTS_READ = 0.02  # share of an approximate index that a query reads
_COLLECTED = 0.5  # finding a query's feedback clusters, by the time of encoding a passage
_VIEWS = 3  # times that a teacher of vectors compares a candidate's tokens, at most
_ALONE = 3.5  # encoding a query by itself, by its share of encoding many together
_WRITTEN = 150.0  # tests, tables and pages, by the time of encoding a passage
_LOADED = 3.0  # seconds to load a model
_WORDED, _MATCHED = 10_000, 2e7  # passages per second that BM25 indexes, and that it scores for a query


@dataclasses.dataclass(frozen=True)
class Rates:
    """How fast this machine is.

    Attributes:
        encoded, queries: passages and queries that it encodes per second.
        searched: stored tokens per second that exact search compares with a query.
        step: seconds of a step of query-side training.
        tokens, dimension: stored tokens of a passage, and the size of a token's vector.
    """

    encoded: float
    queries: float
    searched: float
    step: float
    tokens: float
    dimension: int

    def slowed(self, times: float) -> Rates:
        """The rates where everything but steps, which are measured as they are, takes so many times as long."""
        faster = {name: getattr(self, name) / times for name in ("encoded", "queries", "searched")}
        return dataclasses.replace(self, **faster)


@dataclasses.dataclass(frozen=True)
class Counts:
    """How much there is to do: passages, queries with a relevant one in each split, whether nobody labelled them."""

    passages: int
    train: int = 0
    dev: int = 0
    test: int = 0
    name: str = ""
    pseudo: bool = False

    @classmethod
    def of(cls, data: Dataset) -> Counts:
        """Those of a collection."""
        train, dev, test = (len(data.positives(split)) if split in data.splits else 0 for split in (TRAIN, DEV, TEST))
        return cls(len(data.passages), train, dev, test, data.name, TRAIN in data.pseudo)


def measure_rates(recipe: Recipe, data: Dataset) -> Rates:
    """Encode a few passages and queries of a collection, compare them, and take a few steps of query-side training.

    The projection is a random one: that of the collection would take longer than all the rest.
    """
    step = max(1, len(data.passages) // _SAMPLE)
    found = (data.passages[row].full_text for row in range(0, len(data.passages), step))
    texts = [text for text in found if text][:_SAMPLE] or ["a"]
    asked = list(data.queries.values())
    asked = asked[:: max(1, len(asked) // 256)][:256] or ["a"]
    log.info("timing this machine on %d passages", len(texts))
    device = choose_device(recipe.encoder.device)
    encoder = Encoder(load_or_convert(resolve_model(recipe.encoder.model), recipe.encoder, device)[0])
    encoder.encode_passages(texts[:8])  # the first batch pays for what torch sets up
    passages, taken = _timed(lambda: encoder.encode_passages(texts))
    queries, asking = _timed(lambda: encoder.encode_queries(asked[:64]).vectors)
    vectors = torch.from_numpy(passages.vectors.astype("float32"))
    _, comparing = _timed(lambda: [(one @ vectors.T).amax(dim=1) for one in queries])
    return Rates(
        len(texts) / taken,
        len(queries) / asking,
        len(vectors) * len(queries) / comparing,
        step_seconds(encoder, passages, asked, recipe.query_side),
        len(vectors) / len(texts),
        vectors.shape[1],
    )


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and the seconds of the faster of two times."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - start)
    return found, max(min(times), 1e-9)


@functools.cache
def _late(model: str) -> bool:
    """Whether a model is a late-interaction checkpoint; asked hundreds of times while steps are chosen."""
    return is_late_interaction(resolve_model(model))


@functools.cache
def _trained_share(model: str, layers: int | str) -> float:
    """The share of a model's layers that training passes through; what the others make is computed once."""
    return 1.0 if layers == "all" else share_of_layers(f"{model}:{layers}")


def takes_checkpoint(recipe: Recipe) -> bool:
    """As :func:`uses_checkpoint`, without reading the model each time."""
    return recipe.train.theta == "take" or (recipe.train.theta == "auto" and _late(recipe.encoder.model))


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
    recipe: Recipe, system: System, counts: Counts, rates: Rates, *, whole_run: bool = False
) -> dict[str, float]:
    """Stage → its seconds for a system, in the order of ``stages_of``."""
    passages, rate = counts.passages, rates.encoded
    queries, dev, tests = counts.train, counts.dev, counts.test
    most, asked_of_all = passages * len(recipe.pseudo.kinds), queries + dev + tests
    made = min(made_queries(recipe, system, queries), most)
    if system.unlabelled:
        queries, dev = made, min(recipe.pseudo.queries - made, most)
    beside = 0 if counts.pseudo or system.unlabelled else made

    def training(settings: TrainSettings | DistilSettings, mixes: int = 0) -> float:
        shown, pool = settings.steps * settings.batch_queries * settings.passages, 0
        passes = shown * _TRAINING_PASS
        if recipe.fit.evaluate_every:
            pool = min(passages, min(recipe.fit.evaluate_queries, dev) * EVALUATE_DEPTH)
            passes += (1 + settings.steps // recipe.fit.evaluate_every + mixes) * pool
        share = _trained_share(recipe.encoder.model, recipe.train.layers)
        return (share * passes + (1 - share) * min(passages, shown + pool)) / rate

    distil, reader, side = recipe.distil, recipe.cross_encoder, recipe.query_side
    readers = system.cross_encoder_count(recipe)
    layers = 0.0 if reader.checkpoints else sum(share_of_layers(model) for model in reader.models[:readers])
    reading = reader.steps * reader.batch_queries * (1 + reader.negatives) * _TRAINING_PASS * _PAIR_PASS
    taken, indexing, tokens = takes_checkpoint(recipe), passages / rate, passages * rates.tokens
    approximate = choose_engine(recipe.index.engine, round(tokens), counts.name) == "ivf"
    search = 1 / rates.queries + tokens * (_LISTS_READ if approximate else 1.0) / rates.searched
    sampled = 0 if _late(recipe.encoder.model) else min(PROJECTION_SAMPLE, passages)
    candidates = min(recipe.labels.candidates, passages) if system.asked_directly else 0
    compared = _VIEWS * (queries + beside) * candidates * rates.tokens / rates.searched
    lessons = 2 if system.teacher and not system.unlabelled else 1  # the teacher's and the labels'
    asked = len(ALPHAS) + (len(COARSE) * 2 if lessons > 1 else 0) + (len(COARSE) if beside else 0)
    compared_on_dev = asked * min(dev, DEV_QUERIES) * search
    workers = max(1, recipe.compute.workers) if recipe.compute.engine == "ray" else 1
    found = {
        "encoder": _LOADED + sampled / rate,
        "bm25": passages / _WORDED + asked_of_all * passages / _MATCHED,
        "train": 0.0 if taken else training(recipe.train),
        "index": indexing,
        "collect": queries * (search / workers + _COLLECTED / rate),
        "cross-encoder": reading * layers / rate,
        "label": readers * distil.steps * distil.batch_queries * distil.passages * _PAIR_PASS / rate + compared,
        "query side": _LOADED
        + (lessons * steps_of(side, queries) + (steps_of(side, beside) if beside else 0)) * rates.step
        + beside * (search / workers + _COLLECTED / rate)
        + compared_on_dev,
        "distil": training(distil, len(ALPHAS) - 2 if recipe.fit.pulls and not system.from_plain else 0),
        "student index": indexing,
        "plain index": 0.0 if whole_run and (taken or not tests) else indexing,
        "rank": tests * search,
    }
    return {name: found[name] / (workers if name in SHARED else 1) for name in stages_of(system, whole_run=whole_run)}


def from_stage(seconds: dict[str, float], stage: str) -> dict[str, float]:
    """What is left of the stages of a system from one of them on; all of them where it is none of these."""
    names = list(seconds)
    return {name: seconds[name] for name in names[names.index(stage) if stage in seconds else 0 :]}


def work_seconds(
    recipe: Recipe, rows: Iterable[tuple[System, int]], counts: Counts, rates: Rates, *, whole_run: bool = False
) -> float:
    """Seconds of several systems, each with a seed; what they share is counted once."""
    found: dict[tuple[str, int, str], float] = {}
    for system, seed in rows:
        for stage, seconds in stage_seconds(recipe, system, counts, rates, whole_run=whole_run).items():
            found[charged_to(system, seed, stage)] = seconds
    return sum(found.values())


def charged_to(system: System, seed: int, stage: str) -> tuple[str, int, str]:
    """Whose a stage is: a system's own, one that the systems of a seed share, or one that all share."""
    own = stage in OWN or (system.unlabelled and stage == "collect")  # of queries that no other system has
    return (system.slug if own else "", -1 if stage in ("encoder", "bm25") else seed, stage)


def report_seconds(recipe: Recipe, systems: int, counts: Counts, rates: Rates) -> float:
    """Seconds to measure a study and to write its report: response times, label quality, tests, pages."""
    search = 1 / rates.queries + counts.passages * rates.tokens / rates.searched
    alone = _ALONE / rates.queries + counts.passages * rates.tokens / rates.searched
    timed = min(TIMED_QUERIES, counts.test) + WARMUP
    return _WRITTEN / rates.encoded + systems * timed * alone + counts.test * (search + _COLLECTED / rates.encoded)


def plan_run(recipe: Recipe, *, teacher: str = DEFAULT_LESSON) -> dict[str, Any]:
    """What a run takes, as plain JSON types: passages, stored tokens, bytes on disk, and seconds of each stage."""
    recipe, _ = settle(recipe)
    system = student_of(teacher, recipe)
    recipe = for_student(recipe, system)
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        data = training_data(load_dataset(recipe.data, cache=Path(place) / "data"), recipe)
        rates = measure_rates(recipe, data)
        seconds = stage_seconds(recipe, system, Counts.of(data), rates, whole_run=True)
        tokens = round(len(data.passages) * rates.tokens)
    engine = choose_engine(recipe.index.engine, tokens, data.name)
    vector = 4 + vector_bytes(recipe.index.storage, rates.dimension)
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

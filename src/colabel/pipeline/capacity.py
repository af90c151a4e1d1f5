"""What a collection will take: tokens, disk, memory and hours, from rates that are measured on this machine now.

Rates are of one worker. Distributed stages take their work divided by the number of workers; training and BM25 stay
with the driver. Not counted: the network, workers that wait for the last shard, reading the collection, starting
programs.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colabel.artefacts import Builder
from colabel.collective.centroids import cluster_feedback
from colabel.data import Dataset, load_dataset
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.errors import ColabelError, UsageError
from colabel.index.exact import TokenShard, limited_threads, score_rows, search_exact
from colabel.index.index import EXACT_LIMIT
from colabel.index.ivf import TRAIN_ITERATIONS, ivf_lists
from colabel.index.shards import FetchedVectors
from colabel.maxsim import plain
from colabel.pipeline.stages import Stages, uses_checkpoint
from colabel.ranking.bm25 import rank_words, tokenise, word_index
from colabel.settings import DistilSettings, FitSettings, Recipe, TrainSettings
from colabel.systems import System
from colabel.train.cross_encoders import share_of_layers
from colabel.train.dev import EVALUATE_DEPTH

log = logging.getLogger(__name__)

_SAMPLE = 256  # passages that are encoded to learn the rates
_STAND_IN = "pydocs:2000"
_SCORED_TOKENS = 100_000
_QUERIES = 32
_ID_BYTES, _LOOKUP_BYTES = 4, 2**29
_LISTS_READ = 0.02  # share of an approximate index that a query, or a centroid that is named, reads
TRAINING_PASS = 3.2
"""A training step's time by that of encoding the same passages: forward, backward, update."""
_PAIR_PASS = 1.1  # a cross-encoder's time for a pair by that of encoding its passage with the same layers
_RANKED_SECONDS = 0.05  # of a query, with all that is around it


@dataclasses.dataclass(frozen=True)
class Rates:
    """How fast one worker is, and how long texts are.

    Attributes:
        tokens: stored tokens per passage.
        encoded: passages per second, at ``tokens`` each.
        query_tokens: tokens per query.
        compared: pairs of a query token and a passage token that exact search compares per second.
        asked: queries encoded per second.
        rescored: passage tokens per second that are gathered and scored for a query with its centroids.
        clustered: queries per second whose feedback is clustered.
        worded: passages per second that BM25 indexes.
        matched: passages per second that BM25 scores for a query.
        memory: bytes of this process with the model loaded and at work.
    """

    tokens: float
    encoded: float
    query_tokens: float
    compared: float
    asked: float
    rescored: float
    clustered: float
    worded: float
    matched: float
    dimension: int
    memory: int


@dataclasses.dataclass(frozen=True)
class StageCost:
    """Seconds of a stage for one worker; ``shared`` among workers, or the driver's alone."""

    name: str
    seconds: float
    shared: bool

    def hours(self, workers: int) -> float:
        """Hours with so many workers."""
        return self.seconds / 3600 / (workers if self.shared else 1)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    passages: int
    queries: int
    tokens: int
    engine: str
    shards: int
    disk_bytes: int
    worker_bytes: int
    rates: Rates
    stages: tuple[StageCost, ...]

    def hours(self, workers: int) -> float:
        """Hours of all stages together."""
        return sum(stage.hours(workers) for stage in self.stages)

    def as_dict(self, workers: Sequence[int]) -> dict[str, Any]:
        """Plain JSON types, with hours for some numbers of workers."""
        hours = {str(count): round(self.hours(count), 4) for count in workers}
        return {**dataclasses.asdict(self), "hours": hours}


def plan_capacity(
    recipe: Recipe,
    *,
    passages: int | None = None,
    queries: int | None = None,
    test_queries: int | None = None,
    passage_tokens: float | None = None,
) -> Estimate:
    """Measure this machine on a sample and say what the recipe's run takes.

    Args:
        passages, queries, test_queries: the size of a collection that is not here (passages, training and test
            queries); None: the recipe's own. Rates are then measured on the recipe's collection where it can be read
            without a download, else on ``pydocs``.
        passage_tokens: stored tokens per passage; None: as in the sample.
    """
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        dataset, stand_in = _collection(recipe, passages, Path(place))
        if stand_in and queries is None:
            raise UsageError("the collection is not here; give its number of training queries as well: --queries")
        prepare_encoder(recipe.encoder, dataset.passages, Path(place) / "encoder")
        rates = measure(dataset, open_encoder(Path(place) / "encoder", recipe.encoder), recipe)
    if passage_tokens is not None:
        rates = dataclasses.replace(rates, tokens=passage_tokens, encoded=rates.encoded * rates.tokens / passage_tokens)
    own = {split: 0 if stand_in else len(dataset.positives(split)) for split in dataset.splits}
    asked = queries if queries is not None else own.get(TRAIN, 0)
    tests = test_queries if test_queries is not None else own.get(TEST, 0)
    dev = recipe.fit.evaluate_queries if stand_in else own.get(DEV, 0)
    return estimate(recipe, rates, passages or len(dataset.passages), asked, tests, dev)


def estimate(recipe: Recipe, rates: Rates, passages: int, queries: int, tests: int, dev: int = 0) -> Estimate:
    """The estimate from rates and sizes (passages; training, test and dev queries); measures nothing."""
    tokens, engine = round(passages * rates.tokens), recipe.index.engine
    if engine == "auto":
        engine = "exact" if tokens <= EXACT_LIMIT else "ivf"
    local = recipe.compute.engine == "local"
    shard_tokens = tokens if local else min(tokens, recipe.compute.shard_passages * rates.tokens)
    shards = max(1, math.ceil(tokens / max(1.0, shard_tokens)))
    indexes = 3 if tests else 2  # of θ, of the student, and of the plain encoder where it is evaluated
    one_byte, ivf = recipe.index.storage == "int8", engine == "ivf"
    vector = rates.dimension * (1 if one_byte else 2) + _ID_BYTES + (2 if one_byte else 0)
    disk = indexes * tokens * (vector + (rates.dimension // 4 + 2 * _ID_BYTES if ivf else 0))
    worker = rates.memory + min(_LOOKUP_BYTES, shard_tokens * rates.dimension * 2)
    read = tokens * (_LISTS_READ if ivf else 1.0)
    search, encoding = rates.query_tokens * read / rates.compared, passages / rates.encoded
    naming = recipe.collective.clusters * min(read, EXACT_LIMIT) / rates.compared
    taken = uses_checkpoint(recipe)
    stages = []
    if tests or not taken:
        ranked = (0 if taken else queries + (dev if recipe.fit.evaluate_every else 0)) + tests
        stages.append(StageCost("BM25", passages / rates.worded + ranked * passages / rates.matched, shared=False))
    if not taken:
        seconds = training_passes(recipe.train, recipe.fit, passages, dev) / rates.encoded
        stages.append(StageCost("train θ", seconds, shared=False))
    scored = min(passages, recipe.labels.candidates) * rates.tokens / rates.rescored
    student = training_passes(recipe.distil, recipe.fit, passages, dev) / rates.encoded
    stages += [
        StageCost("encode with θ", encoding, shared=True),
        StageCost("encode training queries", 2 * queries / rates.asked, shared=False),  # to store and to rank them
        StageCost("rank training queries", (queries + dev) * search, shared=True),
        StageCost("collective knowledge", queries * (1 / rates.clustered + naming), shared=True),
        StageCost("label", queries * scored, shared=True),
        StageCost("train the student", student, shared=False),
        StageCost("encode with the student", encoding, shared=True),
    ]
    if tests:
        stages.append(StageCost("encode untrained", encoding, shared=True))
        stages.append(StageCost("encode test queries", 3 * tests / rates.asked, shared=False))
        stages.append(StageCost("rank test queries", 3 * tests * search, shared=True))
    if ivf:
        lists = ivf_lists(int(tokens / shards))
        pairs = indexes * tokens * lists * (1 + TRAIN_ITERATIONS / shards)
        stages.append(StageCost("build approximate indexes", pairs / rates.compared, shared=True))
    return Estimate(passages, queries, tokens, engine, shards, round(disk), round(worker), rates, tuple(stages))


def measure(dataset: Dataset, encoder: Encoder, recipe: Recipe) -> Rates:
    """Encode, search, score and cluster a sample of a collection."""
    with limited_threads(1 if recipe.compute.engine == "ray" else torch.get_num_threads()):
        texts = _sample(dataset, _SAMPLE)
        encoder.encode_passages(texts[:8])  # the first batch pays for what torch sets up
        encoded = encoder.encode_passages(texts)
        asked = [text for text in list(dataset.queries.values())[:_QUERIES] if text.strip()] or ["a question"]
        queries = encoder.encode_queries(asked)
        length = float((queries.token_ids >= 0).sum(dim=1).float().mean())
        copies = max(1, _SCORED_TOKENS // max(1, len(encoded.vectors)))
        sizes = np.tile(np.diff(encoded.offsets), copies)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        shard = TokenShard(plain(np.tile(encoded.vectors, (copies, 1))), offsets)
        random = np.random.default_rng(0)
        rows = random.integers(0, len(shard), size=(len(asked), 100))
        feedback = random.integers(0, len(texts), size=(64, recipe.collective.feedback_passages))
        first = queries.vectors[:, :1].expand(-1, recipe.collective.centroids, -1)
        expanded = torch.cat([queries.vectors, first], dim=1)
        fetched = FetchedVectors(np.arange(len(texts)), encoded.vectors, encoded.offsets)
        index, words = word_index(texts, recipe.rank), tokenise(asked, recipe.rank.language)
        ties = np.arange(len(texts), dtype=np.int32)
        matching = _timed(lambda: [rank_words(index, one, recipe.rank.depth, ties) for one in words])
        return Rates(
            tokens=len(encoded.vectors) / len(texts),
            encoded=len(texts) / _timed(lambda: encoder.encode_passages(texts)),
            query_tokens=length,
            compared=len(asked) * length * offsets[-1] / _timed(lambda: search_exact(queries.vectors, [shard], 10)),
            asked=len(asked) / _timed(lambda: encoder.encode_queries(asked)),
            rescored=float(sizes[rows].sum()) / _timed(lambda: score_rows(expanded, [shard], rows)),
            clustered=len(feedback) / _timed(lambda: cluster_feedback(fetched, feedback, recipe.collective)),
            worded=len(texts) / _timed(lambda: word_index(texts, recipe.rank)),
            matched=len(words) * len(texts) / matching,
            dimension=encoded.vectors.shape[1],
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )


def training_passes(settings: TrainSettings | DistilSettings, fit: FitSettings, passages: int, dev: int) -> float:
    """What training takes, in passages that could be encoded meanwhile: the steps, and evaluations on dev queries."""
    steps = settings.steps * settings.batch_queries * settings.passages * TRAINING_PASS
    if not fit.evaluate_every or not dev:
        return steps
    pool = min(passages, min(fit.evaluate_queries, dev) * EVALUATE_DEPTH)
    return steps + (1 + settings.steps // fit.evaluate_every) * pool


def stage_seconds(do: Stages, data: Dataset, system: System, rate: float) -> dict[str, float]:
    """Stage → its seconds for a system, in order, from the passages that this machine encodes per second."""
    recipe, passages = do.recipe, len(data.passages)
    counts = {split: len(data.positives(split)) for split in data.splits}
    dev, distil, readers = counts.get(DEV, 0), recipe.distil, system.cross_encoder_count(recipe)
    theta = 0.0 if uses_checkpoint(recipe) else training_passes(recipe.train, recipe.fit, passages, dev) / rate
    settings = recipe.cross_encoder
    read = settings.steps * settings.batch_queries * (1 + settings.negatives) * TRAINING_PASS * _PAIR_PASS / rate
    trained = () if settings.checkpoints else settings.models[:readers]
    drawn = distil.steps * distil.batch_queries * distil.passages
    trials = 0 if system.from_plain or do.seed != recipe.seed else len(recipe.study.trials)
    student = (1 + trials) * training_passes(distil, recipe.fit, passages, dev) / rate
    found = {"encoder": 10.0, "plain index": passages / rate, "bm25": passages / 10_000, "train": theta}
    found |= {"index": passages / rate, "collect": 0.02 * counts.get(TRAIN, 0)}
    found["cross-encoder"] = sum(read * share_of_layers(model) for model in trained)
    found["label"] = readers * drawn * _PAIR_PASS / rate
    side = recipe.query_side  # a query pass with gradients, and the scores of stored candidates: about a passage's time
    found["query side"] = side.steps * side.batch_queries / rate
    found |= {"distil": student, "student index": passages / rate, "rank": _RANKED_SECONDS * counts.get(TEST, 0)}
    return {name: seconds for name, seconds in found.items() if name in stages_of(system)}


def stages_of(system: System) -> tuple[str, ...]:
    """The stages that a system goes through, in order."""
    if not system.needs:
        return ("bm25", "rank")
    if "theta" not in system.needs and not system.student:
        return ("encoder", "plain index", "rank")
    first = ("encoder", "bm25", "train", "index")
    learns: tuple[str, ...] = ("collect", "cross-encoder", "label", "distil", "student index")
    if system.query_side:
        learns = ("collect", "label", "query side")
    return (*first, *(learns if system.student else ()), "rank")


def passages_per_second(do: Stages, data: Dataset) -> float:
    """How fast this machine encodes a few passages of the collection."""
    texts = _sample(data, 48)
    log.info("timing this machine on %d passages", len(texts))
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place, Builder():
        prepare_encoder(do.recipe.encoder, data.passages, Path(place) / "encoder")
        encoder = open_encoder(Path(place) / "encoder", do.recipe.encoder)
    encoder.encode_passages(texts[:8])
    return len(texts) / _timed(lambda: encoder.encode_passages(texts))


def duration(seconds: float) -> str:
    """A rough time in words.

    >>> duration(40), duration(400), duration(9000)
    ('1 min', '7 min', '2.5 h')
    """
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _sample(data: Dataset, count: int) -> list[str]:
    step = max(1, len(data.passages) // count)
    texts = [data.passages[row].full_text for row in range(0, len(data.passages), step)]
    return [text for text in texts if text][:count] or ["a"]


def _timed(work: Callable[[], object]) -> float:
    """The shorter of two runs' seconds."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return max(1e-9, min(times))


def _collection(recipe: Recipe, passages: int | None, place: Path) -> tuple[Dataset, bool]:
    """The recipe's collection, or where that is not here and its size was given, another one to measure on."""
    why = "is not downloaded for a plan"
    if passages is None or not recipe.data.source.startswith("irds:"):
        try:
            return load_dataset(recipe.data, cache=place / "data"), False
        except ColabelError as error:
            if passages is None:
                raise
            why = f"cannot be read ({error})"
    log.warning("rates are measured on pydocs: %s %s", recipe.data.source, why)
    return load_dataset(_STAND_IN, cache=place / "stand-in"), True

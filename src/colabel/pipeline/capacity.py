"""What a collection will take: tokens, disk, memory and hours, from rates that are measured on this machine now.

Rates are of one worker, ``compute.cpus`` threads on this processor or its device. Distributed stages take their work by
the number of workers; training and BM25 stay with the driver. What is not counted: the network, workers that wait for
the last shard, reading the collection, and starting programs.
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
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from colabel.collective.clustering import FetchedVectors, cluster_feedback
from colabel.collective.extraction import NEIGHBOURS
from colabel.collective.feedback import Feedback
from colabel.data import Dataset, load_dataset
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.data.trec import run_line
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.errors import ColabelError, UsageError
from colabel.index.exact import TokenShard, score_rows, search_exact
from colabel.index.index import EXACT_LIMIT
from colabel.index.ivf import NEAREST_PROBES, TRAIN_ITERATIONS, list_count
from colabel.index.lookup import (
    CENTRE_ITERATIONS,
    LOOKUP_FROM,
    LOOKUP_UP_TO,
    PROBES,
    TRAIN_PER_LIST,
    train_centres,
)
from colabel.index.lookup import list_count as lookup_lists
from colabel.index.threads import limited_threads
from colabel.pipeline.planning import training_passes
from colabel.pipeline.workbench import takes_teacher
from colabel.ranking.bm25 import rank_words, tokenise, word_index
from colabel.settings import Recipe
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

T = TypeVar("T")

_SAMPLE = 256  # passages that are encoded to learn the rates
_STAND_IN = "pydocs:2000"
_DOWNLOADED = "irds:"
_SCORED_TOKENS = 100_000
_QUERIES = 32
_WRITTEN = 20_000  # lines
_MATCHED = 4096  # passages that BM25 scores
_NAMED = 1024  # vectors at a time, as the look-up takes them
_PROBED = 0.35  # share of the lists that are near enough to be read
_ID_BYTES = 4
_LOOKUP_BYTES = 2**29


@dataclasses.dataclass(frozen=True)
class Rates:
    """How fast one worker is, and how long texts are.

    Attributes:
        tokens: stored tokens of a passage.
        encoded: passages a second, at ``tokens`` each.
        query_tokens: tokens of a query.
        compared: pairs of a query token and a passage token that exact search compares in a second.
        asked: queries encoded in a second.
        rescored: passage tokens a second that are gathered and scored for a query with its centroids.
        clustered: queries a second whose feedback is clustered.
        named: pairs of a vector and a stored token a second, where the nearest tokens are wanted.
        grouped: pairs of a token and a centre a second, where centres are learnt.
        worded: passages a second that BM25 indexes.
        matched: passages a second that BM25 scores for a query.
        written: lines of a ranking that are written in a second.
        memory: bytes of this process with the model loaded and at work.
    """

    tokens: float
    encoded: float
    query_tokens: float
    compared: float
    asked: float
    rescored: float
    clustered: float
    named: float
    grouped: float
    worded: float
    matched: float
    written: float
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
class CapacityPlan:
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
        table = dataclasses.asdict(self)
        table["hours"] = {str(count): round(self.hours(count), 4) for count in workers}
        return table


def plan_capacity(
    recipe: Recipe,
    *,
    passages: int | None = None,
    queries: int | None = None,
    test_queries: int | None = None,
    passage_tokens: float | None = None,
) -> CapacityPlan:
    """Measure this machine on a sample and say what the recipe's run takes.

    Args:
        passages, queries, test_queries: the size of a collection that is not here (passages, training and test
            queries); None: the recipe's own. Rates are then measured on the recipe's collection where it can be read
            without a download, else on ``pydocs``.
        passage_tokens: stored tokens of a passage; None: as in the sample.
    """
    with tempfile.TemporaryDirectory(prefix="colabel-plan-") as place:
        dataset, stand_in = _collection(recipe, passages, Path(place))
        if stand_in and queries is None:
            raise UsageError("the collection is not here; give its number of training queries as well: --queries")
        prepare_encoder(recipe.encoder, dataset.passages, Path(place) / "encoder")
        encoder = open_encoder(Path(place) / "encoder", recipe.encoder)
        rates = measure(dataset, encoder, recipe)
    if passage_tokens is not None:
        rates = dataclasses.replace(rates, tokens=passage_tokens, encoded=rates.encoded * rates.tokens / passage_tokens)
    wanted = passages or len(dataset.passages)
    own = {split: 0 if stand_in else len(dataset.positives(split)) for split in dataset.splits}
    asked = queries if queries is not None else own.get(TRAIN, 0)
    tests = test_queries if test_queries is not None else own.get(TEST, 0)
    dev = recipe.distil.evaluate_queries if stand_in else own.get(DEV, 0)
    return estimate(recipe, rates, wanted, asked, tests, dev)


def estimate(recipe: Recipe, rates: Rates, passages: int, queries: int, tests: int, dev: int = 0) -> CapacityPlan:
    """The plan from rates and sizes (passages; training, test and dev queries); measures nothing."""
    tokens = round(passages * rates.tokens)
    engine = recipe.index.engine
    if engine == "auto":
        engine = "exact" if tokens <= EXACT_LIMIT else "ivf"
    shard_tokens = min(tokens, recipe.compute.shard_passages * rates.tokens)
    if recipe.compute.engine == "local":
        shard_tokens = tokens
    shards = max(1, math.ceil(tokens / max(1.0, shard_tokens)))
    stages = tuple(_stages(recipe, rates, passages, queries, tests, dev, shards, engine))
    width = 1 if recipe.index.storage == "int8" else 2
    vector = rates.dimension * width + _ID_BYTES + (2 if width == 1 else 0)
    approximate = rates.dimension // 4 + 2 * _ID_BYTES if engine == "ivf" else 0
    lookup = 2 * _ID_BYTES if tokens <= LOOKUP_UP_TO else 0
    block = min(passages, recipe.index.shard_passages) * rates.tokens * (2 * rates.dimension + _ID_BYTES)
    worker = rates.memory + 2 * block + min(_LOOKUP_BYTES, shard_tokens * rates.dimension * 2)
    disk = _indexes(tests) * tokens * (vector + approximate) + tokens * lookup
    return CapacityPlan(passages, queries, tokens, engine, shards, round(disk), round(worker), rates, stages)


def _stages(
    recipe: Recipe, rates: Rates, passages: int, queries: int, tests: int, dev: int, shards: int, engine: str
) -> list[StageCost]:
    tokens = passages * rates.tokens
    encoding = passages / rates.encoded
    candidates = min(passages, recipe.labels.candidates)
    search = _search_seconds(rates, tokens, shards, engine)
    naming = _naming_seconds(rates, tokens, queries * recipe.collective.clusters, shards, engine)
    scoring = candidates * rates.tokens / rates.rescored
    taken = takes_teacher(recipe)
    depth = min(passages, recipe.rank.depth) / rates.written
    stages = []
    if tests or not taken:
        negatives = 0.0 if taken else queries * min(passages, recipe.train.candidates) / rates.written
        worded = (0 if taken else queries + (dev if recipe.train.evaluate_every else 0)) + tests
        ranking = worded * passages / rates.matched + negatives + tests * depth
        stages.append(StageCost("BM25", passages / rates.worded + ranking, shared=False))
    if not taken:
        stages.append(StageCost("train θ", training_passes(recipe.train, passages, dev) / rates.encoded, shared=False))
    stages += [
        StageCost("encode with θ", encoding, shared=True),
        StageCost("encode training queries", 2 * queries / rates.asked, shared=False),  # to store and to rank them
        StageCost("rank training queries", (queries + dev) * (search + candidates / rates.written), shared=True),
        StageCost("collective knowledge", queries / rates.clustered + naming, shared=True),
        StageCost("label", queries * scoring, shared=True),
        StageCost("train the student", training_passes(recipe.distil, passages, dev) / rates.encoded, shared=False),
        StageCost("encode with the student", encoding, shared=True),
    ]
    if tests:
        stages.append(StageCost("encode untrained", encoding, shared=True))
        stages.append(StageCost("encode test queries", 3 * tests / rates.asked, shared=False))
        stages.append(StageCost("rank test queries", 3 * tests * (search + depth), shared=True))
    if engine == "ivf":
        here = tokens / shards
        pairs = _indexes(tests) * shards * _grouping_pairs(here, list_count(int(here)), TRAIN_ITERATIONS)
        stages.append(StageCost("build approximate indexes", pairs / rates.grouped, shared=True))
    return stages


def _indexes(tests: int) -> int:
    """Of θ, of the student, and where there are test queries of the untrained encoder, which is evaluated as well."""
    return 3 if tests else 2


def _search_seconds(rates: Rates, tokens: float, shards: int, engine: str) -> float:
    """Seconds of one query over all shards: every token, or those of the lists that are searched."""
    exact = rates.query_tokens * tokens / rates.compared
    if engine == "exact":
        return exact
    here = tokens / shards
    lists = list_count(int(here))
    read = min(1.0, max(16, lists // 256) / lists) * here
    rescored = 1024 * rates.tokens / rates.rescored
    return shards * (rates.query_tokens * (read + lists) / rates.compared + rescored)


def _naming_seconds(rates: Rates, tokens: float, centroids: int, shards: int, engine: str) -> float:
    """Seconds to find tokens near centroids: few tokens are all read; of many, lists are made and near ones read."""
    parts = shards if tokens > LOOKUP_UP_TO else 1  # lists of the whole collection, or of each shard its own
    here = tokens / parts
    if here < LOOKUP_FROM or (tokens > LOOKUP_UP_TO and engine == "exact"):
        return centroids * tokens / rates.named
    if here > LOOKUP_UP_TO:  # the approximate index finds them
        lists = list_count(int(here))
        return parts * centroids * (lists + NEAREST_PROBES * here / lists) / rates.named
    lists = lookup_lists(int(here))
    making = _grouping_pairs(here, lists, CENTRE_ITERATIONS) / rates.grouped
    reading = centroids * (lists + _PROBED * min(PROBES, lists) * here / lists) / rates.named
    return parts * (making + reading)


def _grouping_pairs(tokens: float, lists: int, rounds: int) -> float:
    """Comparisons of tokens with centres: to learn the centres from a sample, and to put every token into a list."""
    return rounds * min(tokens, lists * TRAIN_PER_LIST) * lists + tokens * lists


def measure(dataset: Dataset, encoder: Encoder, recipe: Recipe) -> Rates:
    """Encode, search, score and cluster a sample of a collection."""
    threads = recipe.compute.cpus if recipe.compute.engine == "ray" else torch.get_num_threads()
    with limited_threads(threads):
        return _measure(dataset, encoder, recipe)


def _measure(dataset: Dataset, encoder: Encoder, recipe: Recipe) -> Rates:
    step = max(1, len(dataset.passages) // _SAMPLE)
    texts = [dataset.passages[row].full_text for row in range(0, len(dataset.passages), step)][:_SAMPLE]
    encoder.encode_passages([text for text in texts if text][:8])  # the first batch pays for what torch sets up
    seconds, encoded = _timed(lambda: encoder.encode_passages(texts))
    asked = [text for text in list(dataset.queries.values())[:_QUERIES] if text.strip()]
    asking, queries = _timed(lambda: encoder.encode_queries(asked or ["a question of some words"]))
    length = float((queries.token_ids >= 0).sum(dim=1).float().mean())
    width = encoded.vectors.shape[1]
    copies = max(1, _SCORED_TOKENS // max(1, len(encoded.vectors)))
    vectors = np.tile(encoded.vectors, (copies, 1))
    sizes = np.tile(np.diff(encoded.offsets), copies)
    shard = TokenShard(vectors, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    searching, _ = _timed(lambda: search_exact(queries.vectors, [shard], 10))
    rows = np.random.default_rng(0).integers(0, len(shard), size=(len(queries.vectors), 100))
    expanded = torch.cat([queries.vectors, queries.vectors[:, :1].expand(-1, recipe.collective.centroids, -1)], dim=1)
    scoring, _ = _timed(lambda: score_rows(expanded, [shard], rows))
    fetched = FetchedVectors(np.arange(len(texts)), encoded.vectors, encoded.offsets)
    feedback = np.random.default_rng(0).integers(0, len(texts), size=(64, recipe.collective.feedback_passages))
    chosen = Feedback(feedback, np.ones(feedback.shape, dtype=np.float32))
    clustering, _ = _timed(lambda: cluster_feedback(fetched, chosen, recipe.collective))
    naming, _ = _timed(lambda: _nearest_ten(encoded.vectors))
    lists = max(1, len(encoded.vectors) // TRAIN_PER_LIST)
    wording, _ = _timed(lambda: word_index(texts, recipe.rank))
    many = word_index(texts * max(1, _MATCHED // len(texts)), recipe.rank)
    scored = int(many.scores["num_docs"])
    words = tokenise(asked or ["a question"], recipe.rank.language)
    ties = np.arange(scored, dtype=np.int32)
    matching, _ = _timed(lambda: [rank_words(many, one, recipe.rank.depth, ties) for one in words])
    writing, _ = _timed(lambda: _ranking_lines(dataset))
    learning, _ = _timed(lambda: train_centres(encoded.vectors.astype(np.float32), lists))
    return Rates(
        written=_WRITTEN / writing,
        worded=len(texts) / wording,
        matched=len(words) * scored / matching,
        tokens=len(encoded.vectors) / len(texts),
        encoded=len(texts) / seconds,
        query_tokens=length,
        compared=len(queries.vectors) * length * len(vectors) / searching,
        asked=len(queries.vectors) / asking,
        rescored=float(sizes[rows].sum()) / scoring,
        clustered=len(feedback) / clustering,
        named=len(encoded.vectors) * min(_NAMED, len(encoded.vectors)) / naming,
        grouped=CENTRE_ITERATIONS * min(len(encoded.vectors), lists * TRAIN_PER_LIST) * lists / learning,
        dimension=width,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _ranking_lines(dataset: Dataset) -> str:
    """The text of a ranking."""
    ids = dataset.passages.ids
    places = range(1, _WRITTEN + 1)
    return "".join(
        run_line(ScoredPassage("query", ids[place % len(ids)], place, 1.5 * place), "theta") + "\n" for place in places
    )


def _nearest_ten(vectors: npt.NDArray[Any]) -> None:
    """The ten nearest of all vectors of the first ones."""
    values = torch.from_numpy(vectors).float()
    (values[:_NAMED] @ values.T).topk(min(NEIGHBOURS, len(values)), dim=1)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """The shorter of two runs' seconds, and the result."""
    start = time.perf_counter()
    work()
    middle = time.perf_counter()
    result = work()
    return max(1e-9, min(middle - start, time.perf_counter() - middle)), result


def _collection(recipe: Recipe, passages: int | None, place: Path) -> tuple[Dataset, bool]:
    """The recipe's collection, or where that is not here and its size was given, another one to measure on."""
    why = "is not downloaded for a plan"
    if passages is None or not recipe.data.source.startswith(_DOWNLOADED):
        try:
            return load_dataset(recipe.data, cache=place / "data"), False
        except ColabelError as error:
            if passages is None:
                raise
            why = f"cannot be read ({error})"
    log.warning("rates are measured on pydocs: %s %s", recipe.data.source, why)
    return load_dataset(_STAND_IN, cache=place / "stand-in"), True

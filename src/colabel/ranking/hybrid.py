"""Words and vectors together: late interaction and BM25 over the union of both top lists.

    score(q, p) = (1 − λ) · z(MaxSim(q, p)) + λ · z(BM25(q, p)) + μ · P(q, p)

z subtracts the mean and divides by the deviation of a view's scores over the query's pool, the union of the first
``POOL`` passages of both views. So λ has one meaning for every model and every length of query. P is what the labels
of similar training queries say (:mod:`colabel.ranking.memory`), where a hybrid has a memory; else 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import fingerprint
from colabel.data.pieces import one_per_document
from colabel.errors import UsageError
from colabel.measures import measure_run
from colabel.ranking.bm25 import Bm25
from colabel.ranking.late_interaction import LateInteraction
from colabel.ranking.memory import DEFAULT_WEIGHT as DEFAULT_MEMORY
from colabel.ranking.memory import WEIGHTS as MEMORY_WEIGHTS
from colabel.ranking.memory import Memory
from colabel.ranking.rankings import as_run
from colabel.types import FloatArray, IntArray, Mask

log = logging.getLogger(__name__)


POOL = 100
"""Passages of each view that set mean and deviation; fixed, so that scores do not depend on the depth asked for."""
WEIGHTS = tuple(step / 10 for step in range(11))
"""λ that :func:`fit_weight` tries."""
DEFAULT_WEIGHT = 0.3
"""λ where no labels can tell. On cranfield the curve is flat from .2 to .6, on semanlink .6 is the best."""
FEWEST_QUERIES, MOST_QUERIES = 20, 200
"""Queries below which a fitted or estimated λ would be chance, and how many an estimate reads at most."""
AGREED_PLACES, LEAST_AGREED, ESTIMATED = 10, 0.4, (0.1, 0.4)
"""How agreement becomes λ, and the range of such a λ; see :func:`estimate_weight`."""


class Hybrid:
    """Ranks by both views; λ = 0 is late interaction alone, λ = 1 BM25 alone. ``memory`` adds what was asked before."""

    def __init__(
        self,
        late: LateInteraction,
        words: Bm25,
        weight: float = DEFAULT_WEIGHT,
        *,
        name: str = "hybrid",
        memory: Memory | None = None,
    ) -> None:
        if not 0.0 <= weight <= 1.0:
            raise UsageError(f"the weight of BM25 is {weight}; expected a number from 0 to 1")
        if len(late.ids) != len(words.ids):
            raise UsageError(
                f"the index holds {len(late.ids):,} passages and BM25 {len(words.ids):,}; "
                "build both from one collection"
            )
        self.late, self.words, self.weight, self.name, self.memory = late, words, weight, name, memory
        self.ids = late.ids
        parts = ["hybrid", late.fingerprint, words.fingerprint, weight, POOL]
        self.fingerprint = fingerprint(parts if memory is None else [*parts, memory.fingerprint, memory.weight])

    def rank(self, texts: Sequence[str], depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows int64 [queries, depth] and scores float32, best first; −1 and −∞ where there are fewer."""
        return self.best(self.views(texts, depth, allowed), depth)

    def views(
        self, texts: Sequence[str], depth: int, allowed: Mask | None = None, also: IntArray | None = None
    ) -> Views:
        """The views' scores of the union of their first max(depth, POOL) passages, and of those in ``also``."""
        depth = min(max(depth, POOL), len(self.ids))
        queries = self.late.encode(texts)
        late_rows, _ = self.late.search(queries, depth, allowed)
        word_rows, _ = self.words.rank(texts, depth, allowed)
        recalled = [] if self.memory is None else self.memory.recall(self._as_asked(texts, queries), allowed)
        more = [*([list(map(list, recalled))] if recalled else ()), *(() if also is None else (also,))]
        rows = union(late_rows, word_rows, *more)
        asked = [[held.get(row, 0.0) for row in line] for held, line in zip(recalled, rows.tolist(), strict=False)]
        pool = np.stack(
            [
                np.isin(line, np.concatenate([one[:POOL], other[:POOL]])) & (line >= 0)
                for line, one, other in zip(rows, late_rows, word_rows, strict=True)
            ]
        ).reshape(rows.shape)
        late = self.late.index.store.score(queries, rows)
        words = self.words.scores(texts, rows)
        tokens = np.maximum((queries != 0).any(dim=2).sum(dim=1).numpy(), 1)
        shares = late / tokens[:, None], words / self.words.weights(texts)[:, None]
        return Views(rows, standardise(late, pool), standardise(words, pool), pool, *shares, _filled(asked, rows))

    def _as_asked(self, texts: Sequence[str], queries: torch.Tensor) -> torch.Tensor:
        """Query vectors of the model that read the remembered queries; ``queries`` are those of late interaction."""
        reader = self.memory.reader if self.memory else self.late
        return queries if reader.fingerprint == self.late.fingerprint else reader.encode(texts)

    def best(
        self, views: Views, depth: int, weight: float | None = None, remembering: float | None = None
    ) -> tuple[IntArray, FloatArray]:
        """The best of some candidates, as :meth:`rank` gives them; ``weight``, ``remembering``: another λ and μ."""
        depth, mixed = min(depth, len(self.ids)), views.mixed(self.weight if weight is None else weight)
        if self.memory is not None:
            mixed = mixed + (self.memory.weight if remembering is None else remembering) * views.asked
        scores = np.where(views.rows >= 0, mixed, -np.inf).astype(np.float32)
        ties = self.late.index.store.tie_ranks[np.maximum(views.rows, 0)]
        order = np.lexsort((ties, -scores), axis=1)
        rows, scores = np.take_along_axis(views.rows, order, 1), np.take_along_axis(scores, order, 1)
        return one_per_document(rows, scores, depth, self.ids)  # the views may have found different pieces of one


@dataclass(frozen=True)
class Views:
    """What the views say of some candidates.

    Attributes:
        rows: the candidates, int64 [queries, n], −1 where there are fewer.
        late, words: standardised scores float32 [queries, n].
        pool: which candidates set mean and deviation, bool [queries, n].
        similarity: late interaction per token of the query, at most 1.
        coverage: the share of the query's words, weighted by idf, that BM25 finds.
        asked: P of the labels of similar training queries; 0 without a memory.
    """

    rows: IntArray
    late: FloatArray
    words: FloatArray
    pool: Mask
    similarity: FloatArray
    coverage: FloatArray
    asked: FloatArray

    def mixed(self, weight: float) -> FloatArray:
        """(1 − λ) · late + λ · words."""
        return (1 - weight) * self.late + weight * self.words


@dataclass(frozen=True)
class FittedWeight:
    """λ, how it was found, and the mean measure of every λ that was tried."""

    weight: float
    queries: int
    values: Mapping[float, float]


def fit_weight(
    hybrid: Hybrid,
    queries: Mapping[str, str],
    labels: Mapping[str, Mapping[str, int]],
    *,
    measure: str = "nDCG@10",
    relevant_from: int = 1,
    unlabelled: Sequence[str] = (),
) -> FittedWeight:
    """The λ that ranks labelled queries best; where fewer than ``FEWEST_QUERIES`` are labelled, an estimate from what
    people ask (``unlabelled``), and the default where that is not known either.

    Each λ is judged by the mean over itself and its neighbours: on a hundred queries, the single best value is often
    chance, while the curve around it is not.
    """
    judged = _judged(queries, labels, relevant_from)
    if len(judged) < FEWEST_QUERIES:
        few = len(unlabelled) < FEWEST_QUERIES
        return FittedWeight(DEFAULT_WEIGHT if few else estimate_weight(hybrid, unlabelled), len(judged), {})
    values = {weight: float(held.mean()) for weight, held in by_weight(hybrid, queries, judged, measure, relevant_from)}
    return FittedWeight(best_weight(values), len(judged), values)


def estimate_weight(hybrid: Hybrid, texts: Sequence[str]) -> float:
    """λ without labels: the share of queries whose first passage by words late interaction has among its first ten,
    less .4, and from .1 to .4.

    Where the two agree, words are right and worth adding; where they do not, one of them misleads, and with an encoder
    that knows the language that is words (docs/search.md has the collections that this was read from).
    """
    asked = list(texts)[:MOST_QUERIES]
    late, _ = hybrid.late.rank(asked, AGREED_PLACES)
    words, _ = hybrid.words.rank(asked, 1)
    agreed = float(np.mean([first[0] in line for first, line in zip(words, late, strict=True)]))
    return round(min(max(agreed - LEAST_AGREED, ESTIMATED[0]), ESTIMATED[1]), 2)


def by_weight(
    hybrid: Hybrid,
    queries: Mapping[str, str],
    labels: Mapping[str, Mapping[str, int]],
    measure: str,
    relevant_from: int,
    weights: Sequence[float] = WEIGHTS,
) -> Iterator[tuple[float, FloatArray]]:
    """Every λ with the measure of every labelled query; λ = 0 is late interaction alone."""
    views = hybrid.views([queries[query] for query in labels], POOL)
    for weight in weights:
        yield weight, _measured(hybrid, hybrid.best(views, POOL, weight), labels, measure, relevant_from)


def fit_memory_weight(
    hybrids: Sequence[Hybrid],
    queries: Mapping[str, str],
    labels: Mapping[str, Mapping[str, int]],
    *,
    measure: str = "nDCG@10",
    relevant_from: int = 1,
) -> tuple[int, float, dict[str, float]]:
    """Which of some hybrids with a memory ranks labelled queries best, its μ, and the mean measure of all that was
    tried, by ``place:μ``.

    The memory knows the training queries by heart, so the vectors beside it need not: those of θ may be the better
    ones. Of the values of μ that cannot be told from the best (one standard error), the smallest is taken, since it
    costs new passages least. With fewer than ``FEWEST_QUERIES`` labelled queries it is the last hybrid and the
    default μ.
    """
    judged = _judged(queries, labels, relevant_from)
    if len(judged) < FEWEST_QUERIES:
        return len(hybrids) - 1, DEFAULT_MEMORY, {}
    values: dict[tuple[int, float], FloatArray] = {}
    for place, hybrid in enumerate(hybrids):
        views = hybrid.views([queries[query] for query in judged], POOL)
        for weight in MEMORY_WEIGHTS:
            if weight or place == len(hybrids) - 1:  # without a memory, the last is what was chosen before
                ranked = hybrid.best(views, POOL, remembering=weight)
                values[place, weight] = _measured(hybrid, ranked, judged, measure, relevant_from)
    best = max(values, key=lambda one: (values[one].mean(), -one[1], one[0]))
    error = {one: (values[best] - held).std() / len(judged) ** 0.5 for one, held in values.items()}
    close = [one for one in values if one[0] == best[0] and (values[best] - values[one]).mean() <= error[one]]
    place, weight = min(close, key=lambda one: one[1])
    return place, weight, {f"{one[0]}:{one[1]:g}": float(held.mean()) for one, held in values.items()}


def _judged(
    queries: Mapping[str, str], labels: Mapping[str, Mapping[str, int]], relevant_from: int
) -> dict[str, Mapping[str, int]]:
    return {
        query: held
        for query, held in labels.items()
        if query in queries and any(grade >= relevant_from for grade in held.values())
    }


def _measured(
    hybrid: Hybrid,
    ranked: tuple[IntArray, FloatArray],
    labels: Mapping[str, Mapping[str, int]],
    measure: str,
    relevant_from: int,
) -> FloatArray:
    """The measure of every query of ``labels``, float32 [queries]."""
    run = as_run(labels, *ranked, hybrid.ids)
    found = measure_run(labels, run, (measure,), relevant_from=relevant_from)[measure]
    return np.array(list(found.values()), dtype=np.float32)


def best_weight(values: Mapping[float, float]) -> float:
    """The λ around which the measure is highest, and of equals the smallest.

    λ = 0 and 1 have a neighbour on one side only and count by themselves: a mean with it would favour them wherever the
    curve is round.

    >>> best_weight({0.0: 0.5, 0.1: 0.7, 0.2: 0.7, 0.3: 0.7, 0.4: 0.6})
    0.2
    >>> best_weight({0.0: 0.743, 0.1: 0.749, 0.2: 0.745, 0.3: 0.732})
    0.1
    """
    curve = list(values.values())
    inner = [sum(curve[place - 1 : place + 2]) / 3 for place in range(1, len(curve) - 1)]
    smooth = [curve[0], *inner, *curve[1:][-1:]]
    return list(values)[max(range(len(curve)), key=lambda place: (smooth[place], -place))]


def union(*rankings: Iterable[Sequence[int] | npt.NDArray[np.integer]]) -> IntArray:
    """The distinct rows of several rankings [queries][depth], in the order of first appearance, −1 behind them.

    >>> union(np.array([[3, 1]]), np.array([[1, 2, -1]])).tolist()
    [[3, 1, 2]]
    """
    lines = [
        list(dict.fromkeys(row for part in parts for row in np.asarray(part).tolist() if row >= 0))
        for parts in zip(*rankings, strict=True)
    ]
    rows = np.full((len(lines), max(map(len, lines), default=0)), -1, dtype=np.int64)
    for place, line in enumerate(lines):
        rows[place, : len(line)] = line
    return rows


def _filled(lines: Sequence[Sequence[float]], rows: IntArray) -> FloatArray:
    """Values of all candidates [queries, n]; 0 where there are none."""
    return np.array(lines, dtype=np.float32) if lines else np.zeros(rows.shape, dtype=np.float32)


def standardise(scores: npt.NDArray[np.floating], pool: Mask) -> FloatArray:
    """(score − mean) / deviation of each line [queries, n], both taken over ``pool``; 0 where a pool does not vary.

    >>> standardise(np.array([[1.0, 3.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [[-1.0, 1.0, 7.0]]
    """
    held = np.where(pool, scores, 0.0).astype(np.float64)
    count = np.maximum(pool.sum(axis=1, keepdims=True), 1)
    mean = held.sum(axis=1, keepdims=True) / count
    spread = np.sqrt(np.where(pool, (held - mean) ** 2, 0.0).sum(axis=1, keepdims=True) / count)
    varies = spread > 1e-9 * np.maximum(np.abs(mean), 1.0)
    finite = np.where(np.isfinite(scores), scores, 0.0)
    return np.where(varies, (finite - mean) / np.where(varies, spread, 1.0), 0.0).astype(np.float32)

"""The two-view teacher: what vectors and words say about a candidate, from the query and from its labelled passages.

Five views score the candidates of a training query, none with a pass of the model:

    query       φ, MaxSim of query and candidate (Eq. 1)
    centroids   MaxSim of the labelled passages' collective centroids and the candidate, weighted by σ (right of Eq. 6)
    passage     MaxSim of the labelled passages' telling tokens and the candidate, weighted by σ
    words       BM25 of the query
    telling     BM25 of the labelled passages' telling words

Each is standardised per query over the unlabelled candidates, so that no view depends on the scale of a model's
scores, and the teacher's score is their weighted sum. A labelled passage recognises itself in three of the views;
its score is capped at the best of the other candidates, or it would swallow the whole target.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import fingerprint
from colabel.collective.centroids import extract
from colabel.collective.knowledge import Knowledge
from colabel.data import Dataset
from colabel.data.pieces import with_labelled_pieces
from colabel.data.splits import stable_fraction
from colabel.index import Index
from colabel.maxsim import fold_weights
from colabel.ranking.bm25 import Bm25
from colabel.ranking.hybrid import standardise
from colabel.ranking.labelled_pieces import positive_rows
from colabel.teachers.protocol import Knows
from colabel.types import FloatArray, IntArray

log = logging.getLogger(__name__)

DEFAULT_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"query": 1.0, "centroids": 0.2, "passage": 0.4, "words": 0.7, "telling": 0.4}
)
"""Weights where too few queries have two labels to fit any."""
AGREED_WORDS, AGREED_PLACES = 4.0, 10
"""BM25's weight beside φ's 1 for a query without labels, times the share of the first places that both views agree on:
words are what late interaction can learn from such a query, and where the views disagree one of them is wrong."""
TELLING_WORDS = 16
TELLING_TOKENS = 48
FEWEST_QUERIES = 50
"""Training queries with two labels or more that a fit needs."""
MOST_QUERIES = 600
"""Queries that a fit uses at most: five weights need no more."""
_FOLDS = 5
_BLOCK = 256  # queries whose views are in memory at once


class ViewTeacher:
    """The weighted sum of the views.

    Args:
        positives: query id → rows of its labelled passages; a query without any is scored by its own two views.
        weights: by view, for queries with a labelled passage; a view that is missing has weight 0.
    """

    name = "views"
    knows: Knows = "candidates"

    def __init__(
        self,
        knowledge: Knowledge,
        words: Bm25,
        positives: Mapping[str, Sequence[int]],
        weights: Mapping[str, float] = DEFAULT_WEIGHTS,
    ) -> None:
        self.knowledge, self.words, self.weights = knowledge, words, dict(weights)
        self.positives = positives
        parts = [knowledge.fingerprint, knowledge.queries.fingerprint, words.fingerprint, sorted(self.weights.items())]
        self.fingerprint = fingerprint(["views", *parts, {query: sorted(rows) for query, rows in positives.items()}])

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Weighted sums float32 [queries, candidates] with deviation 1 per query; −∞ where a row is −1.

        A score depends on the whole line of candidates, since the views are standardised over it.
        """
        found = np.empty(rows.shape, dtype=np.float32)
        for first in range(0, len(query_ids), _BLOCK):
            block = slice(first, first + _BLOCK)
            found[block] = self._score(query_ids[block], rows[block])
        return found

    def _score(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        free = self._unlabelled(query_ids, rows)
        views = self.views(query_ids, rows)
        total = np.sum([weight * views[name] for name, weight in self.weights.items() if weight], axis=0)
        alone = [place for place, one in enumerate(query_ids) if not self.positives.get(one)]
        agreed = agreement(views["query"][alone], views["words"][alone], free[alone])
        total[alone] = views["query"][alone] + AGREED_WORDS * agreed[:, None] * views["words"][alone]
        total = standardise(total, free)
        highest = np.where(free, total, -np.inf).max(axis=1, keepdims=True, initial=0.0)
        capped = np.where(free, total, np.minimum(total, highest))
        return np.where(rows >= 0, capped, -np.inf).astype(np.float32)

    def views(self, query_ids: Sequence[str], rows: IntArray) -> dict[str, FloatArray]:
        """Every view's standardised scores float32 [queries, candidates]; 0 where a row is −1."""
        free = self._unlabelled(query_ids, rows)
        return {name: standardise(np.where(rows >= 0, raw, 0.0), free) for name, raw in self._raw(query_ids, rows)}

    def _raw(self, query_ids: Sequence[str], rows: IntArray) -> Iterator[tuple[str, npt.NDArray[np.floating]]]:
        store, labelled = self.knowledge.index.store, [list(self.positives.get(one, ())) for one in query_ids]
        texts = [self.knowledge.queries.text(one) for one in query_ids]
        yield "query", store.score(self.knowledge.queries.vectors(query_ids), rows)
        yield "words", self.words.scores(texts, rows)
        yield "telling", self.words.word_scores(self.words.telling_words(labelled, TELLING_WORDS), rows)
        settings = self.knowledge.settings
        feedback = np.full((len(rows), settings.feedback_passages), -1, dtype=np.int64)
        for place, held in enumerate(labelled):
            feedback[place, : len(held)] = held[: settings.feedback_passages]
        centroids = extract(self.knowledge.index, feedback, settings).first(settings.centroids)
        sigma = centroids.sigma / centroids.sigma.sum(dim=1, keepdim=True).clamp(min=1e-9)
        yield "centroids", store.score(fold_weights(centroids.vectors, sigma), rows)
        yield "passage", store.score(self._telling_tokens(labelled), rows)

    def _telling_tokens(self, labelled: Sequence[Sequence[int]]) -> torch.Tensor:
        """σ-weighted vectors of the passages' tokens of highest σ, float32 [queries, TELLING_TOKENS, dimension]."""
        store = self.knowledge.index.store
        found = torch.zeros(len(labelled), TELLING_TOKENS, store.dimension)
        for place, held in enumerate(labelled):
            if not held:
                continue
            vectors, _ = store.vectors(held)
            token_ids, _ = store.passage_tokens(held)
            sigma = np.where(np.isin(token_ids, store.special_token_ids), 0.0, np.maximum(store.idf(token_ids), 0.0))
            best = np.argsort(-sigma, kind="stable")[:TELLING_TOKENS]
            weights = sigma[best] / max(float(sigma[best].sum()), 1e-9)
            found[place, : len(best)] = torch.from_numpy((vectors[best] * weights[:, None]).astype(np.float32))
        return found

    def _unlabelled(self, query_ids: Sequence[str], rows: IntArray) -> npt.NDArray[np.bool_]:
        labelled = [np.isin(line, list(self.positives.get(one, ()))) for one, line in zip(query_ids, rows, strict=True)]
        return np.asarray((rows >= 0) & ~np.array(labelled, dtype=bool).reshape(rows.shape))


def agreement(one: FloatArray, other: FloatArray, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The share of the first places that two scores of the same candidates [queries, n] have in common.

    >>> agreement(np.array([[3.0, 2.0, 1.0]]), np.array([[1.0, 2.0, 3.0]]), np.ones((1, 3), dtype=bool)).tolist()
    [1.0]
    """
    size = min(AGREED_PLACES, known.shape[1])
    first = [np.argsort(-np.where(known, scores, -np.inf), axis=1, kind="stable")[:, :size] for scores in (one, other)]
    common = [len(np.intersect1d(*line)) / max(size, 1) for line in zip(*first, strict=True)]
    return np.array(common, dtype=np.float64)


@dataclass(frozen=True)
class FittedWeights:
    """Weights of the views, on how many queries they were fitted (0: the defaults), and AP found by cross-validation.

    ``average_precision``: of labels that were hidden from the teacher, by φ alone, the default and the fitted weights.
    """

    weights: Mapping[str, float]
    queries: int
    average_precision: Mapping[str, float]


def fit_weights(
    knowledge: Knowledge,
    words: Bm25,
    positives: Mapping[str, Sequence[int]],
    rows: Mapping[str, IntArray],
    *,
    seed: int = 0,
) -> FittedWeights:
    """Weights by logistic regression: of every query with two labels or more, one is shown to the teacher and the
    others, hidden from it, are what it has to find among the candidates.

    Fitted weights are taken only where, cross-validated by query, they beat the default ones.

    Args:
        rows: query id → its candidates.
    """
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(seed)
    several = sorted(query for query, held in positives.items() if len(held) >= 2 and query in rows)
    shown = {query: [int(draw.choice(sorted(positives[query])))] for query in several}
    teacher = ViewTeacher(knowledge, words, shown)
    names = list(DEFAULT_WEIGHTS)
    features, truths, lines = [], [], []
    for query in several:
        line = rows[query][None]
        free = ~np.isin(line[0], shown[query]) & (line[0] >= 0)
        truth = np.isin(line[0][free], sorted(positives[query]))
        if truth.any():
            views = teacher.views([query], line)
            features.append(np.stack([views[name][0][free] for name in names], axis=1))
            truths.append(truth)
            lines.append(query)
    if len(lines) < FEWEST_QUERIES:
        return FittedWeights(DEFAULT_WEIGHTS, 0, {})

    def fit(members: Sequence[int]) -> npt.NDArray[np.float64]:
        model = LogisticRegression().fit(
            np.concatenate([features[i] for i in members]), np.concatenate([truths[i] for i in members])
        )
        return np.asarray(model.coef_[0], dtype=np.float64)

    fold = draw.integers(_FOLDS, size=len(lines))
    fitted = [fit(np.flatnonzero(fold != number).tolist()) for number in range(_FOLDS)]
    default = np.array(list(DEFAULT_WEIGHTS.values()))
    quality = {
        "query": np.mean([average_precision(x[:, 0], y) for x, y in zip(features, truths, strict=True)]),
        "default": np.mean([average_precision(x @ default, y) for x, y in zip(features, truths, strict=True)]),
        "fitted": np.mean(
            [average_precision(x @ fitted[k], y) for x, y, k in zip(features, truths, fold, strict=True)]
        ),
    }
    found = {name: float(value) for name, value in quality.items()}
    if found["fitted"] <= found["default"]:
        return FittedWeights(DEFAULT_WEIGHTS, len(lines), found)
    weights = fit(range(len(lines)))
    return FittedWeights({name: float(w) for name, w in zip(names, weights, strict=True)}, len(lines), found)


def fitted_teacher(knowledge: Knowledge, words: Bm25, dataset: Dataset) -> ViewTeacher:
    """The teacher of a dataset's training queries, with weights fitted on those that have two labels or more."""
    positives = labelled_rows(dataset, knowledge.index, knowledge.split)
    several = [query for query, held in positives.items() if len(held) >= 2]
    several = sorted(several, key=lambda query: stable_fraction(query, "views"))[:MOST_QUERIES]
    ids, ranking = dataset.passages.ids, knowledge.ranking
    ranked = {query: with_labelled_pieces(ranking.query(query)[0], positives[query], ids) for query in several}
    fitted = fit_weights(knowledge, words, {query: positives[query] for query in several}, ranked)
    if fitted.queries:
        shown = ", ".join(f"{name} {value:.3f}" for name, value in fitted.average_precision.items())
        log.info("views: AP of labels hidden from %d queries: %s", fitted.queries, shown)
    return ViewTeacher(knowledge, words, positives, fitted.weights)


def labelled_rows(dataset: Dataset, index: Index, split: str) -> dict[str, list[int]]:
    """Query id → rows of its visible labelled passages that have a text; queries without any are left out."""
    labelled = positive_rows(dataset, split) if split in dataset.splits else {}
    found = {}
    for query, rows in labelled.items():
        kept = sorted(rows[index.store.lengths(rows) > 0].tolist(), key=index.store.ids.__getitem__)
        if kept:
            found[query] = kept
    return found


def average_precision(scores: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_]) -> float:
    """Mean precision at the places of the true ones.

    >>> average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    0.8333333333333333
    """
    ranked = truth[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(ranked)[ranked] / (np.flatnonzero(ranked) + 1)).mean())

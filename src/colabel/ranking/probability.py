"""How likely a passage is relevant, by what words and vectors say of it.

Scores of two queries, or of two models, have no scale in common; the features of a pair do: each view's standardised
score and rank among the query's candidates, how far the best candidate stands out, and the shares of the query that
the passage matches.

    P(relevant | x) = σ(w·x + b)        P(labelled | x) = c · σ(w·x + b)

An unlabelled passage is not a negative. c, the share of relevant passages that somebody labelled, is found with w and
b by maximum likelihood (Jaskie, Elkan & Spanias 2019): where even the best passages have a label in a third of the
cases only, the curve levels out there. Where people also judged passages as not relevant, the judged pairs are all
that is fitted, and c is not needed. A random sample of verdicts moves b.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from colabel.data.string_table import StringTable
from colabel.ranking.hybrid import Views
from colabel.types import FloatArray, IntArray, Mask

FILE = "probability.json"
FEATURES = (
    *("late", "words", "rank by late interaction", "rank by words"),
    *("best of late", "best of words", "similarity", "coverage", "asked before"),
)
FEWEST_QUERIES, FEWEST_POSITIVES = 20, 50
"""Held-out queries, and labelled passages among their candidates, below which c would be chance."""
FEWEST_NEGATIVES = 50
"""Judged negatives from which on judged pairs are all that is fitted."""
FEWEST_VERDICTS = 20
"""Random verdicts from which on they decide."""
SHOWN = 10
"""Passages of each query, the most probable ones, on which probabilities are checked."""
BINS = 10
_FOLDS, _RESAMPLES = 5, 20
_RIDGE = 1.0  # on weights of standardised features
_STARTS = (-2.0, 0.0, 3.0)  # logits of c: the likelihood may have several maxima
_PRIOR = 2.0  # deviation of the shift that verdicts may cause

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Probabilities of the ``SHOWN`` best passages of each query against what was labelled.

    Attributes:
        bins: mean probability, observed share, and pairs of each bin of equal width that holds any.
        ece: mean distance of the two over pairs (expected calibration error).
        brier: mean squared distance of probability and label.
        pairs: how many there are.
    """

    bins: tuple[tuple[float, float, int], ...]
    ece: float
    brier: float
    pairs: int


@dataclasses.dataclass(frozen=True)
class Relevance:
    """Turns the two views of a passage into a probability.

    Attributes:
        weights, intercept: of ``FEATURES``.
        basis: what decided: labels, judgements (with negatives), or verdicts (of a random sample).
        labelled: c with its 95 % interval; 1 where judged pairs were fitted.
        relevant: relevant passages per query among its candidates, with the interval.
        found: labelled ones per query among its candidates.
        queries: held-out queries that were fitted.
        held_out: how probabilities from the other queries fit each query's labels.
    """

    weights: tuple[float, ...]
    intercept: float
    basis: str
    labelled: tuple[float, float, float]
    relevant: tuple[float, float, float]
    found: float
    queries: int
    held_out: Reliability

    def of(self, views: Views) -> FloatArray:
        """Probabilities float32 [queries, n] of the candidates; NaN where there is none."""
        known = features(views)[..., : len(self.weights)]  # of a run of an earlier version, all but the memory
        found = _sigmoid(known @ np.array(self.weights) + self.intercept)
        return np.where(views.rows >= 0, found, np.nan).astype(np.float32)

    def of_rows(self, views: Views, rows: IntArray) -> FloatArray:
        """Probabilities of some of the candidates, float32 [queries, k]; NaN where a row is −1."""
        known = [dict(zip(*pair, strict=True)) for pair in zip(views.rows.tolist(), self.of(views), strict=True)]
        return np.array(
            [[held.get(row, np.nan) if row >= 0 else np.nan for row in line]
             for held, line in zip(known, rows.tolist(), strict=True)], dtype=np.float32
        ).reshape(rows.shape)  # fmt: skip

    def missing(self, queries: int, labels: int, dev_labels: float) -> tuple[float, float, float]:
        """How many labels some queries lack in all, with the interval.

        Args:
            labels: how many they have.
            dev_labels: labels per query of the queries that were fitted, among their candidates or not.
        """
        inside = self.found / dev_labels if dev_labels else 0.0
        low, high = (max(0.0, queries * value - inside * labels) for value in self.relevant[1:])
        return max(0.0, queries * self.relevant[0] - inside * labels), low, high


def read_relevance(folder: Path) -> Relevance | None:
    """What :func:`fit_relevance` found, from its artefact; None where there was too little data."""
    text = (folder / FILE).read_bytes()
    return None if "why" in json.loads(text) else msgspec.json.decode(text, type=Relevance)


def features(views: Views) -> Floats:
    """``FEATURES`` of all candidates, float64 [queries, n, 9]."""
    parts: list[Floats] = []
    for scores in (views.late.astype(np.float64), views.words.astype(np.float64)):
        pooled = np.where(views.pool, scores, -np.inf)
        ordered = np.sort(-pooled, axis=1)  # best first; what is not in the pool comes last
        ranks = [1 + np.searchsorted(held, -line) for held, line in zip(ordered, scores, strict=True)]
        best = np.where(views.pool.any(axis=1), pooled.max(axis=1, initial=-np.inf), 0.0)
        parts += [scores, np.log(np.array(ranks).reshape(scores.shape)), np.broadcast_to(best[:, None], scores.shape)]
    late, late_rank, late_best, words, words_rank, words_best = parts
    shares = [np.where(np.isfinite(one), one, 0.0) for one in (views.similarity, views.coverage)]
    asked = views.asked.astype(np.float64)
    return np.stack([late, words, late_rank, words_rank, late_best, words_best, *shares, asked], axis=-1)


def grades_of(
    rows: IntArray, queries: Sequence[str], labels: Mapping[str, Mapping[str, int]], ids: StringTable
) -> IntArray:
    """The grade of each candidate int64 [queries, n], −1 where it has none; a document's pieces have its grade."""
    grades = np.full(rows.shape, -1, dtype=np.int64)
    for place, query in enumerate(queries):
        for passage, grade in labels.get(query, {}).items():
            grades[place, np.isin(rows[place], ids.all_of(ids.rows([passage]))) & (rows[place] >= 0)] = grade
    return grades


def too_little(views: Views, grades: IntArray, relevant_from: int) -> str:
    """Why no probabilities can be fitted to these queries; empty where they can."""
    held = ((grades >= relevant_from) & views.pool).any(axis=1).sum()
    positives = ((grades >= relevant_from) & views.pool).sum()
    if held >= FEWEST_QUERIES and positives >= FEWEST_POSITIVES:
        return ""
    return (
        f"of the held-out queries, {held} have labelled passages among their candidates, {positives} in all; "
        f"{FEWEST_QUERIES} queries and {FEWEST_POSITIVES} passages are needed"
    )


def fit_relevance(
    views: Views, grades: IntArray, relevant_from: int = 1, *, verdicts: tuple[Views, IntArray] | None = None
) -> Relevance:
    """Fit probabilities to the labels of queries that no training has seen.

    Args:
        grades: as :func:`grades_of` gives them.
        verdicts: views of a random sample of unlabelled passages, and what people said: 1, 0, or −1 for no verdict.
    """
    x, pool = features(views), views.pool
    labelled, negative = (grades >= relevant_from) & pool, (grades >= 0) & (grades < relevant_from) & pool
    judged = int(negative.sum()) >= FEWEST_NEGATIVES
    taken = labelled | negative if judged else pool
    fit = _Fit(x, labelled, taken, complete=judged)
    theta = fit.best()
    held_out = reliability(fit.cross_validated(theta), labelled, taken, 1.0 if judged else _c(theta, judged))
    draws = [fit.best(theta, weights) for weights in _resampled(len(x))]

    def per_query(one: Floats) -> float:
        return float(np.where(pool, fit.probability(one, x), 0.0).sum() / len(x))

    found = float(labelled.sum() / len(x))
    shares = _interval(_c(theta, judged), [_c(one, judged) for one in draws], ceiling=1.0)
    relevant = _interval(per_query(theta), [per_query(one) for one in draws])
    basis = "judgements" if judged else "labels"
    if verdicts is not None and (verdicts[1] >= 0).sum() >= FEWEST_VERDICTS:
        said = verdicts[1] >= 0
        logits = fit.logits(theta, features(verdicts[0]))[said]
        shift, error = _shift(logits, verdicts[1][said] == 1)
        moved = [_moved(theta, shift + step * error) for step in (0.0, -1.96, 1.96)]
        theta, basis = moved[0], "verdicts"
        relevant = (per_query(moved[0]), per_query(moved[1]), per_query(moved[2]))
        shares = (*(min(1.0, found / max(relevant[place], 1e-9)) for place in (0, 2, 1)),)  # type: ignore[assignment]
    weights, intercept = fit.unscaled(theta)
    return Relevance(
        tuple(weights.tolist()), float(intercept), basis, shares, relevant, found, len(x), held_out
    )  # fmt: skip


def reliability(
    probabilities: Floats, labelled: Mask, taken: Mask, share: float = 1.0, *, shown: int = SHOWN
) -> Reliability:
    """Check probabilities [queries, n] against labels, of which only ``share`` of the relevant passages have one.

    Of each query the ``shown`` most probable passages are checked.

    >>> checked = reliability(np.array([[0.9, 0.1]]), np.array([[True, False]]), np.array([[True, True]]))
    >>> round(checked.ece, 3), round(checked.brier, 3), checked.pairs
    (0.1, 0.01, 2)
    """
    kept = np.where(taken, probabilities, -np.inf)
    order = np.argsort(-kept, axis=1)[:, :shown]
    there = np.take_along_axis(taken, order, 1)
    p = np.take_along_axis(probabilities, order, 1)[there]
    y = np.take_along_axis(labelled, order, 1)[there] / share
    places = np.minimum((p * BINS).astype(int), BINS - 1)
    held = [(p[places == one], y[places == one]) for one in range(BINS) if (places == one).any()]
    bins = tuple((float(one.mean()), float(other.mean()), len(one)) for one, other in held)
    count = max(1, len(p))
    error = sum(abs(one - other) * size for one, other, size in bins) / count
    brier = float(np.mean(y * (1 - 2 * p) + p**2)) if len(p) else 0.0
    return Reliability(bins, float(error), brier, len(p))


class _Fit:
    """Maximum likelihood over some pairs of ``x`` [queries, n, features]; θ = (w of standardised features, b, logit c).

    ``complete``: what has no label is not relevant, and c is 1. Then the ridge grows with the pairs per query, twice
    those of the rarer kind: pairs of one query are alike, and taken for so many observations they would make
    probabilities overconfident. Without judged negatives a strong ridge would raise c.
    """

    def __init__(self, x: Floats, labelled: Mask, taken: Mask, *, complete: bool) -> None:
        self.x, self.labelled, self.taken, self.complete = x, labelled, taken, complete
        self.mean, self.deviation = x[taken].mean(axis=0), np.maximum(x[taken].std(axis=0), 1e-6)
        self._rows = np.column_stack([(x[taken] - self.mean) / self.deviation, np.ones(int(taken.sum()))])
        self._y, self._query = labelled[taken].astype(np.float64), np.nonzero(taken)[0]
        rarer = min(self._y.sum(), (1 - self._y).sum())
        self._ridge = _RIDGE * (max(1.0, 2 * rarer / len(x)) if complete else 1.0)

    def best(self, start: Floats | None = None, weights: Floats | None = None) -> Floats:
        """θ of the highest likelihood, with a weight for each query."""
        from scipy.optimize import minimize

        each = np.ones(len(self.x)) if weights is None else weights
        given = each[self._query]
        kept = given > 0
        rows, y, given = self._rows[kept], self._y[kept], given[kept]
        starts = [self._start(one) for one in (_STARTS[:1] if start is not None or self.complete else _STARTS)]
        starts = starts if start is None else [start] if self.complete else [start, *starts]
        how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": 300}}
        found = [minimize(_loss, one, args=(rows, y, given, self.complete, self._ridge), **how) for one in starts]
        return np.asarray(min(found, key=lambda one: float(one.fun)).x)

    def _start(self, logit: float) -> Floats:
        share = min(0.5, self._y.mean() * (1 + np.exp(-logit)))
        return np.array([*np.zeros(self.x.shape[2]), np.log(max(share, 1e-6) / (1 - share)), logit])

    def logits(self, theta: Floats, x: Floats) -> Floats:
        """w·x + b."""
        weights, intercept = self.unscaled(theta)
        return np.asarray(x @ weights + intercept)

    def probability(self, theta: Floats, x: Floats) -> Floats:
        """σ(w·x + b)."""
        return _sigmoid(self.logits(theta, x))

    def unscaled(self, theta: Floats) -> tuple[Floats, float]:
        """w and b for features as they are."""
        weights = theta[:-2] / self.deviation
        return weights, float(theta[-2] - weights @ self.mean)

    def cross_validated(self, start: Floats) -> Floats:
        """Probabilities [queries, n] of each query's pairs from a fit to the other queries."""
        folds = np.random.default_rng(0).permutation(len(self.x)) % _FOLDS
        found = np.zeros(self.taken.shape)
        for fold in range(_FOLDS):
            theta = self.best(start, (folds != fold).astype(np.float64))
            found[folds == fold] = self.probability(theta, self.x[folds == fold])
        return found


def _loss(theta: Floats, rows: Floats, y: Floats, given: Floats, complete: bool, ridge: float) -> tuple[float, Floats]:
    """Negative log-likelihood with a ridge, and its gradient."""
    weights, share = theta[:-1], _c(theta, complete)
    relevant = _sigmoid(rows @ weights)
    p = np.clip(share * relevant, 1e-12, 1 - 1e-12)
    loss = -(given * (y * np.log(p) + (1 - y) * np.log1p(-p))).sum() + ridge / 2 * (weights[:-1] ** 2).sum()
    slope = given * (p - y) / (p * (1 - p))
    gradient = np.zeros(len(theta))
    gradient[:-1] = rows.T @ (slope * share * relevant * (1 - relevant))
    gradient[:-2] += ridge * weights[:-1]
    if not complete:  # a prior of c · (1 − c), or gradients vanish where c is near 1
        loss -= np.log(share) + np.log1p(-share)
        gradient[-1] = (slope * relevant).sum() * share * (1 - share) + 2 * share - 1
    return float(loss), gradient


def _c(theta: Floats, complete: bool) -> float:
    return 1.0 if complete else min(float(_sigmoid(theta[-1:])[0]), 1 - 1e-9)


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -40, 40))))


def _moved(theta: Floats, shift: float) -> Floats:
    changed = theta.copy()
    changed[-2] += shift
    return changed


def _shift(logits: Floats, relevant: Mask) -> tuple[float, float]:
    """What to add to logits so that they fit verdicts, and its standard error; a prior holds it near 0."""
    shift = 0.0
    for _ in range(50):
        p = _sigmoid(logits + shift)
        curve = float((p * (1 - p)).sum()) + 1 / _PRIOR**2
        shift += float(np.clip((float((relevant - p).sum()) - shift / _PRIOR**2) / curve, -1, 1))
    return shift, curve**-0.5


def _resampled(count: int) -> list[Floats]:
    """How often each query is drawn in some bootstrap samples of queries."""
    draw = np.random.default_rng(0)
    return [np.bincount(draw.integers(0, count, count), minlength=count).astype(np.float64) for _ in range(_RESAMPLES)]


def _interval(value: float, draws: Sequence[float], ceiling: float = np.inf) -> tuple[float, float, float]:
    """A positive value with a 95 % interval, from the spread of its logarithm over bootstrap samples."""
    error = 1.96 * float(np.std(np.log(np.maximum(draws, 1e-9)), ddof=1))
    return value, value * float(np.exp(-error)), min(ceiling, value * float(np.exp(error)))

"""What labels hold: target probabilities, how sharp they are, and how much of them lies on the labelled passages."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError
from colabel.labels.artefact import Flag, Labels

FloatArray = npt.NDArray[np.float32]
_ONE_HOT = 0.99


def probabilities(teacher: npt.NDArray[np.floating], temperature: float = 1.0) -> FloatArray:
    """Target probabilities float32 [queries, candidates]: softmax(t / temperature) over each query's scored candidates.

    A candidate that is absent (−∞) or not scored (NaN) gets 0. A row sums to 1, or to 0 where nothing was scored.

    >>> probabilities(np.array([[0.0, np.log(3.0), np.nan, -np.inf]]), temperature=1.0).tolist()
    [[0.25, 0.75, 0.0, 0.0]]
    """
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    scores = np.where(np.isfinite(teacher), teacher, -np.inf).astype(np.float64)
    best = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp((scores - np.where(np.isfinite(best), best, 0.0)) / temperature)
    total = powers.sum(axis=1, keepdims=True)
    return (powers / np.where(total > 0, total, 1.0)).astype(np.float32)


def entropy(targets: FloatArray) -> npt.NDArray[np.float64]:
    """H = −Σ p·ln p of each row [queries, candidates], in nats; 0·ln 0 is 0.

    >>> bool(np.isclose(entropy(np.array([[0.5, 0.5, 0.0]], np.float32))[0], np.log(2)))
    True
    """
    p = targets.astype(np.float64)
    values: npt.NDArray[np.float64] = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    return np.maximum(values, 0.0)  # a one-hot row would be −0


def unlabelled(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Bool [queries, candidates]: which candidates are scored and not labelled, and so may lack a label."""
    found: npt.NDArray[np.bool_] = np.isfinite(teacher) & ((flags & Flag.LABELLED) == 0)
    return found


def missing_ranks(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Rank int32 [queries, candidates] among a query's scored, unlabelled candidates by teacher score, from 1.

    Equal scores keep their order; 0 where a candidate is labelled, absent or not scored.

    >>> missing_ranks(np.array([[5.0, 7.0, 6.0, np.nan]]), np.array([[0, Flag.LABELLED, 4, 4]], np.uint8)).tolist()
    [[2, 0, 1, 0]]
    """
    ranked = unlabelled(teacher, flags)
    order = np.argsort(np.where(ranked, -teacher, np.inf), axis=1, kind="stable")
    ranks = np.empty(teacher.shape, dtype=np.int32)
    np.put_along_axis(ranks, order, np.arange(1, teacher.shape[1] + 1, dtype=np.int32)[None, :], axis=1)
    return np.where(ranked, ranks, 0).astype(np.int32)


def best_labelled(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> FloatArray:
    """The teacher score t⁺ of each query's best labelled passage, float32 [queries]; NaN where none was scored.

    >>> best_labelled(np.array([[5.0, 7.0, 9.0]]), np.array([[1, 1, 4]], np.uint8)).tolist()
    [7.0]
    """
    scored = np.isfinite(teacher) & ((flags & Flag.LABELLED) != 0)
    best = np.where(scored, teacher, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(scored.any(axis=1), best, np.nan).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class LabelReport:
    """Figures of a label artefact at one temperature.

    Attributes:
        queries: labelled queries; ``skipped_queries`` have no visible positive.
        pairs: candidates of all queries; ``scored`` of them have a teacher score.
        labelled, feedback, hard_negatives: candidates with each flag; ``empty_positives`` are no candidates.
        unscored_queries: queries none of whose candidates was scored; they count in none of the figures below.
        entropy_mean, entropy_median: H of the targets over queries, in nats; 0 is one-hot, ln(candidates) uniform.
        effective_mean, effective_median: exp(H), the number of passages that a target is spread over.
        one_hot: queries with more than 0.99 of the probability on one passage.
        labelled_mass: mean probability of a query's labelled passages together.
        suspect_above: queries with an unlabelled passage above all their labelled ones.
    """

    teacher: str
    split: str
    temperature: float
    queries: int
    skipped_queries: int
    pairs: int
    scored: int
    labelled: int
    empty_positives: int
    feedback: int
    hard_negatives: int
    unscored_queries: int
    entropy_mean: float
    entropy_median: float
    effective_mean: float
    effective_median: float
    one_hot: int
    labelled_mass: float
    suspect_above: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types; a mean over no query at all is None."""
        table = dataclasses.asdict(self)
        return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in table.items()}


def report_labels(labels: Labels, temperature: float = 1.0) -> LabelReport:
    """Measure labels block by block; memory is a few numbers per query."""
    entropies, masses = [np.zeros(0)], [np.zeros(0)]
    one_hot = above = 0
    for block in labels.blocks():
        targets = probabilities(block.teacher, temperature)
        used = targets.any(axis=1)
        entropies.append(entropy(targets[used]))
        masses.append((targets * ((block.flags & Flag.LABELLED) != 0))[used].sum(axis=1, dtype=np.float64))
        one_hot += int((targets.max(axis=1, initial=0.0) > _ONE_HOT).sum())
        rivals = np.where(unlabelled(block.teacher, block.flags), block.teacher, -np.inf).max(axis=1, initial=-np.inf)
        above += int((rivals > best_labelled(block.teacher, block.flags)).sum())  # False beside NaN: none was scored
    nats = np.concatenate(entropies)
    counts = labels.manifest.counts
    copied = ("queries", "skipped_queries", "pairs", "scored", "labelled", "empty_positives")
    return LabelReport(
        teacher=labels.teacher,
        split=labels.split,
        temperature=temperature,
        **{name: int(counts[name]) for name in (*copied, "feedback", "hard_negatives")},
        unscored_queries=len(labels) - len(nats),
        entropy_mean=_mean(nats),
        entropy_median=_median(nats),
        effective_mean=_mean(np.exp(nats)),
        effective_median=_median(np.exp(nats)),
        one_hot=one_hot,
        labelled_mass=_mean(np.concatenate(masses)),
        suspect_above=above,
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else math.nan

"""What labels hold: how sharp the targets are, and how much of them lies on the labelled passages."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from colabel.labels.artefact import Flag, LabelBlock, Labels
from colabel.labels.targets import best_labelled, entropy, probabilities

_ONE_HOT = 0.99


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
    """Measure labels block by block; memory is a few numbers a query."""
    entropies, masses = [np.zeros(0)], [np.zeros(0)]
    one_hot = above = 0
    for block in labels.blocks():
        targets = probabilities(block.teacher, temperature)
        used = targets.any(axis=1)
        entropies.append(entropy(targets[used]))
        masses.append((targets * ((block.flags & Flag.LABELLED) != 0))[used].sum(axis=1, dtype=np.float64))
        one_hot += int((targets.max(axis=1, initial=0.0) > _ONE_HOT).sum())
        above += int(suspects_above(block).sum())
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


def suspects_above(block: LabelBlock) -> np.ndarray:
    """Bool [queries]: whether an unlabelled candidate scores above every labelled one; False where none was scored."""
    suspect = np.isfinite(block.teacher) & ((block.flags & Flag.LABELLED) == 0)
    best = np.where(suspect, block.teacher, -np.inf).max(axis=1, initial=-np.inf)
    above: np.ndarray = best > best_labelled(block.teacher, block.flags)
    return above


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else math.nan

"""Hide labels on purpose, to measure how many are found again.

The rule that makes such a study honest: what is hidden leaves :class:`Dataset` altogether. Training code has
no way to see it; :func:`hidden_labels` is for label-quality code alone, which a test of the architecture enforces.
"""

from __future__ import annotations

import dataclasses

from colabel.data.dataset import Dataset
from colabel.data.splits import TRAIN, stable_fraction
from colabel.errors import SettingsError
from colabel.types import Qrels


def hide_labels(dataset: Dataset, keep: int = 1, seed: int = 0) -> Dataset:
    """Keep ``keep`` positives of each train query and hide the others; dev and test stay whole.

    Which ones are kept depends on the seed and the two ids alone, so neither the order of the labels nor other
    queries matter. Judged non-relevant passages (grade below the cut-off) stay visible.

    Example:
        >>> sparse = hide_labels(load_dataset("nfcorpus"), keep=1, seed=0)  # doctest: +SKIP
    """
    if keep < 1:
        raise SettingsError(f"'data.keep_labels' is {keep}; expected a whole number of at least 1")
    positives = dataset.positives(TRAIN)
    visible: dict[str, dict[str, int]] = {}
    hidden = {query_id: dict(labels) for query_id, labels in dataset._hidden.items()}
    for query_id, labels in dataset.labels(TRAIN).items():
        ranked = sorted(
            positives.get(query_id, ()), key=lambda passage: stable_fraction(passage, f"{seed}\0{query_id}")
        )
        away = set(ranked[keep:])
        visible[query_id] = {passage: grade for passage, grade in labels.items() if passage not in away}
        if away:
            hidden.setdefault(query_id, {}).update({p: grade for p, grade in labels.items() if p in away})
    return dataclasses.replace(dataset, _labels={**dataset._labels, TRAIN: visible}, _hidden=hidden)


def hidden_labels(dataset: Dataset) -> Qrels:
    """The hidden labels of the train queries. Only for measuring label quality, never for training."""
    return dataset._hidden

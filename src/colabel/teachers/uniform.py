"""Uniform smoothing of the hard labels: the teacher that knows nothing of the passages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.data import Dataset
from colabel.errors import SettingsError

NO_MASS = -10_000.0
"""The score of an unlabelled passage at ε = 0: ln 0 would be −∞, which means "no candidate" in labels."""


class UniformTeacher:
    """The labelled passages share 1 − ε evenly, and ε is spread evenly over all candidates.

    With k labelled passages among a query's c candidates the target is

        p(passage) = ε / c + (1 − ε) / k · [passage is labelled]

    and the score is ln p, so that a softmax at temperature 1 over the candidates gives p back. The scores therefore
    depend on the whole row of candidates, not on the pair alone. Without a label among the candidates there is nothing
    to smooth: the whole row is NaN.
    """

    name = "uniform"

    def __init__(self, dataset: Dataset, split: str, smoothing: float) -> None:
        if not 0.0 <= smoothing < 1.0:
            raise SettingsError(f"'labels.smoothing' is {smoothing}; expected a number from 0 up to, not including, 1")
        self._smoothing = smoothing
        self._positives = dataset.positives(split)
        self._ids = dataset.passages.ids
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "smoothing": smoothing,
                "labels": dataset.labels_fingerprint(split),
                "passages": dataset.passages.fingerprint,
            }
        )

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """ln p, float32 [queries, candidates]; −∞ where the row is −1, NaN in rows without a labelled candidate."""
        candidate = rows >= 0
        labelled = np.zeros(rows.shape, dtype=bool)
        for place, query_id in enumerate(query_ids):
            labelled[place] = np.isin(rows[place], self._ids.rows(self._positives.get(query_id, ())))
        labelled &= candidate
        known = labelled.sum(axis=1, keepdims=True)
        share = (1.0 - self._smoothing) / np.maximum(known, 1)
        spread = self._smoothing / np.maximum(candidate.sum(axis=1, keepdims=True), 1)
        target = np.where(labelled, share + spread, np.broadcast_to(spread, rows.shape))
        scores = np.full(rows.shape, NO_MASS)
        np.log(target, out=scores, where=target > 0)
        scores[known[:, 0] == 0] = np.nan
        return np.where(candidate, scores, -np.inf).astype(np.float32)

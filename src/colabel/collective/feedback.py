"""Which passages a query's collective knowledge comes from (f_p of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError
from colabel.settings import CollectiveSettings

IntArray = npt.NDArray[np.int64]


def choose_feedback(
    ranked: npt.NDArray[np.integer], settings: CollectiveSettings, labelled: Sequence[Sequence[int]] | None = None
) -> IntArray:
    """Feedback passages of queries from their ranking and, for training queries, their labelled positives.

    Args:
        ranked: [queries, depth], rows of passages, best first, −1 where there are fewer.
        labelled: rows of each query's positives. None: the top f_p is used whatever the settings say. That is the
            rule for every query outside the training split, since its labels are what is to be predicted.

    Returns:
        Rows int64 [queries, f_p], −1 where there are fewer. A query without positives gets its top f_p. Positives come
        in the order of the ranking, unranked ones last.

    >>> settings = CollectiveSettings(feedback="labelled-first", feedback_passages=3)
    >>> choose_feedback(np.array([[5, 6, 7]]), settings, [[7, 9]]).tolist()
    [[7, 9, 5]]
    """
    feedback = np.full((len(ranked), settings.feedback_passages), -1, dtype=np.int64)
    width = min(settings.feedback_passages, ranked.shape[1])
    feedback[:, :width] = ranked[:, :width]
    if labelled is None or settings.feedback == "top":
        return feedback
    if len(labelled) != len(ranked):
        raise UsageError(f"{len(labelled)} lists of positives do not fit {len(ranked)} queries")
    for query, positives in enumerate(labelled):
        if not positives:
            continue
        chosen = _by_rank(positives, ranked[query])
        if settings.feedback == "labelled-first":
            chosen += [int(row) for row in feedback[query] if row >= 0 and row not in chosen]
        chosen = chosen[: settings.feedback_passages]
        feedback[query] = -1
        feedback[query, : len(chosen)] = chosen
    return feedback


def _by_rank(positives: Sequence[int], ranked: npt.NDArray[np.integer]) -> list[int]:
    places = {int(row): place for place, row in enumerate(ranked)}
    return sorted((int(row) for row in positives), key=lambda row: (places.get(row, len(ranked)), row))

"""Teacher scores of a query's candidates after its labels have grown, without a pass of a model.

Centroids come from the stored vectors of labelled passages, so a new label changes them at once. With t the teacher
score of a candidate, c its collective score (Eq. 6) from the labels of the run and c′ the one from the labels of now,

    t′ = t + (c′ − c) · s(t) / s(c)

where s is the deviation over the query's unlabelled candidates. For the collective teacher t = c, so t′ is c′ itself;
any other teacher's score moves by what the new labels say, on its own scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.collective import Centroids, Knowledge, choose_feedback, expand, extract
from colabel.labels import Labels, QueryLabels
from colabel.labels.statistics import unlabelled

MOST_FEEDBACK = 8
"""The most labelled passages from which centroids are made again; a query rarely has more aspects."""


def rescore(knowledge: Knowledge, labels: Labels, query_id: str, positives: Sequence[int]) -> npt.NDArray[np.float32]:
    """t′ of the query's candidates, float32 [candidates], in the order of ``labels.query(query_id)``.

    Args:
        positives: rows of all passages that are labelled now.
    """
    held, origin = labels.query(query_id), labels.origin()
    queries = knowledge.queries.vectors([query_id])
    rows = held.rows.astype(np.int64)[None]

    def score(centroids: Centroids) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = knowledge.index.store.score(
            expand(queries, centroids, origin.beta, origin.scale), rows
        )[0]
        return found

    before, after = score(knowledge.centroids([query_id])), score(fresh_centroids(knowledge, query_id, positives))
    return np.asarray(held.teacher + (after - before) * _ratio(held, before), dtype=np.float32)


def fresh_centroids(knowledge: Knowledge, query_id: str, positives: Sequence[int]) -> Centroids:
    """Centroids from the labels of now."""
    settings = knowledge.settings
    feedback = settings.feedback if settings.feedback != "top" else "labelled-first"
    count = max(settings.feedback_passages, min(len(positives), MOST_FEEDBACK))
    settings = dataclasses.replace(settings, feedback=feedback, feedback_passages=count)
    ranked, _ = knowledge.ranking.query(query_id)
    filled = [row for row in positives if knowledge.index.store.lengths(np.array([row]))[0]]
    chosen = choose_feedback(ranked[None].astype(np.int64), settings, [filled])
    return extract(knowledge.index, chosen, settings).first(settings.centroids)


def _ratio(held: QueryLabels, collective: npt.NDArray[np.float32]) -> float:
    """s(t) / s(c); 1 where either does not vary."""
    free = unlabelled(held.teacher[None], held.flags[None])[0]
    spreads = [
        float(values[free].astype(np.float64).std()) if free.any() else 0.0 for values in (held.teacher, collective)
    ]
    return spreads[0] / spreads[1] if min(spreads) > 1e-9 else 1.0

"""Passages without a judgement: how many stand at the top, and measures as if they were not there."""

from __future__ import annotations

from collections.abc import Mapping

from colabel.measures import Run, ranked
from colabel.types import Qrels


def unjudged_at(labels: Qrels, run: Run, depth: int = 10) -> dict[str, float]:
    """Query id → how many of its first ``depth`` passages have no judgement, for every labelled query.

    A judgement is a label of any grade, 0 included. A query without an answer has none of either.

    >>> unjudged_at({"q": {"a": 1, "b": 0}}, {"q": {"a": 3.0, "c": 2.0, "b": 1.0}}, depth=2)
    {'q': 1.0}
    """
    counts = {}
    for query_id, judged in labels.items():
        top = ranked(run.get(query_id, {}))[:depth]
        counts[query_id] = float(sum(passage not in judged for passage in top))
    return counts


def retrieved_at(labels: Qrels, run: Run, depth: int = 10) -> dict[str, float]:
    """Query id → how many passages its first ``depth`` are, for every labelled query: a run may find fewer.

    >>> retrieved_at({"q": {"a": 1}, "unanswered": {"a": 1}}, {"q": {"a": 3.0, "c": 2.0}})
    {'q': 2.0, 'unanswered': 0.0}
    """
    return {query_id: float(min(depth, len(run.get(query_id, {})))) for query_id in labels}


def judged_only(labels: Qrels, run: Run) -> dict[str, Mapping[str, float]]:
    """The run without the passages that have no judgement, so that judged ones move up into their places.

    >>> judged_only({"q": {"a": 1}}, {"q": {"c": 2.0, "a": 1.0}, "unlabelled": {"a": 1.0}})
    {'q': {'a': 1.0}}
    """
    return {
        query_id: {passage: score for passage, score in answers.items() if passage in labels[query_id]}
        for query_id, answers in run.items()
        if query_id in labels
    }

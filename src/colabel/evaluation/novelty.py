"""Which test queries are new: people ask again what was asked before, and new passages are found no better for it.

A query encoder can learn labelled passages by heart. Means over all test queries hide that; means over the queries
whose relevant passages carry no training label, and over those unlike every training query, do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from colabel.data import Dataset
from colabel.data.splits import TEST, TRAIN, normalise_query

SIMILAR = 0.5
"""Jaccard similarity of two queries' words from which they are called similar."""
UNSEEN, UNLIKE = "unseen passages", "unlike training"


def novel_queries(dataset: Dataset, split: str = TEST) -> dict[str, frozenset[str]]:
    """Subset → the queries of a split that belong to it; empty where nothing was trained on.

    ``UNSEEN``: no relevant passage carries a training label. ``UNLIKE``: no training query is similar.
    """
    if TRAIN not in dataset.splits or split not in dataset.splits:
        return {}
    trained = {passage for held in dataset.positives(TRAIN).values() for passage in held}
    judged = dataset.positives(split)
    unseen = {query for query, held in judged.items() if trained.isdisjoint(held)}
    similar = most_similar(dataset.split_queries(split), dataset.split_queries(TRAIN))
    unlike = {query for query in judged if similar[query] < SIMILAR}
    return {UNSEEN: frozenset(unseen), UNLIKE: frozenset(unlike)}


def most_similar(queries: Mapping[str, str], others: Mapping[str, str]) -> dict[str, float]:
    """Query id → Jaccard similarity of its words with those of the other query that is most like it.

    >>> most_similar({"a": "ice caves of Iceland"}, {"b": "Caves of Iceland", "c": "ice"})
    {'a': 0.75}
    """
    held = {other: frozenset(normalise_query(text).split()) for other, text in others.items()}
    holders = defaultdict(list)
    for other, words in held.items():
        for word in words:
            holders[word].append(other)
    found = {}
    for query, text in queries.items():
        words = frozenset(normalise_query(text).split())
        shared = Counter(other for word in words for other in holders.get(word, ()))
        found[query] = max((n / len(words | held[other]) for other, n in shared.items()), default=0.0)
    return found

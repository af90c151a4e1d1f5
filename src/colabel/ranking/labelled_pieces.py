"""Which passages labels stand for: of a document in pieces, the piece that BM25 scores best for the query."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import numpy as np

from colabel.data import Dataset, PassageTable
from colabel.errors import UsageError
from colabel.ranking.bm25 import all_scores, tokenise, word_index
from colabel.settings import RankSettings
from colabel.types import IntArray

_CHOSEN: weakref.WeakKeyDictionary[PassageTable, dict[str, dict[str, IntArray]]] = weakref.WeakKeyDictionary()
"""What was chosen by the fingerprint of the labels: several stages ask for the same."""


def positive_rows(dataset: Dataset, split: str) -> Mapping[str, IntArray]:
    """Query id → rows of its visible positives, rising, so that the order of the label file does not matter.

    BM25's statistics are those of the split's labelled documents. Where no word of the query occurs in a document, its
    first piece is taken.
    """
    passages = dataset.passages
    rows = {query_id: np.sort(passages.rows(held)) for query_id, held in dataset.positives(split).items()}
    if passages.ids.first_rows is None:
        return rows
    known = _CHOSEN.setdefault(passages, {})
    key = dataset.labels_fingerprint(split)
    if key not in known:
        known[key] = _best_pieces(dataset, rows)
    return known[key]


def _best_pieces(dataset: Dataset, rows: Mapping[str, IntArray]) -> dict[str, IntArray]:
    settings, ids = RankSettings(), dataset.passages.ids
    pieces = ids.all_of(np.concatenate([np.zeros(0, np.int64), *rows.values()]))
    try:
        engine = word_index((dataset.passages[row].full_text for row in pieces.tolist()), settings)
    except UsageError:  # no piece holds a word
        return dict(rows)
    chosen = {}
    words = tokenise([dataset.queries[query_id] for query_id in rows], settings.language)
    for (query_id, held), asked in zip(rows.items(), words, strict=True):
        scores = all_scores(engine, asked)
        own = [ids.all_of(np.array([row])) for row in held.tolist()]
        best = [some[np.argmax(scores[np.searchsorted(pieces, some)])] for some in own]
        chosen[query_id] = np.sort(np.array(best, dtype=np.int64))
    return chosen

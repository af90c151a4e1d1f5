"""One-shot labelling (MaxRep): passages near a labelled one are relevant in the order of their nearness.

    score(q, p) = max over labelled passages l of q:  (k − rank of p among the k nearest of l) / k

The labels of MacAvaney and Soldaini (SIGIR 2023), as a row to compare with; it looks at no query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from colabel.artefacts import fingerprint
from colabel.index import Index
from colabel.ranking.bm25 import Bm25
from colabel.teachers.protocol import Knows
from colabel.types import FloatArray, IntArray

NEAREST = 128
_WORDS = 1000  # of a labelled passage, as a BM25 query: all of them


class NeighbourTeacher:
    """Scores fall linearly over the nearest passages of each label; all others have 0.

    Args:
        words: BM25, which finds the neighbours.
        positives: query id → rows of its labelled passages.
    """

    name = "maxrep"
    knows: Knows = "any"

    def __init__(
        self, index: Index, words: Bm25, positives: Mapping[str, Sequence[int]], *, nearest: int = NEAREST
    ) -> None:
        self.words, self.positives, self.nearest = words, positives, nearest
        parts = [index.fingerprint, words.fingerprint, "words", nearest]
        self.fingerprint = fingerprint(["maxrep", *parts, {query: sorted(rows) for query, rows in positives.items()}])

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Scores float32 [queries, candidates] from 0 to 1; −∞ where a row is −1."""
        labelled = sorted({row for query in query_ids for row in self.positives.get(query, ())})
        telling = self.words.telling_words([[row] for row in labelled], _WORDS)
        near = dict(zip(labelled, self.words.rank_words(telling, self.nearest), strict=True))
        found = np.zeros(rows.shape, dtype=np.float32)
        for place, query in enumerate(query_ids):
            for label in self.positives.get(query, ()):
                nearness = {int(row): 1 - rank / self.nearest for rank, row in enumerate(near[label]) if row >= 0}
                nearness[label] = 1.0
                line = np.array([nearness.get(int(row), 0.0) for row in rows[place]], dtype=np.float32)
                found[place] = np.maximum(found[place], line)
        found[rows < 0] = -np.inf
        return found

"""Ask an index a question."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.index import Index
from colabel.ranking.late import LateInteraction
from colabel.ranking.rankings import Ranker


@dataclasses.dataclass(frozen=True)
class Hit:
    """A passage that was found. Title and text are empty where the collection is not at its place any more."""

    rank: int
    score: float
    passage_id: str
    title: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


def search(index: Index, text: str, k: int = 10, *, ranker: Ranker | None = None) -> list[Hit]:
    """The k best passages for a text, with their contents; by MaxSim, or by another ranker of this index."""
    ranker = ranker or LateInteraction(index, strict=True)
    rows, scores = ranker.rank([text], min(k, len(index.store)))
    return hits(index, rows[0], scores[0])


def hits(index: Index, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> list[Hit]:
    """Ranked rows with the passages' contents; what follows a row of −1 is left out."""
    passages = index.passages
    found = []
    for place, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True), start=1):
        if row < 0:
            break
        passage = passages[row] if passages is not None else None
        title, body = (passage.title, passage.text) if passage else ("", "")
        found.append(Hit(place, score, index.store.ids[row], title, body))
    return found

"""Ask an index a question."""

from __future__ import annotations

import dataclasses
from typing import Any

from colabel.index import Index
from colabel.ranking.late import LateInteraction


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


def search(index: Index, text: str, k: int = 10) -> list[Hit]:
    """The k best passages for a text, with their contents."""
    rows, scores = LateInteraction(index, strict=True).rank([text], min(k, len(index.store)))
    passages = index.passages
    hits = []
    for place, (row, score) in enumerate(zip(rows[0].tolist(), scores[0].tolist(), strict=True), start=1):
        if row < 0:
            break
        passage = passages[row] if passages is not None else None
        title, body = (passage.title, passage.text) if passage else ("", "")
        hits.append(Hit(place, score, index.store.ids[row], title, body))
    return hits

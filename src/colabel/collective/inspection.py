"""What collective knowledge did to one query, for people to look at (as Table 2 of the paper)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from colabel.collective.expansion import expand, expansion_weights
from colabel.collective.knowledge import Knowledge
from colabel.index import Index
from colabel.ranking.ask import Hit, hits


@dataclasses.dataclass(frozen=True)
class ExpansionToken:
    """A centroid's token: its piece of text, σ, and the weight with which the centroid counts."""

    token: str
    token_id: int
    sigma: float
    weight: float


@dataclasses.dataclass(frozen=True)
class Inspection:
    """A query with its feedback, its expansion, and its best passages by φ and by the teacher score."""

    query_id: str
    text: str
    beta: float
    feedback: list[Hit]
    tokens: list[ExpansionToken]
    before: list[Hit]
    after: list[Hit]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "query_id": self.query_id,
            "query": self.text,
            "beta": self.beta,
            "feedback": [hit.as_dict() for hit in self.feedback],
            "expansion": [dataclasses.asdict(token) for token in self.tokens],
            "before": [hit.as_dict() for hit in self.before],
            "after": [hit.as_dict() for hit in self.after],
        }


def inspect(knowledge: Knowledge, query_id: str, *, count: int = 5, beta: float | None = None) -> Inspection:
    """Show one query of a knowledge folder; ``before`` ranks by φ, ``after`` searches with the expanded query.

    Args:
        count: passages shown before and after.
        beta: None: that of the folder's settings.
    """
    text = knowledge.queries.text(query_id)
    index, settings = knowledge.index, knowledge.settings
    beta = settings.beta if beta is None else beta
    query = knowledge.queries.vectors([query_id])
    centroids = knowledge.centroids([query_id])
    weights = expansion_weights(centroids.sigma, knowledge.queries.lengths([query_id]), beta, settings.expansion_scale)
    kept = np.flatnonzero(centroids.token_ids[0] >= 0)
    pieces = index.encoder.tokens(centroids.token_ids[0][kept].tolist())
    tokens = [
        ExpansionToken(
            piece, int(centroids.token_ids[0, place]), float(centroids.sigma[0, place]), float(weights[0, place])
        )
        for piece, place in zip(pieces, kept, strict=True)
    ]
    rows, scores = index.search(query, count)
    after_rows, after_scores = index.search(expand(query, centroids, beta, settings.expansion_scale), count)
    return Inspection(
        query_id,
        text,
        beta,
        _feedback(index, knowledge, query_id),
        tokens,
        hits(index, rows[0], scores[0]),
        hits(index, after_rows[0], after_scores[0]),
    )


def _feedback(index: Index, knowledge: Knowledge, query_id: str) -> list[Hit]:
    """Feedback passages with φ of each; labelled ones may stand anywhere in θ's ranking."""
    rows = knowledge.feedback([query_id])[0].astype(np.int64)
    rows = rows[rows >= 0]
    scores = index.store.score(knowledge.queries.vectors([query_id]), rows[None])
    return hits(index, rows, scores[0])

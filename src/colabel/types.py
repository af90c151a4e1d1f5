"""The records that travel between stages, in the paper's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

Qrels = Mapping[str, Mapping[str, int]]
"""Query id → passage id → grade. What ir_measures and pytrec_eval take as it is."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text p. The title may be empty; the text may be empty where there is a title.

    ``metadata`` is what else the collection says of it (a price, a date, a category): not read by encoders.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def full_text(self) -> str:
        """What an encoder or BM25 reads: the title, a space and the text.

        >>> Passage("1", "Glacier cave", "A cave within ice.").full_text
        'Glacier cave A cave within ice.'
        """
        return f"{self.title} {self.text}".strip()


@dataclass(frozen=True, slots=True)
class Query:
    """One query q."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Qrel:
    """One relevance label: how relevant a passage is to a query (0 = judged and not relevant)."""

    query_id: str
    passage_id: str
    grade: int


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """One line of a ranking: rank 1 is the best."""

    query_id: str
    passage_id: str
    rank: int
    score: float

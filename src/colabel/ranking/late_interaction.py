"""Late-interaction rankings: encode the queries, search the index, show what was found."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colabel.artefacts import fingerprint, read_manifest
from colabel.encode import Encoder, encode_queries_checked, open_checkpoint
from colabel.errors import ArtefactError, UsageError
from colabel.index import Index
from colabel.progress import SILENT, Progress
from colabel.ranking.rankings import Ranker
from colabel.types import FloatArray, IntArray, Mask, Passage

_KEPT_BATCHES = 2


class LateInteraction:
    """Ranks by MaxSim (Eq. 1) over an index.

    Args:
        student: a checkpoint whose query side was trained against this very index; None: the index's own model.
        encoder: a model in memory that reads the queries instead.
        strict: refuse queries that the model cannot read, instead of a warning.
    """

    def __init__(
        self,
        index: Index,
        name: str = "colbert",
        *,
        student: Path | None = None,
        encoder: Encoder | None = None,
        strict: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        self.index = index
        self.name = name
        self.strict = strict
        self.progress = progress
        self.ids = index.store.ids
        self.fingerprint = index.fingerprint
        self._student = student
        if encoder is not None:
            self.encoder = encoder
        self._read: dict[tuple[str, ...], torch.Tensor] = {}
        if student is not None:
            manifest = read_manifest(student)
            made_by = read_manifest(index.folder / "encoder")
            if manifest.inputs.get("start") != made_by.inputs.get("weights"):
                raise UsageError(
                    f"{student} was trained to search an index of another model than {index.folder}; "
                    "give it the index of its own run, or one that θ of this run has made"
                )
            self.fingerprint = fingerprint([index.fingerprint, manifest.fingerprint])

    @cached_property
    def encoder(self) -> Encoder:
        """The model that reads queries."""
        return self.index.encoder if self._student is None else open_checkpoint(self._student)

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Query vectors float32 [queries, length, dimension], zero where padded.

        The last batches are kept: a hybrid ranks the same test queries, and is fitted on the same dev queries. A single
        question is read each time, as its response time is measured.
        """
        batch = tuple(texts)
        if batch in self._read:
            return self._read[batch]
        found = encode_queries_checked(self.encoder, texts, strict=self.strict).vectors
        if len(batch) > 1:
            self._read = dict([*self._read.items(), (batch, found)][-_KEPT_BATCHES:])
        return found

    def search(self, queries: torch.Tensor, depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows and scores of encoded queries, best first."""
        rows, scores = self.index.search(queries, depth, allowed=allowed, progress=self.progress)
        check_finite(rows, scores, self.index)
        return rows, scores

    def rank(self, texts: Sequence[str], depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows int64 [queries, depth] and scores float32 [queries, depth], best first."""
        return self.search(self.encode(texts), depth, allowed)


def check_finite(rows: IntArray, scores: FloatArray, index: Index) -> None:
    """Refuse scores of found passages that are nan or infinite: the index or its model is damaged."""
    odd = rows[(rows >= 0) & ~np.isfinite(scores)]
    if len(odd):
        raise ArtefactError(
            f"{index.folder}: the score of passage '{index.store.ids[int(odd[0])]}' is not finite; a file of the index "
            "or of its model is damaged: build the index again"
        )


@dataclasses.dataclass(frozen=True)
class Hit:
    """A passage that was found, or the best piece of a document; ``row`` is its place in the index.

    Title and text are empty where the collection is not at its place any more. ``probability`` is that of being
    relevant, where a run could fit it; ``asked`` is a similar training query that the passage is a label of.
    """

    rank: int
    score: float
    passage_id: str
    title: str
    text: str
    row: int = -1
    probability: float | None = None
    asked: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, without the row."""
        found = dataclasses.asdict(self)
        del found["row"]
        return found


def search(index: Index, text: str, k: int = 10, *, ranker: Ranker | None = None, where: str = "") -> list[Hit]:
    """The k best passages for a text, with their contents; by MaxSim, or by another ranker of this index.

    ``where`` is a condition over the passages' metadata, such as ``brand = 'Acme' and price < 30``.
    """
    ranker = ranker or LateInteraction(index, strict=True)
    rows, scores = ranker.rank([text], min(k, len(index.store)), index.where(where) if where else None)
    return hits(index, rows[0], scores[0])


def hits(
    index: Index,
    rows: IntArray,
    scores: FloatArray,
    probabilities: FloatArray | None = None,
    asked: Sequence[str] = (),
) -> list[Hit]:
    """Ranked rows with the passages' contents; what follows a row of −1 is left out."""
    found: list[Hit] = []
    known = np.full(len(rows), np.nan) if probabilities is None else probabilities
    lines = zip(rows.tolist(), scores.tolist(), known.tolist(), asked or [""] * len(rows), strict=True)
    for row, score, probability, before in itertools.takewhile(lambda line: line[0] >= 0, lines):
        passage = index.passages[row] if index.passages is not None else Passage("", "", "")
        likely = None if np.isnan(probability) else probability
        found.append(Hit(len(found) + 1, score, index.store.ids[row], passage.title, passage.text, row, likely, before))
    return found

"""What was asked before: the labels of training queries that are like a new query.

    s(q, q′) = half of MaxSim(q, q′) per token of q, and half of MaxSim(q′, q) per token of q′
    a(q, p)  = the highest s(q, q′) of the training queries q′ for which p is labelled
    P(q, p)  = σ(w · a(q, p) + b)

w and b are fitted to the training queries themselves, each remembered without itself: of the passages that are labelled
for its nearest neighbours, which are labelled for it too? So the scale of a model's similarities does not matter, and
where nobody asks for a passage twice nothing is remembered.

vectors.npy         float16 [tokens, dimension], training queries one after another
offsets.npy         int64 [queries + 1]
texts.*.npy         their texts
passages.*.npy      ids of the labelled passages
labels.npy          int32 [labels], a query's labels one after another, rows of the passage ids
label_offsets.npy   int64 [queries + 1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Workspace, read_manifest
from colabel.data.splits import stable_fraction
from colabel.data.string_table import StringTable
from colabel.ranking.late_interaction import LateInteraction
from colabel.types import FloatArray, IntArray, Mask

STAGE = "memory"
MOST_ASKED, BLOCK = 100_000, 2048
"""Training queries that are remembered, drawn from more, and read at once."""
NEAREST = 128
"""Training queries, nearest by the mean of their vectors, that are compared token by token."""
RECALLED = 50
"""Passages that a query is reminded of, at most."""
TELLING = 0.2
"""P from which on a similar query is worth showing beside a hit."""
FEWEST_SHARED = 20
"""Labels in common with a neighbour below which a fit would be chance: then nothing is remembered."""
WEIGHTS, DEFAULT_WEIGHT = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), 1.0
"""μ that dev compares, and μ where no labels can tell."""
_SAMPLE = 2000  # training queries to which w and b are fitted
_LARGE = 1e3  # inverse of the ridge: two numbers need none


class Memory:
    """Labelled training queries, and how sure a like query makes us of their labels.

    Args:
        reader: reads queries as the training queries were read: with the model of the index, whatever was trained
            since. What is learnt by heart makes the training queries, and no others, stand out.
        asked: the training queries.
        texts: what they are.
        fit: w and b; None: nothing is remembered.
        weight: μ, by which a hybrid multiplies P.
    """

    def __init__(
        self,
        reader: LateInteraction,
        asked: Asked,
        texts: Sequence[str],
        fit: tuple[float, float] | None,
        *,
        weight: float = DEFAULT_WEIGHT,
        fingerprint: str = "",
    ) -> None:
        self.reader, self.asked, self.texts, self.fit = reader, asked, texts, fit
        self.weight, self.fingerprint = weight, fingerprint

    @classmethod
    def open(cls, folder: Path, reader: LateInteraction, weight: float = DEFAULT_WEIGHT) -> Memory:
        """A finished one; labels of passages that the searched collection does not hold any more are forgotten."""
        manifest = read_manifest(folder, STAGE)
        names, found = StringTable.open(folder, "passages"), manifest.counts["fit"]
        starts, labels = np.load(folder / "label_offsets.npy"), np.load(folder / "labels.npy")
        held = [[names[one] for one in labels[first:last]] for first, last in pairwise(starts)]
        vectors = np.load(folder / "vectors.npy", mmap_mode="r").view(np.ndarray)
        asked = Asked(vectors, np.load(folder / "offsets.npy"), label_rows(held, reader.ids))
        fit = None if found is None else (float(found[0]), float(found[1]))
        texts = StringTable.open(folder, "texts")
        return cls(reader, asked, texts, fit, weight=weight, fingerprint=manifest.fingerprint)

    def recall(self, queries: torch.Tensor, allowed: Mask | None = None) -> list[dict[int, float]]:
        """P of the passages that like queries have as labels, by row, for each query; the first ``RECALLED``.

        Args:
            queries: vectors of the reader [queries, length, dimension], zero where padded.
        """
        if self.fit is None or not self.weight:
            return [{} for _ in queries]
        found = []
        for query in queries.numpy():
            held = self.asked.alike(query)
            known = [row for row in held if allowed is None or allowed[row]]
            best = sorted(known, key=lambda row: (-held[row][0], row))[:RECALLED]
            likely = probability(np.array([held[row][0] for row in best]), self.fit)
            found.append(dict(zip(best, likely.tolist(), strict=True)))
        return found

    def reminders(self, text: str, rows: Sequence[int]) -> list[str]:
        """For each passage the most similar query that it is a label of; "" where there is none, or none so similar
        that it says much."""
        if self.fit is None or not self.weight:
            return [""] * len(rows)
        held = self.asked.alike(self.reader.encode([text]).numpy()[0])
        likely = {row: probability(np.array([alike]), self.fit)[0] for row, (alike, _) in held.items()}
        return [self.texts[held[row][1]] if likely.get(row, 0.0) >= TELLING else "" for row in rows]


class Asked:
    """Training queries by their vectors [tokens, dimension] at ``offsets``, each with the rows of its labels."""

    def __init__(self, vectors: npt.NDArray[np.floating], offsets: IntArray, labels: Sequence[IntArray]) -> None:
        self.vectors, self.offsets, self.labels = vectors, offsets, labels
        self.lengths = np.diff(offsets)
        sums = [vectors[first:last].sum(axis=0, dtype=np.float32) for first, last in pairwise(offsets)]
        self.means = _unit(np.array(sums, dtype=np.float32).reshape(len(labels), -1))

    def alike(self, query: FloatArray, without: int = -1) -> dict[int, tuple[float, int]]:
        """Passage row → how like the query the most similar training query with this label is, and its place.

        Args:
            query: vectors [length, dimension], zero where padded.
            without: the place of a training query to leave out.
        """
        tokens = query[(query != 0).any(axis=1)]
        if not len(tokens) or not len(self.labels):
            return {}
        nearness = self.means @ _unit(tokens.sum(axis=0, keepdims=True))[0]
        if without >= 0:
            nearness[without] = -np.inf
        near = np.argsort(-nearness, kind="stable")[: min(NEAREST, len(nearness) - (without >= 0))]
        found: dict[int, tuple[float, int]] = {}
        for place, value in zip(near.tolist(), self._similarity(tokens, near).tolist(), strict=True):
            for row in self.labels[place].tolist():
                if row not in found or value > found[row][0]:
                    found[row] = value, place
        return found

    def query(self, place: int) -> FloatArray:
        """A training query's vectors, float32 [length, dimension]."""
        return np.asarray(self.vectors[self.offsets[place] : self.offsets[place + 1]], dtype=np.float32)

    def _similarity(self, tokens: npt.NDArray[np.float32], near: IntArray) -> npt.NDArray[np.float32]:
        """s of one query's tokens [length, dimension] and some training queries."""
        lengths = self.lengths[near]
        present = np.arange(lengths.max(initial=1)) < lengths[:, None]
        places = np.where(present, self.offsets[near][:, None] + np.arange(present.shape[1]), 0)
        others = self.vectors[places].astype(np.float32)
        between = np.where(present[..., None], others @ tokens.T, -1.0)  # [near, their tokens, tokens]
        theirs = np.where(present, between.max(axis=2), 0.0).sum(axis=1) / np.maximum(lengths, 1)
        return np.asarray((between.max(axis=1).mean(axis=1) + theirs) / 2, dtype=np.float32)


def fit_memory(asked: Asked) -> tuple[float, float] | None:
    """w and b; None where too few passages are labelled for two queries that are alike, or alike is no sign of it."""
    from sklearn.linear_model import LogisticRegression

    drawn = np.random.default_rng(0).permutation(len(asked.labels))[:_SAMPLE].tolist()
    alike, shared = [], []
    for place in drawn:
        own = set(asked.labels[place].tolist())
        for row, (value, _) in asked.alike(asked.query(place), without=place).items():
            alike.append(value)
            shared.append(row in own)
    if sum(shared) < FEWEST_SHARED or all(shared):
        return None
    model = LogisticRegression(C=_LARGE).fit(np.array(alike)[:, None], np.array(shared))
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    return (slope, intercept) if slope > 0 else None


def probability(alike: npt.NDArray[np.floating], fit: tuple[float, float]) -> npt.NDArray[np.float32]:
    """σ(w · a + b).

    >>> probability(np.array([0.5, 1.0]), (10.0, -5.0)).round(2).tolist()
    [0.5, 0.9900000095367432]
    """
    return np.asarray(1 / (1 + np.exp(-(fit[0] * np.asarray(alike) + fit[1]))), dtype=np.float32)


def save_asked(space: Workspace, queries: Mapping[str, Sequence[str]], reader: LateInteraction) -> Asked:
    """Write training queries (text → ids of its labelled passages) with the vectors that a model reads them as."""
    if len(queries) > MOST_ASKED:
        drawn = sorted(queries, key=lambda text: stable_fraction(text, STAGE))[:MOST_ASKED]
        queries = {text: queries[text] for text in sorted(drawn)}
    texts, kept = list(queries), list[npt.NDArray[np.float16]]()
    for start in range(0, len(texts), BLOCK):
        read = reader.encode(texts[start : start + BLOCK]).numpy()
        kept += [one[(one != 0).any(axis=1)].astype(np.float16) for one in read]
    tokens = np.concatenate(kept) if kept else np.zeros((0, 1), dtype=np.float16)
    names = list(dict.fromkeys(name for held in queries.values() for name in held))
    places = {name: place for place, name in enumerate(names)}
    offsets = np.cumsum([0, *map(len, kept)]).astype(np.int64)
    space.save("vectors.npy", tokens)
    space.save("offsets.npy", offsets)
    space.save("labels.npy", np.array([places[name] for held in queries.values() for name in held], dtype=np.int32))
    space.save("label_offsets.npy", np.cumsum([0, *map(len, queries.values())]).astype(np.int64))
    StringTable.of(queries).save(space, "texts")
    StringTable.of(names).save(space, "passages")
    return Asked(tokens, offsets, label_rows(list(queries.values()), reader.ids))


def label_rows(labels: Sequence[Sequence[str]], ids: StringTable) -> list[IntArray]:
    """The rows of each query's labelled passages that a collection holds; of a document in pieces, all."""
    none = np.zeros(0, dtype=np.int64)
    rows = {name: ids.all_of(ids.rows([name])) for held in labels for name in held}
    found = [np.concatenate([none, *(rows[name] for name in held)]) for held in labels]
    return [one[one >= 0] for one in found]


def _unit(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)

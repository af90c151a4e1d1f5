"""Labels as training rows: each query with its passages in the order in which distillation losses want them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colabel.errors import UsageError
from colabel.labels.artefact import Flag, LabelBlock, Labels

LONGEST = 32
"""Passages of a row where none are asked for: what ColBERT distillation commonly uses."""


@dataclass(frozen=True)
class TrainingRow:
    """One query: passage rows int64 [n], labelled ones first, each group best first, and teacher scores float32 [n]."""

    query_id: str
    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Cut:
    """How many passages a row gets, and what that leaves out.

    ``passages`` None: all scored candidates, rows of any length, at least two passages. ``queries`` counts the rows
    that remain, ``short_queries`` those left out with too few scored candidates, ``labelled_left_out`` the labelled
    passages that found no place.
    """

    passages: int | None
    queries: int
    pairs: int
    short_queries: int
    pairs_left_out: int
    labelled_left_out: int


def training_rows(labels: Labels, passages: int | None) -> Iterator[TrainingRow]:
    """Rows of exactly ``passages`` passages (None: all), queries with fewer scored candidates left out.

    The labelled passages come first, so that losses which take the first passage as the positive work as well. At
    least one place is kept for an unlabelled passage where there is one: labelled passages alone teach no contrast.
    """
    for block in labels.blocks():
        for place, query_id in enumerate(block.query_ids):
            order = _ordered(block, place, passages)
            if len(order) >= (2 if passages is None else passages):
                scores = np.asarray(block.teacher[place][order], dtype=np.float32)
                yield TrainingRow(query_id, block.rows[place][order].astype(np.int64), scores)


def plan_cut(labels: Labels, passages: int | None, *, equal: bool) -> Cut:
    """Decide the number of passages of a row and count what it leaves out.

    With ``equal`` all rows need one length: left open, it is the one up to 32 that keeps most pairs.
    """
    scored, labelled = _counted(labels)
    if passages is None and equal:
        passages = best_length(scored)
    needed = 2 if passages is None else passages
    kept = scored >= needed
    if not kept.any():
        most = int(scored.max(initial=0))
        advice = f"ask for at most {most}" if most >= 2 else "label more candidates"
        raise UsageError(f"no query has {needed} scored candidates, the most is {most}; {advice}")
    lengths = scored[kept] if passages is None else np.full(int(kept.sum()), passages)
    room = lengths - (scored[kept] > labelled[kept])
    return Cut(
        passages=passages,
        queries=len(lengths),
        pairs=int(lengths.sum()),
        short_queries=len(scored) - len(lengths),
        pairs_left_out=int(scored.sum() - lengths.sum()),
        labelled_left_out=int(np.maximum(labelled[kept] - room, 0).sum()),
    )


def _counted(labels: Labels) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many candidates of each query are scored, and how many of those are labelled, int64 [queries]."""
    parts = []
    for block in labels.blocks():
        scored = np.isfinite(block.teacher)
        parts.append([scored.sum(axis=1), (scored & ((block.flags & Flag.LABELLED) != 0)).sum(axis=1)])
    first, second = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    return first, second


def best_length(lengths: npt.NDArray[np.integer]) -> int:
    """The n from 2 to 32 with the largest n · (rows that have at least n).

    >>> best_length(np.array([100, 100, 5])), best_length(np.array([4, 4, 4, 5])), best_length(np.array([0]))
    (32, 4, 2)
    """
    pairs = {n: n * int((lengths >= n).sum()) for n in range(2, LONGEST + 1)}
    return max(pairs, key=lambda n: (pairs[n], -n))


def _ordered(block: LabelBlock, place: int, passages: int | None) -> npt.NDArray[np.intp]:
    """Places of the chosen candidates of a query, labelled first, each group best first."""
    teacher = block.teacher[place]
    scored = np.isfinite(teacher)
    best = np.argsort(np.where(scored, -teacher, np.inf), kind="stable")[: int(scored.sum())]
    marked = (block.flags[place][best] & Flag.LABELLED) != 0
    first, rest = best[marked], best[~marked]
    if passages is not None:
        first = first[: passages - bool(len(rest))]
        rest = rest[: passages - len(first)]
    return np.concatenate([first, rest])

"""Suspected positives: unlabelled candidates of all queries in one order, best first.

Scores of different queries do not compare as they are: a late-interaction score grows with the number of query tokens,
and some queries match everything better. With t the teacher score of a passage, t̄ the mean over the query's unlabelled
candidates, s their standard deviation, t⁺ the score of the query's best labelled passage and φ₁ the highest base score
of its candidates, the orders are

    standout     (t − t̄) / φ₁
    deviation    (t − t̄) / s
    margin       t − t⁺
    probability  the target probability, softmax(t / temperature)
    rank         each query's best suspect, by standout, then each one's second best, and so on

**The default is ``standout``**: how far a passage stands out from the query's other candidates, in units of what the
query weighs. φ₁ grows with the query's tokens and not with the teacher, so long queries do not win by length. Two ideas
that seem better are not. The distance to the labelled passage (``margin``) says more about that passage than about the
suspect: where a query's labelled passage scores badly, everything lies above it, and where the centroids come from it,
everything lies far below. The spread of the query's own candidates (``deviation``) also lifts the best of a query for
which nothing is relevant, only less irrelevant; it is the order for teachers whose scores do not grow with the query,
such as cross-encoders. The probability must be shared among a query's passages, so each one gets little where many are
missing. The rank asks the same number of each query, whether or not anything is missing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colabel.data import Dataset
from colabel.errors import UsageError
from colabel.labels.artefact import BLOCK, Flag, LabelBlock, Labels
from colabel.labels.targets import best_labelled, probabilities, suspect_ranks

ORDERS = ("standout", "deviation", "margin", "probability", "rank")
DEFAULT_ORDER = "standout"


@dataclass(frozen=True)
class Suspect:
    """One suspected positive.

    ``margin`` is its teacher score minus that of the query's best labelled passage (NaN where that was not scored),
    ``rank`` its place among the query's unlabelled candidates, ``value`` what the order went by.
    """

    query_id: str
    passage_id: str
    row: int
    teacher_score: float
    base_score: float
    margin: float
    rank: int
    value: float


def order_values(block: LabelBlock, order: str, temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """What the candidates of a block [queries, candidates] are ordered by across queries, float64, larger is better.

    −∞ where a candidate is labelled, absent or not scored, or where the order needs the score of a labelled passage
    and there is none.

    >>> teacher, flags = np.array([[4.0, 3.0, 1.0]], np.float32), np.array([[4, 1, 4]], np.uint8)
    >>> block = LabelBlock(["q"], np.array([[7, 8, 9]], np.int32), teacher, teacher / 2, flags)
    >>> order_values(block, "margin").tolist(), order_values(block, "standout").tolist()
    ([[1.0, -inf, -2.0]], [[0.75, -inf, -0.75]])
    """
    if order not in ORDERS:
        raise UsageError(f"'{order}' is no order of suggestions; expected one of {', '.join(ORDERS)}")
    suspect = np.isfinite(block.teacher) & ((block.flags & Flag.LABELLED) == 0)
    if order == "probability":
        values = probabilities(block.teacher, temperature).astype(np.float64)
    elif order == "margin":
        values = margins(block.teacher, block.flags)
    else:
        lead, spread = _leads(block.teacher, suspect)
        weight = np.where(np.isfinite(block.base), block.base, -np.inf).max(axis=1, initial=-np.inf)
        unit = spread if order == "deviation" else weight.astype(np.float64)
        values = lead / np.where((unit > 0) & np.isfinite(unit), unit, 1.0)[:, None]
    if order == "rank":  # a fraction between 0 and 1 orders equal ranks
        values = 0.5 + np.arctan(values) / np.pi - suspect_ranks(block.teacher, block.flags)
    return np.where(suspect & ~np.isnan(values), values, -np.inf)


def margins(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """t − t⁺ of all candidates, float64 [queries, candidates]; NaN where either was not scored."""
    scores = np.where(np.isfinite(teacher), teacher, np.nan).astype(np.float64)
    return scores - best_labelled(teacher, flags).astype(np.float64)[:, None]


def find_suspects(
    labels: Labels,
    dataset: Dataset,
    *,
    limit: int,
    order: str = DEFAULT_ORDER,
    margin: float | None = None,
    temperature: float = 1.0,
) -> list[Suspect]:
    """The ``limit`` best suspected positives of the whole dataset, best first.

    Passages that have a visible judgement for the query, relevant or not, are no suspects. Equal values come in the
    order of queries and candidates. Memory is that of ``limit`` suspects and one block.

    Args:
        margin: leave out passages whose teacher score is not at least this much above (below, if negative) that of
            the query's best labelled passage.
    """
    if limit < 1:
        raise UsageError(f"the limit is {limit}; expected at least 1 suggestion")
    judged = dataset.labels(labels.split)
    best = np.zeros(0, dtype=_RECORD)
    for number, block in enumerate(labels.blocks()):
        values = order_values(block, order, temperature)
        if margin is not None:
            values[~(margins(block.teacher, block.flags) >= margin)] = -np.inf
        _leave_out_judged(values, block, labels, judged)
        best = np.concatenate([best, _records(number, block, values, limit)])
        best = best[np.lexsort((best["candidate"], best["query"], best["block"], -best["value"]))[:limit]]
    return [_suspect(labels, record) for record in best]


_RECORD = np.dtype(
    [
        ("value", np.float64),
        ("block", np.int64),
        ("query", np.int64),
        ("candidate", np.int64),
        ("row", np.int64),
        ("teacher", np.float32),
        ("base", np.float32),
        ("margin", np.float64),
        ("rank", np.int64),
    ]
)


def _leave_out_judged(
    values: npt.NDArray[np.float64], block: LabelBlock, labels: Labels, judged: Mapping[str, Mapping[str, int]]
) -> None:
    for place, query_id in enumerate(block.query_ids):
        known = labels.passage_ids.rows(judged.get(query_id, ()))
        values[place, np.isin(block.rows[place], known)] = -np.inf


def _records(number: int, block: LabelBlock, values: npt.NDArray[np.float64], limit: int) -> npt.NDArray[np.void]:
    """The best ``limit`` candidates of a block, ties at the cut included."""
    flat = values.reshape(-1)
    places = np.flatnonzero(flat > -np.inf)
    if len(places) > limit:
        cut = np.partition(flat[places], len(places) - limit)[len(places) - limit]
        places = places[flat[places] >= cut]
    query, candidate = np.divmod(places, values.shape[1])
    found = np.empty(len(places), dtype=_RECORD)
    found["value"], found["block"], found["query"], found["candidate"] = flat[places], number, query, candidate
    found["row"] = block.rows[query, candidate]
    found["teacher"], found["base"] = block.teacher[query, candidate], block.base[query, candidate]
    found["margin"] = margins(block.teacher, block.flags)[query, candidate]
    found["rank"] = suspect_ranks(block.teacher, block.flags)[query, candidate]
    return found


def _suspect(labels: Labels, record: np.void) -> Suspect:
    return Suspect(
        query_id=labels.query_ids[int(record["block"]) * BLOCK + int(record["query"])],
        passage_id=labels.passage_ids[int(record["row"])],
        row=int(record["row"]),
        teacher_score=float(record["teacher"]),
        base_score=float(record["base"]),
        margin=float(record["margin"]),
        rank=int(record["rank"]),
        value=float(record["value"]),
    )


def _leads(
    teacher: npt.NDArray[np.floating], suspect: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """t − t̄, float64 [queries, candidates], and s [queries], t̄ and s over each query's suspects."""
    scores = np.where(suspect, teacher, 0.0).astype(np.float64)
    count = np.maximum(suspect.sum(axis=1), 1)
    lead = scores - (scores.sum(axis=1) / count)[:, None]
    spread: npt.NDArray[np.float64] = np.sqrt(np.where(suspect, lead**2, 0.0).sum(axis=1) / count)
    return lead, spread

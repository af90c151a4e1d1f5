"""What a query-side training learns from: lists of candidates per training query, and how probable each is.

    target = label mass on the labelled passages, the rest shared out by the teacher

The teacher's temperature is set by the entropy of what it shares out, so that the scale of its scores does not matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.collective import Knowledge
from colabel.data import Dataset
from colabel.data.pieces import with_labelled_pieces
from colabel.data.splits import TRAIN
from colabel.errors import DataError
from colabel.ranking import Bm25, Ranking
from colabel.ranking.hybrid import standardise, union
from colabel.teachers.guarded import trusted_rows
from colabel.teachers.protocol import Teacher
from colabel.teachers.views import TELLING_WORDS, labelled_rows
from colabel.types import FloatArray, IntArray

THETA_CANDIDATES, WORD_CANDIDATES, NEIGHBOUR_CANDIDATES = 100, 50, 30
"""Candidates of a training query: θ's first, BM25's first, and BM25's first for its labelled passages."""
TARGET_ENTROPY = 0.5
"""Mean entropy of the teacher's part of a target, as a share of that of a uniform one; it sets the temperature."""


@dataclasses.dataclass(frozen=True)
class Lists:
    """What one training learns from.

    Attributes:
        query_ids, texts: the training queries.
        rows: their candidates, int64 [queries, n], −1 where there are fewer.
        target: probability of each candidate, float32 [queries, n], rows sum to 1.
        spread: deviation of θ's scores over a query's candidates, float32 [queries].
        trusted: which candidates people found not relevant, bool [queries, n]; None: none.
    """

    query_ids: Sequence[str]
    texts: Sequence[str]
    rows: IntArray
    target: FloatArray
    spread: FloatArray
    trusted: npt.NDArray[np.bool_] | None = None

    @property
    def entropy(self) -> float:
        """Of the target, in nats, mean over queries."""
        return float(_entropy(self.target).mean())

    @cached_property
    def fingerprint(self) -> str:
        """Names everything that a training reads."""
        parts = [list(self.query_ids), list(self.texts), self.rows.tolist(), np.round(self.target, 6).tolist()]
        return fingerprint(parts if self.trusted is None else [*parts, self.trusted.tolist()])

    def only(self, known: npt.NDArray[np.bool_], target: FloatArray) -> Lists:
        """The same lists for some of the queries, with another target."""
        places = np.flatnonzero(known).tolist()
        ids, texts = [self.query_ids[one] for one in places], [self.texts[one] for one in places]
        trusted = None if self.trusted is None else self.trusted[known]
        return Lists(ids, texts, self.rows[known], target[known], self.spread[known], trusted)


def lessons_for(
    queries: Mapping[str, str],
    rows: IntArray,
    start_scores: FloatArray,
    positives: Mapping[str, Sequence[int]],
    teacher: Teacher | None,
    *,
    label_mass: float,
    trusted: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Lists]:
    """What is trained: by the teacher, ``label_mass`` for the labelled passages and the rest as it says, and by labels.

    Where ``label_mass`` is 0, the labelled passages are left out: the student learns what the teacher says of others,
    and the labels are no lesson.

    Args:
        queries: query id → text, in the order of ``rows``.
        start_scores: θ's scores of the candidates.
        positives: query id → rows of its labelled passages, which must be candidates; a query without any learns
            from the teacher alone.
        teacher: None: hard labels, all mass on the labelled passages, are the only lesson.
        trusted: query id → rows that people found not relevant: they get no mass, and stand in every list.
    """
    ids = list(queries)
    labelled = np.array([np.isin(line, list(positives[one])) for one, line in zip(ids, rows, strict=True)])
    labelled &= rows >= 0
    known = np.asarray(labelled.any(axis=1))
    for query, held in zip(ids, known, strict=True):
        if held or (teacher is not None and not positives[query]):
            continue
        raise DataError(f"no labelled passage of the training query '{query}' is among its candidates")
    free = (rows >= 0) & ~labelled
    judged = None
    if trusted:
        judged = free & np.array([np.isin(line, trusted.get(one, ())) for one, line in zip(ids, rows, strict=True)])
        free &= ~judged
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(np.nanstd(np.where(free, start_scores, np.nan), axis=1), nan=1.0)
    spread = np.maximum(spread, 1e-3).astype(np.float32)
    hard = (labelled / np.maximum(labelled.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    lists = Lists(ids, list(queries.values()), rows, hard, spread, judged)
    if teacher is None:
        return {"labels": lists}
    soft = sharpened(teacher.scores(ids, rows), free, TARGET_ENTROPY)
    mass = np.where(free.any(axis=1, keepdims=True), label_mass, 1.0) * known[:, None]
    target = (mass * hard + (1 - mass) * soft).astype(np.float32)
    if label_mass == 0:
        return {"teacher": dataclasses.replace(lists, rows=np.where(labelled & (mass == 0), -1, rows), target=target)}
    taught = {"teacher": dataclasses.replace(lists, target=target)}
    return {**taught, "labels": lists.only(known, hard)} if known.any() else taught


def candidate_rows(
    dataset: Dataset,
    knowledge: Knowledge,
    words: Bm25,
    word_ranking: Ranking,
    *,
    unlabelled: bool = False,
) -> tuple[dict[str, str], IntArray, dict[str, list[int]]]:
    """Training queries with a positive (id → text), their candidates int64 [queries, n], and rows of their positives.

    With ``unlabelled``, queries of which nothing is known are among them. Candidates are the judged passages, θ's and
    BM25's first ones, and what BM25 finds with the labelled passages' telling words.
    """
    store, ranked = knowledge.index.store, knowledge.ranking.query_ids
    labelled_of = labelled_rows(dataset, knowledge.index, TRAIN)
    found = {query: held for query, held in labelled_of.items() if ranked.row(query) >= 0}
    if not found:
        raise DataError(f"no query of the split '{TRAIN}' of {dataset.name} has a labelled passage with a text")
    if unlabelled:
        unknown = [query for query, held in dataset.labels(TRAIN).items() if not held and ranked.row(query) >= 0]
        found |= {query: [] for query in unknown}
    queries = {query: dataset.queries[query] for query in sorted(found)}
    labelled, trusted = [found[query] for query in queries], trusted_rows(dataset)
    near, ids = words.telling_words(labelled, TELLING_WORDS), dataset.passages.ids
    parts: list[Iterable[Sequence[int] | npt.NDArray[np.integer]]] = [
        labelled,
        (trusted.get(query, []) for query in queries),
        (knowledge.ranking.query(query)[0][:THETA_CANDIDATES] for query in queries),
        (word_ranking.query(query)[0][:WORD_CANDIDATES] for query in queries),
        words.rank_words(near, NEIGHBOUR_CANDIDATES),
    ]
    # another piece of a labelled document is no negative
    rows = union(*([with_labelled_pieces(*one, ids) for one in zip(part, labelled, strict=True)] for part in parts))
    rows[(rows >= 0) & (store.lengths(rows) == 0)] = -1
    return queries, rows, {query: found[query] for query in queries}


def sharpened(scores: FloatArray, free: npt.NDArray[np.bool_], share: float) -> npt.NDArray[np.float64]:
    """softmax(z / T) over ``free``, with the one T at which its mean entropy is ``share`` of a uniform target's.

    z are the scores standardised per query, so that neither their scale nor their offset matters.
    """
    known = free & np.isfinite(scores)
    z = standardise(scores, known).astype(np.float64)
    widest = np.log(np.maximum(known.sum(axis=1), 2))
    low, high = 1e-3, 1e3
    for _ in range(50):
        temperature = np.sqrt(low * high)
        if (_entropy(_softmax(z / temperature, known)) / widest).mean() > share:
            high = temperature
        else:
            low = temperature
    return _softmax(z / low, known)


def _softmax(logits: npt.NDArray[np.float64], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    masked = np.where(known, logits, -np.inf)
    highest = masked.max(axis=1, keepdims=True, initial=-1e300)
    weights = np.where(known, np.exp(masked - highest), 0.0)
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))


def _entropy(target: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Entropy of each line, in nats."""
    held = np.maximum(np.asarray(target, dtype=np.float64), 1e-300)
    return np.asarray(-(target * np.log(held)).sum(axis=1))

"""Missing labels: unlabelled passages that look relevant, with what a person needs to judge them, and why.

Scores of different queries do not compare as they are: a late-interaction score grows with the number of query tokens,
and some queries match everything better. With t the teacher score of a passage, t̄ the mean over the query's unlabelled
candidates, s their standard deviation and φ₁ the highest base score of its candidates, candidates of all queries are
ordered by

    standout     (t − t̄) / φ₁
    deviation    (t − t̄) / s

**The default is ``standout``**: how far a passage stands out from the query's other candidates, in units of what the
query weighs. φ₁ grows with the query's tokens and not with the teacher, so long queries do not win by length. For
teachers whose scores do not grow with the query, such as cross-encoders, ``deviation`` is the order; elsewhere it also
lifts the best passage of a query for which nothing is relevant. The distance to the labelled passage (``margin``) is
shown and no order: it says more about that passage than about the unlabelled one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import write_text
from colabel.collective.expansion import expansion_weights
from colabel.data import Dataset
from colabel.errors import ArtefactError, ColabelError, UsageError
from colabel.labels.artefact import LabelBlock, Labels, best_labelled, missing_ranks, unlabelled
from colabel.labels.export import check_dataset

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

log = logging.getLogger(__name__)

ORDERS = ("standout", "deviation")
_SNIPPET = 300
_BATCH = 256  # passages explained at once
_PLACE = np.dtype([("value", np.float64), ("block", np.int64), ("place", np.int64)])


@dataclasses.dataclass(frozen=True)
class MissingPair:
    """An unlabelled pair that looks relevant.

    ``margin`` is its teacher score minus that of the query's best labelled passage (NaN where that was not scored),
    ``rank`` its place among the query's unlabelled candidates, ``value`` what it was ordered by.
    """

    query_id: str
    passage_id: str
    row: int
    teacher_score: float
    base_score: float
    margin: float
    rank: int
    value: float


@dataclasses.dataclass(frozen=True)
class Reason:
    """What one expansion token added to a passage's teacher score: weight · max_j c·p_j, the weight being β·σ.

    ``weight`` is β·σ after ``collective.expansion_scale``; ``similarity`` is the maximum over the passage's tokens.
    """

    token: str
    sigma: float
    weight: float
    similarity: float
    contribution: float


@dataclasses.dataclass(frozen=True)
class MissingLabel(MissingPair):
    """The same as a person reviews it; reasons are by falling contribution.

    ``probability`` is that of being relevant, where a run could fit it.
    """

    query: str
    title: str
    text: str
    reasons: tuple[Reason, ...]
    probability: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types; the margin is None where the query's labelled passage was not scored."""
        table = dataclasses.asdict(self) | {"margin": None if math.isnan(self.margin) else self.margin}
        return {name: table[name] for name in _COLUMNS}


_COLUMNS = (
    *("query_id", "query", "passage_id", "title", "text"),
    *("teacher_score", "base_score", "margin", "rank", "value", "probability", "reasons"),
)


def missing_labels(
    labels: Labels,
    knowledge: Knowledge | None,
    dataset: Dataset,
    *,
    limit: int = 100,
    order: str = ORDERS[0],
    judged: Collection[tuple[str, str]] = (),
    gone: Collection[str] = (),
) -> list[MissingLabel]:
    """The ``limit`` unlabelled passages of the dataset that look most relevant, best first, with texts and reasons.

    See :func:`find_missing` for the arguments. Without knowledge there are no reasons.
    """
    check_dataset(labels, dataset)
    if knowledge is not None:
        check_knowledge(labels, knowledge)
    found = find_missing(labels, dataset, limit=limit, order=order, judged=judged, gone=gone)
    origin = labels.origin()
    reasons = [()] * len(found) if knowledge is None else explain(knowledge, found, origin.beta, origin.scale)
    passages = [dataset.passages[pair.row] for pair in found]
    return [
        MissingLabel(**vars(pair), query=dataset.queries[pair.query_id], title=passage.title,
                     text=snippet(passage.text), reasons=why)
        for pair, passage, why in zip(found, passages, reasons, strict=True)
    ]  # fmt: skip


def find_missing(
    labels: Labels,
    dataset: Dataset,
    *,
    limit: int,
    order: str = ORDERS[0],
    judged: Collection[tuple[str, str]] = (),
    gone: Collection[str] = (),
) -> list[MissingPair]:
    """The ``limit`` unlabelled pairs of the whole dataset that look most relevant, best first.

    Passages that have a visible judgement for the query, relevant or not, are left out. Equal values come in the order
    of queries and candidates. Memory is that of ``limit`` pairs and one block.

    Args:
        judged: pairs of query and passage id that people have judged since; they are left out as well.
        gone: ids of passages that were deleted since, too.
    """
    if limit < 1:
        raise UsageError(f"the limit is {limit}; expected at least 1 suggestion")
    visible = dataset.labels(labels.split)
    gone_rows = labels.passage_ids.all_of(labels.passage_ids.rows(gone))
    best = np.zeros(0, dtype=_PLACE)
    for number, block in enumerate(labels.blocks()):
        values = order_values(block, order)
        for place, query_id in enumerate(block.query_ids):
            known = [*visible.get(query_id, ()), *dataset.trusted.get(query_id, ())]
            known_rows = labels.passage_ids.all_of(labels.passage_ids.rows(known))
            values[place, np.isin(block.rows[place], np.concatenate([known_rows, gone_rows]))] = -np.inf
            if judged:
                ids = [labels.passage_ids[row] if row >= 0 else "" for row in block.rows[place].tolist()]
                values[place, [(query_id, one) in judged for one in ids]] = -np.inf
        flat = values.reshape(-1)
        here = np.empty(int((flat > -np.inf).sum()), dtype=_PLACE)
        here["block"], here["place"] = number, np.flatnonzero(flat > -np.inf)
        here["value"] = flat[here["place"]]
        best = np.concatenate([best, here])
        best = best[np.argsort(-best["value"], kind="stable")[:limit]]
    return _pairs(labels, best)


def order_values(block: LabelBlock, order: str) -> npt.NDArray[np.float64]:
    """What the candidates of a block [queries, candidates] are ordered by across queries, float64, larger is better.

    −∞ where a candidate is labelled, absent or not scored.

    >>> teacher, flags = np.array([[4.0, 3.0, 1.0]], np.float32), np.array([[4, 1, 4]], np.uint8)
    >>> block = LabelBlock(["q"], np.array([[7, 8, 9]], np.int32), teacher, teacher / 2, flags)
    >>> order_values(block, "standout").tolist(), order_values(block, "deviation").tolist()
    ([[0.75, -inf, -0.75]], [[1.0, -inf, -1.0]])
    """
    if order not in ORDERS:
        raise UsageError(f"'{order}' is no order of suggestions; expected one of {', '.join(ORDERS)}")
    taking = unlabelled(block.teacher, block.flags)
    scores = np.where(taking, block.teacher, 0.0).astype(np.float64)
    count = np.maximum(taking.sum(axis=1), 1)
    lead = scores - (scores.sum(axis=1) / count)[:, None]
    if order == "deviation":
        unit = np.sqrt(np.where(taking, lead**2, 0.0).sum(axis=1) / count)
    else:
        unit = np.where(np.isfinite(block.base), block.base, -np.inf).max(axis=1, initial=-np.inf).astype(np.float64)
    values = lead / np.where((unit > 0) & np.isfinite(unit), unit, 1.0)[:, None]
    return np.where(taking, values, -np.inf)


def _pairs(labels: Labels, best: npt.NDArray[np.void]) -> list[MissingPair]:
    """The pairs at some places of the blocks, in the order of ``best``."""
    found: dict[int, MissingPair] = {}
    for number, block in enumerate(labels.blocks()):
        wanted = np.flatnonzero(best["block"] == number)
        if not len(wanted):
            continue
        ranks, labelled = missing_ranks(block.teacher, block.flags), best_labelled(block.teacher, block.flags)
        for spot in wanted.tolist():
            at = divmod(int(best["place"][spot]), block.rows.shape[1])
            row = int(block.rows[at])
            found[spot] = MissingPair(
                query_id=block.query_ids[at[0]],
                passage_id=labels.passage_ids[row],
                row=row,
                teacher_score=float(block.teacher[at]),
                base_score=float(block.base[at]),
                margin=float(block.teacher[at]) - float(labelled[at[0]]),
                rank=int(ranks[at]),
                value=float(best["value"][spot]),
            )
    return [found[spot] for spot in range(len(best))]


def remembered_knowledge(labels: Labels) -> Knowledge | None:
    """The knowledge that labels were made from, where it was then; None, with a warning, where it is not any more."""
    from colabel.collective.knowledge import open_knowledge

    try:
        knowledge = open_knowledge(labels.origin().place)
        check_knowledge(labels, knowledge)
        knowledge.index.encoder.tokens([])  # a model or a shard that is gone should be missed here
        knowledge.index.store.passage_tokens([0])
    except ColabelError as error:
        log.warning("no reasons are given, as the knowledge cannot be used: %s", error)
        return None
    return knowledge


def check_knowledge(labels: Labels, knowledge: Knowledge) -> None:
    """Refuse knowledge other than that which the labels were made from."""
    if knowledge.fingerprint != labels.manifest.inputs["knowledge"]:
        raise ArtefactError(
            f"{labels.folder} was made from other knowledge than {knowledge.folder} holds; give the knowledge it was "
            "made from, or label again"
        )


def explain(knowledge: Knowledge, pairs: Sequence[MissingPair], beta: float, scale: str) -> list[tuple[Reason, ...]]:
    """The expansion tokens of each pair's query by what they add to the passage's score, largest first.

    With the collective teacher, φ and the contributions add up to the teacher score (Eq. 6).
    """
    reasons = []
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        query_ids = [pair.query_id for pair in batch]
        centroids = knowledge.centroids(query_ids)
        weights = expansion_weights(centroids.sigma, knowledge.queries.lengths(query_ids), beta, scale)
        vectors, offsets = knowledge.index.store.vectors([pair.row for pair in batch])
        for place in range(len(batch)):
            passage = torch.from_numpy(vectors[offsets[place] : offsets[place + 1]])
            similarities = (centroids.vectors[place] @ passage.T).amax(dim=1)
            added = weights[place] * similarities
            used = np.flatnonzero(centroids.token_ids[place] >= 0)
            pieces = knowledge.index.encoder.tokens(centroids.token_ids[place][used].tolist())
            columns = (
                values[used].tolist() for values in (centroids.sigma[place], weights[place], similarities, added)
            )
            found = [Reason(*one) for one in zip(pieces, *columns, strict=True)]
            reasons.append(tuple(sorted(found, key=lambda reason: -reason.contribution)))
    return reasons


def snippet(text: str) -> str:
    """The beginning of a text on one line, cut at a word."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET else flat[: _SNIPPET - 2].rsplit(" ", 1)[0] + " …"


def check_missing_file(path: Path) -> None:
    """Refuse a file that suggestions cannot be written to, before any work is done."""
    if path.suffix.lower() not in (".tsv", ".jsonl"):
        raise UsageError(
            f"{path}: suggestions are written as .tsv or .jsonl; judge them, and `colabel labels` makes labels of them"
        )
    if path.exists():
        raise UsageError(f"{path} exists and may hold judgements or notes; choose another name")


def write_missing(found: Sequence[MissingLabel], path: Path) -> None:
    """Write suggestions to a new file, whole or not at all; its name ends in .tsv or .jsonl."""
    check_missing_file(path)
    if path.suffix.lower() == ".jsonl":
        text = "".join(json.dumps(label.as_dict(), ensure_ascii=False) + "\n" for label in found)
    else:
        rows = [label.as_dict() | {"reasons": reason_text(label.reasons)} for label in found]
        lines = [[*_COLUMNS, "verdict"], *([*(_cell(row[name]) for name in _COLUMNS), ""] for row in rows)]
        text = "".join("\t".join(line) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _cell(value: Any) -> str:
    """A value in a file without quotes: any white space in a text becomes a space."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def reason_text(reasons: Sequence[Reason], most: int | None = None) -> str:
    """Tokens with what they added, such as ``glacier +1.20, ice +0.80``."""
    return ", ".join(f"{reason.token} {reason.contribution:+.2f}" for reason in reasons[:most])

"""The missing-label report: suspected positives with what a person needs to judge them, and why they are suspected."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from colabel.artefacts import write_text
from colabel.collective.expansion import Centroids, expansion_weights
from colabel.data import Dataset
from colabel.data.trec import qrel_lines
from colabel.errors import ArtefactError, ColabelError, UsageError
from colabel.labels.artefact import Labels
from colabel.labels.export import check_dataset
from colabel.labels.suspects import DEFAULT_ORDER, Suspect, find_suspects
from colabel.types import Qrel, Qrels

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

log = logging.getLogger(__name__)

_KINDS = (".tsv", ".jsonl", ".json", ".qrels")
_SNIPPET = 300
_BATCH = 256  # suspects explained at once


@dataclass(frozen=True)
class Reason:
    """What one expansion token added to a passage's teacher score: weight · max_j c·p_j, the weight being β·σ.

    ``weight`` is β·σ after ``collective.expansion_scale``; ``similarity`` is the maximum over the passage's tokens.
    """

    token: str
    sigma: float
    weight: float
    similarity: float
    contribution: float


@dataclass(frozen=True)
class MissingLabel:
    """A suspected positive as a person reviews it; reasons are by falling contribution."""

    query_id: str
    query: str
    passage_id: str
    title: str
    text: str
    teacher_score: float
    base_score: float
    margin: float
    rank: int
    value: float
    reasons: tuple[Reason, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types; the margin is None where the query's labelled passage was not scored."""
        return dataclasses.asdict(self) | {"margin": None if math.isnan(self.margin) else self.margin}


def missing_labels(
    labels: Labels,
    knowledge: Knowledge | None,
    dataset: Dataset,
    *,
    limit: int = 100,
    order: str = DEFAULT_ORDER,
    margin: float | None = None,
    temperature: float = 1.0,
) -> list[MissingLabel]:
    """The ``limit`` most suspect unlabelled passages of the dataset, best first, with their text and reasons.

    Orders and ``margin`` are explained in :mod:`colabel.labels.suspects`. Without knowledge there are no reasons.
    """
    check_dataset(labels, dataset)
    if knowledge is not None:
        check_knowledge(labels, knowledge)
    found = find_suspects(labels, dataset, limit=limit, order=order, margin=margin, temperature=temperature)
    origin = labels.origin()
    reasons = [()] * len(found) if knowledge is None else explain(knowledge, found, origin.beta, origin.scale)
    return [_readable(suspect, why, dataset) for suspect, why in zip(found, reasons, strict=True)]


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


def explain(knowledge: Knowledge, suspects: Sequence[Suspect], beta: float, scale: str) -> list[tuple[Reason, ...]]:
    """The expansion tokens of each suspect's query by what they add to the passage's score, largest first.

    With the collective teacher, φ and the contributions add up to the teacher score (Eq. 6).
    """
    reasons = []
    for start in range(0, len(suspects), _BATCH):
        batch = suspects[start : start + _BATCH]
        query_ids = [suspect.query_id for suspect in batch]
        centroids = knowledge.centroids(query_ids)
        lengths = (knowledge.queries.vectors(query_ids) != 0).any(dim=2).sum(dim=1)
        weights = expansion_weights(centroids.sigma, lengths, beta, scale)
        similarities = _similarities(knowledge, centroids, [suspect.row for suspect in batch])
        reasons += [
            _reasons(knowledge, centroids, place, weights[place], similarities[place]) for place in range(len(batch))
        ]
    return reasons


def _similarities(knowledge: Knowledge, centroids: Centroids, rows: Sequence[int]) -> torch.Tensor:
    """max_j c·p_j of each query's centroids with its passage, float32 [queries, centroids]."""
    vectors, offsets = knowledge.index.store.vectors(rows)
    best = []
    for place in range(len(rows)):
        passage = torch.from_numpy(vectors[offsets[place] : offsets[place + 1]])
        best.append((centroids.vectors[place] @ passage.T).amax(dim=1))
    return torch.stack(best)


def _reasons(
    knowledge: Knowledge, centroids: Centroids, place: int, weights: torch.Tensor, similarities: torch.Tensor
) -> tuple[Reason, ...]:
    used = [number for number, token in enumerate(centroids.token_ids[place].tolist()) if token >= 0]
    pieces = knowledge.index.encoder.tokens([int(centroids.token_ids[place, number]) for number in used])
    found = [
        Reason(
            token=piece,
            sigma=float(centroids.sigma[place, number]),
            weight=float(weights[number]),
            similarity=float(similarities[number]),
            contribution=float(weights[number] * similarities[number]),
        )
        for number, piece in zip(used, pieces, strict=True)
    ]
    return tuple(sorted(found, key=lambda reason: -reason.contribution))


def _readable(suspect: Suspect, reasons: tuple[Reason, ...], dataset: Dataset) -> MissingLabel:
    passage = dataset.passages[suspect.row]
    return MissingLabel(
        query_id=suspect.query_id,
        query=dataset.queries[suspect.query_id],
        passage_id=suspect.passage_id,
        title=passage.title,
        text=_snippet(passage.text),
        teacher_score=suspect.teacher_score,
        base_score=suspect.base_score,
        margin=suspect.margin,
        rank=suspect.rank,
        value=suspect.value,
        reasons=reasons,
    )


def _snippet(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET else flat[: _SNIPPET - 2].rsplit(" ", 1)[0] + " …"


def check_missing_file(path: Path | None, *, with_labels: bool = False) -> None:
    """Refuse a file that suggestions cannot be written to, before any work is done."""
    if path is not None and path.suffix.lower() not in _KINDS:
        raise UsageError(f"{path}: suggestions are written as .tsv, .jsonl, .json or .qrels; give a name that ends so")
    if with_labels and (path is None or path.suffix.lower() != ".qrels"):
        raise UsageError("visible labels can stand in a .qrels file only; give such a file as output")


def write_missing(found: Sequence[MissingLabel], path: Path, *, grade: int = 1, visible: Qrels | None = None) -> None:
    """Write suggestions to a file, whole or not at all; its name ends in .tsv, .jsonl, .json or .qrels.

    A .qrels file is a TREC label file in which every suggestion has ``grade``; with ``visible`` it starts with those
    labels, so that it can stand in for them.
    """
    check_missing_file(path, with_labels=visible is not None)
    kind = path.suffix.lower()
    if kind == ".qrels":
        suggested = (Qrel(label.query_id, label.passage_id, grade) for label in found)
        known = [
            Qrel(query, passage, value) for query, rels in (visible or {}).items() for passage, value in rels.items()
        ]
        text = "".join(qrel_lines([*known, *suggested]))
    elif kind == ".jsonl":
        text = "".join(json.dumps(label.as_dict(), ensure_ascii=False) + "\n" for label in found)
    elif kind == ".json":
        text = json.dumps([label.as_dict() for label in found], indent=2, ensure_ascii=False) + "\n"
    else:
        text = _tsv(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


_COLUMNS = (
    "query_id",
    "query",
    "passage_id",
    "title",
    "text",
    "teacher_score",
    "base_score",
    "margin",
    "rank",
    "value",
    "reasons",
)


def _tsv(found: Iterable[MissingLabel]) -> str:
    """A line per suggestion without quotes: any white space in a text becomes a space."""
    lines = ["\t".join(_COLUMNS)]
    for label in found:
        cells = label.as_dict() | {"reasons": reason_text(label.reasons)}
        lines.append("\t".join(_cell(cells[name]) for name in _COLUMNS))
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def reason_text(reasons: Sequence[Reason], most: int | None = None) -> str:
    """Tokens with what they added, such as ``glacier +1.20, ice +0.80``."""
    return ", ".join(f"{reason.token} {reason.contribution:+.2f}" for reason in reasons[:most])

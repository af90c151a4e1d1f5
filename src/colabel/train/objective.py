"""The loss module that the trainer calls: embed, score, look the target up, compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from colabel.encode.encoder import length_batches, stack
from colabel.teachers.protocol import Teacher
from colabel.train.distributed import from_all_processes, over_all_queries
from colabel.train.groups import Groups, KnownPositives
from colabel.train.losses import Outcome, batch_scores, distillation_loss, group_scores, hard_label_loss

_TOKENS_ON_CPU, _TOKENS_ON_GPU = 1024, 32_768  # that go through the model at once
_SCALED_GROUPS = 512  # from which a teacher's scale is computed
_FEWEST_NEGATIVES = 3  # of a group that says something of a scale


@dataclass
class Meter:
    """Counts since the last log line: of this process, except ``taught``, which counts queries of all processes."""

    steps: int = 0
    queries: int = 0
    taught: int = 0
    passages: int = 0
    entropy: float = 0.0
    teacher_seconds: float = 0.0

    def take(self) -> Meter:
        """A copy; the counts start again at 0."""
        taken = replace(self)
        vars(self).update(vars(Meter()))
        return taken


@dataclass(frozen=True)
class LossSettings:
    """How scores are compared with the target; the settings of the same names explain each.

    ``smoothing`` is ε of hard labels: this mass is spread evenly over all passages of the step, so that it is as
    strong as ε says whatever the size of a group.
    """

    scope: str = "group"
    temperature: float = 1.0
    teacher_temperature: float = 1.0
    floor: str = "none"
    hard_weight: float = 0.0
    hard_scope: str = "group"
    smoothing: float = 0.0


def target_name(teacher: Teacher | None, smoothing: float) -> str:
    """What logs and manifests call the target: the teacher's name, else 'hard' or, if smoothed, 'uniform'."""
    if teacher is not None:
        return teacher.name
    return "uniform" if smoothing else "hard"


class Objective(nn.Module):
    """What is minimised: hard labels, or KL(teacher ‖ student) with an optional hard-label term.

    Takes the features of B queries and of B·(1 + n) passages, and labels int64 [B, 2 + n]: query number and rows. With
    several processes the mean is over the taught queries of all of them, and in the scope ``batch`` every query is
    compared with the passages of all of them, so that the number of processes does not matter.
    """

    def __init__(self, model: Any, groups: Groups, teacher: Teacher | None, settings: LossSettings) -> None:
        super().__init__()
        self.model = model
        self.meter = Meter()
        self._teacher = teacher
        self._settings = settings
        self._query_ids: Sequence[str] = groups.candidates.query_ids
        self._known = KnownPositives(groups.candidates.labelled)

    def forward(self, features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """The loss of one batch: a scalar."""
        query_features, passage_features = features
        queries, query_mask = embed(self.model, query_features)
        passages, passage_mask = embed(self.model, passage_features)
        with torch.autocast(labels.device.type, enabled=False):  # sums of many maxima are too coarse in half precision
            vectors = queries.float(), query_mask, passages.float(), passage_mask
            pairs = _pairs(self._settings.scope, vectors, labels)
            outcome = over_all_queries(self.compare(*pairs))
            if self._settings.hard_weight and self._teacher is not None:
                if self._settings.hard_scope != self._settings.scope:
                    pairs = _pairs(self._settings.hard_scope, vectors, labels)
                loss = outcome.loss + self._settings.hard_weight * self._hard(*pairs).loss
                outcome = Outcome(loss, outcome.entropy, outcome.queries)
        self.meter.steps += 1
        self.meter.queries += len(queries)
        self.meter.passages += labels.shape[0] * (labels.shape[1] - 1)
        self.meter.taught += outcome.queries
        self.meter.entropy += float(outcome.entropy)
        return outcome.loss

    def compare(self, scores: Tensor, queries: Tensor, rows: Tensor, positive: Tensor) -> Outcome:
        """The loss of scores [B, P] of passage rows [B, P]; ``positive`` [B] is each query's own column."""
        if self._teacher is None:
            return self._hard(scores, queries, rows, positive)
        asked = [self._query_ids[number] for number in queries.tolist()]
        started = time.perf_counter()
        teacher = self._teacher.scores(asked, np.ascontiguousarray(rows.cpu().numpy()))
        self.meter.teacher_seconds += time.perf_counter() - started
        how = self._settings
        return distillation_loss(
            scores,
            torch.from_numpy(teacher).to(scores.device),
            positive,
            self._excluded(scores, queries, rows, positive),
            temperature=how.temperature,
            teacher_temperature=how.teacher_temperature,
            floor=how.floor,
        )

    def _hard(self, scores: Tensor, queries: Tensor, rows: Tensor, positive: Tensor) -> Outcome:
        how, excluded = self._settings, self._excluded(scores, queries, rows, positive)
        return hard_label_loss(scores, positive, excluded, temperature=how.temperature, smoothing=how.smoothing)

    def _excluded(self, scores: Tensor, queries: Tensor, rows: Tensor, positive: Tensor) -> Tensor:
        """Bool [B, P]: passages that a query's labels call relevant beside its own positive."""
        left_out = self._known.excluded(*(values.cpu().numpy() for values in (queries, rows, positive)))
        return torch.from_numpy(left_out).to(scores.device)


def _pairs(
    scope: str, vectors: tuple[Tensor, Tensor, Tensor, Tensor], labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores [B, P], query numbers [B], passage rows [B, P] and each query's own column [B] in a scope."""
    queries, query_mask, passages, passage_mask = vectors
    rows = labels[:, 1:]
    if scope == "group":
        positive = torch.zeros(len(queries), dtype=torch.int64, device=labels.device)
        return group_scores(queries, query_mask, passages, passage_mask), labels[:, 0], rows, positive
    passages, passage_mask, rows, first = from_all_processes(passages, passage_mask, rows)
    scores = batch_scores(queries, query_mask, passages, passage_mask)
    positive = first + torch.arange(len(queries), device=labels.device) * (labels.shape[1] - 1)
    return scores, labels[:, 0], rows.reshape(1, -1).expand(len(queries), -1), positive


def teacher_scale(groups: Groups, teacher: Teacher) -> float:
    """What to multiply a teacher's scores by: median spread of the ranking's scores over that of the teacher's.

    Cross-encoder logits, φ and the collective score differ by factors in how far apart they put a query's candidates. A
    temperature that is right for one makes another's target one-hot or flat, and comparing teachers would compare that.

    The spread is the standard deviation over a group's negatives: the labelled passage is left out, since some teachers
    are built from it. One number for all queries, so that a teacher may be surer of one query than of another. 1 where
    nothing can be compared.
    """
    count = min(len(groups), _SCALED_GROUPS)
    numbers = groups.queries[:count].tolist()
    rows = groups.rows[:count].astype(np.int64)
    taught = teacher.scores([groups.candidates.query_ids[number] for number in numbers], rows)
    ours, theirs = [], []
    for place, number in enumerate(numbers):
        known = dict(zip(*(part.tolist() for part in groups.candidates.ranked(number)), strict=True))
        base = np.array([known.get(row, np.nan) for row in rows[place, 1:].tolist()])
        both = np.isfinite(base) & np.isfinite(taught[place, 1:])
        if both.sum() >= _FEWEST_NEGATIVES:
            ours.append(float(base[both].std()))
            theirs.append(float(taught[place, 1:][both].std()))
    if not ours or not np.median(theirs) > 0.0 or not np.median(ours) > 0.0:
        return 1.0
    return float(np.median(ours) / np.median(theirs))


def embed(model: Any, features: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Token vectors [texts, length, D] and their scoring mask [texts, length], in the order of the texts.

    Texts of similar length go through the model together, so that a short one is not padded to the longest. The
    mask keeps its type: a float mask holds weights.
    """
    lengths = _lengths(features)
    budget = _TOKENS_ON_CPU if features["input_ids"].device.type == "cpu" else _TOKENS_ON_GPU
    order: list[int] = []
    vectors, masks = [], []
    for rows in length_batches(lengths, budget):
        output = model(_select(features, rows, max(lengths[row] for row in rows)), task=features["task"])
        vectors.append(output["token_embeddings"])
        masks.append(output["attention_mask"])
        order += rows
    back = torch.tensor(order, device=features["input_ids"].device).argsort()
    return stack(vectors)[back], stack(masks)[back]


def _lengths(features: dict[str, Any]) -> list[int]:
    """Tokens of each text, whatever side padding stands on; [MASK] tokens of an expanded query count."""
    taken = features["attention_mask"].bool()
    if "query_expansion_positions" in features:
        taken = taken | features["query_expansion_positions"].bool()
    if not bool(taken[:, 0].all()):  # padded on the left: nothing can be cut off behind
        return [int(taken.shape[1])] * len(taken)
    places = torch.arange(1, taken.shape[1] + 1, device=taken.device)
    return [max(1, int(length)) for length in (taken * places).amax(dim=1).tolist()]


def _select(features: dict[str, Any], rows: list[int], length: int) -> dict[str, Any]:
    """The features of some texts, cut to their longest."""
    index = torch.tensor(rows, device=features["input_ids"].device)
    width = features["input_ids"].shape[1]
    chosen = {}
    for name, value in features.items():
        if isinstance(value, Tensor) and value.dim() >= 1 and len(value) == len(features["input_ids"]):
            part = value[index]
            chosen[name] = part[:, :length] if part.dim() >= 2 and part.shape[1] == width else part
        else:
            chosen[name] = value
    return chosen

"""The loss module that the trainer calls: embed, score, look the target up, compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from colabel.train.forward import embed
from colabel.train.gathering import from_all_processes, over_all_queries
from colabel.train.groups import Groups
from colabel.train.known import KnownPositives
from colabel.train.losses import Outcome, batch_scores, distillation_loss, group_scores, hard_label_loss
from colabel.train.targets import HardLabels, Target


@dataclass
class Meter:
    """What happened since the last log line: in this process, but ``taught`` counts the queries of all."""

    steps: int = 0
    queries: int = 0
    taught: int = 0
    passages: int = 0
    entropy: float = 0.0
    teacher_seconds: float = 0.0

    def take(self) -> Meter:
        """A copy, and start again."""
        taken = replace(self)
        self.steps = self.queries = self.taught = self.passages = 0
        self.entropy = self.teacher_seconds = 0.0
        return taken


@dataclass(frozen=True)
class Comparison:
    """How scores are compared with the target; the settings of the same names explain each."""

    scope: str = "group"
    temperature: float = 1.0
    teacher_temperature: float = 1.0
    floor: str = "none"
    hard_weight: float = 0.0
    hard_scope: str = "group"


class Objective(nn.Module):
    """What is minimised: hard labels, or KL(teacher ‖ student) with an optional hard-label term.

    Takes the features of B queries and of B·(1 + n) passages, and labels int64 [B, 2 + n]: query number and rows. With
    several processes the mean is over the taught queries of all of them, and in the scope ``batch`` every query is
    compared with the passages of all of them, so that the number of processes does not matter.
    """

    def __init__(self, model: Any, groups: Groups, target: Target, comparison: Comparison) -> None:
        super().__init__()
        self.model = model
        self.meter = Meter()
        self._target = target
        self._comparison = comparison
        self._query_ids: Sequence[str] = groups.pool.query_ids
        self._known = KnownPositives(groups.pool.positives)

    def forward(self, features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """The loss of one batch: a scalar."""
        query_features, passage_features = features
        queries, query_mask = embed(self.model, query_features)
        passages, passage_mask = embed(self.model, passage_features)
        with torch.autocast(labels.device.type, enabled=False):  # sums of many maxima are too coarse in half precision
            vectors = queries.float(), query_mask, passages.float(), passage_mask
            pairs = _pairs(self._comparison.scope, vectors, labels)
            outcome = over_all_queries(self.compare(*pairs))
            if self._comparison.hard_weight and not isinstance(self._target, HardLabels):
                if self._comparison.hard_scope != self._comparison.scope:
                    pairs = _pairs(self._comparison.hard_scope, vectors, labels)
                loss = outcome.loss + self._comparison.hard_weight * self._hard(*pairs).loss
                outcome = Outcome(loss, outcome.entropy, outcome.rows)
        self.meter.steps += 1
        self.meter.queries += len(queries)
        self.meter.passages += labels.shape[0] * (labels.shape[1] - 1)
        self.meter.taught += outcome.rows
        self.meter.entropy += float(outcome.entropy)
        return outcome.loss

    def compare(self, scores: Tensor, queries: Tensor, rows: Tensor, positive: Tensor) -> Outcome:
        """The loss of scores [B, P] of passage rows [B, P]; ``positive`` [B] is each query's own column."""
        numbers, row_numbers = queries.cpu().numpy(), np.ascontiguousarray(rows.cpu().numpy())
        started = time.perf_counter()
        teacher = self._target.scores([self._query_ids[number] for number in numbers.tolist()], row_numbers)
        self.meter.teacher_seconds += time.perf_counter() - started
        how = self._comparison
        if teacher is None:
            return self._hard(scores, queries, rows, positive)
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
        smoothing = self._target.smoothing if isinstance(self._target, HardLabels) else 0.0
        excluded = self._excluded(scores, queries, rows, positive)
        temperature = self._comparison.temperature
        return hard_label_loss(scores, positive, excluded, temperature=temperature, smoothing=smoothing)

    def _excluded(self, scores: Tensor, queries: Tensor, rows: Tensor, positive: Tensor) -> Tensor:
        """Bool [B, P]: passages that a query's labels call relevant beside its own positive."""
        numbers, row_numbers = queries.cpu().numpy(), np.ascontiguousarray(rows.cpu().numpy())
        left_out = self._known.excluded(numbers, row_numbers, positive.cpu().numpy())
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

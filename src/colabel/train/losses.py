"""What a model is trained to do: pure functions on tensors.

A batch holds B queries with one group of passages each: the query's positive first, then its n negatives. The scope
``group`` compares a query with its own group, [B, 1 + n]; the scope ``batch`` with all passages, [B, B·(1 + n)].

Some pairs take no part in a query's distributions, neither rewarded nor punished (``excluded``, bool like the scores):

- another copy of the query's positive, and other passages that its visible labels call relevant;
- in distillation, pairs that the teacher did not score (NaN).

A teacher's −∞ is a score: probability 0, and the student is asked to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SCORE_ELEMENTS = 16_000_000
"""Similarities of token pairs held at once; their maxima and nothing else are kept for the backward pass."""


@dataclass(frozen=True)
class Outcome:
    """What the loss was, and how sharp its target: both scalars. ``queries`` counts those that took part."""

    loss: Tensor
    entropy: Tensor
    queries: int


def batch_scores(queries: Tensor, query_mask: Tensor, passages: Tensor, passage_mask: Tensor) -> Tensor:
    """φ of every query with every passage of the batch: s[b, p] = Σ_i w_bi · max_j q_bi·p_pj.

    Args:
        queries: [B, Lq, D].
        query_mask: [B, Lq], bool, or float: the weight w of each query token.
        passages: [P, Lp, D].
        passage_mask: [P, Lp], bool or float: a token of weight 0 is left out of the maximum, as in
            sentence-transformers' own MaxSim.

    Returns:
        [B, P] in the type of the vectors; −∞ for passages without a token.
    """

    def score(some: slice) -> Tensor:
        similarities = torch.einsum("bid,pjd->bpij", queries[some], passages)
        return _maxsim(similarities, query_mask[some, None, :], passage_mask[None, :, None, :])

    return _in_steps(score, len(queries), queries.shape[1] * passages.shape[0] * passages.shape[1])


def group_scores(queries: Tensor, query_mask: Tensor, passages: Tensor, passage_mask: Tensor) -> Tensor:
    """φ of every query with the passages of its own group: [B, P / B]; arguments as in :func:`batch_scores`.

    Passages of one group follow each other.
    """
    size = len(passages) // len(queries)
    grouped = passages.reshape(len(queries), size, *passages.shape[1:])
    mask = passage_mask.reshape(len(queries), size, -1)

    def score(some: slice) -> Tensor:
        similarities = torch.einsum("bid,bnjd->bnij", queries[some], grouped[some])
        return _maxsim(similarities, query_mask[some, None, :], mask[some, :, None, :])

    return _in_steps(score, len(queries), queries.shape[1] * size * passages.shape[1])


def _in_steps(score: Callable[[slice], Tensor], queries: int, elements: int) -> Tensor:
    """Scores of as many queries at once as memory holds, each with so many similarities."""
    step = max(1, SCORE_ELEMENTS // max(1, elements))
    return torch.cat([score(slice(start, start + step)) for start in range(0, queries, step)])


def _maxsim(similarities: Tensor, weights: Tensor, passage_mask: Tensor) -> Tensor:
    """Σ_i w_i · max_j over the last two axes of ``similarities`` [b, p, i, j]; both masks broadcast."""
    kept = passage_mask.bool()
    best = similarities.masked_fill(~kept, -torch.inf).max(dim=-1).values  # amax would keep all similarities
    empty = ~kept.any(dim=-1)
    scores = (best.masked_fill(empty, 0.0) * weights).sum(dim=-1)
    return scores.masked_fill(empty.squeeze(-1).expand_as(scores), -torch.inf)


def hard_label_loss(
    scores: Tensor, positive: Tensor, excluded: Tensor, *, temperature: float = 1.0, smoothing: float = 0.0
) -> Outcome:
    """Cross-entropy with the labelled passage, Eq. (5): −ln softmax(s / T)[positive], mean over queries.

    Args:
        scores: [B, P].
        positive: int64 [B], the column of each query's positive.
        excluded: bool [B, P], pairs that take no part.
        temperature: T.
        smoothing: ε: the target is 1 − ε on the positive, and ε spread evenly over all passages that take part.
    """
    scores, taking = _taking_part(scores, positive, excluded)
    logs = _log_softmax(scores / temperature, taking)
    hot = torch.zeros_like(logs).scatter_(1, positive[:, None], 1.0)
    target = (1 - smoothing) * hot + smoothing * taking / taking.sum(dim=1, keepdim=True)
    loss = -(target * logs.masked_fill(~taking, 0.0)).sum(dim=1).mean()
    return Outcome(loss, _entropy(target).mean(), len(scores))


def distillation_loss(
    scores: Tensor,
    teacher: Tensor,
    positive: Tensor,
    excluded: Tensor,
    *,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    floor: str = "none",
) -> Outcome:
    """KL(teacher ‖ student) between softmax(t / T_t) and softmax(s / T_s), mean over queries.

    Args:
        scores: [B, P], the student's φ.
        teacher: [B, P], the teacher's scores; NaN where it has none.
        positive: int64 [B], the column of each query's labelled positive.
        excluded: bool [B, P], pairs that take no part.
        temperature: T_s.
        teacher_temperature: T_t.
        floor: what the label says beside the teacher. ``raise``: the positive's teacher score is at least its row's
            maximum; ``none``: the teacher alone decides. Other labelled passages are excluded, so there is nothing
            else to raise. A positive that the teacher did not score gets the maximum as well.

    A query of which the teacher scored fewer than two passages teaches nothing and is left out of the mean.
    """
    teacher = teacher.to(scores.dtype)
    if floor == "raise":
        teacher = _with_floor(teacher, positive, excluded)
    taking = ~(excluded | teacher.isnan() | scores.isneginf())
    best = teacher.masked_fill(~taking, -torch.inf).amax(dim=1)
    useful = (taking.sum(dim=1) > 1) & best.isfinite()
    if not bool(useful.any()):
        return Outcome(scores.nan_to_num(neginf=0.0).sum() * 0.0, scores.new_zeros(()), 0)
    scores, teacher, taking = scores[useful], teacher[useful], taking[useful]
    logs = _log_softmax(scores / temperature, taking)
    target_logs = _log_softmax(teacher.detach() / teacher_temperature, taking)
    target = target_logs.exp()
    gaps = (target_logs - logs.masked_fill(~taking, 0.0)).masked_fill(target == 0, 0.0)
    return Outcome((target * gaps).sum(dim=1).mean(), _entropy(target).mean(), len(scores))


def _with_floor(teacher: Tensor, positive: Tensor, excluded: Tensor) -> Tensor:
    """Teacher scores with the positive's raised to the maximum of the others."""
    column = positive[:, None]
    own = teacher.gather(1, column).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
    others = teacher.masked_fill(excluded | teacher.isnan(), -torch.inf).scatter(1, column, -torch.inf)
    best = others.amax(dim=1, keepdim=True)
    return teacher.scatter(1, column, torch.maximum(own, best))


def _taking_part(scores: Tensor, positive: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and bool [B, P] of what takes part: the positive always, a passage without tokens never else."""
    own = torch.zeros_like(excluded).scatter_(1, positive[:, None], True)
    taking = own | ~(excluded | scores.isneginf())
    return scores.masked_fill(own & scores.isneginf(), 0.0), taking


def _log_softmax(values: Tensor, taking: Tensor) -> Tensor:
    """ln softmax over what takes part; −∞ elsewhere. No gradient flows to what is left out."""
    return torch.log_softmax(values.masked_fill(~taking, -torch.inf), dim=1)


def _entropy(probabilities: Tensor) -> Tensor:
    """−Σ p·ln p of each row, in nats: [B]."""
    return -torch.xlogy(probabilities, probabilities).sum(dim=1).detach()

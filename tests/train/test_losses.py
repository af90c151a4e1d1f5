"""Each loss against a reference of plain loops, in values and in gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sentence_transformers.multi_vector_encoder.scoring import colbert_kd_scores
from sentence_transformers.util import maxsim
from torch import Tensor

from colabel.train import losses
from colabel.train.groups import KnownPositives
from colabel.train.losses import batch_scores, distillation_loss, group_scores, hard_label_loss

INF = math.inf


def vectors(queries: int = 2, passages: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit vectors in float64; a query of weights, passages of different lengths."""
    random = torch.Generator().manual_seed(seed)
    q = torch.nn.functional.normalize(torch.randn(queries, 3, 5, generator=random, dtype=torch.float64), dim=-1)
    p = torch.nn.functional.normalize(torch.randn(passages, 4, 5, generator=random, dtype=torch.float64), dim=-1)
    weights = torch.tensor([[1.0, 0.5, 2.0], [1.0, 1.0, 0.0]], dtype=torch.float64)[:queries]
    lengths = torch.tensor([4, 2, 3, 1])[:passages]
    return q, weights, p, torch.arange(4)[None, :] < lengths[:, None]


def slow_score(query: Tensor, weights: Tensor, passage: Tensor, mask: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for token, weight in zip(query, weights, strict=True):
        products = [token @ other for other, kept in zip(passage, mask, strict=True) if kept]
        total = total + weight * max(products, key=lambda product: float(product.detach()))
    return total


def slow_scores(q: Tensor, weights: Tensor, p: Tensor, mask: Tensor) -> Tensor:
    rows = [[slow_score(q[b], weights[b], p[c], mask[c]) for c in range(len(p))] for b in range(len(q))]
    return torch.stack([torch.stack(row) for row in rows])


def slow_log_softmax(values: list[Tensor]) -> list[Tensor]:
    total = torch.stack([value.exp() for value in values]).sum().log()
    return [value - total for value in values]


def slow_hard(scores: Tensor, positive: list[int], excluded: Tensor, temperature: float, smoothing: float) -> Tensor:
    losses = []
    for b, own in enumerate(positive):
        columns = [c for c in range(scores.shape[1]) if not excluded[b, c]]
        logs = slow_log_softmax([scores[b, c] / temperature for c in columns])
        targets = [(1 - smoothing) * (c == own) + smoothing / len(columns) for c in columns]
        losses.append(-sum((t * log for t, log in zip(targets, logs, strict=True)), start=torch.zeros(())))
    return torch.stack(losses).mean()


def slow_distillation(
    scores: Tensor,
    teacher: list[list[float]],
    positive: list[int],
    excluded: Tensor,
    t_s: float,
    t_t: float,
    *,
    floor: str,
) -> Tensor:
    losses = []
    for b, own in enumerate(positive):
        known = [c for c in range(scores.shape[1]) if not excluded[b, c] and not math.isnan(teacher[b][c])]
        values = {c: teacher[b][c] for c in known}
        if floor == "raise":
            values[own] = max(values.values())
            known = sorted(values)
        if len(known) < 2:
            continue
        powers = {c: math.exp(values[c] / t_t) for c in known}
        targets = {c: powers[c] / sum(powers.values()) for c in known}
        logs = slow_log_softmax([scores[b, c] / t_s for c in known])
        parts = [targets[c] * (math.log(targets[c]) - log) for c, log in zip(known, logs, strict=True) if targets[c]]
        losses.append(torch.stack(parts).sum())
    return torch.stack(losses).mean()


def gradients(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs, retain_graph=True))


@pytest.mark.parametrize("elements", [16_000_000, 1])
def test_scores_and_their_gradients(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    """Also in chunks of one query, as a batch that does not fit the memory bound is computed."""
    monkeypatch.setattr(losses, "SCORE_ELEMENTS", elements)
    q, weights, p, mask = vectors()
    q.requires_grad_()
    p.requires_grad_()
    fast, slow = batch_scores(q, weights, p, mask), slow_scores(q, weights, p, mask)
    assert torch.allclose(fast, slow, atol=1e-12)
    pull = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(2, 4)
    for ours, theirs in zip(gradients((fast * pull).sum(), q, p), gradients((slow * pull).sum(), q, p), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    own = group_scores(q, weights, p, mask)
    assert torch.equal(own, torch.stack([fast[0, :2], fast[1, 2:]]))
    assert torch.autograd.gradcheck(lambda a, b: batch_scores(a, weights, b, mask), (q, p), fast_mode=True)
    assert torch.autograd.gradcheck(lambda a, b: group_scores(a, weights, b, mask), (q, p), fast_mode=True)


def test_group_scores_equal_sentence_transformers() -> None:
    """Their n-way scores, with padding on both sides and a passage cut to one token."""
    random = torch.Generator().manual_seed(1)
    queries, passages = torch.randn(3, 5, 8, generator=random), torch.randn(12, 7, 8, generator=random)
    query_mask = torch.arange(5) < torch.tensor([[5], [3], [1]])
    passage_mask = torch.arange(7) < torch.tensor([[7, 1, 4, 6, 2, 7, 3, 5, 7, 1, 6, 4]]).T
    theirs = colbert_kd_scores(queries, passages.view(3, 4, 7, 8), query_mask, passage_mask.view(3, 4, 7))
    ours = group_scores(queries, query_mask, passages, passage_mask)
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert torch.allclose(batch_scores(queries, query_mask, passages, passage_mask)[1, 4:8], theirs[1], atol=1e-6)


def test_float_masks_are_weights_as_in_sentence_transformers() -> None:
    q, weights, p, mask = vectors()
    theirs = maxsim(q, p, a_mask=weights, b_mask=mask)
    assert torch.allclose(batch_scores(q, weights, p, mask), theirs.double(), atol=1e-6)
    plain = batch_scores(q, weights.bool(), p, mask)
    assert not torch.allclose(plain, batch_scores(q, weights, p, mask))
    assert torch.allclose(batch_scores(q, 3 * weights, p, mask), 3 * batch_scores(q, weights, p, mask))
    assert torch.equal(batch_scores(q, weights, p, mask.double() * 0.5), batch_scores(q, weights, p, mask))


def test_a_passage_without_tokens_scores_minus_infinity_and_breaks_nothing() -> None:
    q, weights, p, mask = vectors()
    mask = mask.clone()
    mask[1] = False
    q.requires_grad_()
    scores = batch_scores(q, weights, p, mask)
    assert scores[:, 1].tolist() == [-INF, -INF]
    none = torch.zeros(2, 4, dtype=torch.bool)
    for positive in ([0, 2], [1, 2]):
        outcome = hard_label_loss(scores, torch.tensor(positive), none)
        (gradient,) = gradients(outcome.loss, q)
        assert outcome.loss.isfinite()
        assert gradient.isfinite().all()
    taught = distillation_loss(scores, torch.randn(2, 4), torch.tensor([0, 2]), none)
    assert taught.loss.isfinite()


EXCLUDED = torch.tensor([[False, False, True, False], [False, True, False, False]])


@pytest.mark.parametrize(("temperature", "smoothing"), [(1.0, 0.0), (0.25, 0.0), (0.5, 0.3)])
def test_hard_labels(temperature: float, smoothing: float) -> None:
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([0, 2])

    def ours(values: Tensor) -> Tensor:
        return hard_label_loss(values, positive, EXCLUDED, temperature=temperature, smoothing=smoothing).loss

    slow = slow_hard(scores, [0, 2], EXCLUDED, temperature, smoothing)
    assert torch.allclose(ours(scores), slow.double(), atol=1e-12)
    mine, theirs = gradients(ours(scores), scores), gradients(slow, scores)
    assert torch.allclose(mine[0], theirs[0], atol=1e-7)
    assert mine[0][EXCLUDED].tolist() == [0.0, 0.0], "what is left out is neither rewarded nor punished"
    assert torch.autograd.gradcheck(ours, (scores,))


def test_hard_labels_are_cross_entropy_where_nothing_is_left_out() -> None:
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    positive = torch.tensor([0, 2, 4])
    none = torch.zeros(3, 6, dtype=torch.bool)
    ours = hard_label_loss(scores, positive, none, temperature=0.5).loss
    assert torch.allclose(ours, torch.nn.functional.cross_entropy(scores / 0.5, positive))
    smooth = hard_label_loss(scores, positive, none, smoothing=0.2)
    assert torch.allclose(smooth.loss, torch.nn.functional.cross_entropy(scores, positive, label_smoothing=0.2))
    assert float(smooth.entropy) > float(hard_label_loss(scores, positive, none).entropy) == 0.0


@pytest.mark.parametrize("floor", ["none", "raise"])
@pytest.mark.parametrize(("t_s", "t_t"), [(1.0, 1.0), (0.5, 0.125), (2.0, 0.7)])
def test_distillation(floor: str, t_s: float, t_t: float) -> None:
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    teacher = [[0.3, 0.9, 5.0, math.nan], [0.1, 9.0, -0.4, 0.8]]
    positive = torch.tensor([0, 2])

    def ours(values: Tensor) -> Tensor:
        given = torch.tensor(teacher, dtype=torch.float64)
        return distillation_loss(
            values, given, positive, EXCLUDED, temperature=t_s, teacher_temperature=t_t, floor=floor
        ).loss

    slow = slow_distillation(scores, teacher, [0, 2], EXCLUDED, t_s, t_t, floor=floor)
    assert torch.allclose(ours(scores), slow, atol=1e-12)
    mine, theirs = gradients(ours(scores), scores), gradients(slow, scores)
    assert torch.allclose(mine[0], theirs[0], atol=1e-12)
    assert mine[0][0, 3] == 0.0, "a pair that the teacher did not score"
    assert mine[0][EXCLUDED].tolist() == [0.0, 0.0]
    assert torch.autograd.gradcheck(ours, (scores,))


def test_the_floor_raises_the_labelled_passage_alone() -> None:
    scores = torch.zeros(1, 3)
    teacher = torch.tensor([[1.0, 4.0, 2.0]])
    none = torch.zeros(1, 3, dtype=torch.bool)
    before = distillation_loss(scores, teacher, torch.tensor([0]), none)
    after = distillation_loss(scores, teacher, torch.tensor([0]), none, floor="raise")
    raised = distillation_loss(scores, torch.tensor([[4.0, 4.0, 2.0]]), torch.tensor([0]), none)
    assert torch.allclose(after.loss, raised.loss)
    assert float(after.entropy) > float(before.entropy)
    unscored = torch.tensor([[math.nan, 4.0, 2.0]])
    assert torch.allclose(distillation_loss(scores, unscored, torch.tensor([0]), none, floor="raise").loss, raised.loss)


def test_a_teacher_that_says_no_and_one_that_says_nothing() -> None:
    scores = torch.tensor([[1.0, 2.0], [0.0, 1.0]], requires_grad=True)
    none = torch.zeros(2, 2, dtype=torch.bool)
    positive = torch.tensor([0, 0])
    no = distillation_loss(scores, torch.tensor([[1.0, -INF], [math.nan, 1.0]]), positive, none)
    assert no.queries == 1, "one scored passage teaches no contrast"
    assert torch.allclose(no.loss, -torch.log_softmax(scores[0], 0)[0])
    nothing = distillation_loss(scores, torch.full((2, 2), math.nan), positive, none)
    assert (nothing.queries, float(nothing.loss.detach())) == (0, 0.0)
    nothing.loss.backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]], "the trainer can call backward all the same"


def test_equal_scores_and_temperatures_have_no_loss_and_no_gradient() -> None:
    scores = torch.randn(4, 8, generator=torch.Generator().manual_seed(4), requires_grad=True)
    none = torch.zeros(4, 8, dtype=torch.bool)
    positive = torch.zeros(4, dtype=torch.int64)
    same = distillation_loss(scores, scores.detach(), positive, none, temperature=0.3, teacher_temperature=0.3)
    assert abs(float(same.loss.detach())) < 1e-6
    assert float(gradients(same.loss, scores)[0].abs().max()) < 1e-6
    sharper = distillation_loss(scores, scores.detach(), positive, none, temperature=1.0, teacher_temperature=0.3)
    assert float(sharper.loss.detach()) > 1e-2


def test_what_the_labels_exclude() -> None:
    known = KnownPositives([np.array([7, 3]), np.array([5]), np.array([], dtype=np.int64)])
    rows = np.array([[7, 1, 5, 7, 3, 2]] * 3)
    left_out = known.excluded(np.array([0, 1, 2]), rows, np.array([0, 2, 5]))
    assert left_out.tolist() == [
        [False, False, False, True, True, False],  # another copy of its positive 7, and 3, which is relevant as well
        [False, False, False, False, False, False],
        [False, False, False, False, False, False],
    ]

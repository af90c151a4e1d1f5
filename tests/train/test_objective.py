from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from colabel import EncoderSettings, build_index, collect
from colabel.encode.colbert import load_checkpoint
from colabel.teachers import SelfTeacher
from colabel.teachers.protocol import Knows
from colabel.train import Groups, candidates_from_ranking, draw_groups
from colabel.train.groups import GroupTexts, collator_for
from colabel.train.losses import batch_scores
from colabel.train.objective import LossSettings, Objective
from tests.train.small import ENCODER, Overlap, Small


class Itself:
    """φ of a model as its own teacher, from the vectors that encoding gives."""

    name = "itself"
    knows: Knows = "any"
    fingerprint = "itself"

    def __init__(self, small: Small, model: Any) -> None:
        self._dataset = small.dataset
        self._model = model

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        texts = [self._dataset.queries[query_id] for query_id in query_ids]
        queries = self._model.encode_query(texts, show_progress_bar=False, convert_to_numpy=False)
        found = []
        for query, line in zip(queries, rows.tolist(), strict=True):
            passages = [self._dataset.passages[row].full_text for row in line]
            vectors = self._model.encode_document(passages, show_progress_bar=False, convert_to_numpy=False)
            found.append([float((query @ passage.T).max(dim=1).values.sum()) for passage in vectors])
        return np.array(found, dtype=np.float32)


@pytest.fixture(scope="module")
def groups(small: Small) -> Groups:
    return draw_groups(candidates_from_ranking(small.dataset, small.train, depth=20), count=12, size=3, seed=0)


@pytest.fixture
def model(small: Small) -> Any:
    return load_checkpoint(str(small.encoder), "cpu")


def loss_of(
    objective: Objective, small: Small, groups: Groups, numbers: Sequence[int] = range(4)
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of some groups, and the length of its gradient."""
    texts = GroupTexts(small.dataset, groups)
    batch = collator_for(objective.model)([texts[number] for number in numbers])
    features = [
        {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(f"{column}_")}
        for column in ("query", "passage")
    ]
    objective.model.train()
    objective.model.zero_grad()
    loss = objective(features, batch["label"])
    loss.backward()
    norms = [parameter.grad.norm() for parameter in objective.model.parameters() if parameter.grad is not None]
    return loss.detach(), torch.stack(norms).norm()


def test_stored_vectors_teach_what_an_online_teacher_would_and_ask_no_model(
    small: Small, groups: Groups, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EncoderSettings(model=str(small.encoder), device="cpu", **ENCODER)
    index = build_index(small.dataset, tmp_path / "index", encoder=settings)
    knowledge = collect(small.dataset, index, tmp_path / "knowledge", depth=10)
    stored = SelfTeacher(index, knowledge.queries)
    online = Itself(small, load_checkpoint(str(small.encoder), "cpu"))
    query_ids, rows = [f"q{number}" for number in range(10)], np.tile(np.arange(40), (10, 1))
    for temperature in (0.25, 1.0):
        targets = [
            torch.softmax(torch.from_numpy(one.scores(query_ids, rows)) / temperature, dim=1)
            for one in (stored, online)
        ]
        assert float((targets[0] - targets[1]).abs().max()) < 2e-3
    equal = LossSettings(scope="batch", temperature=0.5, teacher_temperature=0.25)
    theirs, _ = loss_of(Objective(model, groups, online, equal), small, groups)
    original, passes = type(model).forward, []

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        passes.append(self)
        return original(self, *arguments, **named)

    monkeypatch.setattr(type(model), "forward", counted)
    ours, _ = loss_of(Objective(model, groups, stored, equal), small, groups)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-3)
    assert passes, "the student's own"
    assert all(one is model for one in passes), "and no other"


@pytest.mark.parametrize("scope", ["group", "batch"])
def test_self_distillation_from_its_own_weights_starts_at_no_loss(
    small: Small, groups: Groups, model: Any, scope: str
) -> None:
    teacher = Itself(small, load_checkpoint(str(small.encoder), "cpu"))
    equal = LossSettings(scope=scope, temperature=0.5, teacher_temperature=0.5)
    loss, length = loss_of(Objective(model, groups, teacher, equal), small, groups)
    assert abs(float(loss)) < 1e-6
    assert float(length) < 1e-4
    for other in (
        LossSettings(scope=scope, temperature=0.5, teacher_temperature=0.25),
        LossSettings(scope=scope, temperature=0.5, teacher_temperature=0.5, floor="raise"),
        LossSettings(scope=scope, temperature=0.5, teacher_temperature=0.5, hard_weight=0.5),
    ):
        loss, length = loss_of(Objective(model, groups, teacher, other), small, groups)
        assert float(loss) > 1e-3
        assert float(length) > 1e-2


def test_hard_labels_over_the_whole_batch_are_equation_5(small: Small, groups: Groups, model: Any) -> None:
    """Softmax over B·(1 + n), worked out from encode_query and encode_document."""
    comparison = LossSettings(scope="batch", temperature=0.5)
    loss, _ = loss_of(Objective(model, groups, None, comparison), small, groups)
    rows = groups.rows[:4].reshape(-1)
    query_ids = [groups.candidates.query_ids[number] for number in groups.queries[:4].tolist()]
    model.eval()
    scores = Itself(small, model).scores(query_ids, np.tile(rows, (4, 1)).astype(np.int64)) / 0.5
    expected = []
    for place, query in enumerate(groups.queries[:4].tolist()):
        known = set(groups.candidates.positives[query].tolist())
        others = [column for column, row in enumerate(rows.tolist()) if row not in known]
        powers = np.exp(scores[place, [3 * place, *others]].astype(np.float64))
        expected.append(-np.log(powers[0] / powers.sum()))
    assert float(loss) == pytest.approx(np.mean(expected), abs=1e-4)


def test_a_passage_that_is_relevant_to_two_queries_punishes_neither(small: Small, groups: Groups, model: Any) -> None:
    """Row 0 is relevant to query 0, and drawn as a negative of another: its column is left out for query 0."""
    rows = groups.rows[:2].copy()
    queries = groups.queries[:2].copy()
    queries[0], rows[0] = 0, [1, 20, 21]
    queries[1], rows[1] = 1, [3, 0, 22]
    both = Groups(queries, rows, 0, groups.candidates, "made")
    objective = Objective(model, both, None, LossSettings(scope="batch"))
    scores = torch.zeros(2, 6, requires_grad=True)
    flat = torch.tensor(rows.reshape(1, -1)).expand(2, -1)
    outcome = objective.compare(scores, torch.tensor(queries).long(), flat.long(), torch.tensor([0, 3]))
    outcome.loss.backward()
    assert scores.grad is not None
    assert scores.grad[0, 4] == 0.0
    assert scores.grad[1, 4] > 0.0, "for the query that it is not relevant to, it is a negative"
    assert outcome.loss.item() == pytest.approx((np.log(5) + np.log(6)) / 2, abs=1e-6)


def test_the_hard_term_may_compare_with_the_whole_batch(small: Small, groups: Groups, model: Any) -> None:
    """As the paper trained from cross-encoders: KL over a query's own passages, cross-entropy over all of them."""
    teacher = Overlap(small.dataset)

    def loss(**how: Any) -> float:
        return float(loss_of(Objective(model, groups, teacher, LossSettings(**how)), small, groups)[0])

    taught = loss(scope="group")
    over_batch = loss_of(Objective(model, groups, None, LossSettings(scope="batch")), small, groups)[0]
    over_group = loss_of(Objective(model, groups, None, LossSettings(scope="group")), small, groups)[0]
    assert float(over_batch) > float(over_group) + 0.1
    assert loss(hard_weight=0.75, hard_scope="batch") == pytest.approx(taught + 0.75 * float(over_batch), rel=1e-5)
    assert loss(hard_weight=0.75, hard_scope="group") == pytest.approx(taught + 0.75 * float(over_group), rel=1e-5)


def test_memory_of_scores_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queries there are, similarities of one chunk are held at once."""
    monkeypatch.setattr("colabel.train.losses.SCORE_ELEMENTS", 6 * 4 * 3)
    largest = 0
    original = torch.einsum

    def watch(rule: str, *parts: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        result = original(rule, *parts)
        largest = max(largest, result.numel())
        return result

    monkeypatch.setattr(torch, "einsum", watch)
    ones = torch.ones
    batch_scores(torch.randn(50, 3, 2), ones(50, 3), torch.randn(6, 4, 2), ones(6, 4).bool())
    assert largest <= 6 * 4 * 3

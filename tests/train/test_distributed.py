"""Several processes train as one. Threads stand in for processes, each with a model of its own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from colabel.encode.colbert import load_checkpoint
from colabel.teachers import Teacher
from colabel.train import Groups, candidates_from_ranking, draw_groups
from colabel.train.distributed import over_all_queries
from colabel.train.groups import GroupTexts, collator_for
from colabel.train.losses import Outcome
from colabel.train.objective import LossSettings, Objective
from tests.train.small import Silent, Small


class World:
    """What we use of torch.distributed, among threads."""

    ReduceOp = torch.distributed.ReduceOp

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts = [torch.empty(0)] * size
        self._barrier = threading.Barrier(size, timeout=60)
        self._here = threading.local()

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """What each process returns."""

        def start(rank: int) -> Any:
            self._here.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self._size) as threads:
            return list(threads.map(start, range(self._size)))

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return int(self._here.rank)

    def get_world_size(self) -> int:
        return self._size

    def all_reduce(self, tensor: Tensor, op: Any = ReduceOp.SUM) -> None:
        parts = torch.stack(self._exchange(tensor))
        tensor.copy_(parts.amax(dim=0) if op == self.ReduceOp.MAX else parts.sum(dim=0))

    def all_gather(self, parts: list[Tensor], tensor: Tensor) -> None:
        for part, found in zip(parts, self._exchange(tensor), strict=True):
            part.copy_(found)

    def _exchange(self, tensor: Tensor) -> list[Tensor]:
        self._parts[self.get_rank()] = tensor.detach().clone()
        self._barrier.wait()
        found = list(self._parts)
        self._barrier.wait()
        return found


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(2)
    monkeypatch.setattr("colabel.train.distributed.distributed", world)
    return world


@pytest.mark.parametrize(
    ("means", "rows", "expected"),
    [
        ([1.0, 5.0], [3, 1], [1.5, 2.5]),  # their mean is 2 = (3 · 1 + 1 · 5) / 4
        ([1.0, 5.0], [2, 2], [1.0, 5.0]),
        ([2.0, 0.0], [3, 0], [4.0, 0.0]),
        ([0.0, 0.0], [0, 0], [0.0, 0.0]),
    ],
)
def test_a_mean_over_the_queries_of_all_processes(
    two: World, means: list[float], rows: list[int], expected: list[float]
) -> None:
    def work(rank: int) -> Outcome:
        return over_all_queries(Outcome(torch.tensor(means[rank]), torch.tensor(0.5), rows[rank]))

    found = two.run(work)
    assert [float(outcome.loss) for outcome in found] == pytest.approx(expected)
    assert [outcome.queries for outcome in found] == [sum(rows)] * 2


def test_one_process_is_left_alone() -> None:
    alone = Outcome(torch.tensor(1.0), torch.tensor(0.5), 3)
    assert over_all_queries(alone) is alone


def step(small: Small, groups: Groups, objective: Objective, numbers: range) -> tuple[float, dict[str, Tensor]]:
    """The loss of some groups and its gradients."""
    texts = GroupTexts(small.dataset, groups)
    batch = collator_for(objective.model)([texts[number] for number in numbers])
    features = [
        {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(f"{column}_")}
        for column in ("query", "passage")
    ]
    loss = objective(features, batch["label"])
    loss.backward()
    found = objective.model.named_parameters()
    return float(loss.detach()), {name: weight.grad for name, weight in found if weight.grad is not None}


@pytest.mark.parametrize("how", [{"scope": "batch"}, {"scope": "group", "hard_weight": 0.5}])
@pytest.mark.parametrize("silent", [[3], [2, 3], None])
def test_two_processes_have_the_loss_and_the_gradient_of_one(
    small: Small, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], silent: list[int] | None
) -> None:
    """Four queries; the teacher is silent about the last, or about both of the second process. Or hard labels."""
    groups = draw_groups(candidates_from_ranking(small.dataset, small.train, depth=20), count=4, size=3, seed=0)
    target: Teacher | None = None
    if silent is not None:
        unknown = [groups.candidates.query_ids[groups.queries[number]] for number in silent]
        target = Silent(small.dataset, unknown)
    model = load_checkpoint(str(small.encoder), "cpu").train()
    alone = Objective(copy.deepcopy(model), groups, target, LossSettings(**how))
    loss, gradients = step(small, groups, alone, range(4))
    two = World(2)
    monkeypatch.setattr("colabel.train.distributed.distributed", two)
    objectives = [Objective(copy.deepcopy(model), groups, target, LossSettings(**how)) for _ in range(2)]
    parts = two.run(lambda rank: step(small, groups, objectives[rank], range(2 * rank, 2 * rank + 2)))
    assert (parts[0][0] + parts[1][0]) / 2 == pytest.approx(loss, rel=1e-5)
    assert gradients
    for name, gradient in gradients.items():
        both = [found.get(name, torch.zeros(())) for _, found in parts]
        assert torch.allclose((both[0] + both[1]) / 2, gradient, atol=1e-5), name
    assert objectives[0].meter.taught == objectives[1].meter.taught == alone.meter.taught

"""Workers: what is lost with one, what ends a stage, and how much exists at a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colabel.cluster import pool as pools
from colabel.cluster.pool import WorkerPool
from colabel.errors import ClusterError
from colabel.settings import ComputeSettings
from tests.cluster import tasks

pytestmark = pytest.mark.usefixtures("small_ray")


def results(pool: WorkerPool, function: Callable[..., object], arguments: list[object]) -> list[object]:
    found = dict(pool.map(function, ((f"task {place}", argument) for place, argument in enumerate(arguments))))
    return [found[number] for number in sorted(found)]


def test_all_tasks_are_done_and_shared_among_workers(pool: WorkerPool) -> None:
    assert results(pool, tasks.double, list(range(20))) == [2 * number for number in range(20)]
    assert results(pool, tasks.double, []) == []


def test_a_killed_worker_costs_its_task_alone(pool: WorkerPool, tmp_path: Path) -> None:
    """A real kill from outside, while tasks run: the others are begun once, and nothing is missing."""
    results(pool, tasks.double, [1])  # a worker that is started takes seconds

    def kill() -> None:
        while not (begun := list(tmp_path.glob("begun-2-*"))):
            time.sleep(0.01)
        os.kill(int(begun[0].name.rsplit("-", 1)[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert results(pool, tasks.note, [(number, tmp_path) for number in range(8)]) == list(range(8))
    killer.join()
    attempts = sorted(path.name.split("-")[1] for path in tmp_path.glob("begun-*"))
    assert attempts == sorted([*map(str, range(8)), "2"])


def test_a_task_that_kills_its_worker_once_is_done_again(pool: WorkerPool, tmp_path: Path) -> None:
    assert results(pool, tasks.die_once, [(number, tmp_path) for number in range(6)]) == list(range(6))


def test_a_task_that_always_kills_its_worker_ends_the_stage_with_its_name(pool: WorkerPool) -> None:
    with pytest.raises(ClusterError, match="task 3: its worker died 3 times"):
        results(pool, tasks.die_always, list(range(6)))
    assert results(pool, tasks.double, [1]) == [2], "the workers serve on"


def test_errors_come_with_their_task_and_are_not_tried_again(pool: WorkerPool) -> None:
    with pytest.raises(ClusterError, match=r"^task 3: the passages 'd7', 'd9', one batch, cannot be encoded$"):
        results(pool, tasks.refuse, list(range(6)))
    with pytest.raises(ClusterError, match="task 3: ZeroDivisionError: nobody thought of this"):
        results(pool, tasks.crash, list(range(6)))


def test_tasks_are_taken_as_there_are_workers_for_them(pool: WorkerPool) -> None:
    made: list[int] = []

    def stream() -> Iterator[tuple[str, int]]:
        for number in range(30):
            made.append(number)
            yield "a task", number

    for done, _ in enumerate(pool.map(tasks.double, stream())):
        assert len(made) - done <= 2


def test_without_room_for_a_worker_the_stage_ends_with_a_sentence(
    small_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "CPUS", 64)
    greedy = WorkerPool(ComputeSettings(engine="ray", workers=1), patience=2.0)
    with pytest.raises(ClusterError, match=r"no node for a worker for 2 seconds: a worker takes 64 CPU"):
        results(greedy, tasks.double, [1])

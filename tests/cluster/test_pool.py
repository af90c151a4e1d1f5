"""Workers: what is lost with one, what ends a stage, and how much exists at a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from colabel.cluster.pool import WorkerPool, WorkItem
from colabel.errors import ClusterError
from colabel.settings import ComputeSettings
from tests.cluster import tasks

pytestmark = pytest.mark.usefixtures("small_ray")


def results(pool: WorkerPool, function: object, arguments: list[object]) -> list[object]:
    found = {
        number: result
        for number, _, result in pool.map(
            WorkItem(function, argument, f"task {place}")  # type: ignore[arg-type]
            for place, argument in enumerate(arguments)
        )
    }
    return [found[number] for number in sorted(found)]


def test_all_tasks_are_done_and_shared_among_workers(pool: WorkerPool) -> None:
    assert results(pool, tasks.double, list(range(20))) == [2 * number for number in range(20)]
    assert results(pool, tasks.double, []) == []
    assert pool.nodes()


def test_a_killed_worker_costs_its_task_alone(pool: WorkerPool, tmp_path: Path) -> None:
    """A real kill from outside, while tasks run: the others are begun once, and nothing is missing."""
    list(pool.map([WorkItem(tasks.double, 1, "warm")]))

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


def test_only_a_window_of_tasks_exists_at_a_time(pool: WorkerPool) -> None:
    made: list[int] = []

    def stream() -> Iterator[WorkItem]:
        for number in range(30):
            made.append(number)
            yield WorkItem(tasks.double, number, "a task")

    for done, _ in enumerate(pool.map(stream(), window=4)):
        assert len(made) - done <= 5


def test_without_room_for_a_worker_the_stage_ends_with_a_sentence() -> None:
    greedy = WorkerPool(ComputeSettings(engine="ray", workers=1), cpus=64, patience=2.0)
    with pytest.raises(ClusterError, match=r"no worker has been ready for 2 seconds: a worker takes 64 CPU"):
        results(greedy, tasks.double, [1])
    greedy.close()


def test_workers_that_got_ready_while_nobody_looked_are_not_given_up(small_ray: None) -> None:
    """The driver reads a large collection between the start of the pool and its first item."""
    workers = WorkerPool(ComputeSettings(engine="ray", workers=1), patience=30.0)
    workers._alone_since -= 3600
    try:
        assert [result for _, _, result in workers.map([WorkItem(tasks.double, 21, "an item")])] == [42]
    finally:
        workers.close()

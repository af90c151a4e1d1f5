from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pytest
import threadpoolctl
import torch

from colabel.data import load_dataset
from colabel.data.string_table import StringTable
from colabel.errors import UsageError
from colabel.evaluation import ResponseTimes, response_times
from colabel.evaluation.timing import response_times_of
from colabel.index import build_index
from colabel.ranking import LateInteraction
from colabel.settings import EncoderSettings
from colabel.workers import Workers


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def workers() -> int:
    """How many threads our own workers are."""
    calls: list[int] = []
    with Workers() as pool:
        pool.share([], lambda _: calls.append(1))
    return len(calls)


class Watching:
    """A ranker that writes down what it is asked and on how many threads."""

    name = "watching"
    fingerprint = "watching"
    ids = StringTable.of(["d1"])

    def __init__(self, fail_at: int = 10**9) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.threads: set[tuple[int, int, int, int]] = set()
        self._fail_at = fail_at

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        self.asked.append(tuple(texts))
        self.threads.add((torch.get_num_threads(), faiss.omp_get_max_threads(), max(blas_threads()), workers()))
        if len(self.asked) == self._fail_at:
            raise KeyboardInterrupt
        return np.zeros((len(texts), depth), np.int64), np.zeros((len(texts), depth), np.float32)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Start from two threads everywhere, so that a limit of one is seen on any machine."""
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        yield
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])


def test_systems_are_asked_in_turns() -> None:
    asked: list[tuple[str, str]] = []

    class Noting(Watching):
        def rank(
            self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
        ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
            asked.append((self.name, *texts))
            return super().rank(texts, depth, allowed)

    first, second = Noting(), Noting()
    first.name, second.name = "first", "second"
    found = response_times_of([first, second], ["a", "b"], 5, warmup=1)
    assert asked[:2] == [("first", "a"), ("second", "a")], "each is warmed up"
    assert asked[2:] == [("first", "a"), ("second", "a"), ("second", "b"), ("first", "b")]
    assert len(found) == 2


def test_one_query_at_a_time_on_one_thread() -> None:
    ranker = Watching()
    blas = blas_threads()
    found = response_times(ranker, ["a", "b", "c"], 5, warmup=4)
    assert ranker.asked == [("a",), ("b",), ("c",), ("a",), ("a",), ("b",), ("c",)]
    assert ranker.threads == {(1, 1, 1, 1)}
    assert 0 < found.median <= found.p95
    assert (torch.get_num_threads(), faiss.omp_get_max_threads(), blas_threads()) == (2, 2, blas)
    assert workers() == 2


def test_thread_counts_come_back_after_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt):
        response_times(Watching(fail_at=2), ["a", "b"], 5, warmup=0)
    assert (torch.get_num_threads(), faiss.omp_get_max_threads()) == (2, 2)


def test_figures_by_hand() -> None:
    times = ResponseTimes.of([*range(1, 20), 1000])
    assert times.mean == pytest.approx((190 + 1000) / 20)
    assert times.median == 10.5
    assert times.p95 == pytest.approx(19 + 0.05 * (1000 - 19))
    assert times.as_dict()["median"] == 10.5


def test_misuse() -> None:
    with pytest.raises(UsageError, match="at least one query text"):
        response_times(Watching(), [])


def test_a_real_ranker_from_text_to_passages(write_beir: Callable[..., Path], tiny_model: Path, tmp_path: Path) -> None:
    dataset = load_dataset(str(write_beir()))
    encoder = EncoderSettings(model=str(tiny_model), dimension=16, passage_length=24, query_length=12)
    ranker = LateInteraction(build_index(dataset, tmp_path / "index", encoder=encoder))
    before = ranker.rank(["ice caves"], 3)[0].tolist()
    found = response_times(ranker, ["glacier cave", "a fjord"], 3, warmup=1)
    assert 0 < found.median <= found.p95 < 10_000
    assert ranker.rank(["ice caves"], 3)[0].tolist() == before

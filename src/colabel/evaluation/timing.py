"""Response time per query (the paper's MRT): from the text to the ranked passages, one query at a time."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.ranking import Ranker

THREADS, WARMUP = 1, 10
"""Threads that answer a query, and questions before the clock starts."""


@dataclasses.dataclass(frozen=True)
class ResponseTimes:
    """Milliseconds of every query, in the order asked, and what they were measured with."""

    system: str
    depth: int
    threads: int
    warmup: int
    milliseconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean, in milliseconds: what the paper calls MRT."""
        return float(np.mean(self.milliseconds))

    @property
    def median(self) -> float:
        """Median, in milliseconds; a pause of the machine does not move it."""
        return float(np.median(self.milliseconds))

    @property
    def p95(self) -> float:
        """Milliseconds within which 95 % of the queries are answered."""
        return float(np.percentile(self.milliseconds, 95))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "system": self.system,
            "queries": len(self.milliseconds),
            "depth": self.depth,
            "threads": self.threads,
            "warmup": self.warmup,
            "milliseconds": {"mean": self.mean, "median": self.median, "p95": self.p95},
        }


def response_times(
    ranker: Ranker, texts: Sequence[str], k: int = 1000, *, threads: int = THREADS, warmup: int = WARMUP
) -> ResponseTimes:
    """Ask a ranker every text by itself and take the time from text to ranked passages.

    The first ``warmup`` questions (the texts from the beginning, over again if they are fewer) are asked before the
    clock starts: they load the model and map the index. ``threads`` holds for torch, faiss, BLAS and our workers.
    """
    return response_times_of([ranker], texts, k, threads=threads, warmup=warmup)[0]


def response_times_of(
    rankers: Sequence[Ranker], texts: Sequence[str], k: int = 1000, *, threads: int = THREADS, warmup: int = WARMUP
) -> list[ResponseTimes]:
    """The same for several rankers that are to be compared.

    All are asked a text before the next one, a different ranker first each time, so that a machine that grows faster
    or slower meanwhile does so for all of them.
    """
    from colabel.index.exact import limited_threads

    if not texts:
        raise UsageError("response times need at least one query text")
    if k < 1 or warmup < 0:
        raise UsageError(f"expected k >= 1 and warmup >= 0, not {k} and {warmup}")
    taken: list[list[float]] = [[] for _ in rankers]
    with limited_threads(threads):
        for ranker in rankers:
            for text in itertools.islice(itertools.cycle(texts), warmup):
                ranker.rank([text], k)
        for number, text in enumerate(texts):
            for place in range(len(rankers)):
                asked = (number + place) % len(rankers)
                start = time.perf_counter()
                rankers[asked].rank([text], k)
                taken[asked].append(1000 * (time.perf_counter() - start))
    return [ResponseTimes(one.name, k, threads, warmup, tuple(held)) for one, held in zip(rankers, taken, strict=True)]

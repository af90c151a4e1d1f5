"""Response time per query (the paper's MRT): from the text to the ranked passages, one query at a time."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from colabel.errors import UsageError
from colabel.evaluation.significance import Plain

if TYPE_CHECKING:
    from colabel.ranking import Ranker

WARMUP = 10
"""Questions before the clock starts: they load the model and map the index."""


@dataclasses.dataclass(frozen=True)
class ResponseTimes(Plain):
    """Milliseconds per query: the median, which a pause of the machine does not move, the mean, which is the paper's
    MRT, and within how many 95 % of the queries are answered."""

    median: float
    mean: float
    p95: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> ResponseTimes:
        """The figures of some queries."""
        found = (np.median(milliseconds), np.mean(milliseconds), np.percentile(milliseconds, 95))
        return cls(*map(float, found))


def response_times(ranker: Ranker, texts: Sequence[str], k: int = 1000, *, warmup: int = WARMUP) -> ResponseTimes:
    """Ask a ranker every text by itself, on one thread, and take the time from text to ranked passages.

    The first ``warmup`` questions (the texts from the beginning, over again if they are fewer) do not count.
    """
    return response_times_of([ranker], texts, k, warmup=warmup)[0]


def response_times_of(
    rankers: Sequence[Ranker], texts: Sequence[str], k: int = 1000, *, warmup: int = WARMUP
) -> list[ResponseTimes]:
    """The same for several rankers that are to be compared.

    All are asked a text before the next one, a different ranker first each time, so that a machine that grows faster
    or slower meanwhile does so for all of them.
    """
    from colabel.index.exact import limited_threads

    if not texts:
        raise UsageError("response times need at least one query text")
    taken: list[list[float]] = [[] for _ in rankers]
    with limited_threads(1):  # of torch, faiss, BLAS and our workers
        for ranker in rankers:
            for text in itertools.islice(itertools.cycle(texts), warmup):
                ranker.rank([text], k)
        for number, text in enumerate(texts):
            for place in range(len(rankers)):
                asked = (number + place) % len(rankers)
                start = time.perf_counter()
                rankers[asked].rank([text], k)
                taken[asked].append(1000 * (time.perf_counter() - start))
    return [ResponseTimes.of(held) for held in taken]

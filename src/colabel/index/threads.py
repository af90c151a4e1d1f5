"""How many threads the libraries below a search may use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from colabel.errors import UsageError


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Torch, faiss and BLAS with ``threads`` threads for calls from this thread; put back when the block ends.

    Our own workers are as many as torch has threads, so they are limited too.
    """
    if threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    faiss: Any = importlib.import_module("faiss")  # loaded now, for a library that comes later has its own number
    threadpools: Any = importlib.import_module("threadpoolctl")
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    try:
        with threadpools.threadpool_limits(limits=threads, user_api="blas"):
            torch.set_num_threads(threads)
            faiss.omp_set_num_threads(threads)
            yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])

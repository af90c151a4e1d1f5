"""Threads that share out work, each with torch on one core."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import ClassVar, TypeVar

import torch

from colabel.errors import UsageError

T = TypeVar("T")


class Workers:
    """Threads that share work, each running torch on one core.

    Independent threads beat torch's own, which wait for each other after every operation: while something else
    runs on one core, both would stand still. Torch's number of threads is set per thread, but the default
    for threads yet to start is process-wide; the last workers put it back at the end.
    """

    _lock: ClassVar = threading.Lock()
    _alive: ClassVar[int] = 0
    _default: ClassVar[int] = 0

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1, not {threads}")
        with Workers._lock:
            Workers._default = Workers._default if Workers._alive else torch.get_num_threads()
            Workers._alive += 1
        self._count = threads or Workers._default
        self._pool = ThreadPoolExecutor(self._count, initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        with Workers._lock:
            Workers._alive -= 1
            if not Workers._alive:
                torch.set_num_threads(Workers._default)

    def share(self, items: Iterable[T], work: Callable[[Iterator[T]], None]) -> None:
        """Call ``work`` once in every thread with an iterator; each item comes out of one of the iterators."""
        source, lock, stop = iter(items), threading.Lock(), threading.Event()

        def taken() -> Iterator[T]:
            while not stop.is_set():
                with lock:
                    found = list(itertools.islice(source, 1))
                if not found:
                    return
                yield found[0]

        futures = [self._pool.submit(work, taken()) for _ in range(self._count)]
        try:
            for future in futures:
                future.result()
        finally:  # after an error or Ctrl-C the other threads stop at their next item
            stop.set()
            wait(futures)

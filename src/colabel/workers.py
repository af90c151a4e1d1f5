"""Threads that share out work, each with torch on one core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

from colabel.errors import UsageError

T = TypeVar("T")


class _Default:
    """Torch's default number of threads, which workers change for threads to come; the last one restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._value = 0

    def enter(self) -> int:
        with self._lock:
            if self._inside == 0:
                self._value = torch.get_num_threads()
            self._inside += 1
            return self._value

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.set_num_threads(self._value)


_default = _Default()


class Workers:
    """Threads that share work, each running torch on one core.

    Independent threads beat torch's own, which wait for each other after every operation: while something else
    runs on one core, both would stand still. Torch's number of threads is set per thread, but the default
    for threads yet to start is process-wide and is put back at the end.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1, not {threads}")
        default = _default.enter()
        self._count = threads or default
        self._pool = ThreadPoolExecutor(self._count, initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        _default.leave()

    def share(self, items: Iterable[T], work: Callable[[Iterator[T]], None]) -> None:
        """Call ``work`` once in every thread with an iterator; each item comes out of one of the iterators."""
        shared = _Shared(items)
        futures = [self._pool.submit(work, shared) for _ in range(self._count)]
        try:
            for future in futures:
                future.result()
        finally:  # after an error or Ctrl-C the other threads stop at their next item
            shared.stop()
            wait(futures)


class _Shared(Iterator[T]):
    """An iterator that several threads may advance."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._lock = threading.Lock()

    def __next__(self) -> T:
        with self._lock:
            return next(self._items)

    def stop(self) -> None:
        with self._lock:
            self._items = iter(())

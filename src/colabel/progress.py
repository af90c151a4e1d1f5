"""How long-running work reports progress, without knowing who listens.

The library reports to a :class:`Progress`; the command line shows it as a bar, a notebook may pass its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Task(Protocol):
    """One piece of work under way."""

    def advance(self, steps: int = 1) -> None:
        """Say that this many more units are done."""

    def close(self) -> None:
        """Say that the work has ended, whole or not."""


class Progress(Protocol):
    """Whoever listens."""

    def start(self, what: str, total: int | None, unit: str) -> Task:
        """Open a task of ``total`` units (None: unknown)."""


class _Silent:
    def start(self, what: str, total: int | None, unit: str) -> Task:
        return self

    def advance(self, steps: int = 1) -> None: ...

    def close(self) -> None: ...


SILENT: Progress = _Silent()
"""Nobody listens: the default of every library function."""


def track(items: Iterable[T], progress: Progress, what: str, total: int | None, unit: str) -> Iterator[T]:
    """Yield the items and report every 1,000th (and the last) to ``progress``."""
    task = progress.start(what, total, unit)
    pending = 0
    try:
        for item in items:
            yield item
            pending += 1
            if pending == 1000:
                task.advance(pending)
                pending = 0
        task.advance(pending)
    finally:
        task.close()

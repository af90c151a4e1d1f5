"""Say in a sentence that memory is short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from colabel.errors import TrainingError

_WORDS = ("out of memory", "not enough memory", "allocate memory")


@contextmanager
def memory_in_words(what: str, remedy: str) -> Iterator[None]:
    """Turn any of the errors that torch raises where memory is short into ``out of memory with WHAT: REMEDY``."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason: BaseException = error
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _WORDS):
            raise
        reason = error
    else:
        return
    first = str(reason).splitlines()[0][:100] if str(reason) else type(reason).__name__
    raise TrainingError(f"out of memory with {what}: {remedy} ({first})") from None

"""How token vectors lie on disk: one class per ``index.storage``.

A codec writes some arrays with one row per token and makes float32 vectors of their rows. Engines gather rows and
decode them block by block (:class:`colabel.maxsim.StoredVectors`), so a new storage is one more class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.maxsim import StoredVectors, copy_rows

HalfArray = npt.NDArray[np.float16]


class Codec(ABC):
    """A storage."""

    name: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    """Names of its arrays."""
    exact: ClassVar[type[np.floating[Any]]]
    """The smallest type that holds decoded vectors without loss."""

    @abstractmethod
    def encode(self, vectors: HalfArray) -> tuple[npt.NDArray[Any], ...]:
        """The arrays, each [T, …], of vectors float16 [T, D]."""

    @abstractmethod
    def decode(self, rows: Sequence[Tensor], vectors: Tensor) -> None:
        """Write the vectors of gathered rows to ``vectors``, float32 [n, D]."""

    @abstractmethod
    def token_bytes(self, dimension: int) -> int:
        """Bytes of a stored vector."""


class HalfCodec(Codec):
    """``fp16``: every entry as float16."""

    name = "fp16"
    parts = ("vectors",)
    exact = np.float16

    def encode(self, vectors: HalfArray) -> tuple[HalfArray]:
        """The vectors themselves."""
        return (vectors,)

    def decode(self, rows: Sequence[Tensor], vectors: Tensor) -> None:
        """The same numbers as float32."""
        copy_rows(rows, vectors)

    def token_bytes(self, dimension: int) -> int:
        """Two for each dimension."""
        return 2 * dimension


class ByteCodec(Codec):
    """``int8``: each vector in 255 steps between ± its largest entry, and a scale; vector ≈ int8 · scale."""

    name = "int8"
    parts = ("vectors", "scales")
    exact = np.float32

    def encode(self, vectors: HalfArray) -> tuple[npt.NDArray[np.int8], HalfArray]:
        """Steps int8 [T, D] and scales float16 [T]."""
        values = vectors.astype(np.float32)
        scales = (np.abs(values).max(axis=1, initial=0.0) / 127.0).astype(np.float16)
        steps = np.where(scales > 0, scales, 1).astype(np.float32)
        return np.clip(np.rint(values / steps[:, None]), -127, 127).astype(np.int8), scales

    def decode(self, rows: Sequence[Tensor], vectors: Tensor) -> None:
        """Steps times scales."""
        steps, scales = rows
        vectors.copy_(steps)
        vectors *= scales.to(torch.float32)[:, None]

    def token_bytes(self, dimension: int) -> int:
        """One for each dimension, two for the scale."""
        return dimension + 2


CODECS: dict[str, Codec] = {codec.name: codec for codec in (HalfCodec(), ByteCodec())}
"""Every storage by the name that ``index.storage`` has for it."""


def stored(codec: Codec, arrays: Sequence[npt.NDArray[Any]], dimension: int) -> StoredVectors:
    """Arrays of a codec as the engines read them; plain arrays, since every slice of a memory map runs Python code."""
    return StoredVectors(tuple(array.view(np.ndarray) for array in arrays), dimension, codec.decode)

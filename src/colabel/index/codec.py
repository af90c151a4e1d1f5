"""How token vectors lie on disk, by the name that ``index.storage`` has for it.

A codec writes some arrays with one row per token and makes float32 vectors of their rows. Engines gather rows and
decode them block by block (:class:`colabel.maxsim.StoredVectors`), so a new storage is one more entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.maxsim import Decode, StoredVectors, copy_rows

HalfArray = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Codec:
    """A storage.

    parts: names of its arrays; exact: the smallest type that holds decoded vectors without loss; encode: the arrays,
    each [T, …], of vectors float16 [T, D]; decode: writes the vectors of gathered rows to a float32 [n, D].
    """

    parts: tuple[str, ...]
    exact: type[np.floating[Any]]
    encode: Callable[[HalfArray], tuple[npt.NDArray[Any], ...]]
    decode: Decode


def _in_steps(vectors: HalfArray) -> tuple[npt.NDArray[np.int8], HalfArray]:
    """Each vector in 255 steps between ± its largest entry, int8 [T, D], and a scale float16 [T]."""
    values = vectors.astype(np.float32)
    scales = (np.abs(values).max(axis=1, initial=0.0) / 127.0).astype(np.float16)
    steps = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.clip(np.rint(values / steps[:, None]), -127, 127).astype(np.int8), scales


def _from_steps(rows: Sequence[Tensor], vectors: Tensor) -> None:
    steps, scales = rows
    vectors.copy_(steps)
    vectors *= scales.to(torch.float32)[:, None]


CODECS = {
    "fp16": Codec(("vectors",), np.float16, lambda vectors: (vectors,), copy_rows),
    "int8": Codec(("vectors", "scales"), np.float32, _in_steps, _from_steps),
}


def stored(codec: Codec, arrays: Sequence[npt.NDArray[Any]], dimension: int) -> StoredVectors:
    """Arrays of a codec as the engines read them; plain arrays, since every slice of a memory map runs Python code."""
    return StoredVectors(tuple(array.view(np.ndarray) for array in arrays), dimension, codec.decode)

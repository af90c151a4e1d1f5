"""8-bit storage: half the bytes of float16, one scale per token."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def quantise(vectors: npt.NDArray[np.float16]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Round each vector to 255 steps between ± its largest entry.

    Returns:
        int8 [tokens, dimension] and float16 [tokens] scales; vector ≈ int8 · scale.
    """
    values = vectors.astype(np.float32)
    scales = (np.abs(values).max(axis=1, initial=0.0) / 127.0).astype(np.float16)
    steps = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.clip(np.rint(values / steps[:, None]), -127, 127).astype(np.int8), scales


def restore(stored: npt.NDArray[Any], scales: npt.NDArray[np.float16] | None = None) -> npt.NDArray[np.float32]:
    """The float32 vectors behind stored ones, float16, or int8 with their scales; always a copy.

    torch converts float16 many times as fast as NumPy does.
    """
    array = np.array(stored) if not stored.flags.writeable else stored  # torch warns of read-only memory maps
    vectors: npt.NDArray[np.float32] = torch.from_numpy(array).to(torch.float32, copy=True).numpy()
    if scales is not None:
        vectors *= scales[:, None].astype(np.float32)
    return vectors

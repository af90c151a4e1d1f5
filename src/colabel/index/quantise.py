"""8-bit storage: half the bytes of float16, one scale per token."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def quantise(vectors: npt.NDArray[np.float16]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Round each vector to 255 steps between ± its largest entry.

    Returns:
        int8 [tokens, dimension] and float16 [tokens] scales; vector ≈ int8 · scale.
    """
    values = vectors.astype(np.float32)
    scales = (np.abs(values).max(axis=1, initial=0.0) / 127.0).astype(np.float16)
    steps = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.clip(np.rint(values / steps[:, None]), -127, 127).astype(np.int8), scales


def restore(steps: npt.NDArray[Any], scales: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """The float32 vectors behind 8-bit ones."""
    return steps.astype(np.float32) * scales.astype(np.float32)[:, None]

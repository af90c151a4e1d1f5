"""How token vectors lie on disk, by the name that ``index.storage`` has for it.

A codec writes some arrays with one row per token and makes float32 vectors of their rows. Engines gather rows and
decode them block by block (:class:`colabel.maxsim.StoredVectors`), so a new storage is one more entry here.

``residual`` learns from a sample of the collection: a token is the number of its nearest centroid, 2 bytes, and the
difference from it, four dimensions a byte (2 bits a dimension), each byte one of 256 differences learnt for these four
dimensions. It decodes by look-up. What was learnt is kept with the store and never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.artefacts import Workspace
from colabel.errors import UsageError
from colabel.maxsim import Decode, StoredVectors, copy_rows
from colabel.types import FloatArray, IntArray

HalfArray = npt.NDArray[np.float16]

LEARNT = {"residual": ("centroids", "differences")}
"""What storages learn, as named arrays."""
TRAIN_PER_LIST = 40
"""Vectors of a list or centroid that teach its centre, at most."""
CENTRE_ITERATIONS = 6
"""Rounds of k-means in which centres are learnt."""
SEED = 1234
_TAUGHT_BY = 32  # sampled tokens for a centroid
_MOST_CENTROIDS = 2**13
_TOGETHER = 4  # dimensions of a byte: four float32 are one complex128, which NumPy looks up in one step
_PER_BYTE = 100  # sampled differences for each of the 256 of a byte
_BLOCK = 8192


@dataclass(frozen=True)
class Codec:
    """A storage.

    storage: its name; parts: names of its arrays; encode: the arrays, each [T, …], of vectors float16 [T, D]; decode:
    writes the vectors of gathered rows to a float32 [n, D]; learnt: arrays by their names in LEARNT; fingerprint: names
    them, empty where there are none.
    """

    storage: str
    parts: tuple[str, ...]
    encode: Callable[[HalfArray], tuple[npt.NDArray[Any], ...]]
    decode: Decode
    learnt: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    fingerprint: str = ""

    def stored(self, arrays: Sequence[npt.NDArray[Any]], dimension: int) -> StoredVectors:
        """Its arrays as the engines read them; plain arrays, since every slice of a memory map runs Python code."""
        return StoredVectors(tuple(array.view(np.ndarray) for array in arrays), dimension, self.decode)

    def save(self, space: Workspace) -> None:
        """Write what it learnt."""
        for name, values in self.learnt.items():
            space.save(f"{name}.npy", values)


def open_codec(storage: str, folder: Path, fingerprint: str = "") -> Codec:
    """The codec of a storage; what it learnt is in ``folder``."""
    learnt = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in LEARNT.get(storage, ())}
    return make_codec(storage, learnt, fingerprint)


def make_codec(storage: str, learnt: Mapping[str, npt.NDArray[Any]] | None = None, fingerprint: str = "") -> Codec:
    """The codec of a storage from what it learnt."""
    if storage == "fp16":
        return Codec(storage, ("vectors",), lambda vectors: (vectors,), copy_rows)
    if storage == "int8":
        return Codec(storage, ("vectors", "scales"), _in_steps, _from_steps)
    learnt = learnt or {}
    how = _Residual(*(learnt[name] for name in LEARNT[storage]))
    return Codec(storage, ("vectors",), how.encode, how.decode, learnt, fingerprint)


def exact_type(storage: str) -> type[np.floating[Any]]:
    """The smallest type that holds decoded vectors without loss."""
    return np.float16 if storage == "fp16" else np.float32


def vector_bytes(storage: str, dimension: int) -> int:
    """What a token's vector takes on disk, without its token id.

    >>> [vector_bytes(storage, 128) for storage in ("fp16", "int8", "residual")]
    [256, 130, 34]
    """
    return {"fp16": 2 * dimension, "int8": dimension + 2, "residual": dimension // _TOGETHER + 2}[storage]


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


class _Residual:
    """centroids float16 [C, D], differences float16 [D / 4, 256, 4]."""

    def __init__(self, centroids: HalfArray, differences: HalfArray) -> None:
        self._centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        self._differences = np.ascontiguousarray(differences, dtype=np.float32)
        self._entries = self._differences.reshape(-1).view(np.complex128)
        self._firsts = 256 * np.arange(len(differences))

    def encode(self, vectors: HalfArray) -> tuple[npt.NDArray[np.uint8]]:
        codes = np.empty((len(vectors), 2 + len(self._firsts)), dtype=np.uint8)
        quantiser = faiss.ProductQuantizer(self._centroids.shape[1], len(self._firsts), 8)
        faiss.copy_array_to_vector(self._differences.reshape(-1), quantiser.centroids)
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK].astype(np.float32)
            nearest = nearest_centres(block, self._centroids)
            codes[start : start + _BLOCK, :2] = nearest.astype("<u2")[:, None].view(np.uint8)
            codes[start : start + _BLOCK, 2:] = quantiser.compute_codes(block - self._centroids[nearest])
        return (codes,)

    def decode(self, rows: Sequence[Tensor], vectors: Tensor) -> None:
        codes, values = rows[0].numpy(), vectors.numpy()
        nearest = codes[:, :2].copy().view("<u2")[:, 0]
        # Positions are valid by construction; any other mode would copy through a second buffer.
        places = (codes[:, 2:] + self._firsts).reshape(-1)
        np.take(self._entries, places, out=values.reshape(-1).view(np.complex128), mode="clip")
        values += np.take(self._centroids, nearest, axis=0, mode="clip")


def learn(sample: HalfArray) -> dict[str, HalfArray]:
    """What the residual codec of a collection learns from some of its vectors [n, D]: centroids and differences."""
    if sample.shape[1] % _TOGETHER:
        raise UsageError(
            f"vectors have {sample.shape[1]} dimensions, and 'index.storage' = \"residual\" needs a multiple of "
            f'{_TOGETHER}; choose "int8" or "fp16"'
        )
    values = sample.astype(np.float32) if len(sample) else np.zeros((1, sample.shape[1]), np.float32)
    count = 2 ** int(math.log2(min(_MOST_CENTROIDS, max(1, len(values) // _TAUGHT_BY))))
    centroids = train_centres(values, count).astype(np.float16)
    kept = centroids.astype(np.float32)
    chosen = values[np.random.default_rng(SEED).permutation(len(values))[: 256 * _PER_BYTE]]
    differences = chosen - kept[nearest_centres(chosen, kept)]
    quantiser = faiss.ProductQuantizer(values.shape[1], values.shape[1] // _TOGETHER, 8)
    quantiser.cp.niter, quantiser.cp.seed, quantiser.cp.min_points_per_centroid = 2 * CENTRE_ITERATIONS, SEED, 1
    quantiser.train(np.resize(differences, (max(256, len(differences)), values.shape[1])))  # few are repeated
    found = faiss.vector_to_array(quantiser.centroids).reshape(-1, 256, _TOGETHER)
    return {"centroids": centroids, "differences": found.astype(np.float16)}


def train_centres(vectors: FloatArray, lists: int) -> FloatArray:
    """Coarse centres of length 1, float32 [lists, dimension], from sampled vectors [n, dimension]."""
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        lists,
        niter=CENTRE_ITERATIONS,
        seed=SEED,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=TRAIN_PER_LIST,
    )
    kmeans.train(vectors)
    return np.asarray(kmeans.centroids, dtype=np.float32)


def nearest_centres(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """The centre with the highest dot product for each vector, int64 [n]."""
    blocks = torch.split(torch.from_numpy(vectors), _BLOCK)
    return torch.cat([(block @ torch.from_numpy(centres).T).argmax(dim=1) for block in blocks]).numpy()

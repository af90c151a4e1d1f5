"""Every storage: closeness to float16, bytes, and searching it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colabel import Index, build_index
from colabel.data import Dataset
from colabel.index.codec import CODECS, stored
from colabel.settings import IndexSettings
from tests.index.small import encoder_settings, queries

WriteBeir = Callable[..., Path]


def test_int8_storage(dataset: Dataset, index: Index, tiny_model: Path, tmp_path: Path) -> None:
    settings = IndexSettings(storage="int8")
    small = build_index(dataset, tmp_path / "int8", encoder=encoder_settings(tiny_model), index=settings)
    size = {name: sum(f.stat().st_size for f in (folder / "tokens").glob("*.vectors.npy"))
            for name, folder in (("fp16", index.folder), ("int8", small.folder))}  # fmt: skip
    assert size["int8"] < 0.6 * size["fp16"]
    vectors = queries(index, dataset)
    exact_rows, scores = index.search(vectors, 10)
    rows, small_scores = small.search(vectors, 10)
    assert np.abs(np.sort(scores) - np.sort(small_scores)).max() < 0.05
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact_rows.tolist(), rows.tolist(), strict=True)]) > 0.9


@pytest.mark.parametrize("storage", list(CODECS))
def test_every_storage_gives_back_nearly_what_it_got(storage: str) -> None:
    codec = CODECS[storage]
    vectors = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float16)
    vectors[3] = 0
    arrays = codec.encode(vectors)
    assert sum(array.nbytes for array in arrays) == 50 * {"fp16": 32, "int8": 18}[storage]
    kept = stored(codec, arrays, 16)
    largest = np.abs(vectors.astype(np.float32)).max(axis=1, keepdims=True)
    assert (np.abs(kept.vectors(slice(None)) - vectors) <= 0.51 / 127 * largest + 1e-3).all(), "half a step"
    assert not kept.vectors(np.array([3])).any()
    assert (kept.vectors(np.array([7, 4])) == kept.vectors(slice(4, 8))[[3, 0]]).all()
    exact = kept.vectors(slice(None)).astype(codec.exact)
    assert (exact == kept.vectors(slice(None))).all(), "the type in which vectors travel loses nothing"

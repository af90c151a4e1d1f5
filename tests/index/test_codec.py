"""Every storage: closeness to float16, bytes, and searching it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colabel import Index, build_index
from colabel.artefacts import read_manifest
from colabel.data import Dataset
from colabel.errors import ArtefactError, UsageError
from colabel.index.codec import Codec, exact_type, learn, make_codec, vector_bytes
from colabel.index.exact import search_exact
from colabel.index.ivf import IvfIndex, build_ivf
from colabel.index.nearest_tokens import TokenLookup, build_lookup, content_tokens, nearest_exact
from colabel.maxsim import TokenShard, plain
from colabel.settings import IndexSettings
from tests.index.small import encoder_settings, probes, queries

STORAGES = ("fp16", "int8", "residual")


def clustered(count: int, dimension: int) -> np.ndarray:
    """Unit vectors around a few directions."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((12, dimension))
    vectors = centres[random.integers(0, 12, count)] + 0.5 * random.standard_normal((count, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def codec_for(storage: str, vectors: np.ndarray) -> Codec:
    return make_codec(storage, learn(vectors) if storage == "residual" else None)


@pytest.fixture(scope="module")
def small(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The residual index of the collection, in several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colabel.index.store.BLOCK_PASSAGES", 90)
        out = tmp_path_factory.mktemp("residual") / "index"
        return build_index(dataset, out, encoder=encoder_settings(tiny_model), index=IndexSettings(storage="residual"))


def test_int8_storage(dataset: Dataset, index: Index, tiny_model: Path, tmp_path: Path) -> None:
    settings = IndexSettings(storage="int8")
    small = build_index(dataset, tmp_path / "int8", encoder=encoder_settings(tiny_model), index=settings)
    vectors = queries(index, dataset)
    exact_rows, scores = index.search(vectors, 10)
    rows, small_scores = small.search(vectors, 10)
    assert np.abs(np.sort(scores) - np.sort(small_scores)).max() < 0.05
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact_rows.tolist(), rows.tolist(), strict=True)]) > 0.9


@pytest.mark.parametrize("storage", STORAGES)
def test_every_storage_gives_back_nearly_what_it_got(storage: str) -> None:
    vectors = clustered(3000, 16)
    vectors[3] = 0
    codec = codec_for(storage, vectors)
    arrays = codec.encode(vectors)
    assert sum(array.nbytes for array in arrays) == 3000 * vector_bytes(storage, 16)
    assert vector_bytes(storage, 16) == {"fp16": 32, "int8": 18, "residual": 6}[storage]
    kept = codec.stored(arrays, 16)
    decoded = kept.vectors(slice(None))
    errors = np.linalg.norm(decoded - vectors, axis=1)
    assert errors.max() < {"fp16": 1e-9, "int8": 0.02, "residual": 0.5}[storage]
    assert errors.mean() < {"fp16": 1e-9, "int8": 0.01, "residual": 0.15}[storage]
    assert (kept.vectors(np.array([7, 4])) == decoded[4:8][[3, 0]]).all()
    assert (decoded.astype(exact_type(storage)) == decoded).all(), "the type in which vectors travel loses nothing"


def test_a_residual_token_is_its_centroid_and_the_nearest_differences() -> None:
    centroids = np.array([[1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]], np.float16)
    differences = np.zeros((2, 256, 4), np.float16)
    differences[0, 3], differences[1, 200] = (0, 0, 0.5, 0), (0.25, 0, 0, 0.25)
    codec = make_codec("residual", {"centroids": centroids, "differences": differences})
    vectors = np.array([[0.1, 0.9, 0.4, 0, 0.3, 0, 0, 0.2], [1, 0, 0, 0, 0, 0, 0, 0]], np.float16)
    (codes,) = codec.encode(vectors)
    assert codes[0].tolist() == [1, 0, 3, 200]
    decoded = codec.stored([codes], 8).vectors(slice(None))
    assert decoded.tolist() == [[0, 1, 0.5, 0, 0.25, 0, 0, 0.25], [1, 0, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_few_vectors_are_enough_to_learn_from(count: int) -> None:
    vectors = clustered(max(count, 1), 8)
    codec = make_codec("residual", learn(vectors[:count]))
    errors = codec.stored(codec.encode(vectors), 8).vectors(slice(None)) - vectors
    assert np.abs(errors).max() < (1e-3 if count == 1 else 1.1)


def test_dimensions_are_decoded_four_at_a_time() -> None:
    with pytest.raises(UsageError, match="10 dimensions"):
        learn(np.zeros((5, 10), np.float16))


def test_a_residual_index_takes_a_quarter_of_a_byte_a_dimension(small: Index, index: Index) -> None:
    assert len(small.store.shards) == 5
    assert sum(shard.vectors.arrays[0].nbytes for shard in small.store.shards) == 6 * index.store.tokens
    mine, theirs = (one.store.vectors(range(400))[0] for one in (small, index))
    length = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
    assert ((mine * theirs).sum(axis=1) / length).mean() > 0.97


def test_every_engine_scores_what_is_decoded(
    small: Index, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = small.store, queries(small, dataset)
    decoded, offsets = store.vectors(range(len(store)))
    whole = [TokenShard(plain(decoded), offsets)]
    scores, _ = search_exact(asked, whole, 10, tie_ranks=store.tie_ranks)
    found, values = small.search(asked, 10)
    np.testing.assert_allclose(values, scores, atol=1e-5)
    np.testing.assert_allclose(store.score(asked, found), scores, atol=1e-5)
    build_ivf(store, tmp_path / "ivf")
    ivf = IvfIndex(tmp_path / "ivf", store)
    np.testing.assert_allclose(ivf.search(asked, 10)[1], scores, atol=1e-5)
    build_lookup(store, tmp_path / "lookup")
    wanted = nearest_exact(probes(store), store, 3)
    content = decoded[content_tokens(store)]
    best = np.sort(probes(store).numpy() @ content.T, axis=1)[:, :-4:-1]
    np.testing.assert_allclose(wanted[1], best, atol=1e-5)
    for many in (4096, 1):  # gathered, and kept in memory as float16
        monkeypatch.setattr("colabel.index.nearest_tokens._MANY", many)
        near = TokenLookup(tmp_path / "lookup", store).nearest(probes(store), 3)[1]
        np.testing.assert_allclose(near, wanted[1], atol=2e-3)


def test_the_codec_of_an_index_is_learnt_once(small: Index) -> None:
    again = Index.open(small.folder)
    assert again.store.codec.fingerprint == read_manifest(small.folder / "codec").fingerprint
    for name, values in again.store.codec.learnt.items():
        assert (values == np.load(small.folder / "codec" / f"{name}.npy")).all()
    with pytest.raises(ArtefactError):
        (small.folder / "tokens" / "centroids.npy").rename(small.folder / "moved.npy")
        try:
            Index.open(small.folder)
        finally:
            (small.folder / "moved.npy").rename(small.folder / "tokens" / "centroids.npy")

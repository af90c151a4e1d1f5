"""Nearest tokens: all of them read, by lists, by the approximate engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from colabel import Index
from colabel.errors import ArtefactError
from colabel.index import nearest_tokens
from colabel.index.ivf import IvfIndex
from colabel.index.nearest_tokens import TokenLookup, build_lookup, nearest_exact
from tests.index.small import probes


def test_nearest_tokens(index: Index, ivf: IvfIndex) -> None:
    store = index.store
    vectors = probes(store)
    ids, similarities = nearest_exact(vectors, store, 10)
    every = np.concatenate([shard.vectors.vectors(slice(None)) for shard in store.shards])
    tokens = np.concatenate([np.asarray(part) for part in store.token_ids])
    content = ~np.isin(tokens, store.special_token_ids)
    products = vectors.numpy() @ every[content].T
    expected = np.sort(products, axis=1)[:, ::-1][:, :10]
    assert np.abs(similarities - expected).max() < 1e-5
    assert not np.isin(ids, store.special_token_ids).any()
    assert (ids[:, 0] == tokens[content][products.argmax(axis=1)]).all()
    near_ids, near = ivf.nearest_tokens(vectors, 10)
    assert not np.isin(near_ids, store.special_token_ids).any()
    assert (near[:, 0] >= similarities[:, 0] - 0.02).all()  # a tiny vocabulary: hundreds of tokens nearly tie
    assert (np.diff(near, axis=1) <= 1e-6).all(), "nearest first"


def test_lookup_that_probes_everything_is_exact(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_lookup(index.store, tmp_path / "lookup")
    monkeypatch.setattr(nearest_tokens, "PROBES", 10_000)
    monkeypatch.setattr(nearest_tokens, "REACH", 10.0)
    lookup = TokenLookup(tmp_path / "lookup", index.store)
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 16, generator=random)
    vectors[0] = 0  # near everything alike
    ids, similarities = lookup.nearest(vectors, 10)
    expected_ids, expected = nearest_exact(vectors, index.store, 10)
    assert np.abs(similarities - expected).max() < 1e-5
    agree = (ids == expected_ids) | np.isclose(similarities, np.roll(similarities, 1, axis=1), atol=1e-6)
    assert agree[1:].mean() > 0.99, "only equal similarities may come in another order"
    assert not set(ids.ravel().tolist()) & set(index.store.special_token_ids)
    one_by_one = [lookup.nearest(vector[None], 10) for vector in vectors[1:20]]
    assert all((ids[place + 1] == found).all() for place, (found, _) in enumerate(one_by_one))


def test_lookup_with_few_probes_and_few_tokens(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_lookup(index.store, tmp_path / "lookup")
    monkeypatch.setattr(nearest_tokens, "PROBES", 1)
    lookup = TokenLookup(tmp_path / "lookup", index.store)
    ids, similarities = lookup.nearest(torch.randn(5, 16, generator=torch.Generator().manual_seed(1)), 400)
    assert ((ids == -1) == np.isneginf(similarities)).all()
    assert (np.diff(np.where(ids >= 0, similarities, -9.0), axis=1) <= 0).all(), "nearest first"
    with pytest.raises(ArtefactError, match="nothing"):
        TokenLookup(tmp_path / "nothing", index.store)


def test_large_stores_use_the_lookup(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import colabel.index.index as module

    fresh = Index.open(index.folder)
    vectors = torch.nn.functional.normalize(torch.randn(40, 16, generator=torch.Generator().manual_seed(2)), dim=1)
    exact, _ = fresh.nearest_tokens(vectors, 10)
    monkeypatch.setattr(module, "LOOKUP_FROM", 10)
    listed, _ = fresh.nearest_tokens(vectors, 10)
    assert (index.folder / "lookup" / "manifest.json").exists()
    assert (listed == exact).mean() > 0.7, "a tiny vocabulary: many tokens nearly tie"


def test_a_read_only_index_still_looks_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import colabel.index.index as module

    fresh = Index.open(index.folder)
    calls = []

    def refused(store: object, out: Path, *_: object) -> None:
        calls.append(out)
        if len(calls) == 1:
            raise ArtefactError("cannot be written")
        build_lookup(store, out)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "LOOKUP_FROM", 10)
    monkeypatch.setattr(module, "build_lookup", refused)
    ids, _ = fresh.nearest_tokens(torch.eye(16)[:4], 3)
    assert ids.shape == (4, 3)
    assert not calls[1].is_relative_to(index.folder)
    assert fresh.nearest_tokens(torch.zeros(0, 16), 3)[0].shape == (0, 3)

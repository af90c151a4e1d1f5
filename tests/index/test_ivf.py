"""The approximate engine against exact search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colabel import Index
from colabel.data import Dataset
from colabel.index.ivf import IvfIndex, best_candidates, build_ivf, ivf_lists
from tests.index.small import probes, queries


def test_ivf_finds_nearly_what_exact_search_finds(index: Index, ivf: IvfIndex, dataset: Dataset) -> None:
    vectors = queries(index, dataset)
    exact_rows, exact_scores = index.search(vectors, 10)
    rows, scores = ivf.search(vectors, 10)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(exact_rows.tolist(), rows.tolist(), strict=True)]
    assert np.mean(shared) >= 0.95
    same = rows == exact_rows
    assert np.abs(scores[same] - exact_scores[same]).max() < 1e-4, "candidates are scored exactly"
    allowed = np.zeros(400, dtype=bool)
    allowed[:50] = True
    rows = ivf.search(vectors, 10, allowed=allowed)[0]
    assert rows.max() < 50
    assert (rows >= 0).all(), "a filter leaves full rankings"
    deep = ivf.search(vectors[:2], 399)[0]
    assert (deep >= 0).sum() >= 2 * 395, "nearly the whole collection where it is asked for"


def test_ivf_in_several_parts(index: Index, ivf: IvfIndex, dataset: Dataset, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("colabel.index.ivf._PART_TOKENS", 1000)
    build_ivf(index.store, tmp_path / "ivf")
    parts = IvfIndex(tmp_path / "ivf", index.store)
    parts.token_depth, parts.candidates = 512, 100
    assert parts.manifest.counts["parts"] > 1
    vectors = queries(index, dataset)
    one, many = ivf.search(vectors, 10)[0], parts.search(vectors, 10)[0]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(one.tolist(), many.tolist(), strict=True)]) > 0.95
    assert (
        parts.nearest_tokens(probes(index.store), 1)[0] == ivf.nearest_tokens(probes(index.store), 1)[0]
    ).mean() > 0.9


def test_lists_grow_with_the_square_root() -> None:
    assert [ivf_lists(tokens) for tokens in (1, 100, 10_000, 10**6, 10**8)] == [1, 2, 128, 1024, 8192]


def test_best_candidates_by_hand() -> None:
    similarities = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.1]], dtype=np.float32)
    rows = np.array([[4, 4, 2], [2, 9, -1]], dtype=np.int32)
    # passage 4: 0.9 + 0.5 (lowest of token 2), passage 2: 0.7 + 0.6, passage 9: 0.7 (lowest of token 1) + 0.5
    assert best_candidates(similarities, rows, 1).tolist() == [4]
    assert sorted(best_candidates(similarities, rows, 2).tolist()) == [2, 4]
    assert sorted(best_candidates(similarities, rows, 5).tolist()) == [2, 4, 9]
    allowed = np.array([True] * 4 + [False] + [True] * 5)
    assert best_candidates(similarities, rows, 1, allowed).tolist() == [2]


def test_search_parameters_are_part_of_the_fingerprint(
    index: Index, ivf: IvfIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colabel.index.ivf.TOKEN_DEPTH", 77)
    assert IvfIndex(ivf.folder, index.store).fingerprint != ivf.fingerprint

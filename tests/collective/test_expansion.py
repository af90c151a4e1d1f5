"""ColBERT-PRF at search time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from colabel import Index, PrfRanker, search
from colabel.collective import choose_feedback, expand, extract
from colabel.data import Dataset
from tests.collective.small import SETTINGS


def test_prf_at_beta_zero_is_plain_search(dataset: Dataset, index: Index) -> None:
    texts = list(dataset.split_queries("test").values())
    plain, _ = index.search(index.encoder.encode_queries(texts).vectors, 10)
    for rerank in (False, True):
        rows, _ = PrfRanker(index, replace(SETTINGS, beta=0.0), rerank=rerank).rank(texts, 10)
        assert (rows == plain).all()


def test_prf_is_search_with_the_expanded_query(dataset: Dataset, index: Index) -> None:
    texts = list(dataset.split_queries("test").values())
    queries = index.encoder.encode_queries(texts).vectors
    first, _ = index.search(queries, 150)
    settings = replace(SETTINGS, feedback="top")
    centroids = extract(index, choose_feedback(first, settings), settings).first(4)
    expected, scores = index.search(expand(queries, centroids, 1.0, "normalised"), 10)
    found, values = PrfRanker(index, SETTINGS).rank(texts, 10)
    assert (found == expected).all()
    assert np.abs(values - scores).max() < 1e-5
    again, _ = PrfRanker(index, SETTINGS, rerank=True).rank(texts, 10)
    for place in range(len(texts)):
        assert set(again[place]) == set(first[place, :10]), "the re-ranker finds no other passages"
    assert (again != first[:, :10]).any()
    assert len(search(index, "glacier ice", 3, ranker=PrfRanker(index, SETTINGS))) == 3

"""Merging what shards found: as one index over all of them would rank, ties and empty places included."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colabel.index.exact import TokenShard, search_exact
from colabel.index.merging import merge_nearest, merge_rankings

EMPTY = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.float32)


def scores(*values: float) -> np.ndarray:
    return np.array([values], dtype=np.float32)


def rows(*values: int) -> np.ndarray:
    return np.array([values], dtype=np.int64)


def test_ties_go_by_rank_also_at_the_cut_and_in_any_order_of_shards() -> None:
    ranks = np.array([3, 1, 0, 2], dtype=np.int32)
    parts = [(rows(0, 1), scores(1.0, 1.0)), (rows(2, 3), scores(1.0, 0.5))]
    for order in (parts, parts[::-1]):
        found, values = merge_rankings(order, 1, 2, ranks)
        assert found.tolist() == [[2, 1]]
        assert values.tolist() == [[1.0, 1.0]]


def test_places_that_are_empty_stay_last() -> None:
    ranks = np.arange(4, dtype=np.int32)
    parts = [(rows(0, -1), scores(-5.0, -np.inf)), EMPTY, (rows(3), scores(-0.0))]
    found, values = merge_rankings(parts, 1, 4, ranks)
    assert found.tolist() == [[3, 0, -1, -1]]
    assert values.tolist() == [[0.0, -5.0, -np.inf, -np.inf]]
    nothing, _ = merge_rankings([], 2, 3, ranks)
    assert nothing.tolist() == [[-1] * 3] * 2


def test_nearest_tokens_of_equal_similarity_go_by_shard() -> None:
    first = (0, np.array([[7, 8]], np.int32), scores(0.5, 0.25))
    second = (1, np.array([[5, 6]], np.int32), scores(0.5, 0.5))
    for order in ([first, second], [second, first]):
        ids, near = merge_nearest(order, 1, 3)
        assert ids.tolist() == [[7, 5, 6]]
        assert near.tolist() == [[0.5, 0.5, 0.5]]
    assert merge_nearest([], 1, 2)[0].tolist() == [[-1, -1]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shards_rank_as_one_index(data: st.DataObject) -> None:
    """Few distinct vectors, so that many passages tie; shards of any size, also of a single passage."""
    seed = data.draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 3, size=data.draw(st.integers(1, 30)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    vectors = random.integers(-1, 2, size=(int(offsets[-1]), 4)).astype(np.float32)
    queries = torch.from_numpy(random.integers(-1, 2, size=(3, 2, 4)).astype(np.float32))
    ranks = random.permutation(len(lengths)).astype(np.int32)
    k = data.draw(st.integers(1, 40))
    cuts = data.draw(st.sets(st.integers(1, len(lengths)), max_size=4))
    whole_scores, whole_rows = search_exact(queries, [TokenShard(vectors, offsets)], k, tie_ranks=ranks, threads=1)

    def part(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        here = TokenShard(vectors[offsets[first] : offsets[last]], offsets[first : last + 1] - offsets[first])
        order = np.argsort(np.argsort(ranks[first:last])).astype(np.int32)
        found, places = search_exact(queries, [here], k, tie_ranks=order, threads=1)
        return np.where(places.numpy() >= 0, places.numpy() + first, -1), found.numpy()

    bounds = sorted({0, *cuts, len(lengths)})
    parts = [part(first, last) for first, last in itertools.pairwise(bounds)]
    random.shuffle(parts)
    merged_rows, merged_scores = merge_rankings(parts, 3, k, ranks)
    assert merged_rows.tolist() == whole_rows.tolist()
    assert merged_scores.tolist() == whole_scores.tolist()

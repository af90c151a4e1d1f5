"""Exact search against a sort of loop-only scores, and its independence of blocks, shards and threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.util.similarity import maxsim

from colabel.errors import UsageError
from colabel.index import exact
from colabel.index.codec import make_codec
from colabel.index.exact import decode_keys, encode_keys, limited_threads, search_exact
from colabel.maxsim import TokenShard, plain, score_rows
from tests.test_maxsim import ragged, reference_score, unit_vectors

SMALL = {"BLOCK_TOKENS": 7, "BLOCK_QUERY_TOKENS": 16, "BATCH_TOKENS": 10, "WINDOW_TOKENS": 25}


@contextmanager
def blocks(**sizes: int) -> Iterator[None]:
    """Other sizes of what is worked on at a time."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(exact, name, size)
        yield


def shard_of(rng: np.random.Generator, lengths: list[int], dimension: int = 8, first_row: int = 0) -> TokenShard:
    vectors, offsets = ragged(rng, lengths, dimension)
    return TokenShard(plain(vectors), offsets, first_row)


def passages_of(shard: TokenShard) -> list[npt.NDArray[np.float16]]:
    return [shard.vectors.arrays[0][a:b] for a, b in pairwise(shard.offsets)]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 5),
    query_length=st.integers(1, 6),
    lengths=st.lists(st.lists(st.integers(0, 12), max_size=7), min_size=1, max_size=3),
    k=st.integers(1, 12),
    threads=st.integers(1, 3),
    small=st.booleans(),
)
def test_search_equals_sorting_loop_only_scores(
    seed: int, count: int, query_length: int, lengths: list[list[int]], k: int, threads: int, small: bool
) -> None:
    rng = np.random.default_rng(seed)
    queries = unit_vectors(rng, count, query_length, 8)
    shards, row = [], 5
    for part in lengths:
        shards.append(shard_of(rng, part, first_row=row))
        row += len(part)
    with blocks(**SMALL if small else {}), limited_threads(threads):
        scores, rows = search_exact(queries, shards[::-1], k)
    for query, found, found_rows in zip(queries, scores.tolist(), rows.tolist(), strict=True):
        expected = {
            shard.first_row + place: reference_score(query, passage)
            for shard in shards
            for place, passage in enumerate(passages_of(shard))
            if len(passage)
        }
        size = min(k, len(expected))
        assert found[:size] == pytest.approx(sorted(expected.values(), reverse=True)[:size], abs=1e-4)
        # Row by row rather than in order: float32 and float64 may disagree about which of two is better.
        assert found[:size] == pytest.approx([expected[row] for row in found_rows[:size]], abs=1e-4)
        assert len(set(found_rows[:size])) == size
        assert (found[size:], found_rows[size:]) == ([-np.inf] * (k - size), [-1] * (k - size))


@pytest.fixture(scope="module")
def collection() -> TokenShard:
    """600 passages of 1 to 180 tokens; dimension 128."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(3.5, 0.8, 600), 1, 180).astype(int).tolist()
    lengths[17], lengths[400] = 0, 0
    return shard_of(rng, lengths, 128, first_row=1000)


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return unit_vectors(np.random.default_rng(2), 9, 42, 128)


def assert_same_ranking(found: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Same rows and scores, except that passages whose scores differ by less than 1e-5 may change places."""
    scores, rows = expected
    torch.testing.assert_close(found[0], scores, atol=1e-5, rtol=0)
    for place in (found[1] != rows).nonzero().tolist():
        query = place[0]
        mine = dict(zip(rows[query].tolist(), scores[query].tolist(), strict=True))
        there = found[1][tuple(place)].item()
        assert abs(mine.get(there, scores[query, -1].item()) - scores[tuple(place)].item()) < 1e-5


def test_search_equals_sentence_transformers(collection: TokenShard, queries: torch.Tensor) -> None:
    full = np.flatnonzero(np.diff(collection.offsets))
    passages = passages_of(collection)
    theirs, order = maxsim(queries, [torch.from_numpy(passages[i]).float() for i in full]).sort(
        descending=True, stable=True
    )
    expected_rows = torch.from_numpy(full + 1000)[order]
    assert_same_ranking(search_exact(queries, [collection], 50), (theirs[:, :50], expected_rows[:, :50]))


@pytest.mark.parametrize(
    "sizes",
    [
        *({"BLOCK_TOKENS": size} for size in (3, 100, 10**6)),
        *({"BLOCK_QUERY_TOKENS": size} for size in (7, 10**6)),
        *({"BATCH_TOKENS": size} for size in (1, 100)),
        *({"WINDOW_TOKENS": size} for size in (1, 500)),
        {"BLOCK_TOKENS": 64, "BLOCK_QUERY_TOKENS": 48, "BATCH_TOKENS": 90, "WINDOW_TOKENS": 999},
    ],
    ids=str,
)
def test_block_sizes_do_not_matter(collection: TokenShard, queries: torch.Tensor, sizes: dict[str, int]) -> None:
    expected = search_exact(queries[:3], [collection], 30)
    with blocks(**sizes):
        assert_same_ranking(search_exact(queries[:3], [collection], 30), expected)


def test_repeated_searches_are_identical(collection: TokenShard, queries: torch.Tensor) -> None:
    scores, rows = search_exact(queries, [collection], 30)
    for _ in range(3):
        again = search_exact(queries, [collection], 30)
        assert torch.equal(again[0], scores)
        assert torch.equal(again[1], rows)


def test_read_only_memory_map_of_float16_float32_and_int8(
    collection: TokenShard, queries: torch.Tensor, tmp_path: Path
) -> None:
    expected = search_exact(queries, [collection], 30)
    half = collection.vectors.arrays[0]
    np.save(tmp_path / "half.npy", half)
    np.save(tmp_path / "single.npy", half.astype(np.float32))
    for name in ("half", "single"):
        vectors = plain(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
        assert_same_ranking(search_exact(queries, [TokenShard(vectors, collection.offsets, 1000)], 30), expected)
    codec = make_codec("int8")
    for number, array in enumerate(codec.encode(half)):
        np.save(tmp_path / f"{number}.npy", array)
    arrays = [np.load(tmp_path / f"{number}.npy", mmap_mode="r") for number in range(2)]
    steps = TokenShard(codec.stored(arrays, 128), collection.offsets, 1000)
    decoded = TokenShard(plain(steps.vectors.vectors(slice(None))), collection.offsets, 1000)
    assert_same_ranking(search_exact(queries, [steps], 30), search_exact(queries, [decoded], 30))
    rows = np.tile(np.arange(1000, 1600), (len(queries), 1))
    pieces = score_rows(queries, [shard_of(np.random.default_rng(0), [3], 128), steps], rows)
    torch.testing.assert_close(pieces, score_rows(queries, [decoded], rows), atol=1e-5, rtol=0)


def test_only_allowed_passages_are_returned(collection: TokenShard, queries: torch.Tensor) -> None:
    rng = np.random.default_rng(3)
    allowed = rng.random(1700) < 0.1
    scores, rows = search_exact(queries, [collection], 600, allowed=allowed)
    every_score, every_row = search_exact(queries, [collection], 600)
    for query in range(len(queries)):
        kept = [row >= 0 and bool(allowed[row]) for row in every_row[query].tolist()]
        count = sum(kept)
        assert rows[query, :count].tolist() == every_row[query][kept].tolist()
        assert torch.allclose(scores[query, :count], every_score[query][kept], atol=1e-5)
        assert (rows[query, count:] == -1).all()
    nothing = search_exact(queries, [collection], 2, allowed=np.zeros(1600, dtype=np.bool_))
    assert (nothing[1] == -1).all()


def test_equal_scores_are_ordered_by_row() -> None:
    """Twenty copies of two passages, found with equal scores whatever block they are in."""
    good, bad = np.full((2, 4), 0.5, np.float16), np.full((3, 4), 0.25, np.float16)
    vectors = np.concatenate([bad, good] * 20)
    offsets = np.cumsum([0, *[3, 2] * 20])
    for sizes in ({}, SMALL, {"WINDOW_TOKENS": 7}):
        for first_row in (0, 2**32 - 40):
            shard = TokenShard(plain(vectors), offsets, first_row)
            with blocks(**sizes):
                _, rows = search_exact(torch.ones(2, 3, 4), [shard], 25)
            expected = [*range(1, 40, 2), *range(0, 10, 2)]
            assert (rows - first_row).tolist() == [expected, expected]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_collection_without_tokens(lengths: list[int]) -> None:
    rng = np.random.default_rng(5)
    for shards in ([], [shard_of(rng, lengths)]):
        scores, rows = search_exact(torch.ones(2, 3, 8), shards, 4)
        assert scores.tolist() == [[-np.inf] * 4] * 2
        assert rows.tolist() == [[-1] * 4] * 2


def test_no_queries() -> None:
    scores, rows = search_exact(torch.ones(0, 3, 8), [shard_of(np.random.default_rng(6), [2, 3])], 4)
    assert (scores.shape, scores.dtype) == ((0, 4), torch.float32)
    assert (rows.shape, rows.dtype) == ((0, 4), torch.int64)


def test_search_within_inference_mode() -> None:
    shard = shard_of(np.random.default_rng(7), [2, 3])
    with torch.inference_mode():
        _, rows = search_exact(torch.ones(1, 3, 8), [shard], 2)
        assert sorted(rows[0].tolist()) == [0, 1]


def test_rows_of_several_shards_are_scored(collection: TokenShard, queries: torch.Tensor) -> None:
    rng = np.random.default_rng(8)
    other = shard_of(rng, [5, 0, 80], 128, first_row=3)
    scores, rows = search_exact(queries, [collection, other], 40)
    shuffled = rng.permuted(rows.numpy(), axis=1)
    shuffled[2, 5], shuffled[3, 0], shuffled[3, 1] = -1, 4, 1017
    rescored = score_rows(queries, [other, collection], shuffled)
    assert rescored[2, 5] == -np.inf
    assert rescored[3, :2].tolist() == [-np.inf, -np.inf]
    for query in (0, 1, 4):
        known = dict(zip(rows[query].tolist(), scores[query].tolist(), strict=True))
        expected = [known[row] for row in shuffled[query].tolist()]
        assert rescored[query].tolist() == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UsageError, match="rows go from 3 to 6"):
        score_rows(queries[:1], [shard_of(rng, [1, 2, 3], 128), other], np.array([[3, 6]]))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40), st.integers(0, 2**32 - 41))
def test_keys_order_scores_then_rows(values: list[float], first: int) -> None:
    scores, rows = torch.tensor(values, dtype=torch.float32), torch.arange(len(values)) + first
    keys = encode_keys(scores, rows)
    expected = sorted(range(len(values)), key=lambda i: (-scores[i].item(), i))
    assert keys.argsort(descending=True).tolist() == expected
    back, back_rows = decode_keys(keys)
    assert torch.equal(back, scores)
    assert torch.equal(back_rows, rows)


class Listener:
    """A progress that adds up what it hears."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.done, self.closed = 0, False
        self.thread = threading.get_ident()

    def start(self, what: str, total: int | None, unit: str) -> Listener:
        self.total = total
        return self

    def advance(self, steps: int = 1) -> None:
        assert threading.get_ident() == self.thread
        self.done += steps

    def close(self) -> None:
        self.closed = True


def test_progress_adds_up(collection: TokenShard, queries: torch.Tensor) -> None:
    listener = Listener()
    with blocks(WINDOW_TOKENS=5000, BATCH_TOKENS=100):
        search_exact(queries, [collection], 3, progress=listener)
    assert listener.done == listener.total == 9 * 598
    assert listener.closed


def test_wrong_calls_are_refused() -> None:
    shard = shard_of(np.random.default_rng(9), [2, 3], first_row=4)
    for call, message in (
        (lambda: search_exact(torch.ones(3, 8), [shard], 1), "float32 tensor"),
        (lambda: search_exact(torch.ones(1, 3, 9), [shard], 1), "9 dimensions, passages 8"),
    ):
        with pytest.raises(UsageError, match=message):
            call()


def test_damaged_shards_are_refused() -> None:
    vectors = plain(np.ones((5, 8), np.float16))
    for damaged, message in (
        (lambda: plain(np.ones((5, 8))), "must be float16"),
        (lambda: TokenShard(vectors, np.array([0, 6])), "rise from 0 to the number of token vectors, 5"),
        (lambda: TokenShard(vectors, np.array([0, 3, 2, 5])), "rise from 0"),
    ):
        with pytest.raises(UsageError, match=message):
            damaged()

"""Late-interaction scores against numbers checked by hand, a loop-only reference and sentence-transformers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
from sentence_transformers.util.similarity import maxsim

from colabel.errors import UsageError
from colabel.index.exact import limited_threads
from colabel.maxsim import Scorer, Spans, StoredVectors, chunks_by_length, fold_weights, plain, score_candidates
from colabel.workers import Workers


def reference_score(query: npt.ArrayLike, passage: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Eq. (1) of ColBERT in float64, one loop per index: Σ_i w_i · max_j Σ_d q_id · p_jd."""
    query, passage = np.asarray(query, dtype=np.float64), np.asarray(passage, dtype=np.float64)
    weights = np.ones(len(query)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(passage):
        return -np.inf
    total = 0.0
    for q, weight in zip(query, weights, strict=True):
        best = -np.inf
        for p in passage:
            similarity = 0.0
            for a, b in zip(q, p, strict=True):
                similarity += a * b
            best = max(best, similarity)
        total += weight * best
    return total


def unit_vectors(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    vectors = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return torch.nn.functional.normalize(vectors, dim=-1)


def ragged(
    rng: np.random.Generator, lengths: list[int], dimension: int
) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.int64]]:
    """A store of passages of the given lengths: float16 vectors and int64 offsets."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return unit_vectors(rng, int(offsets[-1]), dimension).half().numpy(), offsets


def padded(passages: list[torch.Tensor]) -> torch.Tensor:
    """Stack passages [L, D] of different lengths, the shorter ones padded by their last token."""
    longest = max(map(len, passages))
    return torch.stack([torch.cat([p, p[-1:].expand(longest - len(p), -1)]) for p in passages])


def score_all(
    queries: torch.Tensor,
    passages: torch.Tensor,
    lengths: npt.NDArray[np.int64] | None = None,
) -> torch.Tensor:
    """Every query against every passage [P, L, D], of which the first ``lengths`` tokens count."""
    count, longest, _ = passages.shape
    sizes = np.full(count, longest) if lengths is None else lengths
    tokens = [passage[:size] for passage, size in zip(passages, sizes, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.tile(np.arange(count), (len(queries), 1))
    stored = torch.cat(tokens) if tokens else passages.reshape(0, passages.shape[2])
    return score_candidates(queries, stored, offsets, rows)


def test_score_by_hand() -> None:
    query = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    passages = torch.tensor([[[0.6, 0.8], [0.8, 0.6]], [[-1.0, 0.0], [0.0, -1.0]], [[2.0, -1.0], [-3.0, 0.5]]])
    assert score_all(query, passages)[0].tolist() == pytest.approx([0.8 + 0.8, 0.0 + 0.0, 2.0 + 0.5])


def test_all_similarities_negative_by_hand() -> None:
    """A maximum below zero must not be lifted to the zero of some padding."""
    query = torch.tensor([[[1.0, 0.0]]])
    vectors = np.array([[-0.5, 0.0], [-0.25, 0.0], [-1.0, 0.0]], dtype=np.float16)
    scores = score_candidates(query, vectors, np.array([0, 2, 3]), np.array([[0, 1]]))
    assert scores.tolist() == [[-0.25, -1.0]]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(1, 4),
    query_length=st.integers(1, 21),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    dimension=st.integers(1, 9),
)
def test_scores_equal_the_loop_reference(
    seed: int, queries: int, query_length: int, lengths: list[int], dimension: int
) -> None:
    rng = np.random.default_rng(seed)
    q = unit_vectors(rng, queries, query_length, dimension)
    vectors, offsets = ragged(rng, lengths, dimension)
    expected = np.array([[reference_score(one, vectors[a:b]) for a, b in pairwise(offsets)] for one in q])
    rows = np.tile(np.arange(len(lengths)), (queries, 1))
    np.testing.assert_allclose(score_candidates(q, vectors, offsets, rows), expected, atol=1e-4)
    full = [i for i, length in enumerate(lengths) if length]
    if full:
        passages = padded([torch.from_numpy(vectors[offsets[i] : offsets[i + 1]]).float() for i in full])
        np.testing.assert_allclose(score_all(q, passages), expected[:, full], atol=1e-4)


@pytest.mark.parametrize("query_length", [32, 42])
def test_scores_equal_sentence_transformers(query_length: int) -> None:
    rng = np.random.default_rng(1)
    queries = unit_vectors(rng, 5, query_length, 128)
    passages = [unit_vectors(rng, length, 128) for length in (3, 180, 90, 90, 17, 1, 64)]
    theirs = maxsim(queries, passages)
    assert torch.allclose(score_all(queries, padded(passages)), theirs, atol=1e-4)
    even = unit_vectors(rng, 5, 1, 30, 128)
    assert torch.allclose(score_all(queries, even[:, 0]), colbert_scores(queries, even), atol=1e-4)

    offsets = np.cumsum([0, *map(len, passages)])
    rows = np.stack([rng.permutation(len(passages)) for _ in queries])
    scores = score_candidates(queries, torch.cat(passages), offsets, rows)
    assert torch.allclose(scores, theirs.gather(1, torch.from_numpy(rows)), atol=1e-4)


def test_blocks_larger_than_one_matrix_product() -> None:
    """More query tokens and passage tokens than fit a block, neither a multiple of it."""
    rng = np.random.default_rng(2)
    queries, passages = unit_vectors(rng, 41, 30, 16), unit_vectors(rng, 101, 47, 16)
    assert torch.allclose(score_all(queries, passages), maxsim(queries, passages), atol=1e-4)


def test_weights_multiply_each_tokens_maximum() -> None:
    rng = np.random.default_rng(3)
    queries, passages = unit_vectors(rng, 3, 7, 8), unit_vectors(rng, 4, 5, 8)
    weights = torch.from_numpy(rng.random((3, 7), dtype=np.float32) * 3)
    weights[0, 0] = 0
    expected = [[reference_score(q, p, w) for p in passages] for q, w in zip(queries, weights, strict=True)]
    np.testing.assert_allclose(score_all(fold_weights(queries, weights), passages), expected, atol=1e-4)


@pytest.mark.parametrize("weight", [-1e-6, float("nan")])
def test_negative_weights_are_refused(weight: float) -> None:
    with pytest.raises(UsageError, match="weights ≥ 0"):
        fold_weights(torch.ones(1, 2, 3), torch.tensor([[1.0, weight]]))


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(UsageError, match="one weight per query token"):
        fold_weights(torch.ones(2, 5, 3), torch.ones(5))


@given(extra=st.integers(0, 40), seed=st.integers(0, 100))
@settings(deadline=None, max_examples=20)
def test_zero_vectors_pad_a_query(extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, passages = unit_vectors(rng, 2, 5, 8), unit_vectors(rng, 3, 6, 8)
    longer = torch.nn.functional.pad(queries, (0, 0, 0, extra))
    assert torch.allclose(score_all(longer, passages), score_all(queries, passages), atol=1e-6)


def test_tokens_beyond_a_passages_length_do_not_matter() -> None:
    rng = np.random.default_rng(10)
    queries, passages = unit_vectors(rng, 3, 5, 8), unit_vectors(rng, 4, 6, 8)
    lengths = np.array([6, 1, 0, 4])
    passages[1, 1:], passages[2], passages[3, 4:] = torch.nan, torch.inf, 0
    expected = [[reference_score(q, p[:n]) for p, n in zip(passages, lengths, strict=True)] for q in queries]
    np.testing.assert_allclose(score_all(queries, passages, lengths), expected, atol=1e-4)


def test_zero_vectors_add_exactly_nothing() -> None:
    passages = unit_vectors(np.random.default_rng(4), 3, 6, 8)
    assert score_all(torch.zeros(1, 5, 8), passages).tolist() == [[0.0, 0.0, 0.0]]


def test_order_and_repetition_of_passage_tokens_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    queries, passage = unit_vectors(rng, 2, 5, 8), unit_vectors(rng, 6, 8)
    expected = score_all(queries, passage[None])
    for order in ([5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 5, 5, 0]):
        assert torch.allclose(score_all(queries, passage[None, order]), expected, atol=1e-6)


def test_candidates_may_be_missing_empty_or_repeated() -> None:
    rng = np.random.default_rng(6)
    vectors, offsets = ragged(rng, [4, 0, 2], 8)
    queries = unit_vectors(rng, 2, 3, 8)
    scores = score_candidates(queries, vectors, offsets, np.array([[2, -1, 1, 2], [-1, -1, -1, -1]]))
    expected = reference_score(queries[0], vectors[4:6])
    assert scores[0].tolist() == pytest.approx([expected, -np.inf, -np.inf, expected], abs=1e-4)
    assert scores[1].tolist() == [-np.inf] * 4


def test_candidates_of_vectors_in_any_storage() -> None:
    """Two arrays with a row per token: steps and what they are multiplied with."""
    rng = np.random.default_rng(7)
    steps, scales = rng.integers(-127, 128, (9, 8), dtype=np.int8), rng.random(9).astype(np.float16) / 127
    queries = unit_vectors(rng, 2, 3, 8)

    def decode(rows: Sequence[torch.Tensor], vectors: torch.Tensor) -> None:
        vectors.copy_(rows[0] * rows[1].float()[:, None])

    restored = steps * scales[:, None].astype(np.float64)
    kept = StoredVectors((steps, scales), 8, decode)
    scores = score_candidates(queries, kept, np.array([0, 4, 9]), np.array([[0, 1], [1, 0]]))
    one, two = restored[:4], restored[4:]
    expected = [
        [reference_score(queries[0], p) for p in (one, two)],
        [reference_score(queries[1], p) for p in (two, one)],
    ]
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_many_candidates_of_many_lengths() -> None:
    rng = np.random.default_rng(8)
    lengths = [*rng.integers(1, 200, 150).tolist(), 3000]
    vectors, offsets = ragged(rng, lengths, 16)
    queries = unit_vectors(rng, 6, 42, 16)
    rows = np.stack([rng.permutation(151)[:120] for _ in range(6)])
    expected = maxsim(queries, [torch.from_numpy(vectors[a:b]).float() for a, b in pairwise(offsets)])
    for threads in (1, 2, 3):
        with limited_threads(threads):
            scores = score_candidates(queries, vectors, offsets, rows)
        assert torch.allclose(scores, expected.gather(1, torch.from_numpy(rows)), atol=1e-4)


@pytest.mark.parametrize(("queries", "length", "passages", "tokens"), [(0, 3, 2, 4), (2, 3, 0, 4), (2, 3, 2, 0)])
def test_nothing_to_score(queries: int, length: int, passages: int, tokens: int) -> None:
    scores = score_all(torch.ones(queries, length, 8), torch.ones(passages, tokens, 8))
    assert scores.shape == (queries, passages)
    assert (scores == -torch.inf).all()


def test_a_query_without_tokens_scores_zero() -> None:
    assert score_all(torch.ones(1, 0, 8), torch.ones(2, 3, 8)).tolist() == [[0.0, 0.0]]


def test_no_queries_or_no_candidates() -> None:
    vectors, offsets = np.ones((3, 8), np.float16), np.array([0, 3])
    assert score_candidates(torch.ones(0, 3, 8), vectors, offsets, np.zeros((0, 5), np.int64)).shape == (0, 5)
    assert score_candidates(torch.ones(2, 3, 8), vectors, offsets, np.zeros((2, 0), np.int64)).shape == (2, 0)


def test_wrong_shapes_and_types_are_refused() -> None:
    with pytest.raises(UsageError, match="float32 tensor"):
        score_all(torch.ones(1, 2, 8, dtype=torch.float16), torch.ones(1, 2, 8))
    with pytest.raises(UsageError, match="8 dimensions, passages 4"):
        score_all(torch.ones(1, 2, 8), torch.ones(1, 2, 4))
    store = np.ones((3, 8), np.float16), np.array([0, 3])
    with pytest.raises(UsageError, match="do not fit 1 queries"):
        score_candidates(torch.ones(1, 2, 8), *store, np.array([[0], [0]]))
    for row in (1, -2):
        with pytest.raises(UsageError, match="passages from 0 to 0"):
            score_candidates(torch.ones(1, 2, 8), *store, np.array([[row]]))


def test_queries_that_need_gradients_or_come_from_inference_are_scored() -> None:
    passages, vectors = torch.ones(3, 2, 8), np.ones((3, 8), np.float16)
    with torch.inference_mode():
        queries = torch.ones(2, 4, 8)
        assert score_all(queries, passages).tolist() == [[32.0] * 3] * 2
        assert score_candidates(queries, vectors, np.array([0, 3]), np.array([[0], [0]])).tolist() == [[32.0], [32.0]]
    assert score_all(torch.ones(2, 4, 8, requires_grad=True), passages).tolist() == [[32.0] * 3] * 2


@given(lengths=st.lists(st.integers(0, 50), max_size=60), query_tokens=st.integers(0, 600), block=st.integers(1, 40))
def test_every_passage_with_tokens_is_in_one_block(lengths: list[int], query_tokens: int, block: int) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    chunks = chunks_by_length(sizes, query_tokens, block)
    members = [int(passage) for chunk in chunks for group in chunk for passage in group]
    assert sorted(members) == np.flatnonzero(sizes).tolist()
    for chunk in chunks:
        for group in chunk:
            assert sizes[group[0]] == sizes[group].max()
            assert len(group) * sizes[group[0]] <= block or (len(group) == len(chunk) == 1)


def test_long_passages_are_scored_in_pieces() -> None:
    rng = np.random.default_rng(9)
    queries, vectors = unit_vectors(rng, 3, 5, 8), unit_vectors(rng, 23, 8).half().numpy()
    for block in (1, 4, 22, 23, 24):
        scorer = Scorer(queries, block_tokens=block)
        chunks = chunks_by_length(np.array([23]), 15, block)
        spans = Spans(np.array([0]), np.array([0]), np.array([23]))
        scores = [scorer.score_stored([plain(vectors)], spans, chunk) for chunk in chunks]
        np.testing.assert_allclose(scores, [[[reference_score(q, vectors) for q in queries]]], atol=1e-4)


def test_torch_keeps_its_number_of_threads() -> None:
    before = torch.get_num_threads()
    score_all(torch.ones(1, 2, 8), torch.ones(3, 2, 8))
    seen = []
    born_later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    born_later.start()
    born_later.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


def test_an_error_in_one_thread_stops_all() -> None:
    done = []

    def work(items: Iterator[int]) -> None:
        for item in items:
            if item == 3:
                raise ValueError("item 3")
            done.append(item)

    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="item 3"), Workers(1) as workers:
        workers.share(range(10**9), work)
    assert done == [0, 1, 2]
    assert torch.get_num_threads() == before


def test_threads_share_each_item_once() -> None:
    done: list[int] = []
    with Workers(4) as workers:
        workers.share(range(2000), done.extend)
    assert sorted(done) == list(range(2000))


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Workers(0)


def test_zero_vectors_behind_a_query_change_no_bit() -> None:
    """A query alone and the same query padded in a batch have the same scores, not merely similar ones."""
    generator = torch.Generator().manual_seed(5)
    maxima = torch.randn(200, 13, generator=generator)
    padded = torch.nn.functional.pad(maxima, (0, 19))
    alone, wide = Scorer(torch.zeros(1, 13, 8)), Scorer(torch.zeros(1, 32, 8))
    assert (alone._sum(maxima) == wide._sum(padded)).all()


def test_overlapping_workers_leave_the_number_of_threads_as_it_was() -> None:
    """A search in a second thread, begun while another runs, must not take its one torch thread for the default."""
    before = _threads_of_a_new_thread()
    outer = Workers(2)
    outer.share(range(4), lambda items: list(items) and None)

    def second() -> None:
        inner = Workers()
        outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert _threads_of_a_new_thread() == before


def _threads_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]

"""An index in shards against one in a single piece: rankings, scores, vectors, nearest tokens, statistics."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colabel import CollectiveSettings, Dataset, EncoderSettings, Index, IndexSettings, build_index, load_dataset
from colabel.collective import choose_feedback, extract
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index import nearest_tokens as lookups
from colabel.index import shards
from colabel.index.exact import search_exact
from colabel.index.shard_plan import ShardLayout
from colabel.index.shards import ShardedIndex, Shards, build_sharded, merge_nearest, merge_rankings, plan_shards
from colabel.maxsim import TokenShard, plain
from colabel.settings import ComputeSettings
from tests.conftest import WORDS, kill_once
from tests.index.small import write_corpus


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colabel.index.store.BLOCK_PASSAGES", 8)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded") / "collection"
    folder.mkdir()
    choose = random.Random(0)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(2, 20))) for _ in range(60)]
    texts[3] = texts[50] = texts[17]  # equal scores in different shards
    texts[5] = ""
    texts[32:40] = [""] * 8  # a whole shard without a token
    lines = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def collection(folder: Path) -> Dataset:
    return load_dataset(str(folder), cache=folder.parent / "data")


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(tiny_model), dimension=16, passage_length=24, device="cpu")


@pytest.fixture(scope="module")
def whole(collection: Dataset, encoder: EncoderSettings, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(
        collection, tmp_path_factory.mktemp("whole") / "index", encoder=encoder, index=IndexSettings(engine="exact")
    )


def build(
    collection: Dataset,
    encoder: EncoderSettings,
    out: Path,
    engine: str = "exact",
    storage: str = "fp16",
) -> ShardedIndex:
    source = plan_shards(collection, out, encoder, storage, ComputeSettings(shard_passages=8))
    return build_sharded(collection, out, Shards(source), engine=engine)


@pytest.fixture(scope="module")
def parts(collection: Dataset, encoder: EncoderSettings, tmp_path_factory: pytest.TempPathFactory) -> ShardedIndex:
    return build(collection, encoder, tmp_path_factory.mktemp("parts") / "index")


def queries(index: Index) -> torch.Tensor:
    texts = ["glacier cave", "ice of summer", "how are fjord sides made", "harbour", "a long narrow inlet"]
    return index.encoder.encode_queries(texts).vectors


def test_ranks_as_one_piece(whole: Index, parts: ShardedIndex) -> None:
    for k in (1, 7, 60, 100):
        rows, scores = whole.search(queries(whole), k)
        found, values = parts.search(queries(whole), k)
        np.testing.assert_array_equal(found, rows)
        np.testing.assert_allclose(values, scores, atol=1e-5)
    allowed = np.arange(60) % 3 == 0
    np.testing.assert_array_equal(
        parts.search(queries(whole), 9, allowed=allowed)[0], whole.search(queries(whole), 9, allowed=allowed)[0]
    )


def test_residual_shards_share_what_one_piece_learns(
    collection: Dataset, encoder: EncoderSettings, tmp_path: Path
) -> None:
    settings = IndexSettings(engine="exact", storage="residual")
    whole = build_index(collection, tmp_path / "whole", encoder=encoder, index=settings)
    parts = build(collection, encoder, tmp_path / "parts", storage="residual")
    assert parts.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(parts.store.vectors(range(60))[0], whole.store.vectors(range(60))[0])
    scores = whole.search(queries(whole), 60)[1]
    for index in (parts, Index.open(tmp_path / "parts")):
        np.testing.assert_allclose(index.search(queries(whole), 60)[1], scores, atol=1e-5)


def test_statistics_are_those_of_the_collection(whole: Index, parts: ShardedIndex) -> None:
    ours, theirs = parts.store, whole.store
    assert (len(ours), ours.tokens, ours.dimension) == (len(theirs), theirs.tokens, theirs.dimension)
    assert ours.special_token_ids == theirs.special_token_ids
    assert list(ours.ids) == list(theirs.ids)
    np.testing.assert_array_equal(ours.document_frequency, theirs.document_frequency)
    np.testing.assert_array_equal(ours.tie_ranks, theirs.tie_ranks)
    rows = np.array([[0, 17], [59, -1]])
    np.testing.assert_array_equal(ours.lengths(rows), theirs.lengths(rows))
    assert parts.fingerprint == whole.fingerprint
    assert ours.fingerprint == theirs.fingerprint


def test_vectors_tokens_and_scores_of_any_rows(whole: Index, parts: ShardedIndex) -> None:
    rows = np.array([50, 3, 5, 17, 3, 59])
    for ours, theirs in (
        (parts.store.vectors(rows), whole.store.vectors(rows)),
        (parts.store.passage_tokens(rows), whole.store.passage_tokens(rows)),
    ):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
    asked = queries(whole)[:2]
    wanted = np.array([[50, -1, 5, 0], [33, 17, 59, 3]])
    np.testing.assert_allclose(parts.store.score(asked, wanted), whole.store.score(asked, wanted), atol=1e-5)
    with pytest.raises(UsageError, match="rows go from 0 to 60"):
        parts.store.score(asked[:1], np.array([[0, 60]]))


def test_collective_centroids_are_the_same(whole: Index, parts: ShardedIndex) -> None:
    settings = CollectiveSettings(feedback="top", clusters=6, centroids=4)
    rows, _ = whole.search(queries(whole), 5)
    feedback = choose_feedback(rows, settings)
    ours, theirs = extract(parts, feedback, settings), extract(whole, feedback, settings)
    np.testing.assert_array_equal(ours.token_ids, theirs.token_ids)
    torch.testing.assert_close(ours.sigma, theirs.sigma)
    torch.testing.assert_close(ours.vectors, theirs.vectors)


def test_nearest_tokens_by_lists_are_the_same(
    whole: Index, collection: Dataset, encoder: EncoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of all shards have the centres of the collection, so the same tokens are compared."""
    vectors = whole.store.vectors(np.arange(20))[0]
    lookups.build_lookup(whole.store, tmp_path / "lookup")
    monkeypatch.setattr(shards, "LOOKUP_FROM", 1)
    monkeypatch.setattr(lookups, "REACH", 0.05)
    wanted = lookups.TokenLookup(tmp_path / "lookup", whole.store).nearest(torch.from_numpy(vectors), 5)
    index = build(collection, encoder, tmp_path / "index")
    found = index.nearest_tokens(torch.from_numpy(vectors), 5)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-5)
    assert (np.sort(found[0]) == np.sort(wanted[0])).mean() > 0.99, "equal similarities may come in another order"
    assert len(index.centres) > 1


def test_an_opened_index_needs_neither_the_collection_nor_its_builder(parts: ShardedIndex, whole: Index) -> None:
    opened = Index.open(parts.folder)
    assert isinstance(opened, ShardedIndex)
    assert opened.shards.source.device == "cpu", "as it was built"
    np.testing.assert_array_equal(opened.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])


def test_a_lost_shard_is_made_again_or_missed_with_a_sentence(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index")
    shutil.rmtree(tmp_path / "index" / "shard-00002")
    np.testing.assert_array_equal(index.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])
    assert (tmp_path / "index" / "shard-00002" / "index.json").exists()
    shutil.rmtree(tmp_path / "index" / "shard-00002")
    with pytest.raises(ArtefactError, match=r"shard 2 of 8 is not in .*; run the command that built the index once"):
        Index.open(tmp_path / "index").search(queries(whole), 5)


CHILD = """
import sys
from pathlib import Path
from colabel import load_dataset
from colabel.index import store
from colabel.index.shards import Shards, build_sharded, plan_shards
from colabel.settings import ComputeSettings, EncoderSettings
store.BLOCK_PASSAGES = 8
data, model, out = sys.argv[1:]
dataset = load_dataset(data, cache=Path(out).parent / "data")
encoder = EncoderSettings(model=model, dimension=16, passage_length=24, device="cpu")
source = plan_shards(dataset, Path(out), encoder, "fp16", ComputeSettings(shard_passages=8))
build_sharded(dataset, Path(out), Shards(source))
"""


def test_a_killed_build_keeps_finished_shards(folder: Path, tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    command = [sys.executable, "-c", CHILD, str(folder), str(tiny_model), str(out)]
    kill_once(lambda: len(list(out.glob("shard-*/index.json"))) >= 3, command)
    assert not (out / "index.json").exists(), "it was killed in the middle"
    kept = {path: path.stat().st_mtime_ns for path in out.glob("shard-*/index.json")}
    assert len(kept) >= 3
    subprocess.run(command, check=True, timeout=120)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list(out.glob("shard-*/index.json"))) == 8


def test_a_poisoned_batch_names_its_passages(
    collection: Dataset, encoder: EncoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colabel.encode import Encoder

    poison, original = collection.passages[21].full_text, Encoder._forward

    def forward(self: Encoder, texts: list[str], task: str) -> object:
        if poison in texts:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return original(self, texts, task)

    monkeypatch.setattr(Encoder, "_forward", forward)
    with pytest.raises(DataError, match=r"passages .*'d21'.*cannot be encoded: RuntimeError: CUDA error"):
        build(collection, encoder, tmp_path / "index")


def test_approximate_engine_in_every_shard(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index", engine="ivf")
    assert index.fingerprint != whole.fingerprint
    found, values = index.search(queries(whole), 5)
    rows, scores = whole.search(queries(whole), 5)
    assert (found == rows).mean() > 0.9
    np.testing.assert_allclose(values[found == rows], scores[found == rows], atol=1e-5)
    opened = Index.open(tmp_path / "index")
    np.testing.assert_array_equal(opened.search(queries(whole), 5)[0], found)
    assert json.loads((tmp_path / "index" / "shard-00000" / "index.json").read_text())["engine"] == "ivf"


def test_approximate_shards_find_as_much_as_one_approximate_index(
    encoder: EncoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(1)
    collection = load_dataset(str(write_corpus(tmp_path / "many", 1200)), cache=tmp_path / "data")
    monkeypatch.setattr("colabel.index.store.BLOCK_PASSAGES", 300)
    one = build_index(collection, tmp_path / "one", encoder=encoder, index=IndexSettings(engine="ivf"))
    source = plan_shards(collection, tmp_path / "four", encoder, "fp16", ComputeSettings(shard_passages=300))
    four = build_sharded(collection, tmp_path / "four", Shards(source), engine="ivf")
    assert len(source.layout) == 4
    asked = one.encoder.encode_queries([" ".join(choose.choices(WORDS, k=4)) for _ in range(40)]).vectors
    exact = search_exact(asked, one.store.shards, 100, tie_ranks=one.store.tie_ranks)[1].numpy()

    def recall(index: Index) -> float:
        found, _ = index.search(asked, 100)
        return float(np.mean([len(set(mine) & set(right)) / 100 for mine, right in zip(found, exact, strict=True)]))

    assert recall(four) > recall(one) - 0.02
    assert recall(one) > 0.9


def test_a_folder_that_is_not_seen_is_told_with_the_remedy(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index")
    again = ShardedIndex(index.folder, Shards(index.shards.source))
    shutil.rmtree(tmp_path / "index" / "encoder")
    with pytest.raises(ArtefactError, match="All nodes must see the folder"):
        again.search(queries(whole), 5)


def test_rows_have_owners() -> None:
    plan = ShardLayout(100, 24, "c", "e", "fp16", 8)
    assert len(plan) == 5
    assert [plan.rows(number) for number in (0, 4)] == [(0, 24), (96, 100)]
    assert plan.owners(np.array([[-1, 99], [0, 23]])).tolist() == [0, 4]


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
    whole_scores, whole_rows = search_exact(queries, [TokenShard(plain(vectors), offsets)], k, tie_ranks=ranks)

    def part(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        here = TokenShard(plain(vectors[offsets[first] : offsets[last]]), offsets[first : last + 1] - offsets[first])
        order = np.argsort(np.argsort(ranks[first:last])).astype(np.int32)
        found, places = search_exact(queries, [here], k, tie_ranks=order)
        return np.where(places.numpy() >= 0, places.numpy() + first, -1), found.numpy()

    bounds = sorted({0, *cuts, len(lengths)})
    parts = [part(first, last) for first, last in itertools.pairwise(bounds)]
    random.shuffle(parts)
    merged_rows, merged_scores = merge_rankings(parts, 3, k, ranks)
    assert merged_rows.tolist() == whole_rows.tolist()
    assert merged_scores.tolist() == whole_scores.tolist()

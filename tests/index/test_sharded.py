"""An index in shards against one in a single piece: rankings, scores, vectors, nearest tokens, statistics."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import WORDS

from colabel import CollectiveSettings, Dataset, EncoderSettings, Index, IndexSettings, build_index, load_dataset
from colabel.collective.extraction import extract
from colabel.collective.feedback import choose_feedback
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index import lookup as lookups
from colabel.index import sharded
from colabel.index.exact import search_exact
from colabel.index.remote import fetch, read_text
from colabel.index.sharded import LocalShards, ShardedIndex, build_sharded, plan_shards
from colabel.index.shards import ShardPlan
from colabel.settings import ComputeSettings

INDEX = IndexSettings(engine="exact", shard_passages=8)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("sharded") / "collection"
    (folder / "qrels").mkdir(parents=True)
    choose = random.Random(0)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(2, 20))) for _ in range(60)]
    texts[3] = texts[50] = texts[17]  # equal scores in different shards
    texts[5] = ""
    texts[32:40] = [""] * 8  # a whole shard without a token
    lines = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "glacier cave"}) + "\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return load_dataset(str(folder), cache=folder.parent / "data")


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(tiny_model), dimension=16, projection_sample=16, passage_length=24, device="cpu")


@pytest.fixture(scope="module")
def whole(collection: Dataset, encoder: EncoderSettings, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(collection, tmp_path_factory.mktemp("whole") / "index", encoder=encoder, index=INDEX)


def build(
    collection: Dataset, encoder: EncoderSettings, out: Path, index: IndexSettings = INDEX, **compute: object
) -> ShardedIndex:
    settings = ComputeSettings(shard_passages=8, **compute)  # type: ignore[arg-type]
    source = plan_shards(collection, out, encoder, index, settings)
    return build_sharded(collection, out, LocalShards(source, out.parent / "scratch"), index=index)


@pytest.fixture(scope="module", params=["folder", "file", "memory", "scratch"])
def parts(
    request: pytest.FixtureRequest,
    collection: Dataset,
    encoder: EncoderSettings,
    tmp_path_factory: pytest.TempPathFactory,
) -> ShardedIndex:
    place = tmp_path_factory.mktemp("parts")
    storage = {"folder": "", "file": f"file://{place}/far", "memory": "memory://far", "scratch": "scratch"}
    return build(collection, encoder, place / "index", storage=storage[request.param])


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
    wanted = lookups.TokenLookup(tmp_path / "lookup", whole.store, reach=0.05).nearest(torch.from_numpy(vectors), 5)
    monkeypatch.setattr(sharded, "LOOKUP_FROM", 1)
    monkeypatch.setattr(lookups, "REACH", 0.05)
    monkeypatch.setattr(lookups.TokenLookup.__init__, "__kwdefaults__", {"probes": lookups.PROBES, "reach": 0.05})
    index = build(collection, encoder, tmp_path / "index")
    found = index.nearest_tokens(torch.from_numpy(vectors), 5)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-5)
    assert (np.sort(found[0]) == np.sort(wanted[0])).mean() > 0.99, "equal similarities may come in another order"
    assert len(index.centres) > 1


def test_an_opened_index_needs_neither_the_collection_nor_its_builder(parts: ShardedIndex, whole: Index) -> None:
    if parts.shards.source.stays:
        pytest.skip("shards in a scratch folder are found by the processes that know it")
    opened = Index.open(parts.folder)
    np.testing.assert_array_equal(opened.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])


def test_a_remote_shard_is_fetched_by_a_process_that_has_none(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index", storage=f"file://{tmp_path}/far")
    shutil.rmtree(tmp_path / "scratch")
    bare = dataclasses.replace(index.shards.source, texts=None, model=None)
    elsewhere = ShardedIndex(index.folder, LocalShards(bare, tmp_path / "elsewhere"))
    np.testing.assert_array_equal(elsewhere.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])
    assert len(list((tmp_path / "elsewhere").glob("*/shard-*"))) == 8


def test_shards_reach_their_url_whatever_came_between(
    collection: Dataset, encoder: EncoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error while publishing, and where they lie on this machine for another place already."""

    def unreachable(folder: Path, url: str, last: str) -> None:
        raise ArtefactError(f"{url} cannot be written")

    build(collection, encoder, tmp_path / "index", storage="scratch")
    with monkeypatch.context() as patch:
        patch.setattr("colabel.index.desk.publish", unreachable)
        with pytest.raises(ArtefactError, match="cannot be written"):
            build(collection, encoder, tmp_path / "index", storage=f"file://{tmp_path}/far")
    for place in ("far", "farther"):
        build(collection, encoder, tmp_path / "index", storage=f"file://{tmp_path}/{place}")
        assert len(list((tmp_path / place).glob("*/shard-*/index.json"))) == 8
        assert not list((tmp_path / place).rglob(".*"))


def test_shards_on_other_nodes_are_missed_with_a_sentence(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index", storage="scratch")
    bare = dataclasses.replace(index.shards.source, texts=None)
    elsewhere = ShardedIndex(index.folder, LocalShards(bare, tmp_path / "elsewhere"))
    with pytest.raises(ArtefactError, match="is on the disk of another node of the cluster"):
        elsewhere.search(queries(whole), 5)


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


def test_a_stopped_build_keeps_finished_shards(
    collection: Dataset, encoder: EncoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colabel.encode import Encoder

    original, calls = Encoder.encode_passages, []

    def stopping(self: Encoder, texts: list[str], *rest: object) -> object:
        calls.append(texts)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, texts, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Encoder, "encode_passages", stopping)
    with pytest.raises(KeyboardInterrupt):
        build(collection, encoder, tmp_path / "index")
    assert not (tmp_path / "index" / "index.json").exists()
    build(collection, encoder, tmp_path / "index")
    assert len(calls) == 8 + 1, "three shards were there, the fourth was begun twice"


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
    index = build(collection, encoder, tmp_path / "index", dataclasses.replace(INDEX, engine="ivf"))
    assert index.fingerprint != whole.fingerprint
    found, values = index.search(queries(whole), 5)
    rows, scores = whole.search(queries(whole), 5)
    assert (found == rows).mean() > 0.9
    np.testing.assert_allclose(values[found == rows], scores[found == rows], atol=1e-5)
    opened = Index.open(tmp_path / "index")
    np.testing.assert_array_equal(opened.search(queries(whole), 5)[0], found)
    assert json.loads((tmp_path / "index" / "shard-00000" / "index.json").read_text())["engine"] == "ivf"


def test_approximate_shards_find_as_much_as_one_approximate_index(encoder: EncoderSettings, tmp_path: Path) -> None:
    choose = random.Random(1)
    (tmp_path / "many" / "qrels").mkdir(parents=True)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(4, 12))) for _ in range(1200)]
    lines = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "many" / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "many" / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "glacier cave"}) + "\n")
    (tmp_path / "many" / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    collection = load_dataset(str(tmp_path / "many"), cache=tmp_path / "data")
    near = IndexSettings(engine="ivf", shard_passages=300)
    one = build_index(collection, tmp_path / "one", encoder=encoder, index=near)
    source = plan_shards(collection, tmp_path / "four", encoder, near, ComputeSettings(shard_passages=300))
    four = build_sharded(collection, tmp_path / "four", LocalShards(source, tmp_path / "scratch"), index=near)
    assert len(source.plan) == 4
    asked = one.encoder.encode_queries([" ".join(choose.choices(WORDS, k=4)) for _ in range(40)]).vectors
    exact = search_exact(asked, one.store.shards, 100, tie_ranks=one.store.tie_ranks)[1].numpy()

    def recall(index: Index) -> float:
        found, _ = index.search(asked, 100)
        return float(np.mean([len(set(mine) & set(right)) / 100 for mine, right in zip(found, exact, strict=True)]))

    assert recall(four) > recall(one) - 0.02
    assert recall(one) > 0.9


def test_what_a_cleaner_of_disks_left_is_made_again(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index", storage="scratch")
    (home,) = (path for path in (tmp_path / "scratch").iterdir() if path.is_dir())
    (home / "shard-00001" / "tokens" / "manifest.json").unlink()
    (home / "encoder" / "manifest.json").unlink()
    again = ShardedIndex(index.folder, LocalShards(index.shards.source, tmp_path / "scratch"))
    np.testing.assert_array_equal(again.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])


def test_an_opened_index_makes_shards_as_it_was_built(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    chosen = dataclasses.replace(encoder, batch_tokens=512)
    build(collection, chosen, tmp_path / "index", storage="scratch", scratch=str(tmp_path / "scratch"))
    opened = Index.open(tmp_path / "index")
    assert isinstance(opened, ShardedIndex)
    source = opened.shards.source
    assert (source.encoder.batch_tokens, source.encoder.device) == (512, "cpu")
    np.testing.assert_array_equal(opened.search(queries(whole), 5)[0], whole.search(queries(whole), 5)[0])


def test_a_folder_that_is_not_seen_is_told_with_the_remedy(
    collection: Dataset, encoder: EncoderSettings, whole: Index, tmp_path: Path
) -> None:
    index = build(collection, encoder, tmp_path / "index")
    again = ShardedIndex(index.folder, LocalShards(index.shards.source, tmp_path / "scratch"))
    shutil.rmtree(tmp_path / "index" / "encoder")
    with pytest.raises(ArtefactError, match=r"set 'compute\.storage' to a URL or to 'scratch'"):
        again.search(queries(whole), 5)


def test_urls_that_hold_nothing_or_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtefactError, match="there is nothing"):
        fetch(f"file://{tmp_path}/empty", tmp_path / "here")
    assert not list(tmp_path.iterdir())

    class Locked:
        def cat_file(self, path: str) -> bytes:
            raise TypeError("Unable to locate credentials")

    monkeypatch.setattr("colabel.index.remote._open", lambda url: (Locked(), url))
    with pytest.raises(ArtefactError, match=r"cannot be read \(Unable to locate credentials\); check"):
        read_text("s3://bucket/file")


def test_shards_hold_whole_blocks() -> None:
    plan = ShardPlan.of(100, "c", "e", IndexSettings(shard_passages=8), wanted=20)
    assert (plan.shard_passages, len(plan)) == (24, 5)
    assert [plan.rows(number) for number in (0, 4)] == [(0, 24), (96, 100)]
    assert plan.owners(np.array([[-1, 99], [0, 23]])).tolist() == [0, 4]


def test_an_unknown_kind_of_url_is_a_sentence(collection: Dataset, encoder: EncoderSettings, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'nonsense://x.*' cannot be opened: .*URLs that fsspec knows"):
        build(collection, encoder, tmp_path / "index", storage="nonsense://x")

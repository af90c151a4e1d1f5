"""The forward pass of a training batch, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from colabel.encode.encoder import length_batches

_TOKENS_ON_CPU, _TOKENS_ON_GPU = 1024, 32_768  # that go through the model at once


def embed(model: Any, features: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Token vectors [texts, length, D] and their scoring mask [texts, length], in the order of the texts.

    Texts of similar length go through the model together, so that a short one is not padded to the longest. The
    mask keeps its type: a float mask holds weights.
    """
    lengths = _lengths(features)
    budget = _TOKENS_ON_CPU if features["input_ids"].device.type == "cpu" else _TOKENS_ON_GPU
    order: list[int] = []
    vectors, masks = [], []
    for rows in length_batches(lengths, budget):
        output = model(_select(features, rows, max(lengths[row] for row in rows)), task=features["task"])
        vectors.append(output["token_embeddings"])
        masks.append(output["attention_mask"])
        order += rows
    back = torch.empty(len(order), dtype=torch.int64)
    back[torch.tensor(order)] = torch.arange(len(order))
    back = back.to(features["input_ids"].device)
    return _stack(vectors)[back], _stack(masks)[back]


def _lengths(features: dict[str, Any]) -> list[int]:
    """Tokens of each text, whatever side padding stands on; [MASK] tokens of an expanded query count."""
    taken = features["attention_mask"].bool()
    if "query_expansion_positions" in features:
        taken = taken | features["query_expansion_positions"].bool()
    if not bool(taken[:, 0].all()):  # padded on the left: nothing can be cut off behind
        return [int(taken.shape[1])] * len(taken)
    places = torch.arange(1, taken.shape[1] + 1, device=taken.device)
    return [max(1, int(length)) for length in (taken * places).amax(dim=1).tolist()]


def _select(features: dict[str, Any], rows: list[int], length: int) -> dict[str, Any]:
    """The features of some texts, cut to their longest."""
    index = torch.tensor(rows, device=features["input_ids"].device)
    width = features["input_ids"].shape[1]
    chosen = {}
    for name, value in features.items():
        if isinstance(value, Tensor) and value.dim() >= 1 and len(value) == len(features["input_ids"]):
            part = value[index]
            chosen[name] = part[:, :length] if part.dim() >= 2 and part.shape[1] == width else part
        else:
            chosen[name] = value
    return chosen


def _stack(parts: list[Tensor]) -> Tensor:
    """Concatenate [texts, length, …] of different lengths, zeros behind the shorter ones."""
    longest = max(part.shape[1] for part in parts)
    padded = [torch.nn.functional.pad(part, (0, 0) * (part.dim() - 2) + (0, longest - part.shape[1])) for part in parts]
    return torch.cat(padded)

"""A BERT whose layers multiply 8-bit integers: passages on a CPU, with the instructions (VNNI) that are made for it.

Activations are written as x ≈ s·(q − z), q uint8, with ranges that were seen in a sample of passages, so a vector
depends on its passage alone, not on its batch. A few channels are many times as large as the others: before a product
they are divided by a power of their range that its weights are multiplied by (SmoothQuant, arXiv:2211.10438), and
behind the GELU, where that cannot be folded in, the largest stay in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from colabel.encode.encoder import EncodedPassages, Encoder, features_of
from colabel.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

SMOOTHING = 0.6
"""α: a channel of range a whose weights reach w is divided by a^α / w^(1−α); on cranfield better than .5."""
SAMPLE = 128
"""Passages in which ranges are measured; half as many others are compared with float32."""
LOWEST_COSINE = 0.995
"""Mean cosine with float32 below which a model is refused."""
FLOAT_CHANNELS = 16
"""Channels behind each GELU that stay in float32."""
_GELU_LOWEST = 0.17
_SMALLEST = 1e-5
_AT_ONCE = 32


class _Product:
    """x·Wᵀ + b of 8-bit integers: per-channel weights, and one static range of x divided by ``smooth``."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, scale: float, zero: int) -> None:
        step = weight.abs().amax(dim=1).clamp_min(_SMALLEST) / 127
        self.weight = torch.ops.onednn.qlinear_prepack((weight / step[:, None]).round().to(torch.int8), None)
        self.step, self.zeros, self.bias = step, torch.zeros(len(step), dtype=torch.int32), bias
        self.scale, self.zero = scale, zero

    def __call__(self, rows: torch.Tensor, gelu: tuple[float, int] | None = None) -> torch.Tensor:
        """float32 [n, out] of rows uint8 [n, in]; with the scale and zero of a GELU behind it, uint8."""
        arguments = (rows, self.scale, self.zero, self.weight, self.step, self.zeros, self.bias)
        if gelu is None:
            product = torch.ops.onednn.qlinear_pointwise(*arguments, 1.0, 0, torch.float32, "none", [], "")
        else:
            product = torch.ops.onednn.qlinear_pointwise(*arguments, *gelu, torch.uint8, "gelu", [], "none")
        return product  # type: ignore[no-any-return]


class _Smoothed:
    """x·Wᵀ + b of float32 rows, written as integers on the way in: q = round(x·f) + 128 with f per channel."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, largest: torch.Tensor) -> None:
        largest, reach = largest.clamp_min(_SMALLEST), weight.abs().amax(dim=0).clamp_min(_SMALLEST)
        smooth = largest**SMOOTHING / reach ** (1 - SMOOTHING)
        scale = float((largest / smooth).max()) / 127
        self.factor = 1 / (smooth * scale)
        self.product = _Product(weight * smooth, bias, scale, 128)

    def __call__(self, rows: torch.Tensor, gelu: tuple[float, int] | None = None) -> torch.Tensor:
        scaled = (rows * self.factor).clamp_(-127, 127).round_()
        return self.product(scaled.to(torch.int8).view(torch.uint8).bitwise_xor_(128), gelu)


class Int8Layer(nn.Module):
    """A layer of BERT, for the same arguments as the one that it replaces."""

    def __init__(self, layer: Any, ranges: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        own, projection = layer.attention.self, layer.attention.output
        inner, outer = layer.intermediate.dense, layer.output
        three = (own.query, own.key, own.value)
        weight, bias = torch.cat([one.weight for one in three]), torch.cat([one.bias for one in three])
        self.heads = own.num_attention_heads
        self.attend = _Smoothed(weight, bias, ranges["attention"])
        self.project = _Smoothed(projection.dense.weight, projection.dense.bias, ranges["context"])
        self.norm, self.last_norm = projection.LayerNorm, outer.LayerNorm
        self.widen = _Smoothed(inner.weight, inner.bias, ranges["inner"])
        order = ranges["outer"].argsort(descending=True)
        large, rest = order[:FLOAT_CHANNELS], order[FLOAT_CHANNELS:]
        scale = (float(ranges["outer"][rest].max()) + _GELU_LOWEST) / 255
        self.gelu = scale, round(_GELU_LOWEST / scale)
        self.large = inner.weight[large], inner.bias[large], outer.dense.weight[:, large].T.contiguous()
        self.narrow = _Product(outer.dense.weight.index_fill(1, large, 0), outer.dense.bias, *self.gelu)

    def forward(
        self, hidden: torch.Tensor, attention_mask: torch.Tensor | None = None, *_: Any, **__: Any
    ) -> torch.Tensor:
        """float32 [passages, tokens, width] → the same shape."""
        passages, tokens, width = hidden.shape
        rows = hidden.reshape(-1, width)
        query, key, value = self.attend(rows).view(passages, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        rows = self.norm(self.project(context.transpose(1, 2).reshape(-1, width)).add_(rows))
        weight, bias, back = self.large
        kept = torch.addmm(rows, functional.gelu(functional.linear(rows, weight, bias)), back)
        rows = self.last_norm(self.narrow(self.widen(rows, self.gelu)).add_(kept))
        found: torch.Tensor = rows.view(passages, tokens, width)
        return found


def bert_layers(model: MultiVectorEncoder) -> nn.ModuleList:
    """The layers of a BERT; any other model is refused."""
    transformer: Any = model[0]
    config = transformer.auto_model.config
    if config.model_type != "bert" or config.hidden_act != "gelu" or model.device.type != "cpu":
        raise UsageError(
            f"'encoder.backend' is 'int8', which knows BERT with GELU on a CPU, and the model is {config.model_type} "
            f"with {getattr(config, 'hidden_act', 'another activation')} on {model.device.type}; set it to 'torch'"
        )
    layers: nn.ModuleList = transformer.auto_model.encoder.layer
    return layers


def calibrate(model: MultiVectorEncoder, texts: Sequence[str]) -> tuple[npt.NDArray[np.float32], dict[str, float]]:
    """Ranges from a sample of passages, and how far other passages then are from float32: mean cosine of their token
    vectors, and overlap of the ten that are nearest to each.

    Raises:
        UsageError: too far, or a model whose layers are not known.
    """
    ranges = measure_ranges(model, texts[:SAMPLE])
    checked = texts[SAMPLE : SAMPLE + SAMPLE // 2] or texts[:SAMPLE]
    exact = Encoder(model).encode_passages(checked)
    ours = Encoder(model, for_passages=quantised(model, ranges)).encode_passages(checked)
    cosine = float((exact.vectors.astype(np.float32) * ours.vectors).sum(axis=1).mean())
    pairs = zip(_nearest(exact, exact), _nearest(exact, ours), strict=True)
    overlap = float(np.mean([len(np.intersect1d(one, other)) / len(one) for one, other in pairs]))
    if not cosine >= LOWEST_COSINE:  # nor where it is not a number
        raise UsageError(
            f"'encoder.backend' is 'int8', and the token vectors of {len(checked)} passages then have a mean cosine of "
            f"{cosine:.4f} with those of float32 (at least {LOWEST_COSINE} is expected; {overlap:.0%} of the nearest "
            "ten stay); set it to 'torch'"
        )
    return ranges, {"int8_cosine": round(cosine, 5), "int8_overlap": round(overlap, 4)}


def _nearest(queries: EncodedPassages, passages: EncodedPassages, k: int = 10) -> list[npt.NDArray[np.intp]]:
    """The k passages of highest MaxSim with each of the same passages."""
    vectors, tops = passages.vectors.astype(np.float32).T, []
    for start, end in zip(queries.offsets, queries.offsets[1:], strict=False):
        similarity = queries.vectors[start:end].astype(np.float32) @ vectors
        tops.append(np.argsort(-np.maximum.reduceat(similarity, passages.offsets[:-1], axis=1).sum(axis=0))[:k])
    return tops


def measure_ranges(model: MultiVectorEncoder, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """The largest magnitude of each channel before each product, over the tokens of some passages.

    float32 [layers, 3·width + inner]: before attention, behind it, before the inner product, and behind its GELU.
    """
    layers, hooks = bert_layers(model), []
    largest: dict[tuple[int, int], torch.Tensor] = {}
    mask = torch.zeros(0)

    def watch(key: tuple[int, int]) -> Any:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            seen = inputs[0][mask].abs().amax(dim=0)
            largest[key] = torch.maximum(largest[key], seen) if key in largest else seen

        return hook

    for number, layer in enumerate(layers):
        own: Any = layer
        places = (own.attention.self.query, own.attention.output.dense, own.intermediate.dense, own.output.dense)
        for place, linear in enumerate(places):
            hooks.append(linear.register_forward_pre_hook(watch((number, place))))
    try:
        with torch.inference_mode():
            for start in range(0, len(texts), _AT_ONCE):
                features = features_of(model, texts[start : start + _AT_ONCE], "document")
                mask = features["attention_mask"].bool()
                model[0](features)
    finally:
        for one in hooks:
            one.remove()
    rows = [torch.cat([largest[number, place] for place in range(4)]) for number in range(len(layers))]
    return torch.stack(rows).numpy()


def quantised(model: MultiVectorEncoder, ranges: npt.NDArray[np.float32]) -> MultiVectorEncoder:
    """A copy of the model with :class:`Int8Layer` in place of its layers; embeddings are shared."""
    layers = bert_layers(model)
    transformer: Any = model[0]
    bert = transformer.auto_model
    width, inner = bert.config.hidden_size, bert.config.intermediate_size
    if ranges.shape != (len(layers), 3 * width + inner):
        raise UsageError(f"the ranges of the int8 encoder are {list(ranges.shape)}; they are of another model")
    with torch.no_grad():
        parts = [torch.split(torch.from_numpy(row), [width, width, width, inner]) for row in ranges]
        made = [
            Int8Layer(layer, dict(zip(("attention", "context", "inner", "outer"), part, strict=True)))
            for layer, part in zip(layers, parts, strict=True)
        ]
    shared = {id(layers): nn.ModuleList(made), id(bert.embeddings): bert.embeddings}
    return copy.deepcopy(model, shared)

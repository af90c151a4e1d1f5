"""A projection that is useful before any training: the principal directions of the encoder's own token vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

_BATCH = 32


def principal_directions(moments: torch.Tensor, dimension: int) -> torch.Tensor:
    """The ``dimension`` leading eigenvectors of second moments Σ v·vᵀ, as rows.

    Args:
        moments: float64 [width, width].

    Returns:
        float32 [dimension, width] with orthonormal rows; signs are fixed (largest entry positive), so the same
        vectors give the same matrix.
    """
    _, directions = torch.linalg.eigh(moments)  # ascending
    leading = directions.flip(1)[:, :dimension].T
    largest = leading.abs().argmax(dim=1, keepdim=True)
    signed: torch.Tensor = leading * leading.gather(1, largest).sign()
    return signed.float().contiguous()


def fit_projection(model: MultiVectorEncoder, texts: Sequence[str], dimension: int) -> None:
    """Set the model's projection to the principal directions of its token vectors on ``texts``.

    Each token vector is scaled to unit length first: a few outlier tokens (such as [SEP]) are long and would take
    the leading directions for themselves.
    """
    transformer, projection = _parts(model)
    moments = torch.zeros(projection.in_features, projection.in_features, dtype=torch.float64)
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            features = model.preprocess(batch, prompt=model.prompts["document"], task="document")
            features = {
                key: value.to(model.device) if hasattr(value, "to") else value for key, value in features.items()
            }
            mask = features["attention_mask"].bool()
            vectors = transformer(features)["token_embeddings"][mask].float()
            unit = torch.nn.functional.normalize(vectors, dim=-1).cpu().double()
            moments += unit.T @ unit
    directions = principal_directions(moments, dimension)
    with torch.no_grad():
        projection.linear.weight.copy_(directions)


def _parts(model: MultiVectorEncoder) -> tuple[Any, Any]:
    return model[0], model[1]

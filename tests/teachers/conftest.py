from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_cross_encoder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with a random head, saved as a cross-encoder: its scores mean nothing and differ enough."""
    import torch
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("tiny") / "cross-encoder"
    torch.manual_seed(1)
    model = CrossEncoder(str(tiny_model), num_labels=1, device="cpu", model_kwargs={"dtype": torch.float32})
    with torch.no_grad():
        model.model.classifier.weight.mul_(50)  # type: ignore[union-attr, operator]
    model.save(str(folder), create_model_card=False)
    return folder

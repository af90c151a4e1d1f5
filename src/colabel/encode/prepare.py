"""Prepare an encoder for a collection and keep it as an artefact: a standard sentence-transformers checkpoint."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from colabel.artefacts import Manifest, Plan, Workspace, build, read_manifest
from colabel.data import PassageTable
from colabel.encode.colbert import load_checkpoint, load_or_convert, refuse_token_pooling
from colabel.encode.encoder import Encoder
from colabel.encode.projection import fit_projection
from colabel.encode.quiet import no_progress_bars
from colabel.encode.weights import check_exists, is_late_interaction, resolve_model, weights_fingerprint
from colabel.errors import UsageError
from colabel.settings import EncoderSettings

log = logging.getLogger(__name__)

_STAGE = "encoder"


def prepare_encoder(settings: EncoderSettings, passages: PassageTable, out: Path) -> Manifest:
    """Write the encoder to ``out``: a ColBERT checkpoint as it is, or a plain encoder made into one.

    A plain encoder's projection is computed from a sample of ``passages``, so it depends on the collection.
    """
    model = resolve_model(settings.model)
    check_exists(model)
    plain = not is_late_interaction(model)
    inputs = {"weights": weights_fingerprint(model)}
    if plain and settings.projection == "pca":
        inputs["passages"] = passages.fingerprint
    kept = settings.as_dict() if plain else {}
    for other in ("model", "device", "batch_tokens"):  # where it lies and how it runs does not change what it is
        kept.pop(other, None)

    def write(space: Workspace) -> Mapping[str, Any]:
        encoder, converted = load_or_convert(model, settings, choose_device(settings.device))
        if converted and settings.projection == "pca":
            fit_projection(encoder, sample_texts(passages, settings), settings.dimension)
        with no_progress_bars():
            encoder.save(str(space.folder), create_model_card=False)
        return {"dimension": encoder.get_embedding_dimension(), "converted": converted}

    return build(out, Plan(_STAGE, kept, inputs, seed=settings.projection_seed), write)


def open_encoder(folder: Path, settings: EncoderSettings) -> Encoder:
    """Load a prepared encoder."""
    read_manifest(folder, _STAGE)
    device = choose_device(settings.device)
    on_cpu = torch.device(device).type == "cpu"
    model = load_checkpoint(str(folder), device, torch.float32 if on_cpu else torch.float16)
    refuse_token_pooling(model)
    return Encoder(model, settings.batch_tokens)


def choose_device(name: str) -> str:
    """'auto' is the first CUDA device where there is one, else the CPU; anything else must exist."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"'encoder.device' is '{name}'; expected 'auto', 'cpu', 'cuda' or 'cuda:N'") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise UsageError(
            f"'encoder.device' is '{name}', and this machine has {found} CUDA devices; use 'auto' or 'cpu'"
        )
    return name


def sample_texts(passages: PassageTable, settings: EncoderSettings) -> list[str]:
    """Texts of a seeded sample of the non-empty passages, by row."""
    wanted = min(len(passages), 2 * settings.projection_sample)  # twice as many: some may be empty
    rows = random.Random(settings.projection_seed).sample(range(len(passages)), wanted)
    texts = [text for row in rows if (text := passages[row].full_text)][: settings.projection_sample]
    if not texts:
        raise UsageError("every passage that was looked at is empty; there is nothing to encode")
    return texts

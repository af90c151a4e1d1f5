"""A plain encoder becomes a ColBERT, by the paper's conventions.

Marker tokens after [CLS] that stay single tokens; passages cut to a length; punctuation left out of passage scoring; a
bias-free projection; unit vectors. Queries are filled up with [MASK], scored and not attended to, where
``expand_queries`` says so: an encoder whose [MASK] was never trained matches noise with it (docs/decisions/0005).
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from colabel.artefacts import Manifest, Spec, Workspace, build, read_manifest
from colabel.artefacts.build import link
from colabel.data import PassageTable
from colabel.encode import int8
from colabel.encode.encoder import Encoder, features_of, no_progress_bars
from colabel.encode.weights import (
    RANGES_FILE,
    check_exists,
    checkpoint_files,
    is_late_interaction,
    resolve_model,
    weights_fingerprint,
)
from colabel.errors import ArtefactError, UsageError
from colabel.settings import EncoderSettings

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

PROJECTION_SAMPLE = 512
"""Passages from which the projection's principal directions are computed: tens of thousands of token vectors."""
PROJECTION_SEED = 0
"""Seed of a random projection and of that sample: seeds of a study repeat training, not the encoder."""
_STAGE = "encoder"
_PROJECTED_AT_ONCE = 32
_UNUSED_MARKERS = ("[unused0]", "[unused1]")
_ADDED_MARKERS = ("[Q]", "[D]")


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
    drawn = {"projection_sample": PROJECTION_SAMPLE, "projection_seed": PROJECTION_SEED}
    kept = {**settings.effective(), **drawn} if plain else {}
    in_int8 = settings.backend == "int8"
    if in_int8:
        kept, inputs = {**kept, "backend": "int8"}, {**inputs, "passages": passages.fingerprint}

    def measured(space: Workspace, model: MultiVectorEncoder) -> Mapping[str, float]:
        """How far 8-bit integers are from float32 on this collection; their ranges are kept."""
        ranges, distance = int8.calibrate(model, sample_texts(passages))
        space.save(RANGES_FILE, ranges)
        return distance

    def write(space: Workspace) -> Mapping[str, Any]:
        device = choose_device(_device(settings.device, in_int8))
        if not plain and _is_artefact(Path(model)):
            for name in checkpoint_files(Path(model)):
                if not space.done(name):
                    (space.folder / name).parent.mkdir(parents=True, exist_ok=True)
                    link(Path(model) / name, space.folder / name)
            distance = measured(space, load_checkpoint(model, device)) if in_int8 else {}
            return {"converted": False, **distance}
        encoder, converted = load_or_convert(model, settings, device)
        if converted and settings.projection == "pca":
            fit_projection(encoder, sample_texts(passages), settings.dimension)
        with no_progress_bars():
            encoder.save(str(space.folder), create_model_card=False)
        distance = measured(space, encoder) if in_int8 else {}
        return {"dimension": encoder.get_embedding_dimension(), "converted": converted, **distance}

    return build(out, Spec(_STAGE, kept, inputs, seed=PROJECTION_SEED), write)


def _is_artefact(folder: Path) -> bool:
    """Whether a checkpoint is one that we wrote, in float32 and without token pooling: it is linked, not loaded."""
    try:
        return read_manifest(folder).stage in (_STAGE, "model")
    except ArtefactError:
        return False


def open_encoder(folder: Path, device: str = "auto") -> Encoder:
    """Load a prepared encoder; one with ranges for 8-bit integers encodes passages so, whatever the settings say."""
    read_manifest(folder, _STAGE)
    ranges = folder / RANGES_FILE
    encoder = open_checkpoint(folder, _device(device, ranges.exists()))
    if not ranges.exists():
        return encoder
    return Encoder(encoder.model, for_passages=int8.quantised(encoder.model, np.load(ranges, allow_pickle=False)))


def _device(device: str, in_int8: bool) -> str:
    return "cpu" if in_int8 and device == "auto" else device


def open_checkpoint(folder: Path, device: str = "auto") -> Encoder:
    """Load any late-interaction checkpoint, such as a student."""
    device = choose_device(device)
    on_cpu = torch.device(device).type == "cpu"
    model = load_checkpoint(str(folder), device, torch.float32 if on_cpu else torch.float16)
    refuse_token_pooling(model)
    return Encoder(model)


def choose_device(name: str) -> str:
    """'auto' is the first CUDA device where there is one, else the CPU; anything else must exist."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"'encoder.device' is '{name}'; expected 'auto', 'cpu', 'cuda' or 'cuda:N'") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"'encoder.device' is '{name}', and this machine has {torch.cuda.device_count()} CUDA devices; use 'auto' "
            "or 'cpu'"
        )
    return name


def load_checkpoint(model: str, device: str, dtype: torch.dtype = torch.float32) -> MultiVectorEncoder:
    """Load any checkpoint that sentence-transformers can turn into a MultiVectorEncoder.

    float32 whatever the stored type, unless asked otherwise: half-precision products are slow on a CPU or not
    available at all.
    """
    from sentence_transformers import MultiVectorEncoder

    check_exists(model)
    try:
        with no_progress_bars():
            return MultiVectorEncoder(model, device=device, model_kwargs={"dtype": dtype})
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"the model '{model}' cannot be loaded: {reason} (expected a folder with a checkpoint, a hub id that "
            "this machine can reach, or 'minilm')"
        ) from None


def load_or_convert(model: str, settings: EncoderSettings, device: str) -> tuple[MultiVectorEncoder, bool]:
    """The encoder, and whether its projection is still without meaning (a converted plain encoder)."""
    check_exists(model)
    late = is_late_interaction(model)  # before it is loaded: a damaged file is named
    loaded = load_checkpoint(model, device)
    if late:
        refuse_token_pooling(loaded)
        return loaded, False
    return convert_plain(loaded, settings), True


def convert_plain(loaded: MultiVectorEncoder, settings: EncoderSettings) -> MultiVectorEncoder:
    """Rebuild a plain encoder's modules with every convention set; the projection starts at random (seeded)."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    transformer: Any = loaded[0]
    if not isinstance(transformer, Transformer):
        raise UsageError(f"the model's first part is a {type(transformer).__name__}; expected a transformer encoder")
    query_marker, passage_marker = _register_markers(transformer)
    _set_dropout(transformer.auto_model, settings.dropout)
    transformer.document_length = _fitting_length(transformer, settings.passage_length, "encoder.passage_length")
    query_length = _fitting_length(transformer, settings.query_length, "encoder.query_length")
    transformer.query_length = query_length
    if settings.expand_queries:
        transformer.query_expansion = {"strategy": "fixed", "attend": False, "length": query_length}
    width = transformer.get_embedding_dimension()
    if settings.dimension > width:
        raise UsageError(f"'encoder.dimension' is {settings.dimension}; expected at most {width}, the encoder's width")
    weight = torch.empty(settings.dimension, width)
    torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(PROJECTION_SEED))
    place, identity = "token_embeddings", torch.nn.Identity()
    projection = Dense(
        width, settings.dimension, bias=False, activation_function=identity, init_weight=weight, module_input_name=place
    )
    mask = MultiVectorMask(list(string.punctuation) if settings.skip_punctuation else [])
    modules = [transformer, projection, mask, Normalize(module_input_name=place)]
    prompts = {"query": f"{query_marker} ", "document": f"{passage_marker} "}
    return MultiVectorEncoder(modules=modules, device=str(loaded.device), prompts=prompts)


def refuse_token_pooling(model: MultiVectorEncoder) -> None:
    """Token pooling merges vectors, and then a stored vector has no token id any more."""
    from sentence_transformers.multi_vector_encoder.modules.token_pooling import BaseTokenPooling

    for module in model:
        if isinstance(module, BaseTokenPooling):
            raise UsageError(
                f"the model pools tokens ({type(module).__name__}), so its vectors have no token ids, which "
                "collective knowledge needs; remove that module from the checkpoint"
            )


def _register_markers(transformer: Any) -> tuple[str, str]:
    """Make two marker tokens single tokens: BERT's unused ones, or new ones where the vocabulary has none."""
    from transformers import AddedToken

    tokenizer = transformer.tokenizer
    vocabulary = tokenizer.get_vocab()
    known = all(marker in vocabulary for marker in _UNUSED_MARKERS)
    markers = _UNUSED_MARKERS if known else _ADDED_MARKERS
    tokens = [AddedToken(marker, normalized=False, special=True) for marker in markers]
    tokenizer.add_special_tokens({"additional_special_tokens": tokens}, replace_extra_special_tokens=False)
    if not known:
        transformer.auto_model.resize_token_embeddings(len(tokenizer))  # new rows start at the mean of the others
    for marker in markers:
        if len(tokenizer.tokenize(f"{marker} x")) != len(tokenizer.tokenize("x")) + 1:
            raise UsageError(f"the tokenizer splits the marker '{marker}' into pieces; this model cannot be used")
    return markers[0], markers[1]


def _set_dropout(model: Any, dropout: float) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
        elif isinstance(getattr(module, "dropout_prob", None), float):
            module.dropout_prob = dropout
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"):
        if isinstance(getattr(model.config, name, None), float):
            setattr(model.config, name, dropout)


def _fitting_length(transformer: Any, length: int, key: str) -> int:
    config = transformer.auto_model.config
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and "roberta" in str(getattr(config, "model_type", "")):
        positions -= int(config.pad_token_id) + 1  # RoBERTa counts positions from behind its padding id
    if isinstance(positions, int) and length > positions:
        raise UsageError(f"'{key}' is {length}; expected at most {positions}, the encoder's number of positions")
    return length


def sample_texts(passages: PassageTable) -> list[str]:
    """Texts of a seeded sample of the non-empty passages, by row."""
    wanted = min(len(passages), 2 * PROJECTION_SAMPLE)  # twice as many: some may be empty
    rows = random.Random(PROJECTION_SEED).sample(range(len(passages)), wanted)
    texts = [text for row in rows if (text := passages[row].full_text)][:PROJECTION_SAMPLE]
    if not texts:
        raise UsageError("all of the sampled passages are empty; there is nothing to encode")
    return texts


def principal_directions(moments: torch.Tensor, dimension: int) -> torch.Tensor:
    """The leading eigenvectors of second moments Σ v·vᵀ, float64 [width, width], as rows: float32 [dimension, width].

    Signs are fixed (largest entry positive), so the same vectors give the same matrix.
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
    transformer: Any = model[0]
    projection: Any = model[1]
    moments = torch.zeros(projection.in_features, projection.in_features, dtype=torch.float64)
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(texts), _PROJECTED_AT_ONCE):
            features = features_of(model, texts[start : start + _PROJECTED_AT_ONCE], "document")
            mask = features["attention_mask"].bool()
            vectors = transformer(features)["token_embeddings"][mask].float()
            unit = torch.nn.functional.normalize(vectors, dim=-1).cpu().double()
            moments += unit.T @ unit
    with torch.no_grad():
        projection.linear.weight.copy_(principal_directions(moments, dimension))

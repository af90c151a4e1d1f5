"""A plain encoder becomes a ColBERT, by the paper's conventions.

Marker tokens after [CLS] that stay single tokens; passages cut to a length; punctuation left out of passage scoring; a
bias-free projection; unit vectors. Queries are filled up with [MASK], scored and not attended to, where
``expand_queries`` says so: an encoder whose [MASK] was never trained matches noise with it (docs/decisions/0005).
"""

from __future__ import annotations

import logging
import string
from typing import TYPE_CHECKING, Any

import torch

from colabel.encode.quiet import no_progress_bars
from colabel.encode.weights import check_exists, is_late_interaction
from colabel.errors import UsageError
from colabel.settings import EncoderSettings

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

log = logging.getLogger(__name__)

_UNUSED_MARKERS = ("[unused0]", "[unused1]")
_ADDED_MARKERS = ("[Q]", "[D]")


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
    if is_late_interaction(model):
        loaded = load_checkpoint(model, device)
        refuse_token_pooling(loaded)
        return loaded, False
    return convert_plain(load_checkpoint(model, device), settings), True


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
    torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(settings.projection_seed))
    device = loaded.device
    projection = Dense(
        width,
        settings.dimension,
        bias=False,
        activation_function=torch.nn.Identity(),
        init_weight=weight,
        module_input_name="token_embeddings",
    )
    skipped = list(string.punctuation) if settings.skip_punctuation else []
    modules = [transformer, projection, MultiVectorMask(skipped), Normalize(module_input_name="token_embeddings")]
    prompts = {"query": f"{query_marker} ", "document": f"{passage_marker} "}
    return MultiVectorEncoder(modules=modules, device=str(device), prompts=prompts)


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

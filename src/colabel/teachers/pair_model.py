"""A cross-encoder and how it reads a pair: the query whole, the passage cut to what is left."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from colabel.encode.encoder import give_memory_back, no_progress_bars
from colabel.encode.weights import check_exists, is_late_interaction
from colabel.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

log = logging.getLogger(__name__)

_TOKENISED_AT_ONCE = 256
_BATCHES_BETWEEN_TRIMS = 16
_SCORING_HEADS = ("ForSequenceClassification", "ForCausalLM")


def load_cross_encoder(model: str, device: str, *, new_head: bool = False, layers: int | None = None) -> CrossEncoder:
    """Load any checkpoint that sentence-transformers reads as a CrossEncoder with one score.

    float32 on a CPU and for training, elsewhere the type in which the weights are stored. A checkpoint without a
    trained head would give random scores: it is refused, unless ``new_head`` asks for a fresh head to train. ``layers``
    keeps the lower layers alone.
    """
    from sentence_transformers import CrossEncoder

    check_exists(model)
    full = new_head or torch.device(device).type == "cpu"
    config = {} if layers is None else {"num_hidden_layers": layers}
    try:
        with no_progress_bars():
            loaded: CrossEncoder = CrossEncoder(
                model,
                device=device,
                num_labels=1 if new_head else None,
                model_kwargs={"dtype": torch.float32 if full else "auto"},
                config_kwargs=config,
            )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"the cross-encoder '{model}' cannot be loaded: {reason} (expected a folder with a checkpoint or a hub id "
            "that this machine can reach)"
        ) from None
    if not new_head:
        _refuse_untrained(loaded, model)
    if loaded.num_labels != 1:
        raise UsageError(
            f"the cross-encoder '{model}' gives {loaded.num_labels} scores for a pair; expected one that is trained to "
            "rank, with a single score"
        )
    return loaded


def _refuse_untrained(loaded: CrossEncoder, model: str) -> None:
    architectures = getattr(loaded.config, "architectures", None) or [""]
    alone = len(loaded) == 1  # else its own modules, such as a dense layer, make the score
    if is_late_interaction(model) or (alone and not str(architectures[0]).endswith(_SCORING_HEADS)):
        raise UsageError(
            f"'{model}' is an encoder ({architectures[0] or 'of unknown kind'}) and no cross-encoder: without a "
            "trained head its scores would be random. Name a cross-encoder, or train one from it first"
        )


class PairBatch(NamedTuple):
    """Pairs of similar length that are scored together, and what an error calls them."""

    pairs: list[tuple[str, str]]
    name: str


class PairPredictor(Protocol):
    """Scores batches of pairs, here or elsewhere."""

    def predict(self, batches: Iterable[PairBatch]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The number of each batch and its scores float32 [pairs], in any order."""


class PairModel:
    """A loaded cross-encoder that scores pairs of texts."""

    def __init__(self, model: CrossEncoder, max_length: int) -> None:
        self.reader = PairReader(model, max_length)
        self._model = model
        self._batches = 0

    def predict(self, pairs: list[tuple[str, str]]) -> npt.NDArray[np.float32]:
        """Raw logits float32 [pairs], all in one batch."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        if self._batches % _BATCHES_BETWEEN_TRIMS == 0:
            give_memory_back()
        self._batches += 1
        values = self._model.predict(
            pairs,
            batch_size=len(pairs),
            show_progress_bar=False,
            activation_fn=torch.nn.Identity(),
            processing_kwargs=self.reader.options,
        )
        return np.asarray(values, dtype=np.float32).reshape(-1)


class PairReader:
    """How a cross-encoder reads pairs: at most ``max_length`` tokens, the query whole and the passage cut.

    A query longer than three quarters of ``max_length`` is cut to that, so that some of the passage is read. Models
    that read pairs through a chat template cut them in their own way.
    """

    def __init__(self, model: CrossEncoder, max_length: int) -> None:
        limit = model.max_seq_length
        if limit is not None and max_length > limit:
            raise UsageError(f"'cross_encoder.max_length' is {max_length}; expected at most {limit}, the model's limit")
        model.max_seq_length = max_length
        self._tokenizer: Any = model.tokenizer
        self._max_length = max_length
        self._plain = "message" not in getattr(model[0], "modality_config", {})
        self._special = int(self._tokenizer.num_special_tokens_to_add(pair=True))

    @property
    def options(self) -> dict[str, Any]:
        """What ``CrossEncoder.predict`` and ``preprocess`` take as ``processing_kwargs``."""
        truncation = "only_second" if self._plain else "longest_first"
        return {"text": {"truncation": truncation, "max_length": self._max_length}}

    def fit_queries(self, queries: Sequence[str]) -> list[str]:
        """The queries, those that leave no room for a passage cut short."""
        if not self._plain:
            return list(queries)
        longest = max(1, self._max_length * 3 // 4 - self._special)
        fitted, cut = [], 0
        for text, ids in zip(queries, self._tokenise(queries), strict=True):
            whole = len(ids) <= longest
            cut += not whole
            fitted.append(text if whole else self._tokenizer.decode(ids[:longest], skip_special_tokens=True))
        if cut:
            log.warning("%d of %d queries are longer than the cross-encoder takes and were cut", cut, len(queries))
        return fitted

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, uncut and without special ones."""
        return [len(ids) for ids in self._tokenise(texts)]

    def pair_length(self, query: int, passage: int) -> int:
        """Tokens of a pair whose parts have these many."""
        return min(query + passage + self._special, self._max_length)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text; in blocks, since a tokenised text takes much memory."""
        found: list[list[int]] = []
        for start in range(0, len(texts), _TOKENISED_AT_ONCE):
            encoded = self._tokenizer(
                list(texts[start : start + _TOKENISED_AT_ONCE]),
                add_special_tokens=False,
                truncation=False,
                verbose=False,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            found += encoded["input_ids"]
        return found

"""The encoder: a thin wrapper over sentence-transformers' MultiVectorEncoder that keeps token ids beside vectors."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from colabel.errors import DataError, EncodingError, UsageError

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

log = logging.getLogger(__name__)

BATCH_TOKENS = 4096
"""Padded tokens that go through the model at once: bounds the memory whatever the length of the passages."""
_TOKENISED_AT_ONCE = 256
_BATCHES_BETWEEN_TRIMS = 16


@dataclass(frozen=True)
class EncodedPassages:
    """Token vectors of consecutive passages, one after another.

    vectors: float16 [tokens, dimension], token_ids: int32 [tokens], offsets: int64 [passages + 1]; passage i owns the
    tokens from offsets[i] to offsets[i + 1]. ``truncated`` counts passages that were longer than the model takes,
    ``lost`` the tokens that were cut off.
    """

    vectors: np.ndarray
    token_ids: np.ndarray
    offsets: np.ndarray
    truncated: int
    lost: int


@dataclass(frozen=True)
class EncodedQueries:
    """Token vectors of queries, padded with zero vectors, which add nothing to any score.

    vectors: float32 [queries, length, dimension], token_ids: int64 [queries, length] (−1 where padded).
    ``unreadable`` lists the queries of whose words the vocabulary knows less than half.
    """

    vectors: torch.Tensor
    token_ids: torch.Tensor
    unreadable: tuple[int, ...]


class Encoder:
    """Encodes queries and passages. Same numbers as ``MultiVectorEncoder.encode_query`` and ``encode_document``.

    ``for_passages`` is a faster copy of the model that encodes passages in its place (:mod:`colabel.encode.int8`).
    """

    def __init__(
        self,
        model: MultiVectorEncoder,
        batch_tokens: int = BATCH_TOKENS,
        for_passages: MultiVectorEncoder | None = None,
    ) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        self._models = {"query": model, "document": for_passages or model}
        self.model.eval()

    @property
    def dimension(self) -> int:
        """Size of a token vector."""
        return int(self.model.get_embedding_dimension() or 0)

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return len(self._tokenizer)

    @property
    def special_token_ids(self) -> tuple[int, ...]:
        """Ids of [CLS], [SEP], [MASK], padding and the marker tokens: never an expansion token."""
        added = self._tokenizer.added_tokens_encoder  # a marker may be an added token without being special
        markers = {added[name] for prompt in self.model.prompts.values() for name in added if name in (prompt or "")}
        return tuple(sorted({*self._tokenizer.all_special_ids, *markers}))

    @property
    def _tokenizer(self) -> Any:
        return self.model.tokenizer

    @property
    def passage_limit(self) -> int | None:
        """Most tokens of a passage, markers and [SEP] included."""
        transformer: Any = self.model[0]
        limit = transformer.document_length or transformer.max_seq_length
        return None if limit is None else int(limit)

    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        """Token ids as readable pieces."""
        return list(self._tokenizer.convert_ids_to_tokens(list(token_ids)))

    def encode_queries(self, texts: Sequence[str], batch_size: int = 64) -> EncodedQueries:
        """Vectors of queries, in their order."""
        for number, text in enumerate(texts):
            if not text.strip():
                raise DataError(f"query {number + 1} of {len(texts)} is empty; a query needs at least one word")
        vectors, token_ids = [], []
        for start in range(0, len(texts), batch_size):
            features = self._forward(texts[start : start + batch_size], "query")
            mask = features["attention_mask"].bool()
            vectors.append((features["token_embeddings"].float() * mask.unsqueeze(-1)).cpu())
            token_ids.append(features["input_ids"].masked_fill(~mask, -1).cpu())
        if not texts:
            return EncodedQueries(torch.zeros(0, 1, self.dimension), torch.zeros(0, 1, dtype=torch.int64), ())
        cut = self._cut_queries(texts)
        if cut:
            warn_once(f"{cut} of {len(texts)} queries are longer than the model takes and were cut")
        unreadable = tuple(number for number, text in enumerate(texts) if not self._readable(text))
        return EncodedQueries(stack(vectors), stack(token_ids, -1), unreadable)

    def encode_passages(
        self, texts: Sequence[str], advance: Callable[[int], None] = lambda passages: None
    ) -> EncodedPassages:
        """Vectors of passages, in their order, computed in batches of similar length.

        An empty text has no tokens. The caller bounds the memory by the number of texts it passes: about
        260 bytes per token at 128 dimensions. ``advance`` is told how many passages more are done.
        """
        counts, limit = self._count_tokens("document", texts), self.passage_limit
        lengths = [count if text.strip() else 0 for count, text in zip(counts, texts, strict=True)]
        beyond = [max(0, length - limit) if limit is not None else 0 for length in lengths]
        lengths = [length - lost for length, lost in zip(lengths, beyond, strict=True)]
        vectors = [np.zeros((0, self.dimension), np.float16)] * len(texts)
        token_ids = [np.zeros(0, np.int32)] * len(texts)
        for number, rows in enumerate(length_batches(lengths, self.batch_tokens)):
            if number % _BATCHES_BETWEEN_TRIMS == 0:
                give_memory_back()
            try:
                features = self._forward([texts[row] for row in rows], "document")
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise EncodingError(f"{type(error).__name__}: {error}", tuple(rows)) from error
            mask = features["attention_mask"].bool().cpu()
            batch_vectors = features["token_embeddings"].to(torch.float16).cpu()
            if not torch.isfinite(batch_vectors[mask]).all():
                good = (batch_vectors.isfinite() | ~mask[..., None]).flatten(1).all(dim=1).tolist()
                broken = [row for row, fine in zip(rows, good, strict=True) if not fine]
                raise EncodingError("their vectors are not finite; the model's weights are damaged", tuple(broken))
            batch_ids = features["input_ids"].to(torch.int32).cpu()
            for place, row in enumerate(rows):
                vectors[row] = batch_vectors[place][mask[place]].numpy()
                token_ids[row] = batch_ids[place][mask[place]].numpy()
            advance(len(rows))
        offsets = np.cumsum([0, *map(len, vectors)]).astype(np.int64)
        return EncodedPassages(
            np.concatenate([np.zeros((0, self.dimension), np.float16), *vectors]),
            np.concatenate([np.zeros(0, np.int32), *token_ids]),
            offsets,
            sum(lost > 0 for lost in beyond),
            sum(beyond),
        )

    def _count_tokens(self, task: str, texts: Sequence[str]) -> list[int]:
        """Tokens of each text with its marker, uncut; in blocks, since a tokenised text takes much memory."""
        counts: list[int] = []
        prompt = self.model.prompts.get(task) or ""
        for start in range(0, len(texts), _TOKENISED_AT_ONCE):
            block = [prompt + text for text in texts[start : start + _TOKENISED_AT_ONCE]]
            encoded = self._tokenizer(
                block, truncation=False, verbose=False, return_attention_mask=False, return_token_type_ids=False
            )
            counts += [len(ids) for ids in encoded["input_ids"]]
        return counts

    def _forward(self, texts: Sequence[str], task: str) -> dict[str, Any]:
        with torch.inference_mode():
            output: dict[str, Any] = self._models[task](features_of(self.model, texts, task), task=task)
        return output

    def _cut_queries(self, texts: Sequence[str]) -> int:
        """How many queries lose words to the length limit."""
        transformer: Any = self.model[0]
        expansion = transformer.query_expansion
        limit = expansion["length"] if expansion else transformer.query_length or transformer.max_seq_length
        if limit is None:
            return 0
        return sum(count > limit for count in self._count_tokens("query", texts))

    def _readable(self, text: str) -> bool:
        """Whether the vocabulary knows at least half of a text's words.

        A word is unknown where a piece of it is [UNK], or where it is of another script than Latin and spelled letter
        by letter: the vocabulary then holds its letters and nothing of its language.
        """
        words = self._tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
        unknown = 0
        for word, _ in words:
            pieces = self._tokenizer.tokenize(word)
            spelled = len(word) > 2 and word.isalpha() and not word.isascii() and len(pieces) >= len(word)
            unknown += spelled or self._tokenizer.unk_token in pieces or not pieces
        return 2 * unknown <= len(words) if words else False


def features_of(model: MultiVectorEncoder, texts: Sequence[str], task: str) -> dict[str, Any]:
    """What a model reads of queries or documents, with its own prompt and on its own device."""
    features = model.preprocess(list(texts), prompt=model.prompts.get(task), task=task)
    return {name: value.to(model.device) if hasattr(value, "to") else value for name, value in features.items()}


def give_memory_back() -> None:
    """Return freed memory to the system, where the C library can.

    Batches of ever other shapes leave holes that glibc keeps: after 1,400 passages, encoded three times, a process
    held 831 MB, of which a trim gave back 419.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars of its own while it reads or writes weights."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group rows of similar length so that each group, padded to its longest, has at most ``batch_tokens`` tokens.

    Rows of length 0 are left out; a row longer than the budget stands alone.

    >>> list(length_batches([3, 0, 5, 4], batch_tokens=10))
    [[2, 3], [0]]
    """
    order = sorted((row for row in range(len(lengths)) if lengths[row]), key=lambda row: (-lengths[row], row))
    group: list[int] = []
    for row in order:
        if group and lengths[group[0]] * (len(group) + 1) > batch_tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def encode_queries_checked(encoder: Encoder, texts: Sequence[str], *, strict: bool) -> EncodedQueries:
    """Encode queries and say what of them the model cannot read: an error if ``strict``, else a warning."""
    encoded = encoder.encode_queries(texts)
    if not encoded.unreadable:
        return encoded
    example = texts[encoded.unreadable[0]][:60]
    lacking = "the model's vocabulary knows less than half of the"
    if strict:
        raise UsageError(f"{lacking} query '{example}'; use a model for its language and script")
    share = f"{len(encoded.unreadable)} of {len(texts)} queries, such as '{example}'"
    log.warning("%s words of %s; their rankings mean little", lacking, share)
    return encoded


@functools.cache
def warn_once(sentence: str) -> None:
    """Every model of a study reads the same queries and passages."""
    log.warning("%s", sentence)


def stack(parts: Sequence[torch.Tensor], fill: float = 0.0) -> torch.Tensor:
    """Concatenate batches [b, length, …] of different lengths, filling up to the longest."""
    longest = max(part.shape[1] for part in parts)
    widths = [(0, 0) * (part.dim() - 2) + (0, longest - part.shape[1]) for part in parts]
    padded = [torch.nn.functional.pad(part, width, value=fill) for part, width in zip(parts, widths, strict=True)]
    return torch.cat(padded)

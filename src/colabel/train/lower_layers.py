"""Train the upper layers alone, on activations of the frozen lower ones that were computed once.

Lower layers hardly change while a retriever is trained, and are most of a step. Where they are frozen, their output for
a text is always the same: it is computed before the first step and read from disk afterwards, in steps and evaluations
alike. Frozen layers have no dropout: what is read is what search computes, rounded to fp16.

hidden.npy    float16 [tokens, width], texts one after another
offsets.npy   int64 [texts + 1]
keys.npy      uint8 [texts, 16], digests of token ids and attention masks, by which texts are found
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor, nn
from transformers import AutoConfig

from colabel.artefacts.build import Workspace, sync
from colabel.encode.encoder import features_of, length_batches
from colabel.errors import SettingsError, TrainingError
from colabel.progress import SILENT, Progress

log = logging.getLogger(__name__)

FOLDER = "lower-layers"
"""Where activations are kept while a model is trained."""
_KINDS = ("bert", "roberta", "xlm-roberta", "camembert")  # embeddings, then one layer after another
_ALL = 'set train.layers = "all"'
_TOKENISED_AT_ONCE = 256
_BATCH_TOKENS = 4096
_ROOM = 1.1  # of the file's size must be free: save points take room as well


def check_layers_of(model: str, layers: int) -> None:
    """:func:`check_layers` before a model is loaded, where its configuration can be read."""
    with suppress(OSError, ValueError):
        check_layers(AutoConfig.from_pretrained(model), layers)


def check_layers(config: Any, layers: int) -> None:
    """Refuse to train the upper layers of an encoder (by its configuration) that has fewer, or is not like BERT."""
    kind, total = str(config.model_type), int(config.num_hidden_layers)
    if kind not in _KINDS:
        raise SettingsError(
            f"'train.layers' is {layers}, and the encoder is a '{kind}'; upper layers can be trained alone in "
            f"{', '.join(_KINDS)}: {_ALL}"
        )
    if layers > total:
        raise SettingsError(
            f"'train.layers' is {layers}, and the encoder has {total} layers; expected 1 to {total}, or {_ALL}"
        )


class LowerLayers:
    """Freezes all but the upper ``layers`` of a model, and lets it read what the frozen ones make of known texts."""

    def __init__(self, model: MultiVectorEncoder, layers: int) -> None:
        self._model = model
        first: Any = model[0]
        self._transformer: Any = first.auto_model
        check_layers(self._transformer.config, layers)
        blocks = list(self._transformer.encoder.layer)
        self._lower, self._upper = nn.ModuleList(blocks[:-layers]), nn.ModuleList(blocks[-layers:])
        for frozen in (self._transformer.embeddings, self._lower):
            frozen.requires_grad_(False)

    def compute(self, texts: Mapping[str, Sequence[str]], folder: Path, progress: Progress = SILENT) -> None:
        """Write what the frozen layers make of texts (task → texts), unless an interrupted run has done so."""
        if (folder / "keys.npy").is_file():
            return
        folder.mkdir(parents=True, exist_ok=True)
        parts = [
            (task, held[start : start + _TOKENISED_AT_ONCE])
            for task, held in texts.items()
            for start in range(0, len(held), _TOKENISED_AT_ONCE)
        ]
        lengths = np.concatenate([self._tokens(task, part)[2] for task, part in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shape = int(offsets[-1]), int(self._transformer.config.hidden_size)
        size, free = 2 * shape[0] * shape[1], shutil.disk_usage(folder).free
        kept = f"the output of {len(self._lower)} frozen layers for {len(lengths):,} texts"
        if _ROOM * size > free:
            raise TrainingError(
                f"{kept} takes {size / 1e9:.2f} GB of disk, and {free / 1e9:.2f} GB are free at {folder}; make room, "
                f"or {_ALL}, which keeps nothing"
            )
        log.info("%s is computed once and kept until training ends: %.2f GB", kept, size / 1e9)
        hidden = np.lib.format.open_memmap(folder / "hidden.npy", mode="w+", dtype=np.float16, shape=shape)
        keys: list[bytes] = []
        shown = progress.start("frozen layers", len(lengths), "texts")
        self._model.eval()
        for task, part in parts:
            ids, mask, own = self._tokens(task, part)
            first = len(keys)
            keys += _keys(ids, mask, own)
            for rows in length_batches(own.tolist(), _BATCH_TOKENS):
                longest = int(own[rows[0]])
                found = self._below(ids[rows, :longest], mask[rows, :longest])
                for row, activations in zip(rows, found, strict=True):
                    hidden[offsets[first + row] : offsets[first + row + 1]] = activations[: own[row]]
            shown.advance(len(part))
        shown.close()
        hidden.flush()
        sync(folder / "hidden.npy")
        space = Workspace(folder)
        space.save("offsets.npy", offsets)
        space.save("keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1))  # last: now all counts

    @contextmanager
    def skipped(self, folder: Path) -> Iterator[None]:
        """In this block, a pass over texts that were computed into ``folder`` begins at the first trained layer."""
        hidden = np.load(folder / "hidden.npy", mmap_mode="r").view(np.ndarray)
        offsets = np.load(folder / "offsets.npy")
        places = {key.tobytes(): place for place, key in enumerate(np.load(folder / "keys.npy"))}
        whole: Callable[..., Any] = self._transformer.forward

        def forward(input_ids: Tensor, attention_mask: Tensor, **given: Any) -> Any:
            ids, mask = input_ids.cpu(), attention_mask.cpu()
            known = [places.get(key, -1) for key in _keys(ids, mask, self._lengths(ids, mask))]
            if -1 in known:
                return whole(input_ids=input_ids, attention_mask=attention_mask, **given)
            padded = np.zeros((*ids.shape, hidden.shape[1]), np.float16)
            for line, place in zip(padded, known, strict=True):
                stored = hidden[offsets[place] : offsets[place + 1]]
                line[: len(stored)] = stored
            below = torch.from_numpy(padded).to(input_ids.device, self._transformer.dtype)
            with self._made_of(_Given(below), self._upper):
                return whole(input_ids=input_ids, attention_mask=attention_mask, **given)

        self._transformer.forward = forward
        try:
            yield
        finally:
            del self._transformer.forward

    def _tokens(self, task: str, texts: Sequence[str]) -> tuple[Tensor, Tensor, npt.NDArray[np.int64]]:
        """Token ids and attention mask [texts, longest], and each text's length."""
        features = features_of(self._model, texts, task)
        ids, mask = features["input_ids"].cpu(), features["attention_mask"].cpu()
        return ids, mask, self._lengths(ids, mask)

    def _lengths(self, ids: Tensor, mask: Tensor) -> npt.NDArray[np.int64]:
        """Tokens of each text: [MASK] tokens that a query is filled up with are not attended to, and count."""
        taken = (ids != self._transformer.config.pad_token_id) | mask.bool()
        return np.asarray((taken * torch.arange(1, ids.shape[1] + 1)).amax(dim=1).numpy())

    def _below(self, ids: Tensor, mask: Tensor) -> npt.NDArray[np.float16]:
        """What the frozen layers make of texts, [texts, length, width]."""
        device = self._transformer.device
        with torch.inference_mode(), self._made_of(self._transformer.embeddings, self._lower):
            output = self._transformer(input_ids=ids.to(device), attention_mask=mask.to(device))
        return np.asarray(output.last_hidden_state.half().cpu().numpy())

    @contextmanager
    def _made_of(self, embeddings: nn.Module, layers: nn.ModuleList) -> Iterator[None]:
        """The transformer with other embeddings and some of its layers."""
        transformer = self._transformer
        before = transformer.embeddings, transformer.encoder.layer
        transformer.embeddings, transformer.encoder.layer = embeddings, layers
        try:
            yield
        finally:
            transformer.embeddings, transformer.encoder.layer = before


class _Given(nn.Module):
    """Stands in for embeddings: what comes out is there already."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self._output = output

    def forward(self, **_: Any) -> Tensor:
        return self._output


def _keys(ids: Tensor, mask: Tensor, lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """A digest of each text's token ids and of which of them are attended to."""
    both = torch.stack([ids.int(), mask.int()], dim=2).numpy()
    return [
        hashlib.blake2b(line[:length].tobytes(), digest_size=16).digest()
        for line, length in zip(both, lengths, strict=True)
    ]

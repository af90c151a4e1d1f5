"""The token store: every passage's token vectors and token ids on disk, memory-mapped, block by block.

shard-00000.vectors.npy   the vectors of a block of passages, as its codec writes them (:mod:`colabel.index.codec`)
centroids.npy …           what the codec learnt, where it learns
shard-00000.tokens.npy    int32 [tokens]
shard-00000.offsets.npy   int64 [passages + 1]
df.npy                    int64 [vocabulary]: passages that hold each token id
ids.*.npy                 the passages' ids by row
tie_ranks.npy             int32 [passages]: the order of passages with equal scores
"""

from __future__ import annotations

import json
import logging
import math
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Manifest, Spec, Workspace, build, read_manifest
from colabel.data.pieces import chunk_for
from colabel.data.string_table import StringTable
from colabel.encode import Encoder
from colabel.encode.encoder import EncodedPassages, warn_once
from colabel.errors import ArtefactError, DataError, EncodingError, UsageError
from colabel.index.codec import LEARNT, SEED, Codec, learn, make_codec, open_codec
from colabel.maxsim import Spans, TokenShard, score_rows
from colabel.progress import SILENT, Progress
from colabel.types import FloatArray, Int32Array, IntArray, Passage

if TYPE_CHECKING:
    from colabel.data import PassageTable

log = logging.getLogger(__name__)

STAGE = "tokens"
BLOCK_PASSAGES = 4096
"""Passages encoded together: between two save points, and batched by length among themselves."""
SAMPLE_RATE = 16
SAMPLE_MOST = 4096
"""A codec learns from SAMPLE_RATE·√n of n passages, at most SAMPLE_MOST, which are encoded once more for it."""
_NAMED = 20  # passages that an error lists


def store_spec(encoder: str, passages: str, storage: str, block_passages: int, codec: str = "") -> Spec:
    """What a store is made of: fingerprints of encoder, passages and codec (where it learnt), passages of a block."""
    kept = {"storage": storage, "shard_passages": block_passages}
    inputs = {"encoder": encoder, "passages": passages} | ({"codec": codec} if codec else {})
    return Spec(STAGE, kept, inputs, format=2)


def codec_spec(encoder: str, passages: str, storage: str) -> Spec | None:
    """What the codec of a collection is made of; None where it learns nothing."""
    inputs = {"encoder": encoder, "passages": passages}
    return Spec("codec", {"storage": storage}, inputs, seed=SEED) if storage in LEARNT else None


def prepare_codec(
    storage: str, encoder: Callable[[], Encoder], encoder_fingerprint: str, passages: PassageTable, out: Path
) -> Codec:
    """The codec of a collection; what it learns, from a seeded sample of the passages, is kept in ``out``."""
    spec = codec_spec(encoder_fingerprint, passages.fingerprint, storage)
    if spec is None:
        return make_codec(storage)

    def write(space: Workspace) -> Mapping[str, Any]:
        wanted = min(len(passages), SAMPLE_MOST, round(SAMPLE_RATE * math.sqrt(len(passages))))
        rows = np.sort(np.random.default_rng(SEED).choice(len(passages), wanted, replace=False))
        learnt = learn(_encoded(encoder(), [passages[int(row)] for row in rows]).vectors)
        make_codec(storage, learnt).save(space)
        return {"passages": wanted, "centroids": len(learnt["centroids"])}

    build(out, spec, write)
    return open_codec(storage, out, spec.fingerprint)


def build_store(
    encoder: Callable[[], Encoder],
    encoder_fingerprint: str,
    passages: PassageTable,
    codec: Codec,
    out: Path,
    progress: Progress = SILENT,
    *,
    block_passages: int | None = None,
) -> Manifest:
    """Encode a collection into ``out``, block by block; an interrupted run continues with the next block.

    ``encoder`` opens the model, and is called only where there is something to encode.
    """
    block = block_passages or BLOCK_PASSAGES
    return build(
        out,
        store_spec(encoder_fingerprint, passages.fingerprint, codec.storage, block, codec.fingerprint),
        lambda space: _write(space, encoder(), passages, codec, block, progress),
    )


class TokenStore:
    """Reads a finished store. Nothing is loaded until it is asked for."""

    stage = STAGE

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, self.stage)
        counts = self.manifest.counts
        try:
            self.passages, self.tokens = int(counts["passages"]), int(counts["tokens"])
            self.dimension, shards = int(counts["dimension"]), int(counts["shards"])
            self.storage: str = self.manifest.settings["storage"]
            self.special_token_ids = tuple(int(token) for token in counts["special_token_ids"])
            self.ids = StringTable.open(folder, "ids")
            self.document_frequency = _load(folder / "df.npy")
            self.tie_ranks: Int32Array = _load(folder / "tie_ranks.npy")
            allow_open_files(4 * shards + 256)
            self.shards = self._open_shards(shards)
        except (KeyError, TypeError, ValueError, OSError, UsageError) as error:
            raise ArtefactError(
                f"{folder} is not a token store that this version reads ({error}); build it again"
            ) from None

    @cached_property
    def codec(self) -> Codec:
        """How its vectors are written."""
        return open_codec(self.storage, self.folder, self.manifest.inputs.get("codec", ""))

    def _open_shards(self, count: int) -> tuple[TokenShard, ...]:
        shards, row = [], 0
        for number in range(count):
            name = self.folder / shard_name(number)
            arrays = [_load(name.with_suffix(f".{part}.npy")) for part in self.codec.parts]
            offsets = np.load(name.with_suffix(".offsets.npy"), allow_pickle=False)
            shards.append(TokenShard(self.codec.stored(arrays, self.dimension), offsets, row))
            row += len(shards[-1])
        return tuple(shards)

    def __len__(self) -> int:
        return self.passages

    @property
    def fingerprint(self) -> str:
        """Names the stored vectors, wherever and in how many pieces they lie."""
        return self.manifest.fingerprint

    def score(self, queries: torch.Tensor, rows: IntArray) -> FloatArray:
        """MaxSim of each query [queries, length, dimension] with its own rows [queries, count]; −∞ where one is −1."""
        return score_rows(queries, self.shards, rows).numpy()

    @cached_property
    def token_ids(self) -> tuple[Int32Array, ...]:
        """Per shard, the token id of every stored vector, int32 [tokens]."""
        return tuple(_load(self.folder / f"{shard_name(number)}.tokens.npy") for number in range(len(self.shards)))

    @cached_property
    def first_tokens(self) -> IntArray:
        """The number of the first token of each shard, and the total at the end: int64 [shards + 1]."""
        return np.cumsum([0, *(len(shard.vectors) for shard in self.shards)])

    def vectors(self, rows: Sequence[int] | IntArray) -> tuple[FloatArray, IntArray]:
        """Vectors of any passages in one call: float32 [tokens, dimension] in the order of ``rows``, and offsets."""
        arrays, offsets = self.gather(rows)
        return self.shards[0].vectors.decoded(arrays) if arrays else np.zeros((0, self.dimension), np.float32), offsets

    def gather(self, rows: Sequence[int] | IntArray) -> tuple[list[npt.NDArray[Any]], IntArray]:
        """What the codec wrote for any passages, array by array in the order of ``rows``, and offsets."""
        spans = self._spans(rows)
        parts = [
            [array[start : start + length] for array in self.shards[shard].vectors.arrays]
            for shard, start, length in zip(*(values.tolist() for values in spans), strict=True)
        ]
        return [np.concatenate(column) for column in zip(*parts, strict=True)], _bounds(spans.lengths)

    def lengths(self, rows: IntArray) -> IntArray:
        """How many stored tokens passages have, in the shape of ``rows``; 0 for the row −1 (none)."""
        return np.where(rows >= 0, self._lengths[np.maximum(rows, 0)], 0)

    @cached_property
    def _lengths(self) -> IntArray:
        return np.concatenate([np.diff(shard.offsets) for shard in self.shards])

    def passage_tokens(self, rows: Sequence[int] | IntArray) -> tuple[Int32Array, IntArray]:
        """Token ids of any passages: int32 [tokens] in the order of ``rows``, and offsets."""
        spans = self._spans(rows)
        pieces = zip(*(values.tolist() for values in spans), strict=True)
        parts = [np.asarray(self.token_ids[shard][start : start + length]) for shard, start, length in pieces]
        return np.concatenate([np.zeros(0, np.int32), *parts]), _bounds(spans.lengths)

    def _spans(self, rows: Sequence[int] | IntArray) -> Spans:
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.passages:
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of a store with {self.passages} passages")
        return Spans.of(self.shards, wanted)

    def vectors_at(self, positions: IntArray) -> FloatArray:
        """Stored vectors at positions of the whole store: float32 [n, dimension]."""
        found = np.empty((len(positions), self.dimension), dtype=np.float32)
        for number, here in self._by_shard(positions):
            found[here] = self.shards[number].vectors.vectors(positions[here] - self.first_tokens[number])
        return found

    def token_ids_at(self, positions: IntArray) -> Int32Array:
        """Token ids at positions of the whole store, counted through all shards."""
        flat = positions.reshape(-1)
        found = np.empty(len(flat), dtype=np.int32)
        for number, here in self._by_shard(flat):
            found[here] = self.token_ids[number][flat[here] - self.first_tokens[number]]
        return found.reshape(positions.shape)

    def _by_shard(self, positions: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Shard number and the places in ``positions`` that lie in it."""
        if not len(positions):
            return
        shard = np.searchsorted(self.first_tokens, positions, side="right") - 1
        order = np.argsort(shard, kind="stable")
        numbers, starts = np.unique(shard[order], return_index=True)
        for number, here in zip(numbers, np.split(order, starts[1:]), strict=True):
            yield int(number), here

    def idf(self, token_ids: Int32Array | Sequence[int]) -> npt.NDArray[np.float64]:
        """ln((N + 1) / (df + 1)) of token ids, N passages, df of them holding the token; 0 for the id −1 (none)."""
        ids = np.asarray(token_ids, dtype=np.int64)
        frequency = self.document_frequency[np.maximum(ids, 0)]
        return np.where(ids >= 0, np.log((self.passages + 1) / (frequency + 1.0)), 0.0)


def _bounds(lengths: IntArray) -> IntArray:
    return np.cumsum([0, *lengths]).astype(np.int64)


def allow_open_files(wanted: int) -> None:
    """Every mapped file keeps a descriptor: raise this process's limit where it is lower and may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
    if ceiling < wanted:
        log.warning("the store maps about %d files and this machine allows %d; raise it with ulimit -Hn", wanted, hard)


def shard_name(number: int) -> str:
    """``shard-00000`` and so on."""
    return f"shard-{number:05d}"


def document_frequency(token_ids: Int32Array, offsets: IntArray, vocabulary: int) -> IntArray:
    """In how many passages each token id stands: int64 [vocabulary].

    >>> document_frequency(np.array([5, 5, 6, 5], np.int32), np.array([0, 3, 4]), vocabulary=7)[5:].tolist()
    [2, 1]
    """
    passage = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    pairs = np.unique(passage * vocabulary + token_ids)
    return np.bincount(pairs % vocabulary, minlength=vocabulary).astype(np.int64)


def _write(
    space: Workspace,
    encoder: Encoder,
    passages: PassageTable,
    codec: Codec,
    size: int,
    progress: Progress,
) -> Mapping[str, Any]:
    starts = range(0, len(passages), size)
    task = progress.start("encoding passages", len(passages), "passages")
    for number, start in enumerate(starts):
        stop = min(start + size, len(passages))
        if space.done(f"{shard_name(number)}.json"):
            task.advance(stop - start)
            continue
        encoded = _encoded(encoder, list(passages.range(start, stop)), task.advance)
        cuts = {"truncated": encoded.truncated, "lost": encoded.lost}
        _write_block(space, number, encoded.token_ids, encoded.offsets, codec, codec.encode(encoded.vectors), cuts)
    task.close()
    codec.save(space)
    counts = {
        "dimension": encoder.dimension,
        "limit": encoder.passage_limit,
        "special_token_ids": list(encoder.special_token_ids),
    }
    return counts | _write_totals(space, passages.ids, len(starts), encoder.vocabulary_size)


def _encoded(
    encoder: Encoder, passages: Sequence[Passage], advance: Callable[[int], None] = lambda passages: None
) -> EncodedPassages:
    try:
        return encoder.encode_passages([passage.full_text for passage in passages], advance)
    except EncodingError as error:
        names = [f"'{passages[place].id}'" for place in error.places]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise DataError(
            f"the passages {', '.join(names[:_NAMED])}{more}, one batch, cannot be encoded: {error}. Look at them, "
            "or shorten 'encoder.passage_length' if memory ran out"
        ) from error


def join_stores(parts: Sequence[tuple[TokenStore, IntArray]], passages: str, out: Path) -> Manifest:
    """Write rows of several stores of one encoder and codec as one store, copied and not encoded again.

    ``passages`` is the fingerprint of the collection that they are.
    """
    first = parts[0][0]
    codec, encoder = first.codec, first.manifest.inputs["encoder"]
    spec = store_spec(encoder, passages, codec.storage, BLOCK_PASSAGES, codec.fingerprint)
    blocks = [
        (store, rows[start : start + BLOCK_PASSAGES], store.manifest.counts if start == 0 else {})
        for store, rows in parts
        for start in range(0, len(rows), BLOCK_PASSAGES)
    ]

    def write(space: Workspace) -> Mapping[str, Any]:
        for number, (store, rows, counts) in enumerate(blocks):
            if not space.done(f"{shard_name(number)}.json"):
                arrays, offsets = store.gather(rows)
                cuts = {name: int(counts.get(name, 0)) for name in ("truncated", "lost")}
                _write_block(space, number, store.passage_tokens(rows)[0], offsets, codec, arrays, cuts)
        codec.save(space)
        ids = (store.ids[int(row)] for store, rows in parts for row in rows)
        counts = {name: first.manifest.counts.get(name) for name in ("dimension", "limit", "special_token_ids")}
        return counts | _write_totals(space, ids, len(blocks), len(first.document_frequency))

    return build(out, spec, write)


def _write_block(
    space: Workspace,
    number: int,
    token_ids: Int32Array,
    offsets: IntArray,
    codec: Codec,
    arrays: Sequence[npt.NDArray[Any]],
    cuts: Mapping[str, int],
) -> None:
    every: list[npt.NDArray[Any]] = [token_ids, offsets, *arrays]
    for part, values in zip(("tokens", "offsets", *codec.parts), every, strict=True):
        space.save(f"{shard_name(number)}.{part}.npy", values)
    with space.file(f"{shard_name(number)}.json") as path:  # last: its presence says that the shard is whole
        path.write_text(json.dumps({**cuts, "tokens": len(token_ids)}))


def _write_totals(space: Workspace, passage_ids: Iterable[str], shards: int, vocabulary: int) -> dict[str, Any]:
    """Ids and document frequencies of all shards; returns their counts."""
    if not space.done("tie_ranks.npy"):
        ids = StringTable.of(passage_ids)
        ids.save(space, "ids")
        space.save("tie_ranks.npy", ids.tie_ranks())
    frequency = np.zeros(vocabulary, dtype=np.int64)
    passages = truncated = lost = tokens = 0
    for name in map(shard_name, range(shards)):
        token_ids, offsets = (_load(space.folder / f"{name}.{part}.npy") for part in ("tokens", "offsets"))
        frequency += document_frequency(token_ids, offsets, len(frequency))
        cut = json.loads((space.folder / f"{name}.json").read_text())
        truncated, lost = truncated + cut["truncated"], lost + cut.get("lost", 0)
        passages, tokens = passages + len(offsets) - 1, tokens + len(token_ids)
    space.save("df.npy", frequency)
    return {"passages": passages, "tokens": tokens, "shards": shards, "truncated": truncated, "lost": lost}


def warn_of_cuts(counts: Mapping[str, Any], ids: StringTable) -> None:
    """Say how many passages are longer than the model reads and how much of the text nobody can find, once."""
    if not counts["truncated"] or not counts.get("limit"):
        return
    share = counts["lost"] / max(1, counts["lost"] + counts["tokens"])
    smaller = "a smaller " if ids.first_rows is not None else ""
    warn_once(
        f"{counts['truncated']:,} of {counts['passages']:,} passages are longer than the {counts['limit']} tokens that "
        f"the model reads, and about {share:.0%} of all text is lost; {smaller}--chunk {chunk_for(counts['limit'])} "
        "(data.chunk) cuts them into pieces instead"
    )


def _load(path: Path) -> Any:
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(values) if values.size == 0 else values

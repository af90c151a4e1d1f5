"""Which shards a collection has, and how a process gets one.

A shard is an ordinary index of consecutive passages, in the index's folder, which all processes see. A shard that is
missing is made by encoding its passages: one that was lost comes back by the same code that made it first.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Spec, fingerprint, patient_lock, read_manifest
from colabel.data import PassageTable
from colabel.data.passages import JoinedPassages
from colabel.data.string_table import StringTable
from colabel.encode import open_encoder
from colabel.errors import ArtefactError
from colabel.index.codec import exact_type, open_codec
from colabel.index.index import SETTINGS_FILE, Index, finish_part
from colabel.index.nearest_tokens import TokenLookup, build_lookup, content_tokens, nearest_exact
from colabel.index.store import build_store, codec_spec, document_frequency, shard_name, store_spec
from colabel.types import FloatArray, Int32Array, IntArray, Mask

T = TypeVar("T")

_OPEN_SHARDS = 64


@dataclass(frozen=True)
class ShardLayout:
    """Which passages are in which shard, and all that their vectors depend on.

    Shards hold whole blocks of ``block_passages``, so every vector is the same as in an index of one piece.
    """

    passages: int
    shard_passages: int
    collection: str
    encoder: str
    storage: str
    block_passages: int

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The first row of each shard, and the number of passages at the end."""
        return (*range(0, self.passages, self.shard_passages), self.passages)

    def __len__(self) -> int:
        return len(self.firsts) - 1

    @property
    def whole(self) -> str:
        """The fingerprint that a store in one piece would have."""
        return self._spec(self.collection).fingerprint

    def rows(self, number: int) -> tuple[int, int]:
        """First row of a shard and the row behind its last."""
        return self.firsts[number], self.firsts[number + 1]

    def owners(self, rows: IntArray) -> IntArray:
        """The numbers of the shards that hold any of ``rows`` (−1: none), rising."""
        return np.unique(np.searchsorted(self.firsts, rows[rows >= 0], side="right") - 1)

    def part_fingerprint(self, number: int) -> str:
        """Names the passages of a shard."""
        return fingerprint([self.collection, *self.rows(number)])

    def spec(self, number: int) -> Spec:
        """What the store of a shard is made of."""
        return self._spec(self.part_fingerprint(number))

    def _spec(self, passages: str) -> Spec:
        return store_spec(self.encoder, passages, self.storage, self.block_passages, self.codec_fingerprint)

    @property
    def codec_fingerprint(self) -> str:
        """Names what the codec learnt from the whole collection; empty where it learns nothing."""
        spec = codec_spec(self.encoder, self.collection, self.storage)
        return "" if spec is None else spec.fingerprint


@dataclass(frozen=True)
class ShardSource:
    """How any process gets a shard.

    Attributes:
        home: the index's folder.
        engine: what a shard must be able to do: 'exact', or 'ivf' as well.
        device: where the encoder works.
        texts: from which a shard is made; None: shards can only be opened.
    """

    layout: ShardLayout
    home: Path
    engine: str = "exact"
    device: str = "auto"
    texts: PassageTable | None = None


class ShardCache:
    """What one process has at hand: opened shards and models."""

    def __init__(self) -> None:
        self._shards: OrderedDict[tuple[ShardLayout, Path, str, int], Shard] = OrderedDict()
        self._kept: dict[str, tuple[str, Any]] = {}

    def shard(self, source: ShardSource, number: int) -> Shard:
        """An opened shard, made first where it is missing."""
        key = (source.layout, source.home, source.engine, number)
        if key in self._shards and self._shards[key].present:
            self._shards.move_to_end(key)
            return self._shards[key]
        self._shards[key] = Shard(Index(self._obtain(source, number)), *source.layout.rows(number))
        while len(self._shards) > _OPEN_SHARDS:
            self._shards.popitem(last=False)
        return self._shards[key]

    def keep(self, kind: str, key: str, make: Callable[[], T]) -> T:
        """What ``make`` made for ``key``; of each kind the last one is kept."""
        if self._kept.get(kind, ("", None))[0] != key:
            self._kept.pop(kind, None)  # two models at a time may not fit
            self._kept[kind] = (key, make())
        kept: T = self._kept[kind][1]
        return kept

    def _obtain(self, source: ShardSource, number: int) -> Path:
        folder = source.home / shard_name(number)
        _check_part(source.home / "encoder", source.layout.encoder)
        if _engine(source, number, folder) != source.engine:
            with patient_lock(folder.with_name(f".{folder.name}.lock")):
                found = _engine(source, number, folder)
                if found != source.engine:
                    self._make(source, number, folder, encoded=found is not None)
        return folder

    def _make(self, source: ShardSource, number: int, folder: Path, *, encoded: bool) -> None:
        """Encode a shard, or add what its engine needs to one that is encoded."""
        layout = source.layout
        if not encoded:
            if source.texts is None:
                raise ArtefactError(
                    f"shard {number} of {len(layout)} is not in {source.home}, and without the collection it cannot "
                    "be built; run the command that built the index once more"
                )
            rows = np.arange(*layout.rows(number))
            ids = StringTable.of(source.texts[row].id for row in rows.tolist())
            part = JoinedPassages([(source.texts, rows)], ids, layout.part_fingerprint(number))
            if learnt := layout.codec_fingerprint:
                _check_part(source.home / "codec", learnt)
            codec = open_codec(layout.storage, source.home / "codec", learnt)
            model = functools.partial(open_encoder, source.home / "encoder", source.device)
            encoder = functools.partial(self.keep, "encoder", layout.encoder, model)
            build_store(encoder, layout.encoder, part, codec, folder / "tokens", block_passages=layout.block_passages)
        finish_part(folder, source.engine)


def _check_part(folder: Path, wanted: str) -> None:
    """Refuse another encoder or codec than that of the layout."""
    with contextlib.suppress(ArtefactError):
        if read_manifest(folder).fingerprint == wanted:
            return
    raise ArtefactError(
        f"{folder} is missing or damaged on this machine. All nodes must see the folder of the index; if they do, "
        "build it again"
    )


def _engine(source: ShardSource, number: int, folder: Path) -> str | None:
    """The engine of a finished shard of this layout in ``folder``, None where there is none."""
    try:
        engine = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))["engine"]
        manifest = read_manifest(folder / "tokens")
    except (ArtefactError, OSError, ValueError, KeyError):
        return None
    if manifest.fingerprint != source.layout.spec(number).fingerprint:
        return None
    return str(engine) if manifest.counts["tokens"] else source.engine  # without tokens there is nothing to search


class Shard:
    """An opened shard. Rows are those of the whole collection, in questions and in answers; arrays are NumPy's.

    ``kept`` int64 [last − first] are the rows of its store that were not deleted, rising; None: all of them.
    """

    def __init__(self, index: Index, first: int, last: int, kept: IntArray | None = None) -> None:
        self._index, self._store = index, index.store
        self._first, self._last, self._kept = first, last, kept
        self._lookup: TokenLookup | None = None

    @property
    def present(self) -> bool:
        """Whether its folder is still there."""
        return (self._index.folder / SETTINGS_FILE).exists()

    def statistics(self) -> dict[str, Any]:
        """What the statistics of the whole collection are added up from."""
        rows, frequency = np.arange(len(self._store)), np.asarray(self._store.document_frequency)
        if self._kept is not None:
            gone = np.setdiff1d(rows, self._kept)
            rows, frequency = (
                self._kept,
                frequency - document_frequency(*self._store.passage_tokens(gone), len(frequency)),
            )
        lengths = self._store.lengths(rows).astype(np.int32)
        return {
            "tokens": int(lengths.sum()),
            "truncated": int(self._store.manifest.counts["truncated"]),
            "lost": int(self._store.manifest.counts.get("lost", 0)),
            "limit": self._store.manifest.counts.get("limit"),
            "dimension": self._store.dimension,
            "special_token_ids": list(self._store.special_token_ids),
            "seconds": self._store.manifest.seconds,
            "document_frequency": frequency,
            "lengths": lengths,
        }

    def engine(self) -> str:
        """How it searches; asking for it opens the shard, and makes it where it is missing."""
        return self._index.engine

    def search(self, queries: FloatArray, k: int, allowed: Mask | None) -> tuple[IntArray, FloatArray]:
        """The k best passages of each query, as :meth:`colabel.index.Index.search` gives them."""
        here = None if allowed is None else allowed[self._first : self._last]
        rows, scores = self._index.search(_tensor(queries), min(k, len(self._store)), allowed=self._present(here))
        places = rows if self._kept is None else np.searchsorted(self._kept, rows)
        return np.where(rows >= 0, places + self._first, -1), scores

    def score(self, rows: IntArray, queries: FloatArray) -> FloatArray:
        """MaxSim of each query with its rows [queries, count] of this shard; −∞ for all others."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        mine = self._mine(rows)
        some = np.flatnonzero(mine.any(axis=1))
        if len(some):
            local = np.where(mine[some], self._local(np.where(mine[some], rows[some], self._first)), -1)
            scores[some] = self._store.score(_tensor(queries[some]), local)
        return scores

    def vectors(self, rows: IntArray) -> tuple[IntArray, npt.NDArray[Any]]:
        """Places in ``rows`` [n] that are of this shard, and their vectors one after another."""
        places = np.flatnonzero(self._mine(rows))
        vectors, _ = self._store.vectors(self._local(rows[places]))
        return places, vectors.astype(exact_type(self._store.storage))

    def tokens(self, rows: IntArray) -> tuple[IntArray, Int32Array]:
        """Places in ``rows`` [n] that are of this shard, and their token ids one after another."""
        places = np.flatnonzero(self._mine(rows))
        return places, self._store.passage_tokens(self._local(rows[places]))[0]

    def content(self) -> int:
        """How many of its tokens are neither special nor markers."""
        return len(content_tokens(self._store))

    def content_vectors(self, ordinals: IntArray) -> FloatArray:
        """Vectors of content tokens, counted within the shard."""
        return self._store.vectors_at(content_tokens(self._store)[ordinals])

    def nearest(
        self, vectors: FloatArray, k: int, centres: FloatArray | None, exact: bool
    ) -> tuple[Int32Array, FloatArray]:
        """The k nearest tokens of the shard: by lists around the collection's ``centres``, all, or the index's way."""
        if not self._store.tokens:
            return np.full((len(vectors), 1), -1, np.int32), np.full((len(vectors), 1), -np.inf, np.float32)
        if centres is not None:
            return self._by_lists(centres).nearest(_tensor(vectors), k)
        if exact or self._kept is not None:
            return nearest_exact(_tensor(vectors), self._store, k, self._present(None))
        return self._index.nearest_tokens(_tensor(vectors), k)

    def _by_lists(self, centres: FloatArray) -> TokenLookup:
        if self._lookup is None:
            folder = self._index.folder / "lookup"
            with patient_lock(folder.with_name(".lookup.lock")):
                build_lookup(self._store, folder, np.array(centres))
            self._lookup = TokenLookup(folder, self._store)
        return self._lookup

    def _local(self, rows: IntArray) -> IntArray:
        """Rows of the collection as rows of the store."""
        return rows - self._first if self._kept is None else self._kept[rows - self._first]

    def _present(self, allowed: Mask | None) -> Mask | None:
        """Which rows of the store may be found; None: all."""
        if self._kept is None:
            return allowed
        present = np.zeros(len(self._store), dtype=np.bool_)
        present[self._kept] = True if allowed is None else allowed
        return present

    def _mine(self, rows: IntArray) -> Mask:
        return (rows >= self._first) & (rows < self._last)


def _tensor(values: FloatArray) -> torch.Tensor:
    """A copy: arrays from another process are read-only, which torch does not know."""
    return torch.from_numpy(np.array(values, dtype=np.float32))

"""One shard of a collection: how it is made, where it is kept, and what can be asked of it.

A shard is an ordinary index of consecutive passages. Whoever needs one gets it from a :class:`Desk`: from the disk
where it is finished, from a URL where it was published, or else by encoding its passages. So a shard that was lost with
its node is made again by the next call that needs it, with no other code than made it first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import fingerprint, folder_lock, read_manifest, write_json
from colabel.encode import Encoder, open_encoder
from colabel.errors import ArtefactError, LockedError
from colabel.index.index import SETTINGS_FILE, Index
from colabel.index.ivf import build_ivf
from colabel.index.lookup import TokenLookup, build_lookup, content_tokens
from colabel.index.nearest import nearest_exact
from colabel.index.remote import fetch, publish, read_text
from colabel.index.store import TokenStore, build_store, shard_name, store_plan
from colabel.settings import EncoderSettings, IndexSettings
from colabel.types import Passage

log = logging.getLogger(__name__)

T = TypeVar("T")

SCRATCH = "scratch"
"""The home of shards that stay on the disk of the node that made them."""
_ENCODER = "encoder"
_OPEN_SHARDS = 64
_LOCK_SECONDS = 0.5
_MANIFEST = "manifest.json"

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


class Texts(Protocol):
    """The collection's passages, wherever they are read from."""

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages ``start`` to ``stop`` − 1."""


class Model(Protocol):
    """The encoder's checkpoint, wherever it is."""

    def unpack(self, folder: Path) -> None:
        """Write its files into ``folder``."""


@dataclass(frozen=True)
class FolderModel:
    """A checkpoint on this machine."""

    folder: Path

    def unpack(self, folder: Path) -> None:
        """Copy its files into ``folder``."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)


@dataclass(frozen=True)
class ShardPlan:
    """Which passages are in which shard, and all that their vectors depend on."""

    passages: int
    shard_passages: int
    collection: str
    encoder: str
    storage: str
    block_passages: int

    @classmethod
    def of(cls, passages: int, collection: str, encoder: str, index: IndexSettings, wanted: int) -> ShardPlan:
        """Shards of about ``wanted`` passages.

        They hold whole blocks of ``index.shard_passages``, which are encoded together: so every vector is the same as
        in an index of one piece.
        """
        block = index.shard_passages
        return cls(passages, -(-wanted // block) * block, collection, encoder, index.storage, block)

    def __len__(self) -> int:
        return len(range(0, self.passages, self.shard_passages))

    @property
    def index(self) -> IndexSettings:
        """How a shard's store is written."""
        return IndexSettings(storage=self.storage, shard_passages=self.block_passages)

    @property
    def key(self) -> str:
        """Names the shards, for caches."""
        return fingerprint(vars(self))

    @property
    def whole(self) -> str:
        """The fingerprint that a store in one piece would have."""
        return store_plan(self.encoder, self.collection, self.index).fingerprint

    def rows(self, number: int) -> tuple[int, int]:
        """First row of a shard and the row behind its last."""
        first = number * self.shard_passages
        return first, min(first + self.shard_passages, self.passages)

    def owners(self, rows: IntArray) -> IntArray:
        """The numbers of the shards that hold any of ``rows`` (−1: none), rising."""
        return np.unique(rows[rows >= 0] // self.shard_passages)

    def part_fingerprint(self, number: int) -> str:
        """Names the passages of a shard."""
        return fingerprint([self.collection, *self.rows(number)])

    def store_fingerprint(self, number: int) -> str:
        """The fingerprint of a shard's finished store."""
        return store_plan(self.encoder, self.part_fingerprint(number), self.index).fingerprint


@dataclass(frozen=True)
class ShardSource:
    """How any process gets a shard.

    Attributes:
        home: the index's folder, which this process sees; a URL; or ``SCRATCH``.
        engine: what a shard must be able to do: 'exact', or 'ivf' as well.
        encoder: device and batch size.
        texts, model: from which a shard is made; None: shards can only be opened.
    """

    plan: ShardPlan
    home: str
    engine: str = "exact"
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    texts: Texts | None = None
    model: Model | None = None

    @property
    def remote(self) -> str | None:
        """The URL, where shards are kept at one."""
        return self.home if "://" in self.home else None

    @property
    def stays(self) -> bool:
        """Whether a shard is to be found on one node alone."""
        return self.home == SCRATCH

    @property
    def shared(self) -> bool:
        """Whether all processes see the same folder of shards."""
        return not self.stays and self.remote is None


@dataclass(frozen=True)
class PassageSlice:
    """The passages of one shard."""

    texts: Texts
    first: int
    last: int
    fingerprint: str

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def ids(self) -> Iterator[str]:
        """Their ids in order."""
        return (passage.id for passage in self.range(0, len(self)))

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages ``start`` to ``stop`` − 1 of the shard."""
        return self.texts.range(self.first + start, self.first + stop)


class Desk:
    """What one process keeps at hand: opened shards and the encoder, in ``scratch`` what it fetched or made."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._shards: OrderedDict[tuple[str, str, str, int], Shard] = OrderedDict()
        self._kept: dict[str, tuple[str, Any]] = {}

    def shard(self, source: ShardSource, number: int) -> Shard:
        """An opened shard, made first where it is nowhere to be found."""
        key = (source.plan.key, source.home, source.engine, number)
        if key in self._shards and self._shards[key].present:
            self._shards.move_to_end(key)
            return self._shards[key]
        folder = self._obtain(source, number)
        self._shards[key] = Shard(Index(folder), *source.plan.rows(number))
        while len(self._shards) > _OPEN_SHARDS:
            self._shards.popitem(last=False)
        return self._shards[key]

    def held(self, source: ShardSource) -> list[int]:
        """The numbers of the shards that lie finished on this machine."""
        return [number for number in range(len(source.plan)) if self._state(source, number) is not None]

    def home(self, source: ShardSource) -> Path:
        """The folder on this machine in which shards and their encoder lie side by side."""
        return Path(source.home) if source.shared else self.scratch / source.plan.key

    def _obtain(self, source: ShardSource, number: int) -> Path:
        folder = self.home(source) / shard_name(number)
        if self._state(source, number) == source.engine:
            return folder
        self._encoder_folder(source)
        with _patient_lock(folder.with_name(f".{folder.name}.lock")):
            if self._state(source, number) is None and source.remote is not None:
                self._fetch(source, number, folder)
            if self._state(source, number) != source.engine:
                self._make(source, number, folder)
        return folder

    def _state(self, source: ShardSource, number: int) -> str | None:
        """The engine of a finished shard on this machine, None where there is none of this plan."""
        folder = self.home(source) / shard_name(number)
        try:
            engine = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))["engine"]
            manifest = read_manifest(folder / "tokens")
            whole = manifest.fingerprint == source.plan.store_fingerprint(number)
            self._encoder_folder(source)
        except (ArtefactError, OSError, ValueError, KeyError):
            return None
        if not whole:
            return None
        return source.engine if not manifest.counts["tokens"] else str(engine)  # nothing to be approximate about

    def _fetch(self, source: ShardSource, number: int, folder: Path) -> None:
        url = f"{source.remote}/{source.plan.key}/{shard_name(number)}"
        if read_text(f"{url}/{SETTINGS_FILE}") is None:
            return
        log.info("fetching %s", url)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch(url, folder)

    def _make(self, source: ShardSource, number: int, folder: Path) -> None:
        """Encode a shard, or add what its engine needs to one that is encoded."""
        plan = source.plan
        if self._state(source, number) is None:
            if source.texts is None:
                raise ArtefactError(
                    f"shard {number} of {len(plan)} is not in {source.home}, and without the collection it cannot be "
                    "made again; run the command that built the index once more"
                )
            part = PassageSlice(source.texts, *plan.rows(number), plan.part_fingerprint(number))
            encoder = self.encoder(source)
            build_store(encoder, plan.encoder, part, plan.index, folder / "tokens")
        store = TokenStore(folder / "tokens")
        engine = source.engine if store.tokens else "exact"
        if engine == "ivf":
            build_ivf(store, folder / "ivf")
        table = {"engine": engine, "data": None, "batch_tokens": source.encoder.batch_tokens, "encoder": "../encoder"}
        write_json(folder / SETTINGS_FILE, table)
        if source.remote is not None:
            publish(folder, f"{source.remote}/{plan.key}/{shard_name(number)}", last=SETTINGS_FILE)

    def encoder(self, source: ShardSource) -> Encoder:
        """The model of an index; the last one stays loaded."""
        return self.keep(
            "encoder", source.plan.encoder, lambda: open_encoder(self._encoder_folder(source), source.encoder)
        )

    def keep(self, kind: str, key: str, make: Callable[[], T]) -> T:
        """What ``make`` made for ``key``; of each kind the last one is kept."""
        if self._kept.get(kind, ("", None))[0] != key:
            self._kept.pop(kind, None)  # two models at a time may not fit
            self._kept[kind] = (key, make())
        kept: T = self._kept[kind][1]
        return kept

    def unpack(self, model: Model, folder: Path) -> None:
        """Write a model's files to ``folder``, once for all processes of this machine."""
        with _patient_lock(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():
                arriving = folder.with_name(f".{folder.name}.arriving-{os.getpid()}")
                arriving.mkdir(parents=True, exist_ok=True)
                model.unpack(arriving)
                arriving.rename(folder)

    def _encoder_folder(self, source: ShardSource) -> Path:
        folder = self.home(source) / _ENCODER
        if _is_encoder(folder, source.plan.encoder) or source.shared:
            return folder
        if source.model is not None:
            self.unpack(source.model, folder)
        elif source.remote is not None:
            with _patient_lock(folder.with_name(f".{folder.name}.lock")):
                if not folder.exists():
                    fetch(f"{source.remote}/{source.plan.key}/{_ENCODER}", folder)
        return folder


def publish_encoder(source: ShardSource, folder: Path) -> None:
    """Put the encoder beside shards that are kept at a URL, so that they can be opened anywhere."""
    if source.remote is not None:
        place = f"{source.remote}/{source.plan.key}/{_ENCODER}"
        if read_text(f"{place}/{_MANIFEST}") is None:
            publish(folder, place, last=_MANIFEST)


class Shard:
    """An opened shard. Rows are those of the whole collection, in questions and in answers; arrays are NumPy's."""

    def __init__(self, index: Index, first: int, last: int) -> None:
        self._index, self._store = index, index.store
        self._first, self._last = first, last
        self._lookup: TokenLookup | None = None

    @property
    def present(self) -> bool:
        """Whether its folder is still there."""
        return (self._index.folder / SETTINGS_FILE).exists()

    def statistics(self) -> dict[str, Any]:
        """What the statistics of the whole collection are added up from."""
        counts = self._store.manifest.counts
        return {
            "tokens": self._store.tokens,
            "truncated": int(counts["truncated"]),
            "dimension": self._store.dimension,
            "special_token_ids": list(self._store.special_token_ids),
            "seconds": self._store.manifest.seconds,
            "document_frequency": np.asarray(self._store.document_frequency),
            "lengths": self._store.lengths(np.arange(len(self._store))).astype(np.int32),
        }

    def prepare(self) -> None:
        """Nothing: to be asked is to be opened, and so to be made."""

    def search(self, queries: FloatArray, k: int, allowed: npt.NDArray[np.bool_] | None) -> tuple[IntArray, FloatArray]:
        """The k best passages of each query, as :meth:`colabel.index.Index.search` gives them."""
        here = None if allowed is None else allowed[self._first : self._last]
        rows, scores = self._index.search(_tensor(queries), min(k, len(self._store)), allowed=here)
        return np.where(rows >= 0, rows + self._first, -1), scores

    def score(self, queries: FloatArray, rows: IntArray) -> FloatArray:
        """MaxSim of each query with its rows [queries, count] of this shard; −∞ for all others."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        mine = self._mine(rows)
        some = np.flatnonzero(mine.any(axis=1))
        if len(some):
            local = np.where(mine[some], rows[some] - self._first, -1)
            scores[some] = self._store.score(_tensor(queries[some]), local)
        return scores

    def vectors(self, rows: IntArray) -> tuple[IntArray, npt.NDArray[Any]]:
        """Places in ``rows`` [n] that are of this shard, and their vectors one after another."""
        places = np.flatnonzero(self._mine(rows))
        vectors, _ = self._store.vectors(rows[places] - self._first)
        stored = self._store.shards[0].vectors.dtype
        return places, vectors.astype(np.float16) if stored == np.float16 else vectors  # what was stored loses nothing

    def tokens(self, rows: IntArray) -> tuple[IntArray, npt.NDArray[np.int32]]:
        """Places in ``rows`` [n] that are of this shard, and their token ids one after another."""
        places = np.flatnonzero(self._mine(rows))
        return places, self._store.passage_tokens(rows[places] - self._first)[0]

    def content(self) -> int:
        """How many of its tokens are neither special nor markers."""
        return len(content_tokens(self._store))

    def content_vectors(self, ordinals: IntArray) -> FloatArray:
        """Vectors of content tokens, counted within the shard."""
        return self._store.vectors_at(content_tokens(self._store)[ordinals])

    def nearest(
        self, vectors: FloatArray, k: int, centres: FloatArray | None, exact: bool
    ) -> tuple[npt.NDArray[np.int32], FloatArray]:
        """The k nearest tokens of the shard: by lists around the collection's ``centres``, all, or the index's way."""
        if not self._store.tokens:
            return np.full((len(vectors), 1), -1, np.int32), np.full((len(vectors), 1), -np.inf, np.float32)
        if centres is not None:
            return self._by_lists(centres).nearest(_tensor(vectors), k)
        if exact:
            return nearest_exact(_tensor(vectors), self._store, k)
        return self._index.nearest_tokens(_tensor(vectors), k)

    def _by_lists(self, centres: FloatArray) -> TokenLookup:
        if self._lookup is None:
            folder = self._index.folder / "lookup"
            with _patient_lock(folder.with_name(".lookup.lock")):
                build_lookup(self._store, folder, centres=np.array(centres))
            self._lookup = TokenLookup(folder, self._store)
        return self._lookup

    def _mine(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        return (rows >= self._first) & (rows < self._last)


def scratch_folder(setting: str) -> Path:
    """The scratch folder of this machine, environment variables filled in."""
    return Path(os.path.expandvars(setting)) if setting else Path(tempfile.gettempdir()) / "colabel-scratch"


def _tensor(values: FloatArray) -> torch.Tensor:
    """A copy: arrays from another process are read-only, which torch does not know."""
    return torch.from_numpy(np.array(values, dtype=np.float32))


def _is_encoder(folder: Path, wanted: str) -> bool:
    try:
        return read_manifest(folder).fingerprint == wanted
    except ArtefactError:
        return False


@contextlib.contextmanager
def _patient_lock(folder: Path) -> Iterator[None]:
    """Hold a lock that another process of this machine may hold for a while; a dead one holds nothing."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder_lock(folder))
                break
            except LockedError:
                time.sleep(_LOCK_SECONDS)
        yield
        with contextlib.suppress(OSError):
            (folder / ".writer.json").unlink(missing_ok=True)
            folder.rmdir()

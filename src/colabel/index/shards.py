"""Which shards a collection has, and from what any process gets one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.index.store import store_plan
from colabel.settings import EncoderSettings, IndexSettings
from colabel.types import Passage

SCRATCH = "scratch"
"""The home of shards that stay on the disk of the node that made them."""

IntArray = npt.NDArray[np.int64]


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
        scratch: the setting that names the folder where a node keeps shards.
        texts, model: from which a shard is made; None: shards can only be opened.
    """

    plan: ShardPlan
    home: str
    engine: str = "exact"
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    texts: Texts | None = None
    model: Model | None = None
    scratch: str = ""

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

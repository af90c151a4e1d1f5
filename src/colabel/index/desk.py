"""Where a process gets its shards.

From the disk where a shard is finished, from a URL where it was published, or else by encoding its passages. So a shard
that was lost with its node is made again by the next call that needs it, with no other code than made it first.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from colabel.artefacts import patient_lock, read_manifest, write_json, write_text
from colabel.encode import Encoder, open_encoder
from colabel.errors import ArtefactError
from colabel.index.index import SETTINGS_FILE, Index
from colabel.index.ivf import build_ivf
from colabel.index.remote import fetch, publish, read_text
from colabel.index.shard import Shard
from colabel.index.shards import Model, PassageSlice, ShardSource
from colabel.index.store import TokenStore, build_store, shard_name

log = logging.getLogger(__name__)

T = TypeVar("T")

_ENCODER = "encoder"
_OPEN_SHARDS = 64
_MANIFEST = "manifest.json"
_PUBLISHED = ".published"


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
        if self._state(source, number) == source.engine and self._is_published(source, number):
            return folder
        self._encoder_folder(source)
        with patient_lock(folder.with_name(f".{folder.name}.lock")):
            if self._state(source, number) is None and source.remote is not None:
                self._fetch(source, number, folder)
            if self._state(source, number) != source.engine:
                self._make(source, number, folder)
            if not self._is_published(source, number):
                publish(folder, self._url(source, number), last=SETTINGS_FILE)
                write_text(folder / _PUBLISHED, self._url(source, number))
        return folder

    def _url(self, source: ShardSource, number: int) -> str:
        return f"{source.remote}/{source.plan.key}/{shard_name(number)}"

    def _is_published(self, source: ShardSource, number: int) -> bool:
        """Whether a shard on this machine came from its URL or has gone there; a kill may come in between."""
        if source.remote is None:
            return True
        note = self.home(source) / shard_name(number) / _PUBLISHED
        return note.is_file() and note.read_text(encoding="utf-8") == self._url(source, number)

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
        url = self._url(source, number)
        if read_text(f"{url}/{SETTINGS_FILE}") is None:
            return
        log.info("fetching %s", url)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch(url, folder)
        write_text(folder / _PUBLISHED, url)

    def _make(self, source: ShardSource, number: int, folder: Path) -> None:
        """Encode a shard, or add what its engine needs to one that is encoded."""
        plan = source.plan
        if self._state(source, number) is None:
            if not source.shared:
                shutil.rmtree(folder / "tokens", ignore_errors=True)  # a cleaner of scratch disks left half of it
            if source.texts is None and source.stays:
                raise ArtefactError(
                    f"shard {number} of {len(plan)} is on the disk of another node of the cluster that made it "
                    "('compute.storage' is 'scratch'); ask it there (`colabel rank … --set compute.engine=ray`), or "
                    "keep shards in a folder or at a URL"
                )
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
        (folder / _PUBLISHED).unlink(missing_ok=True)
        write_json(folder / SETTINGS_FILE, table)

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

    def unpack(self, model: Model, folder: Path, whole: Callable[[Path], bool] = Path.exists) -> None:
        """Write a model's files to ``folder``, once for all processes of this machine; what is not whole goes."""
        with patient_lock(folder.with_name(f".{folder.name}.lock")):
            if not whole(folder):
                shutil.rmtree(folder, ignore_errors=True)
                arriving = folder.with_name(f".{folder.name}.arriving-{os.getpid()}")
                arriving.mkdir(parents=True, exist_ok=True)
                model.unpack(arriving)
                arriving.rename(folder)

    def _encoder_folder(self, source: ShardSource) -> Path:
        folder = self.home(source) / _ENCODER

        def whole(place: Path) -> bool:
            return _is_encoder(place, source.plan.encoder)

        if whole(folder):
            return folder
        if source.shared:
            raise ArtefactError(
                f"{folder} is not to be seen on this machine, or damaged; where nodes share no file system, set "
                "'compute.storage' to a URL or to 'scratch', else build the index again"
            )
        if source.model is not None:
            self.unpack(source.model, folder, whole)
        elif source.remote is not None:
            with patient_lock(folder.with_name(f".{folder.name}.lock")):
                if not whole(folder):
                    fetch(f"{source.remote}/{source.plan.key}/{_ENCODER}", folder)
        return folder


def publish_encoder(source: ShardSource, folder: Path) -> None:
    """Put the encoder beside shards that are kept at a URL, so that they can be opened anywhere."""
    if source.remote is not None:
        place = f"{source.remote}/{source.plan.key}/{_ENCODER}"
        if read_text(f"{place}/{_MANIFEST}") is None:
            publish(folder, place, last=_MANIFEST)


def scratch_folder(setting: str) -> Path:
    """The scratch folder of this machine, environment variables filled in."""
    return Path(os.path.expandvars(setting)) if setting else Path(tempfile.gettempdir()) / "colabel-scratch"


def _is_encoder(folder: Path, wanted: str) -> bool:
    try:
        return read_manifest(folder).fingerprint == wanted
    except ArtefactError:
        return False

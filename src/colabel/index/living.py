"""An index that changes: passages are added and deleted without building it again.

    segment-00001/      an ordinary index of passages that were added, with their text, made once and never changed
    generation-00002/   which rows of which segments the index holds, and the statistics of all of them together
    beside-00002/       what else is made of a generation's passages, where somebody asks for it
    index.json          names the generation; replacing it is the change

The first segment is the index as it was built. Whoever opens the index sees one generation: files of earlier ones stay
until the next change, and those of deleted passages until :func:`change` compacts the index into one segment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from colabel.artefacts import Spec, Workspace, build, fingerprint, read_manifest, write_json
from colabel.artefacts.lock import folder_lock
from colabel.data import Dataset, PassageTable, load_dataset
from colabel.data.metadata import Metadata, join
from colabel.data.passages import JoinedPassages, keep_passages, open_unpacked
from colabel.encode import Encoder
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index.index import EXACT_LIMIT, SETTINGS_FILE, Index, finish_part, read_settings
from colabel.index.shard_plan import Shard, ShardLayout, ShardSource
from colabel.index.shards import ShardedIndex, ShardedStore, Shards, write_statistics
from colabel.index.store import TokenStore, build_store, join_stores, warn_of_cuts
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings
from colabel.types import IntArray

log = logging.getLogger(__name__)

MOST_SEGMENTS = 8
"""Added segments beyond which they become one, so that a search opens few of them."""
_WHOLE = "."  # the segment that is the index as it was built
_BUILT = ("tokens", "ivf", "lookup", "metadata", "data")
_NUMBERED = re.compile(r"(segment|generation|beside)-\d+")


@dataclasses.dataclass(frozen=True)
class SegmentLayout(ShardLayout):
    """Segments of any size: segment i has the rows ``firsts[i]`` to ``firsts[i + 1]`` − 1; ``codec`` of all of them."""

    firsts: tuple[int, ...] = (0,)
    codec: str = ""

    @property
    def whole(self) -> str:
        """Names the stored vectors in their order."""
        return fingerprint([self.encoder, self.collection, self.storage, *filter(None, [self.codec])])


@dataclasses.dataclass(frozen=True)
class Segment:
    """A segment and the rows of it that were not deleted, rising."""

    name: str
    index: Index
    kept: IntArray

    @staticmethod
    def open(folder: Path, name: str, kept: IntArray | None = None) -> Segment:
        """``kept`` None: nothing was deleted."""
        index = Index(folder / name, passages=open_unpacked(folder / name / "data"))
        return Segment(name, index, np.arange(len(index.store)) if kept is None else kept)

    @property
    def fingerprint(self) -> str:
        """Names the passages that are left."""
        collection = str(self.index.store.manifest.inputs["passages"])
        if len(self.kept) == len(self.index.store):
            return collection
        return fingerprint([collection, hashlib.blake2b(self.kept.tobytes(), digest_size=16).hexdigest()])


class Segments(Shards):
    """Asks one segment after another."""

    def __init__(self, folder: Path, segments: Sequence[Segment]) -> None:
        firsts = tuple(np.cumsum([0, *(len(segment.kept) for segment in segments)]).tolist())
        first = segments[0].index.store.manifest
        names = [segment.fingerprint for segment in segments]
        layout = SegmentLayout(
            passages=firsts[-1],
            shard_passages=0,
            collection=names[0] if len(names) == 1 else fingerprint(names),
            encoder=first.inputs["encoder"],
            storage=first.settings["storage"],
            block_passages=0,
            firsts=firsts,
            codec=first.inputs.get("codec", ""),
        )
        engines = {segment.index.engine for segment in segments}
        super().__init__(ShardSource(layout, folder, "ivf" if "ivf" in engines else "exact"))
        self.segments = segments
        self._opened = [
            Shard(one.index, *layout.rows(number), None if len(one.kept) == len(one.index.store) else one.kept)
            for number, one in enumerate(segments)
        ]

    def _shard(self, number: int) -> Shard:
        return self._opened[number]


class LivingIndex(ShardedIndex):
    """One generation of an index that was changed; ranks as an index built of its passages does."""

    shards: Segments

    def __init__(
        self, folder: Path, segments: Segments, generation: int, encoder: Callable[[], Encoder] | None
    ) -> None:
        self.generation = generation
        super().__init__(folder, segments)
        if encoder is not None:
            self._open_encoder = encoder
        for segment in segments.segments:  # now, as a later change may remove the files
            _ = segment.index.store.token_ids, segment.index.engine == "exact" or segment.index.ivf
        _ = self.passages, self.store._lengths

    @staticmethod
    def of(folder: Path, generation: int, encoder: Callable[[], Encoder] | None = None) -> LivingIndex:
        """Open a generation; where it was just replaced, the newest."""
        try:
            return LivingIndex(folder, _read_generation(folder, generation), generation, encoder)
        except (ArtefactError, OSError):
            newest = read_settings(folder)["generation"]
            if newest == generation:
                raise
            return LivingIndex.of(folder, newest, encoder)

    @property
    def beside(self) -> Path:
        """Where :func:`change` put what else is made of these passages."""
        return _numbered(self.folder, "beside", self.generation)

    def _open_store(self) -> ShardedStore:
        return ShardedStore(_numbered(self.folder, "generation", self.generation), self.shards)

    @property
    def passages(self) -> PassageTable | None:
        """The passages' text, or None where a part of it is gone."""
        if self._passages is None:
            parts = [(one.index.passages, one.kept) for one in self.shards.segments]
            there = [(table, kept) for table, kept in parts if table is not None]
            if len(there) == len(parts):
                self._passages = JoinedPassages(there, self.store.ids, self.shards.source.layout.collection)
        return self._passages

    @cached_property
    def metadata(self) -> Metadata:
        """What the collection says of its passages besides their text."""
        return _joined_metadata(self.shards.segments)

    @property
    def fingerprint(self) -> str:
        """Names all that a ranking by this index depends on."""
        engines = [segment.index.engine for segment in self.shards.segments]
        return fingerprint([self.store.fingerprint, engines]) if "ivf" in engines else self.store.fingerprint

    def _nearest_by(self) -> tuple[None, bool]:
        """Each segment looks tokens up in its own way."""
        return None, False


def change(
    index: Index,
    *,
    add: Any = None,
    update: bool = False,
    delete: Sequence[str] = (),
    compact: bool = False,
    beside: Callable[[PassageTable, Path], object] | None = None,
    progress: Progress = SILENT,
) -> Index:
    """Add and delete passages, and return the changed index; the old one, where it is open, stays as it was.

    Args:
        index: any opening of it; the newest generation is changed.
        add: a dataset, the path of one, or records as :meth:`colabel.Dataset.from_records` takes them. Its passages
            alone are read, with the columns and pieces of the index.
        update: passages whose ids are there already replace those; else they are refused.
        delete: ids of passages.
        compact: rewrite the index as one segment, without what was deleted.
        beside: makes what changes with the index, such as BM25, from all passages in a folder of the generation; both
            appear at once. Whoever owns an index that belongs to a run gives it.

    Raises:
        LockedError: another process is changing the index.
    """
    folder, loaded = index.folder, vars(index).get("encoder")
    model = functools.cache(index._open_encoder if loaded is None else lambda: loaded)  # holds no earlier index
    if beside is None:
        refuse_run(folder)
    settings = read_settings(folder)
    if settings["shards"] is not None:
        raise UsageError(f"{folder} is an index in shards, which cannot be changed; build it again with all passages")
    new = None if add is None else _passages_of(add, settings["data"])
    with folder_lock(folder):
        settings = read_settings(folder)
        number = (settings["generation"] or 0) + 1
        segments = _current(index, folder, settings["generation"])
        rows = _rows(segments, delete)
        if (missing := np.flatnonzero((rows < 0).all(axis=0))).size:
            raise DataError(f"{folder} has no passage '{delete[missing[0]]}' to delete; nothing was changed")
        segments = _without(segments, rows)
        if new is not None:
            rows = _rows(segments, list(new.ids))
            if (held := np.flatnonzero((rows >= 0).any(axis=0))).size and not update:
                raise DataError(
                    f"passage '{new.ids[int(held[0])]}' is in {folder} already; nothing was added. Use --update "
                    "(update=True) to replace such passages"
                )
            segments = [*_without(segments, rows), _encode(model, segments[0], new, folder, number, progress)]
        segments = [segment for segment in segments if len(segment.kept)]
        if not segments:
            raise UsageError(f"{folder} would hold no passage any more; delete the folder instead")
        if compact:
            segments = [_join(segments, folder, f"segment-{number:05d}", settings["engine"])]
        elif len(segments) > MOST_SEGMENTS + 1:
            joined = _join(segments[1:], folder, f"segment-{number + 1:05d}", "exact")
            number, segments = number + 1, [segments[0], joined]
        _publish(folder, number, segments, beside)
        _prune(folder, [number] if compact else [number, settings["generation"]])
    return LivingIndex.of(folder, number, model)


def refuse_run(folder: Path) -> None:
    """Refuse the index of a run or study."""
    places = (folder, *folder.absolute().parents)
    if any((place / file).is_file() for place in places for file in ("recipe.json", "study.json")):
        raise UsageError(
            f"{folder} belongs to a run, whose labels and rankings depend on its index as it is; change the run "
            "itself, as in `colabel index RUN --add FILE`"
        )


def _passages_of(given: Any, data: DataSettings | None) -> PassageTable:
    data = data or DataSettings(source="records")
    if isinstance(given, Dataset):
        return given.passages
    if isinstance(given, str | Path):
        settings = dataclasses.replace(data, source=str(given), queries=(), labels={}, keep_labels=None)
        return load_dataset(settings).passages
    return Dataset.from_records(given, chunk=data.chunk).passages


def _current(index: Index, folder: Path, generation: int | None) -> list[Segment]:
    if generation is not None:
        return list(_read_generation(folder, generation).segments)
    texts = Index(folder, passages=index._passages).passages
    if texts is not None and open_unpacked(folder / "data") is None:
        keep_passages(texts, folder / "data")  # the files that they were read from will change, too
    return [Segment.open(folder, _WHOLE)]


def _rows(segments: Sequence[Segment], ids: Sequence[str]) -> IntArray:
    """The row in each segment of the first piece of each id, int64 [segments, ids]; −1 where it is not, or deleted."""
    found = np.full((len(segments), len(ids)), -1, dtype=np.int64)
    for segment, rows in zip(segments, found, strict=True):
        named = segment.index.store.ids.rows(ids)
        rows[:] = np.where(np.isin(named, segment.kept), named, -1)
    return found


def _without(segments: Sequence[Segment], rows: IntArray) -> list[Segment]:
    """Segments without the documents whose first pieces are the rows [segments, n]."""
    left = []
    for segment, gone in zip(segments, rows, strict=True):
        every = segment.index.store.ids.all_of(gone[gone >= 0])
        left.append(dataclasses.replace(segment, kept=np.setdiff1d(segment.kept, every)) if len(every) else segment)
    return left


def _encode(
    model: Callable[[], Encoder], like: Segment, new: PassageTable, folder: Path, number: int, progress: Progress
) -> Segment:
    """New passages as a segment; model and codec are those of all others."""
    name, store = f"segment-{number:05d}", like.index.store
    kept = keep_passages(new, folder / name / "data")
    stored = build_store(model, store.manifest.inputs["encoder"], kept, store.codec, folder / name / "tokens", progress)
    warn_of_cuts(stored.counts, kept.ids)
    return _finish(folder, name, kept, "exact")


def _join(segments: Sequence[Segment], folder: Path, name: str, engine: str) -> Segment:
    """What is left of several segments as one; vectors are copied."""
    joined = Segments(folder, segments)
    collection = joined.source.layout.collection
    join_stores([(one.index.store, one.kept) for one in segments], collection, folder / name / "tokens")
    texts = [one.index.passages for one in segments]
    kept = None
    if all(table is not None for table in texts):
        parts = [(table, one.kept) for table, one in zip(texts, segments, strict=True) if table is not None]
        ids = TokenStore(folder / name / "tokens").ids
        kept = keep_passages(JoinedPassages(parts, ids, collection), folder / name / "data")
    with contextlib.suppress(DataError):  # an index of an earlier version may have none
        spec = Spec("metadata", {}, {"passages": collection})
        build(folder / name / "metadata", spec, _joined_metadata(segments).save)
    return _finish(folder, name, kept, engine)


def _joined_metadata(segments: Sequence[Segment]) -> Metadata:
    return Metadata(join([one.index.metadata.kept.take(one.kept) for one in segments]))


def _finish(folder: Path, name: str, passages: PassageTable | None, engine: str) -> Segment:
    many = read_manifest(folder / name / "tokens").counts["tokens"] > EXACT_LIMIT
    store = finish_part(folder / name, "ivf" if many else engine)
    index = Index(folder / name, passages=passages)
    return Segment(name, index if passages is None else index.keep_metadata(), np.arange(len(store)))


def _publish(
    folder: Path,
    number: int,
    segments: Sequence[Segment],
    beside: Callable[[PassageTable, Path], object] | None,
) -> None:
    """Write a generation, and make it the one that whoever opens the index sees."""
    asked = Segments(folder, segments)
    layout = asked.source.layout
    named = {"segments": [one.name for one in segments], "kept": [len(one.kept) for one in segments]}
    spec = Spec(
        ShardedStore.stage,
        {"storage": layout.storage, **named},
        {"encoder": layout.encoder, "passages": layout.collection},
    )

    def write(space: Workspace) -> Mapping[str, Any]:
        space.save("kept.npy", np.concatenate([one.kept for one in segments]))
        ids = (one.index.store.ids[int(row)] for one in segments for row in one.kept)
        return write_statistics(space, ids, asked)

    build(_numbered(folder, "generation", number), spec, write)
    if beside is not None:
        index = LivingIndex(folder, asked, number, None)
        if index.passages is None:
            raise DataError(f"the texts behind {folder} are gone; put the collection back. Nothing was changed")
        beside(index.passages, index.beside)
    table = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    write_json(folder / SETTINGS_FILE, {**table, "engine": asked.source.engine, "generation": number})


def _numbered(folder: Path, what: str, number: int) -> Path:
    return folder / f"{what}-{number:05d}"


def _read_generation(folder: Path, number: int) -> Segments:
    place = _numbered(folder, "generation", number)
    named = read_manifest(place, ShardedStore.stage).settings
    kept = np.load(place / "kept.npy", allow_pickle=False)
    parts = np.split(kept, np.cumsum(named["kept"])[:-1])
    return Segments(
        folder, [Segment.open(folder, name, rows) for name, rows in zip(named["segments"], parts, strict=True)]
    )


def _prune(folder: Path, generations: Sequence[int | None]) -> None:
    """Remove what none of some generations needs."""
    needed, whole = set(), None in generations
    for number in generations:
        if number is not None:
            place = _numbered(folder, "generation", number)
            beside = _numbered(folder, "beside", number)
            needed |= {place.name, beside.name, *read_manifest(place).settings["segments"]}
    for path in folder.iterdir():
        unused = path.name in _BUILT and not whole and _WHOLE not in needed
        if unused or (_NUMBERED.fullmatch(path.name) and path.name not in needed):
            shutil.rmtree(path, ignore_errors=True)

"""An index folder: the encoder, the token store, the approximate index where there is one, and the passages' place.

encoder/   a standard sentence-transformers checkpoint
codec/     what the storage learnt from a sample, where it learns; every token store has a copy
tokens/    the token store
ivf/       the approximate index (engine ivf)
lookup/    the look-up of nearest tokens, once it was needed
data/      offsets of the passages in their files
metadata/  what else the collection says of its passages, for filters
index.json the settings with which it was built
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Spec, assemble, build, fingerprint, read_manifest, refuse_foreign, write_json
from colabel.artefacts.build import current_builder
from colabel.artefacts.manifest import MANIFEST_FILE
from colabel.data import Dataset, PassageTable, reopen_passages, resolve_paths
from colabel.data.metadata import Metadata
from colabel.data.pieces import best_documents
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.errors import ArtefactError, ColabelError, DataError, SettingsError, UsageError
from colabel.index.exact import search_exact
from colabel.index.ivf import IvfIndex, build_ivf
from colabel.index.nearest_tokens import LOOKUP_FROM, LOOKUP_UP_TO, TokenLookup, build_lookup, nearest_exact
from colabel.index.store import TokenStore, build_store, prepare_codec, warn_of_cuts
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings, EncoderSettings, IndexSettings
from colabel.types import FloatArray, Int32Array, IntArray, Mask

log = logging.getLogger(__name__)

SETTINGS_FILE = "index.json"
_ONE_PIECE = ("encoder", "codec", "tokens", "ivf", "lookup", "data", "metadata")
_PARTS = (*_ONE_PIECE, "statistics", "shards", "shard-*", "segment-*", "generation-*")
EXACT_LIMIT = 1_500_000
"""Stored tokens up to which ``engine = "auto"`` searches exactly."""


def build_index(
    dataset: Dataset,
    out: Path | str,
    *,
    data: DataSettings | None = None,
    encoder: EncoderSettings | None = None,
    index: IndexSettings | None = None,
    progress: Progress = SILENT,
) -> Index:
    """Encode a dataset's passages and index them in the folder ``out``; an interrupted build continues.

    ``data`` is remembered, so that :func:`Index.open` can show the passages' text.
    """
    out = Path(out)
    check_place(out)
    encoder, index = encoder or EncoderSettings(), index or IndexSettings()
    model = functools.cache(lambda: open_encoder(out / "encoder", encoder.device))  # a finished index loads none

    def make() -> Mapping[str, Any]:
        prepared = prepare_encoder(encoder, dataset.passages, out / "encoder")
        codec = prepare_codec(index.storage, model, prepared.fingerprint, dataset.passages, out / "codec")
        stored = build_store(model, prepared.fingerprint, dataset.passages, codec, out / "tokens", progress)
        warn_of_cuts(stored.counts, dataset.passages.ids)
        engine = choose_engine(index.engine, int(stored.counts["tokens"]), dataset.name)
        if engine == "ivf":
            build_ivf(TokenStore(out / "tokens"), out / "ivf", progress)
        return {"engine": engine, "data": None if data is None else resolve_paths(data).as_dict()}

    assemble(out, SETTINGS_FILE, make)
    return Index(out, passages=dataset.passages, encoder=model).keep_metadata()


def check_place(out: Path) -> None:
    """Refuse a folder for an index that holds anything else, before anything is written."""
    if next(out.glob("generation-*"), None) is not None:
        raise UsageError(
            f"{out} holds an index that was changed since it was built, and building it again would lose the changes; "
            "choose a new folder, or delete this one first"
        )
    if not ((out / SETTINGS_FILE).exists() and (out / "encoder" / MANIFEST_FILE).exists()):
        refuse_foreign(out, _PARTS)


def finish_part(folder: Path, engine: str) -> TokenStore:
    """Make an index, beside whose folder its encoder lies, of the token store in ``folder``; returns the store."""
    store = TokenStore(folder / "tokens")
    engine = engine if store.tokens else "exact"  # without tokens there is nothing to search
    if engine == "ivf":
        build_ivf(store, folder / "ivf")
    write_json(folder / SETTINGS_FILE, {"engine": engine, "data": None, "encoder": "../encoder"})
    return store


def choose_engine(wanted: str, tokens: int, name: str) -> str:
    """The engine for a number of stored tokens; says what 'auto' chose and why."""
    if not tokens:
        raise UsageError(f"every passage of {name} is empty; there is nothing to index")
    if wanted != "auto":
        return wanted
    engine = "exact" if tokens <= EXACT_LIMIT else "ivf"
    log.debug("engine auto: %s, since the index holds %s tokens (limit %s)", engine, f"{tokens:,}", f"{EXACT_LIMIT:,}")
    return engine


class Index:
    """An opened index: searches passages, finds nearest tokens, gives stored vectors and IDF."""

    def __init__(
        self,
        folder: Path,
        *,
        passages: PassageTable | None = None,
        encoder: Callable[[], Encoder] | None = None,
    ) -> None:
        settings = read_settings(folder)
        self.folder = folder
        self.engine: str = settings["engine"]
        self.store = self._open_store()
        self._data: DataSettings | None = settings["data"]
        self._passages = passages
        self.encoder_folder = folder / settings["encoder"]
        self._open_encoder = encoder or (lambda: open_encoder(self.encoder_folder))
        model = read_manifest(self.encoder_folder).fingerprint
        if self.store.manifest.inputs.get("encoder") != model:
            raise ArtefactError(
                f"{folder} holds the token vectors of another model than its own; build the index again"
            )

    @staticmethod
    def open(folder: Path | str) -> Index:
        """Open a finished index folder, in one piece or in shards; models and texts are loaded when first needed."""
        folder = Path(folder)
        settings = read_settings(folder)
        if settings["generation"] is not None:
            from colabel.index.living import LivingIndex

            return LivingIndex.of(folder, settings["generation"])
        if settings["shards"] is None:
            return Index(folder)
        from colabel.index.shards import ShardedIndex, Shards, read_source

        return ShardedIndex(folder, Shards(read_source(folder, settings)))

    def _open_store(self) -> TokenStore:
        return TokenStore(self.folder / "tokens")

    @cached_property
    def encoder(self) -> Encoder:
        """The model that encoded the passages."""
        encoder = self._open_encoder()
        if encoder.dimension != self.store.dimension:
            raise ArtefactError(
                f"the model gives vectors of {encoder.dimension} dimensions and {self.folder} holds vectors of "
                f"{self.store.dimension}; use the model with which the index was built"
            )
        return encoder

    @property
    def passages(self) -> PassageTable | None:
        """The passages' text, or None where the collection is gone or is not what was indexed any more."""
        if self._passages is None and self._data is not None:
            data, self._data = self._data, None
            try:
                found = reopen_passages(data, self.folder / "data")
                self.check_collection(found)
                self._passages = found
            except ColabelError as error:
                log.warning("the passages' text is not available: %s", error)
        return self._passages

    def check_collection(self, passages: PassageTable) -> None:
        """Refuse passages other than those that were indexed."""
        if passages.fingerprint != self.store.manifest.inputs.get("passages"):
            raise DataError(f"the collection is not the one that {self.folder} was built from; build the index again")

    @cached_property
    def metadata(self) -> Metadata:
        """What the collection says of its passages besides their text; kept in the index's folder."""
        passages = str(self.store.manifest.inputs["passages"])
        try:
            build(
                self.folder / "metadata", Spec("metadata", {}, {"passages": passages}), lambda s: self._read().save(s)
            )
        except (ArtefactError, OSError) as error:
            log.info("metadata is not kept: %s", error)
            return self._read()
        return Metadata.open(self.folder / "metadata")

    def _read(self) -> Metadata:
        if self.passages is None:
            raise DataError(f"{self.folder} holds no metadata and its collection is gone; build the index again")
        return Metadata.of(self.passages)

    def keep_metadata(self) -> Self:
        """Write the metadata while the passages are here; done at the end of every build."""
        if not current_builder().dry:
            _ = self.metadata
        return self

    def where(self, condition: str) -> Mask:
        """Which rows a condition of SQL over the metadata holds for, such as ``brand = 'Acme' and price < 30``.

        The mask, bool [passages], is what ``allowed`` takes in :meth:`search` and in every ranker.
        """
        return self.metadata.select(condition)

    @cached_property
    def ivf(self) -> IvfIndex:
        """The approximate index, mapped from disk."""
        return IvfIndex(self.folder / "ivf", self.store)

    @cached_property
    def lookup(self) -> TokenLookup:
        """The nearest-token look-up; made in the index's folder when it is first needed, or for this process alone
        where that cannot be written or somebody else is writing it."""
        try:
            build_lookup(self.store, self.folder / "lookup")
        except (ArtefactError, OSError) as error:
            log.info("the look-up of nearest tokens is not kept: %s", error)
            scratch = Path(tempfile.mkdtemp(prefix="colabel-"))
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            build_lookup(self.store, scratch / "lookup")
            return TokenLookup(scratch / "lookup", self.store)
        return TokenLookup(self.folder / "lookup", self.store)

    @property
    def fingerprint(self) -> str:
        """Names all that a ranking by this index depends on."""
        tokens = self.store.fingerprint
        return tokens if self.engine == "exact" else fingerprint([tokens, self.ivf.fingerprint])

    def search(
        self,
        queries: torch.Tensor,
        k: int,
        *,
        allowed: Mask | None = None,
        progress: Progress = SILENT,
    ) -> tuple[IntArray, FloatArray]:
        """The k best passages of each query by MaxSim.

        Args:
            queries: float32 [queries, length, dimension]; token weights are multiplied in, padding is zero.
            allowed: bool [passages]: which rows may be returned.

        Returns:
            Rows int64 [queries, k] and scores float32, best first; −1 and −∞ where there are fewer. Of a document in
            pieces, the best piece alone is returned.
        """
        if queries.shape[-1] != self.store.dimension:
            raise UsageError(
                f"query vectors have {queries.shape[-1]} dimensions, the index has {self.store.dimension}; "
                "encode queries with the model of the index"
            )
        return best_documents(lambda depth: self._search(queries, depth, allowed, progress), k, self.store.ids)

    def _search(
        self, queries: torch.Tensor, k: int, allowed: Mask | None, progress: Progress
    ) -> tuple[IntArray, FloatArray]:
        """The k best rows of each query."""
        few = allowed is not None and float(allowed.mean()) * self.store.tokens <= EXACT_LIMIT
        if self.engine == "ivf" and not few:  # over few passages exact search is the better way
            return self.ivf.search(queries, k, allowed=allowed)
        scores, rows = search_exact(
            queries, self.store.shards, k, allowed=allowed, tie_ranks=self.store.tie_ranks, progress=progress
        )
        return rows.numpy(), scores.numpy()

    def _check_vectors(self, vectors: torch.Tensor) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.store.dimension:
            raise UsageError(f"expected vectors [n, {self.store.dimension}], got {list(vectors.shape)}")

    def nearest_tokens(self, vectors: torch.Tensor, k: int = 10) -> tuple[Int32Array, FloatArray]:
        """The k nearest stored tokens of the whole collection, special and marker tokens left out.

        Args:
            vectors: float32 [n, dimension], any vectors.

        Returns:
            Token ids int32 [n, k] and similarities (dot products) float32 [n, k], nearest first; −1 and −∞ where
            there are fewer.
        """
        self._check_vectors(vectors)
        if LOOKUP_FROM <= self.store.tokens <= LOOKUP_UP_TO:
            return self.lookup.nearest(vectors, k)
        if self.engine == "ivf" and self.store.tokens > LOOKUP_UP_TO:
            return self.ivf.nearest_tokens(vectors, k)
        return nearest_exact(vectors, self.store, k)

    def add(self, passages: Any, *, update: bool = False, progress: Progress = SILENT) -> Index:
        """Encode passages and return the index with them; see :func:`colabel.index.living.change`.

        Args:
            passages: a dataset, the path of one, or records as :meth:`colabel.Dataset.from_records` takes them.
            update: passages replace those with the same id; else an id that is there already is refused.
        """
        from colabel.index.living import change

        return change(self, add=passages, update=update, progress=progress)

    def delete(self, passage_ids: Iterable[str]) -> Index:
        """Return the index without some passages; no answer names them any more."""
        from colabel.index.living import change

        return change(self, delete=list(passage_ids))

    def compact(self) -> Index:
        """Return the index as one piece; what was deleted is removed from the disk."""
        from colabel.index.living import change

        return change(self, compact=True)

    def idf(self, token_ids: Int32Array) -> npt.NDArray[np.float64]:
        """ln((N + 1) / (df + 1)) of token ids."""
        return self.store.idf(token_ids)


def read_settings(folder: Path) -> dict[str, Any]:
    """What ``index.json`` holds."""
    path = folder / SETTINGS_FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["engine"] not in ("exact", "ivf"):
            raise ValueError(f"unknown engine {table['engine']!r}")
        data = None if table["data"] is None else DataSettings.from_manifest(table["data"])
        return {
            "engine": table["engine"],
            "data": data,
            "encoder": str(table.get("encoder", "encoder")),
            "shards": table.get("shards"),
            "generation": table.get("generation"),
            "device": str(table.get("device", "auto")),
        }
    except FileNotFoundError:
        there = folder.is_dir()  # perhaps the dataset itself, where no index belongs
        what = "holds no finished index (it has no index.json)" if there else "does not exist"
        place = "INDEX" if there else folder
        raise ArtefactError(f"{folder} {what}; build one with `colabel index DATASET --out {place}`") from None
    except (OSError, ValueError, KeyError, TypeError, SettingsError) as error:
        raise ArtefactError(f"{path} cannot be read by this version ({error}); build the index again") from None

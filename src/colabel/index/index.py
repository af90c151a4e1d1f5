"""An index folder: the encoder, the token store, the approximate index where there is one, and the passages' place.

encoder/   a standard sentence-transformers checkpoint
tokens/    the token store
ivf/       the approximate index (engine ivf)
lookup/    the look-up of nearest tokens, once it was needed
data/      offsets of the passages in their files
index.json the settings with which it was built
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import fingerprint, folder_lock, read_manifest, write_json
from colabel.data import Dataset, PassageTable, reopen_passages
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.errors import ArtefactError, ColabelError, DataError, SettingsError, UsageError
from colabel.index.exact import search_exact
from colabel.index.ivf import IvfIndex, build_ivf
from colabel.index.lookup import LOOKUP_FROM, LOOKUP_UP_TO, TokenLookup, build_lookup
from colabel.index.nearest import nearest_exact
from colabel.index.store import TokenStore, build_store
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings, EncoderSettings, IndexSettings

log = logging.getLogger(__name__)

SETTINGS_FILE = "index.json"
EXACT_LIMIT = 1_500_000
"""Stored tokens up to which ``engine = "auto"`` searches exactly."""


def build_index(
    dataset: Dataset,
    out: Path,
    *,
    data: DataSettings | None = None,
    encoder: EncoderSettings | None = None,
    index: IndexSettings | None = None,
    progress: Progress = SILENT,
) -> Index:
    """Encode a dataset's passages and index them in the folder ``out``; an interrupted build continues.

    ``data`` is remembered, so that :func:`Index.open` can show the passages' text.
    """
    encoder, index = encoder or EncoderSettings(), index or IndexSettings()
    with folder_lock(out):
        (out / SETTINGS_FILE).unlink(missing_ok=True)  # until all parts fit together again, it is no index
        prepared = prepare_encoder(encoder, dataset.passages, out / "encoder")
        model = open_encoder(out / "encoder", encoder)
        stored = build_store(model, prepared.fingerprint, dataset.passages, index, out / "tokens", progress)
        if not stored.counts["tokens"]:
            raise UsageError(f"every passage of {dataset.name} is empty; there is nothing to index")
        engine = choose_engine(index.engine, int(stored.counts["tokens"]))
        if engine == "ivf":
            build_ivf(TokenStore(out / "tokens"), out / "ivf", progress)
        where = None if data is None else data.with_absolute_paths().as_dict()
        table = {"engine": engine, "data": where, "batch_tokens": encoder.batch_tokens}
        write_json(out / SETTINGS_FILE, table)
    return Index(out, passages=dataset.passages, encoder=model)


def choose_engine(wanted: str, tokens: int) -> str:
    """The engine for a number of stored tokens; says what 'auto' chose and why."""
    if wanted != "auto":
        return wanted
    engine = "exact" if tokens <= EXACT_LIMIT else "ivf"
    relation = "at most" if engine == "exact" else "more than"
    log.info(
        "engine auto: %s, since the index holds %s tokens, %s %s", engine, f"{tokens:,}", relation, f"{EXACT_LIMIT:,}"
    )
    return engine


class Index:
    """An opened index: searches passages, finds nearest tokens, gives stored vectors and IDF."""

    def __init__(self, folder: Path, *, passages: PassageTable | None = None, encoder: Encoder | None = None) -> None:
        settings = read_settings(folder)
        self.folder = folder
        self.engine: str = settings["engine"]
        self.store = self._open_store()
        self._encoder_settings = EncoderSettings(batch_tokens=settings["batch_tokens"])
        self._data: DataSettings | None = settings["data"]
        self._passages = passages
        self._encoder = encoder
        self.encoder_folder = folder / settings["encoder"]
        model = read_manifest(self.encoder_folder).fingerprint
        if self.store.manifest.inputs.get("encoder") != model:
            raise ArtefactError(
                f"{folder} holds the token vectors of another model than its own; build the index again"
            )
        if encoder is not None:
            self._check_dimension(encoder)

    @staticmethod
    def open(folder: Path) -> Index:
        """Open a finished index folder, in one piece or in shards; models and texts are loaded when first needed."""
        settings = read_settings(folder)
        if settings["shards"] is None:
            return Index(folder)
        from colabel.index.sharded import open_sharded

        return open_sharded(folder, settings)

    def _open_store(self) -> TokenStore:
        return TokenStore(self.folder / "tokens")

    @property
    def encoder(self) -> Encoder:
        """The model that encoded the passages."""
        if self._encoder is None:
            self._encoder = open_encoder(self.encoder_folder, self._encoder_settings)
            self._check_dimension(self._encoder)
        return self._encoder

    def _check_dimension(self, encoder: Encoder) -> None:
        if encoder.dimension != self.store.dimension:
            raise ArtefactError(
                f"the model gives vectors of {encoder.dimension} dimensions and {self.folder} holds vectors of "
                f"{self.store.dimension}; use the model with which the index was built"
            )

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
        allowed: npt.NDArray[np.bool_] | None = None,
        progress: Progress = SILENT,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The k best passages of each query by MaxSim.

        Args:
            queries: float32 [queries, length, dimension]; token weights are multiplied in, padding is zero.
            allowed: bool [passages]: which rows may be returned.

        Returns:
            Rows int64 [queries, k] and scores float32, best first; −1 and −∞ where there are fewer.
        """
        self._check_width(queries)
        if self.engine == "ivf" and not self._few(allowed):
            return self.ivf.search(queries, k, allowed=allowed)
        scores, rows = search_exact(
            queries, self.store.shards, k, allowed=allowed, tie_ranks=self.store.tie_ranks, progress=progress
        )
        return rows.numpy(), scores.numpy()

    def _check_width(self, queries: torch.Tensor) -> None:
        if queries.shape[-1] != self.store.dimension:
            raise UsageError(
                f"query vectors have {queries.shape[-1]} dimensions, the index has {self.store.dimension}; "
                "encode queries with the model of the index"
            )

    def _check_vectors(self, vectors: torch.Tensor) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.store.dimension:
            raise UsageError(f"expected vectors [n, {self.store.dimension}], got {list(vectors.shape)}")

    def _few(self, allowed: npt.NDArray[np.bool_] | None) -> bool:
        """Whether a filter leaves so few passages that exact search over them is the better way."""
        if allowed is None:
            return False
        return float(allowed.mean()) * self.store.tokens <= EXACT_LIMIT

    def nearest_tokens(
        self, vectors: torch.Tensor, k: int = 10
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
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

    def idf(self, token_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """ln((N + 1) / (df + 1)) of token ids."""
        return self.store.idf(token_ids)


def read_settings(folder: Path) -> dict[str, Any]:
    """What ``index.json`` holds."""
    path = folder / SETTINGS_FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["engine"] not in ("exact", "ivf"):
            raise ValueError(f"unknown engine {table['engine']!r}")
        data = None if table["data"] is None else DataSettings.from_mapping(table["data"])
        return {
            "engine": table["engine"],
            "data": data,
            "batch_tokens": int(table["batch_tokens"]),
            "encoder": str(table.get("encoder", "encoder")),
            "shards": table.get("shards"),
            "device": str(table.get("device", "auto")),
        }
    except FileNotFoundError:
        what = "holds no finished index (it has no index.json)" if folder.is_dir() else "does not exist"
        raise ArtefactError(f"{folder} {what}; build one with `colabel index DATASET --out {folder}`") from None
    except (OSError, ValueError, KeyError, TypeError, SettingsError) as error:
        raise ArtefactError(f"{path} cannot be read by this version ({error}); build the index again") from None

"""One shard of a collection: an ordinary index of consecutive passages, and what can be asked of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import patient_lock
from colabel.index.index import SETTINGS_FILE, Index
from colabel.index.lookup import TokenLookup, build_lookup, content_tokens
from colabel.index.nearest import nearest_exact

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


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
            with patient_lock(folder.with_name(".lookup.lock")):
                build_lookup(self._store, folder, centres=np.array(centres))
            self._lookup = TokenLookup(folder, self._store)
        return self._lookup

    def _mine(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        return (rows >= self._first) & (rows < self._last)


def _tensor(values: FloatArray) -> torch.Tensor:
    """A copy: arrays from another process are read-only, which torch does not know."""
    return torch.from_numpy(np.array(values, dtype=np.float32))

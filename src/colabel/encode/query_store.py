"""Query token vectors on disk, so that a teacher can score any query again without its model.

vectors.npy   float32 [tokens, dimension], queries one after another
offsets.npy   int64 [queries + 1]
ids.*.npy     query ids
texts.*.npy   their texts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colabel.artefacts import Spec, Workspace, build, fingerprint, read_manifest
from colabel.data.string_table import StringTable
from colabel.encode.encoder import Encoder, encode_queries_checked
from colabel.progress import SILENT, Progress
from colabel.types import IntArray

STAGE = "queries"
_BLOCK = 4096  # queries encoded between two save points


class QueryStore:
    """Reads stored queries; vectors are mapped from disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, STAGE)
        self.fingerprint = self.manifest.fingerprint
        self.ids = StringTable.open(folder, "ids")
        self._texts = StringTable.open(folder, "texts")
        self._offsets = np.load(folder / "offsets.npy", allow_pickle=False)
        self._vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)

    def __len__(self) -> int:
        return len(self.ids)

    def vectors(self, query_ids: Sequence[str]) -> torch.Tensor:
        """Vectors float32 [queries, longest, dimension], zero vectors behind a query's tokens."""
        rows = self._rows(query_ids)
        starts, lengths = self._offsets[rows], np.diff(self._offsets)[rows]
        padded = np.zeros((len(rows), int(lengths.max(initial=1)), self._vectors.shape[1]), dtype=np.float32)
        for place, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            padded[place, :length] = self._vectors[start : start + length]
        return torch.from_numpy(padded)

    def text(self, query_id: str) -> str:
        """The text of a query."""
        return self._texts[int(self._rows([query_id])[0])]

    def lengths(self, query_ids: Sequence[str]) -> torch.Tensor:
        """How many tokens each query has, int64 [queries]."""
        return torch.from_numpy(np.diff(self._offsets)[self._rows(query_ids)])

    def _rows(self, query_ids: Sequence[str]) -> IntArray:
        known = f"{len(self)} queries, such as {', '.join(self.ids[:3])}"
        return self.ids.known_rows(query_ids, f"{self.folder}, of {known}, has to be collected again: it has no query")


def build_query_store(
    encoder: Callable[[], Encoder],
    encoder_fingerprint: str,
    queries: Mapping[str, str],
    out: Path,
    progress: Progress = SILENT,
) -> QueryStore:
    """Encode queries (id → text) into ``out``; an interrupted run continues with the next block.

    ``encoder`` is opened only where there is something to encode.
    """
    inputs = {"encoder": encoder_fingerprint, "queries": fingerprint(list(queries.items()))}
    build(out, Spec(STAGE, {}, inputs), lambda space: _write(space, encoder(), queries, progress))
    return QueryStore(out)


def _write(space: Workspace, encoder: Encoder, queries: Mapping[str, str], progress: Progress) -> Mapping[str, Any]:
    ids, texts = list(queries), list(queries.values())
    parts = []
    task = progress.start("encoding queries", len(ids), "queries")
    for number, start in enumerate(range(0, len(ids), _BLOCK)):
        batch, name = texts[start : start + _BLOCK], f"part-{number:05d}.npz"
        if not space.done(name):
            encoded = encode_queries_checked(encoder, batch, strict=False)
            used = encoded.token_ids >= 0
            with space.file(name) as path, path.open("wb") as file:
                np.savez(file, vectors=encoded.vectors[used].numpy(), lengths=used.sum(dim=1).numpy())
        parts.append(space.folder / name)
        task.advance(len(batch))
    task.close()
    lengths = [np.load(part, allow_pickle=False)["lengths"] for part in parts]
    offsets = np.cumsum(np.concatenate([[0], *lengths])).astype(np.int64)
    space.save("offsets.npy", offsets)
    with space.file("vectors.npy") as path:  # part by part, so that memory stays that of one
        shape = (int(offsets[-1]), encoder.dimension)
        joined = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        for part, first, last in zip(parts, offsets[:-1:_BLOCK], [*offsets[_BLOCK::_BLOCK], None], strict=False):
            joined[first:last] = np.load(part, allow_pickle=False)["vectors"]
        joined.flush()
    StringTable.of(ids).save(space, "ids")
    StringTable.of(texts).save(space, "texts")
    for part in parts:
        part.unlink()
    return {"queries": len(ids)}

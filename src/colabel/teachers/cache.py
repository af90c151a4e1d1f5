"""Scores of pairs, saved while they are being computed, so that an interruption costs little.

part-00000.npy   (query int32, row int32, score float32) [pairs]
spent.json       how many pairs were scored, and the seconds that took
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import write_json
from colabel.artefacts.arrays import ROW_BITS, PairTable, pair_keys
from colabel.errors import ArtefactError

_SPENT_FILE = "spent.json"
_PAIR = np.dtype([("query", "<i4"), ("row", "<i4"), ("score", "<f4")])


class PairCache:
    """Scored pairs (query number, passage row) of one teacher over one collection; the caller admits one writer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = 0
        self._added: list[np.ndarray] = []
        self._table = PairTable(np.zeros(0, np.int64), np.zeros(0, np.float32))

    def load(self) -> None:
        """Read the parts that were written since the last call."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob(".tmp-*"):
            leftover.unlink()
        parts, self._added = self._added, []
        while (path := self._part(self._parts)).exists():
            parts.append(_read(path))
            self._parts += 1
        if parts:
            pairs = np.concatenate(parts)
            keys = pair_keys(pairs["query"].astype(np.int64), pairs["row"].astype(np.int64))
            known = self._table
            self._table = PairTable.of(
                np.concatenate([known.keys, keys]), np.concatenate([known.values, pairs["score"]])
            )

    def look_up(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores float32 of pair keys, NaN where a pair is not there."""
        return self._table.look_up(keys)

    def add(self, keys: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], seconds: float) -> None:
        """Write pairs as the next part, whole or not at all, and note what they took; ``load`` makes them available."""
        pairs = np.empty(len(keys), dtype=_PAIR)
        pairs["query"], pairs["row"], pairs["score"] = keys >> 32, keys & ROW_BITS, scores
        final = self._part(self._parts)
        temporary = final.with_name(f".tmp-{final.name}")
        with temporary.open("wb") as file:
            np.save(file, pairs, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        self._parts += 1
        self._added.append(pairs)
        before = self._spent()
        write_json(self._folder / _SPENT_FILE, {"pairs": before[0] + len(keys), "seconds": before[1] + seconds})

    @property
    def seconds_per_pair(self) -> float | None:
        """Mean seconds per scored pair, cached ones not counted; None if none was scored."""
        pairs, seconds = self._spent()
        return seconds / pairs if pairs else None

    def _spent(self) -> tuple[int, float]:
        try:
            kept = json.loads((self._folder / _SPENT_FILE).read_text(encoding="utf-8"))
            return int(kept["pairs"]), float(kept["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0.0

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:05d}.npy"


def _read(path: Path) -> np.ndarray:
    try:
        pairs = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArtefactError(f"{path} cannot be read ({error}); delete its folder and score again") from None
    if pairs.dtype != _PAIR or pairs.ndim != 1:
        raise ArtefactError(f"{path} holds no scores of pairs; delete its folder and score again")
    return np.asarray(pairs)

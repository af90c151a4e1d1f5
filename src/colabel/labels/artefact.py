"""The label artefact: every candidate passage of every labelled query with its teacher score, the same for any teacher.

block-00000.rows.npy     int32 [queries, candidates], rows of passages, −1 where a query has fewer
block-00000.teacher.npy  float32, the teacher's scores, −∞ where there is no candidate, NaN where it was not scored
block-00000.base.npy     float32, φ, the score of the plain query, −∞ where there is no candidate
block-00000.flags.npy    uint8, see :class:`Flag`
queries.*.npy, ids.*.npy query and passage ids
origin.json              where the knowledge was when the labels were made, and with which β it was used
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Manifest, read_manifest
from colabel.data.string_table import StringTable
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.index.store import allow_open_files
from colabel.ranking.rankings import block_name

STAGE = "labels"
BLOCK = 1024
"""Queries between two save points: 1.4 MB of arrays at 100 candidates."""

ORIGIN_FILE = "origin.json"
PARTS = ("teacher", "base", "flags", "rows")
"""The arrays of a block in the order in which they are written: the last says that the block is whole."""


class Flag(enum.IntFlag):
    """What is known of a candidate; a uint8 on disk."""

    LABELLED = 1
    """A visible positive of the query."""
    FEEDBACK = 2
    """A feedback passage (f_p): the query's centroids come from it."""
    HARD_NEGATIVE = 4
    """Among the top candidates of the ranking and not labelled."""


@dataclass(frozen=True)
class LabelBlock:
    """Candidates of up to 1,024 queries: arrays [queries, candidates] as they lie on disk."""

    query_ids: list[str]
    rows: npt.NDArray[np.int32]
    teacher: npt.NDArray[np.float32]
    base: npt.NDArray[np.float32]
    flags: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class QueryLabels:
    """Candidates of one query, arrays [candidates] without padding."""

    rows: npt.NDArray[np.int32]
    teacher: npt.NDArray[np.float32]
    base: npt.NDArray[np.float32]
    flags: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Origin:
    """Where the knowledge was, and β and its scale: the teacher's if it has them, else the knowledge's."""

    place: Path
    beta: float
    scale: str


class Labels:
    """Reads a finished label artefact; arrays are mapped from disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder, STAGE)
        self.fingerprint = self.manifest.fingerprint
        try:
            self.teacher = str(self.manifest.settings["teacher"])
            self.split = str(self.manifest.settings["split"])
            self._blocks = int(self.manifest.counts["blocks"])
            self.query_ids = StringTable.open(folder, "queries")
            self.passage_ids = StringTable.open(folder, "ids")
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ArtefactError(f"{folder} holds no labels that this version reads ({error}); label again") from None

    def __len__(self) -> int:
        return len(self.query_ids)

    def blocks(self) -> Iterator[LabelBlock]:
        """All queries, block by block; every block that a caller keeps has its files open."""
        allow_open_files(len(PARTS) * self._blocks + 256)
        for number in range(self._blocks):
            arrays = read_block(self.folder, number)
            start = number * BLOCK
            yield LabelBlock(self.query_ids[start : start + len(arrays["rows"])], **arrays)

    def query(self, query_id: str) -> QueryLabels:
        """One query's candidates: those of the ranking in its order, then labelled positives beyond it."""
        place = self.query_ids.row(query_id)
        if place < 0:
            raise DataError(f"{self.folder} has no labels of query '{query_id}'")
        arrays = read_block(self.folder, place // BLOCK)
        found = arrays["rows"][place % BLOCK] >= 0
        return QueryLabels(**{name: np.asarray(values[place % BLOCK][found]) for name, values in arrays.items()})

    def origin(self) -> Origin:
        """The knowledge that the labels were made from."""
        path = self.folder / ORIGIN_FILE
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            place = Path(os.path.normpath(self.folder.resolve() / str(table["place"])))
            return Origin(place, float(table["beta"]), str(table["scale"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(f"{path} cannot be read ({error}); label again") from None


def open_labels(folder: Path | str) -> Labels:
    """Open finished labels."""
    return Labels(Path(folder))


def read_block(folder: Path, number: int) -> dict[str, npt.NDArray[Any]]:
    """The four arrays of a block by name, mapped from disk."""
    paths = {part: folder / f"{block_name(number)}.{part}.npy" for part in PARTS}
    return {part: np.load(path, mmap_mode="r", allow_pickle=False) for part, path in paths.items()}


def probabilities(teacher: npt.NDArray[np.floating], temperature: float = 1.0) -> npt.NDArray[np.float32]:
    """Target probabilities float32 [queries, candidates]: softmax(t / temperature) over each query's scored candidates.

    A candidate that is absent (−∞) or not scored (NaN) gets 0. A row sums to 1, or to 0 where nothing was scored.

    >>> probabilities(np.array([[0.0, np.log(3.0), np.nan, -np.inf]]), temperature=1.0).tolist()
    [[0.25, 0.75, 0.0, 0.0]]
    """
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    scores = np.where(np.isfinite(teacher), teacher, -np.inf).astype(np.float64)
    best = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp((scores - np.where(np.isfinite(best), best, 0.0)) / temperature)
    total = powers.sum(axis=1, keepdims=True)
    return (powers / np.where(total > 0, total, 1.0)).astype(np.float32)


def unlabelled(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Bool [queries, candidates]: which candidates are scored and not labelled, and so may lack a label."""
    found: npt.NDArray[np.bool_] = np.isfinite(teacher) & ((flags & Flag.LABELLED) == 0)
    return found


def missing_ranks(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Rank int32 [queries, candidates] among a query's scored, unlabelled candidates by teacher score, from 1.

    Equal scores keep their order; 0 where a candidate is labelled, absent or not scored.

    >>> missing_ranks(np.array([[5.0, 7.0, 6.0, np.nan]]), np.array([[0, Flag.LABELLED, 4, 4]], np.uint8)).tolist()
    [[2, 0, 1, 0]]
    """
    ranked = unlabelled(teacher, flags)
    order = np.argsort(np.where(ranked, -teacher, np.inf), axis=1, kind="stable")
    ranks = np.empty(teacher.shape, dtype=np.int32)
    np.put_along_axis(ranks, order, np.arange(1, teacher.shape[1] + 1, dtype=np.int32)[None, :], axis=1)
    return np.where(ranked, ranks, 0).astype(np.int32)


def best_labelled(teacher: npt.NDArray[np.floating], flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The teacher score t⁺ of each query's best labelled passage, float32 [queries]; NaN where none was scored.

    >>> best_labelled(np.array([[5.0, 7.0, 9.0]]), np.array([[1, 1, 4]], np.uint8)).tolist()
    [7.0]
    """
    scored = np.isfinite(teacher) & ((flags & Flag.LABELLED) != 0)
    best = np.where(scored, teacher, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(scored.any(axis=1), best, np.nan).astype(np.float32)

"""A teacher that reads a score file: from another program, from annotators, or published."""

from __future__ import annotations

import functools
import logging
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.artefacts.arrays import ROW_BITS, Keys, PairTable, Values, pair_keys
from colabel.data import Dataset
from colabel.data.scored_files import read_scores
from colabel.data.string_table import StringTable
from colabel.errors import DataError
from colabel.progress import SILENT, Progress, track
from colabel.teachers.protocol import Knows

log = logging.getLogger(__name__)

_REMEMBERED = 200_000  # passage ids whose rows are kept at hand
_TOLERANCE = 1e-4


class ScoreFileTeacher:
    """Scores from a file in any of the formats of :mod:`colabel.data.scored_files`, plain or gzipped.

    For a folder that ``rank`` wrote, its run file is read. A pair takes 12 bytes of memory: the 40 million triples
    published for MS MARCO take half a gigabyte. A pair may occur several times if its scores agree.
    """

    name = "scores"
    knows: Knows = "candidates"

    def __init__(self, path: Path, dataset: Dataset, *, progress: Progress = SILENT) -> None:
        self.path = path / "run.trec" if path.is_dir() else path
        self._numbers = {query_id: number for number, query_id in enumerate(dataset.queries)}
        self._ids = dataset.passages.ids
        self._table = self._read(self._ids, progress)
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "file": file_fingerprint(self.path),
                "passages": dataset.passages.fingerprint,
                "queries": fingerprint(list(dataset.queries)),
            }
        )

    def __len__(self) -> int:
        """Number of pairs of the collection that have a score."""
        return len(self._table)

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores float32 [queries, candidates]; −∞ where the row is −1, NaN where the file has none."""
        numbers = np.array([self._numbers.get(query_id, -1) for query_id in query_ids], dtype=np.int64)[:, None]
        found = self._table.look_up(pair_keys(numbers, self._ids.first_of(rows)))
        found[rows < 0] = -np.inf
        return found

    def _read(self, passages: StringTable, progress: Progress) -> PairTable:
        keys, values = array("q"), array("f")
        row_of = functools.lru_cache(_REMEMBERED)(passages.row)
        unknown, example = 0, ""
        records = read_scores(self.path, ranks=False)
        for score, _, line, _ in track(records, progress, f"reading {self.path.name}", None, "scores"):
            number, row = self._numbers.get(score.query_id, -1), row_of(score.passage_id)
            if number >= 0 and row >= 0:
                keys.append(number << 32 | row)
                values.append(score.score)
                continue
            unknown += 1
            what = f"query '{score.query_id}'" if number < 0 else f"passage '{score.passage_id}'"
            example = example or f"{what} at line {line}"
        if not keys:
            reason = (
                f"none of its {unknown:,} pairs is of this collection, such as {example}" if unknown else "it is empty"
            )
            raise DataError(f"there is no score to use: {reason}", file=str(self.path))
        if unknown:
            log.warning(
                "%s: %s pairs name a query or passage that the collection does not have, such as %s; left out",
                self.path,
                f"{unknown:,}",
                example,
            )
        return self._merged(np.frombuffer(keys, np.int64), np.frombuffer(values, np.float32), passages)

    def _merged(self, keys: Keys, values: Values, passages: StringTable) -> PairTable:
        """The first score of each pair; scores of one pair must agree."""
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        again = keys[1:] == keys[:-1]
        apart = np.flatnonzero(again & (np.abs(np.diff(values)) > _TOLERANCE))
        if len(apart):
            key = int(keys[apart[0]])
            pair = list(self._numbers)[key >> 32], passages[key & ROW_BITS]
            records = read_scores(self.path, ranks=False)
            found = [(one.score, line) for one, _, line, _ in records if (one.query_id, one.passage_id) == pair]
            scores = ", ".join(f"{score:g} at line {line}" for score, line in found)
            raise DataError(
                f"query '{pair[0]}', passage '{pair[1]}' has different scores: {scores}; keep one of them, or write "
                "their mean once",
                file=str(self.path),
                line=found[-1][1],
            )
        first = np.concatenate([[True], ~again])
        return PairTable(keys[first], values[first])

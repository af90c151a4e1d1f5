"""A teacher that reads a score file: from another program, from annotators, or published."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.artefacts.arrays import ROW_BITS, Keys, PairTable, Values, pair_keys
from colabel.data import Dataset
from colabel.data.scored_files import read_scores
from colabel.data.string_table import StringTable
from colabel.data.text_lines import Located
from colabel.errors import DataError
from colabel.progress import SILENT, Progress, track
from colabel.teachers.protocol import Knows
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

_CHUNK = 4_000_000  # pairs sorted at once, 48 MB
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
        reader = _Reader(self.path, self._numbers, dataset.passages.ids)
        self._table = PairTable(*reader.read(progress))
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
        found = self._table.look_up(pair_keys(numbers, rows))
        found[rows < 0] = -np.inf
        return found


class _Reader:
    """Reads a file into sorted keys and scores, a chunk at a time."""

    def __init__(self, path: Path, numbers: dict[str, int], passages: StringTable) -> None:
        self._path, self._numbers, self._passages = path, numbers, passages
        self._unknown = 0
        self._example = ""

    def read(self, progress: Progress) -> tuple[Keys, Values]:
        """Distinct keys int64 [pairs], rising, and their scores float32."""
        chunks = [self._merge(keys, values) for keys, values in self._chunks(progress)]
        keys = np.concatenate([chunk[0] for chunk in chunks]) if chunks else np.zeros(0, np.int64)
        values = np.concatenate([chunk[1] for chunk in chunks]) if chunks else np.zeros(0, np.float32)
        if not len(keys):
            reason = f"none of its {self._unknown:,} pairs is of this collection" if self._unknown else "it is empty"
            example = f", such as {self._example}" if self._unknown else ""
            raise DataError(f"there is no score to use: {reason}{example}", file=str(self._path))
        if self._unknown:
            log.warning(
                "%s: %s pairs name a query or passage that the collection does not have, such as %s; left out",
                self._path,
                f"{self._unknown:,}",
                self._example,
            )
        return self._merge(keys, values) if len(chunks) > 1 else (keys, values)

    def _chunks(self, progress: Progress) -> Iterator[tuple[Keys, Values]]:
        keys, values = array("q"), array("f")
        rows: dict[str, int] = {}
        records = read_scores(self._path, ranks=False)
        for located in track(records, progress, f"reading {self._path.name}", None, "scores"):
            score = located.value
            number = self._numbers.get(score.query_id, -1)
            row = rows.get(score.passage_id)
            if row is None:
                if len(rows) == _REMEMBERED:
                    rows.clear()
                row = rows[score.passage_id] = self._passages.row(score.passage_id)
            if number < 0 or row < 0:
                self._note_unknown(located, number)
                continue
            keys.append(number << 32 | row)
            values.append(score.score)
            if len(keys) == _CHUNK:
                yield np.array(keys, dtype=np.int64), np.array(values, dtype=np.float32)
                keys, values = array("q"), array("f")
        if keys:
            yield np.array(keys, dtype=np.int64), np.array(values, dtype=np.float32)

    def _note_unknown(self, located: Located[ScoredPassage], number: int) -> None:
        if not self._unknown:
            score = located.value
            what = f"query '{score.query_id}'" if number < 0 else f"passage '{score.passage_id}'"
            self._example = f"{what} at line {located.line}"
        self._unknown += 1

    def _merge(self, keys: Keys, values: Values) -> tuple[Keys, Values]:
        """Sort by key and keep the first score of each; scores of one pair must agree."""
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        again = keys[1:] == keys[:-1]
        away = again & (np.abs(np.diff(values)) > _TOLERANCE)
        if away.any():
            self._refuse(int(keys[int(np.flatnonzero(away)[0])]))
        first = np.concatenate([[True], ~again])
        return keys[first], values[first]

    def _refuse(self, key: int) -> None:
        """Read the file again to name both lines of a pair with two scores."""
        wanted = (key >> 32, key & ROW_BITS)
        seen: list[tuple[float, int]] = []
        for score, file, line, _ in read_scores(self._path, ranks=False):
            pair = (self._numbers.get(score.query_id, -1), self._passages.row(score.passage_id))
            if pair != wanted:
                continue
            for before, place in seen:
                if abs(np.float32(score.score) - np.float32(before)) > _TOLERANCE:
                    raise DataError(
                        f"query '{score.query_id}', passage '{score.passage_id}' has the score {score.score:g} here "
                        f"and {before:g} at line {place}; keep one of them, or write their mean once",
                        file=file,
                        line=line,
                    )
            seen.append((score.score, line))
        raise DataError("the file changed while it was read; start again", file=str(self._path))

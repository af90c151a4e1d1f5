"""A teacher whose scores stand in a file: of a model that runs elsewhere, of people, or published ones."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data import Dataset
from colabel.data.strings import StringTable
from colabel.errors import DataError
from colabel.progress import SILENT, Progress, track
from colabel.teachers.score_formats import Score, read_scores

log = logging.getLogger(__name__)

_CHUNK = 4_000_000  # pairs sorted at once, 48 MB
_REMEMBERED = 200_000  # passage ids whose rows are kept at hand
_TOLERANCE = 1e-4

ROW_BITS = 0xFFFFFFFF
"""The bits of a pair's key that hold the passage's row; the query's number stands above them."""

Keys = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]


def scores_file(path: Path) -> Path:
    """The file itself, or the run file of a folder that ``rank`` wrote."""
    return path / "run.trec" if path.is_dir() else path


class ScoreFileTeacher:
    """Scores from a file in any of the formats of :mod:`colabel.teachers.score_formats`, plain or gzipped.

    A folder that ``rank`` wrote stands for its run file. In memory a pair takes 12 bytes: the 40 million triples
    published for MS MARCO take half a gigabyte. A pair may stand several times if its scores agree.
    """

    name = "scores"

    def __init__(self, path: Path, dataset: Dataset, *, progress: Progress = SILENT) -> None:
        self.path = scores_file(path)
        self._numbers = {query_id: number for number, query_id in enumerate(dataset.queries)}
        reader = _Reader(self.path, self._numbers, dataset.passages.ids)
        self._keys, self._values = reader.read(progress)
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "file": file_fingerprint(self.path),
                "passages": dataset.passages.fingerprint,
                "queries": fingerprint(list(dataset.queries)),
            }
        )

    def __len__(self) -> int:
        """How many pairs of the collection have a score."""
        return len(self._keys)

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores float32 [queries, candidates]; −∞ where the row is −1, NaN where the file has none."""
        numbers = np.array([self._numbers.get(query_id, -1) for query_id in query_ids], dtype=np.int64)[:, None]
        keys = pair_keys(numbers, rows)
        places = np.searchsorted(self._keys, keys)
        places[places == len(self._keys)] = 0
        known = (rows >= 0) & (numbers >= 0) & (self._keys[places] == keys)
        return np.where(rows < 0, -np.inf, np.where(known, self._values[places], np.nan)).astype(np.float32)


def pair_keys(queries: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Keys:
    """One number for a pair, int64: the query's number above the passage's row, 32 bits each."""
    return (queries << 32) | rows


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
        for score in track(read_scores(self._path), progress, f"reading {self._path.name}", None, "scores"):
            number = self._numbers.get(score.query_id, -1)
            row = rows.get(score.passage_id)
            if row is None:
                if len(rows) == _REMEMBERED:
                    rows.clear()
                row = rows[score.passage_id] = self._passages.row(score.passage_id)
            if number < 0 or row < 0:
                self._note_unknown(score, number)
                continue
            keys.append(number << 32 | row)
            values.append(score.value)
            if len(keys) == _CHUNK:
                yield np.array(keys, dtype=np.int64), np.array(values, dtype=np.float32)
                keys, values = array("q"), array("f")
        if keys:
            yield np.array(keys, dtype=np.int64), np.array(values, dtype=np.float32)

    def _note_unknown(self, score: Score, number: int) -> None:
        if not self._unknown:
            what = f"query '{score.query_id}'" if number < 0 else f"passage '{score.passage_id}'"
            self._example = f"{what} at line {score.line}"
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
        """Read again up to the line at which a pair gets another score, and name both."""
        wanted = (key >> 32, key & ROW_BITS)
        seen: list[Score] = []
        for score in read_scores(self._path):
            pair = (self._numbers.get(score.query_id, -1), self._passages.row(score.passage_id))
            if pair != wanted:
                continue
            for before in seen:
                if abs(np.float32(score.value) - np.float32(before.value)) > _TOLERANCE:
                    raise DataError(
                        f"query '{score.query_id}', passage '{score.passage_id}' has the score {score.value:g} here "
                        f"and {before.value:g} at line {before.line}; keep one of them, or write their mean once",
                        file=str(self._path),
                        line=score.line,
                    )
            seen.append(score)
        raise DataError("the file changed while it was read; start again", file=str(self._path))

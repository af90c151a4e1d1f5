"""Where the target of a training step comes from: the labels alone, stored teacher scores, or a teacher asked now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.errors import DataError, SettingsError
from colabel.labels.artefact import Labels
from colabel.teachers.base import Teacher
from colabel.teachers.score_file import pair_keys
from colabel.train.groups import Groups

IntArray = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Target(Protocol):
    """What a student learns from."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def fingerprint(self) -> str:
        """Names all that the target depends on."""

    @property
    def any_passage(self) -> bool:
        """Whether it knows something of any passage, and not of a query's own candidates alone."""

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> Scores | None:
        """Teacher scores float32 of passage rows int64 [queries, count], NaN where there are none; None: no teacher."""


class HardLabels:
    """The labelled passage is the target; with ``smoothing`` ε, the mass ε is spread evenly over all passages.

    Smoothing is over the passages of the step, so that it is as strong as ε says whatever the size of a group.
    """

    any_passage = True

    def __init__(self, smoothing: float = 0.0) -> None:
        if not 0.0 <= smoothing < 1.0:
            raise SettingsError(f"the smoothing ε is {smoothing}; expected a number from 0 up to, not including, 1")
        self.smoothing = smoothing
        self.name = "uniform" if smoothing else "hard"
        self.fingerprint = fingerprint({"target": self.name, "smoothing": smoothing})

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> Scores | None:
        """There is no teacher."""
        return None


class StoredScores:
    """Teacher scores of a label artefact; pairs that it does not hold are not scored."""

    any_passage = False

    def __init__(self, labels: Labels) -> None:
        self.name = labels.teacher
        self.fingerprint = fingerprint({"target": "labels", "labels": labels.fingerprint})
        self._folder = labels.folder
        self._blocks = []
        self._places: dict[str, tuple[int, int]] = {}
        for number, block in enumerate(labels.blocks()):
            self._blocks.append((block.rows, block.teacher))
            self._places |= {query_id: (number, line) for line, query_id in enumerate(block.query_ids)}

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> Scores | None:
        """Looked up; float32 [queries, count]."""
        found = np.full(rows.shape, np.nan, dtype=np.float32)
        for place, query_id in enumerate(query_ids):
            if query_id not in self._places:
                raise DataError(f"{self._folder} has no labels of the training query '{query_id}'; label again")
            block, line = self._places[query_id]
            candidates, teacher = (np.asarray(part[line]) for part in self._blocks[block])
            order = np.argsort(candidates, kind="stable")
            position = np.minimum(np.searchsorted(candidates[order], rows[place]), len(order) - 1)
            known = candidates[order][position] == rows[place]
            found[place, known] = teacher[order][position][known]
        return found


class DrawnScores:
    """Scores of a dear teacher for the pairs that a run draws and no others, asked for once, before training."""

    any_passage = False

    def __init__(self, teacher: Teacher, groups: Groups) -> None:
        self.name = teacher.name
        self.fingerprint = fingerprint(
            {"target": "drawn", "teacher": teacher.fingerprint, "groups": groups.fingerprint}
        )
        self._numbers = {query_id: number for number, query_id in enumerate(groups.pool.query_ids)}
        query_ids = [groups.pool.query_ids[number] for number in groups.queries.tolist()]
        rows = groups.rows.astype(np.int64)
        scores = teacher.score(query_ids, rows)
        keys = pair_keys(groups.queries.astype(np.int64)[:, None], rows)
        self._keys, first = np.unique(keys, return_index=True)
        self._scores = scores.reshape(-1)[first]

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> Scores | None:
        """Looked up; float32 [queries, count], NaN for pairs that are not drawn."""
        numbers = np.array([self._numbers[query_id] for query_id in query_ids], dtype=np.int64)
        keys = pair_keys(numbers[:, None], rows)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._scores[places], np.nan).astype(np.float32)


class AskedTeacher:
    """A teacher that scores the passages of each step when it comes, from stored token vectors: no BERT pass."""

    any_passage = True

    def __init__(self, teacher: Teacher) -> None:
        self.name = teacher.name
        self.fingerprint = fingerprint({"target": "teacher", "teacher": teacher.fingerprint})
        self._teacher = teacher

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> Scores | None:
        """Asked now; float32 [queries, count]."""
        return self._teacher.score(query_ids, rows)

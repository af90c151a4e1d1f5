"""Teachers whose scores are known before training starts: those of a label artefact, and those of the drawn pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.artefacts.arrays import PairTable, pair_keys
from colabel.errors import DataError
from colabel.teachers.protocol import Knows, Teacher
from colabel.types import FloatArray, IntArray


class StoredLabels(Protocol):
    """What :class:`StoredTeacher` reads of :class:`colabel.labels.Labels`."""

    folder: Path
    teacher: str
    fingerprint: str

    def blocks(self) -> Iterable[Any]:
        """Blocks of queries: ``query_ids``, and the arrays ``rows`` and ``teacher`` [queries, candidates]."""


class StoredTeacher:
    """The scores of a label artefact.

    A passage that is no candidate of a query has no score, and takes no part in a step. With ``others_irrelevant`` its
    score is −∞, so that its target probability is 0: in the scope ``batch`` such passages belong to other queries, and
    the student learns to keep them away, as with hard labels. This lets a teacher that is too slow to score whole
    batches be compared in that scope.
    """

    def __init__(self, labels: StoredLabels, *, others_irrelevant: bool = False) -> None:
        self.name = labels.teacher
        self.knows: Knows = "any" if others_irrelevant else "candidates"
        parts = {"target": "labels", "labels": labels.fingerprint}
        self.fingerprint = fingerprint(parts | {"others": "irrelevant"} if others_irrelevant else parts)
        self._unknown = -np.inf if others_irrelevant else np.nan
        self._folder = labels.folder
        self._blocks: list[tuple[npt.NDArray[Any], FloatArray]] = []
        self._places: dict[str, tuple[int, int]] = {}
        for number, block in enumerate(labels.blocks()):  # arrays stay on disk: 50 million pairs would be 600 MB
            self._blocks.append((block.rows, block.teacher))
            self._places |= {query_id: (number, line) for line, query_id in enumerate(block.query_ids)}

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Stored scores float32 [queries, count]."""
        found = np.full(rows.shape, self._unknown, dtype=np.float32)
        for place, query_id in enumerate(query_ids):
            if query_id not in self._places:
                raise DataError(f"{self._folder} has no labels of the training query '{query_id}'; label again")
            block, line = self._places[query_id]
            candidates, teacher = (np.asarray(part[line]) for part in self._blocks[block])
            order = np.argsort(candidates, kind="stable")
            position = np.minimum(np.searchsorted(candidates[order], rows[place]), len(order) - 1)
            known = candidates[order][position] == rows[place]
            found[place, known] = teacher[order][position][known]
        found[rows < 0] = -np.inf
        return found


class DrawnTeacher:
    """A teacher that is asked once, when training starts, for the pairs that a run draws and no others.

    A model that is up to date asks it for none.

    Args:
        query_ids: the query of each group.
        rows: its passages, int [groups, passages].
        drawn: fingerprint of the groups.
    """

    knows: Knows = "drawn"

    def __init__(self, teacher: Teacher, query_ids: Sequence[str], rows: npt.NDArray[np.integer], drawn: str) -> None:
        self.name = teacher.name
        self.fingerprint = fingerprint({"target": "drawn", "teacher": teacher.fingerprint, "groups": drawn})
        self._numbers = {query_id: number for number, query_id in enumerate(dict.fromkeys(query_ids))}
        self._teacher, self._drawn = teacher, (query_ids, rows.astype(np.int64))

    @cached_property
    def _table(self) -> PairTable:
        return PairTable.of(self._keys(*self._drawn), self._teacher.scores(*self._drawn))

    def scores(self, query_ids: Sequence[str], rows: IntArray) -> FloatArray:
        """Scores float32 [queries, count], NaN for pairs that are not drawn."""
        found = self._table.look_up(self._keys(query_ids, rows))
        found[rows < 0] = -np.inf
        return found

    def _keys(self, query_ids: Sequence[str], rows: IntArray) -> IntArray:
        numbers = np.array([self._numbers.get(query_id, -1) for query_id in query_ids], dtype=np.int64)
        return pair_keys(numbers[:, None], rows)

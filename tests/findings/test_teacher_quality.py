"""Which queries teachers are compared on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from colabel.findings.teacher_quality import _judged_candidates


class Ids(list[str]):
    """Passage ids by row."""

    def rows(self, wanted: Any) -> np.ndarray[Any, Any]:
        return np.array([self.index(one) for one in wanted if one in self], dtype=np.int64)

    def first_of(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return rows


def test_queries_are_chosen_by_the_lowest_grade_that_is_measured() -> None:
    """Relevant from grade 2 on, but every grade is a cut-off: a query with passages of grade 1 alone belongs to it."""
    labels = {"high": {"a": 2}, "low": {"b": 1}, "none": {"c": 0}, "elsewhere": {"z": 3}}
    dataset: Any = SimpleNamespace(labels=lambda split: labels, relevant_from=2)
    rows = np.tile(np.array([0, 1, 2]), (len(labels), 1))
    blocks = [(list(labels), rows, np.zeros(rows.shape, np.float32))]
    knowledge: Any = SimpleNamespace(ranking=SimpleNamespace(passage_ids=Ids("abc"), blocks=lambda: blocks))
    found = _judged_candidates(knowledge, dataset, 10)
    assert {query_id: rows.tolist() for query_id, (rows, _) in found.items()} == {"high": [0, 1, 2], "low": [0, 1, 2]}
    assert len(_judged_candidates(knowledge, dataset, 1)) == 1

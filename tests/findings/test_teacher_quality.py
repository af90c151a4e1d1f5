"""Teachers by hand: which candidates they are compared on, and what is taken over of a measurement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from colabel.evaluation.precision_recall import CandidateList, quality
from colabel.findings.teacher_quality import _judged_candidates, _quality


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


def test_quality_of_a_teacher_is_taken_over() -> None:
    grades, scores = np.array([1, 0, 1, 0]), {"base": np.array([4.0, 3.0, 2.0, 1.0])}
    lists = [CandidateList(name, grades, scores, np.array([1, 1])) for name in ("q1", "q2")]
    measured = quality(lists, 1)
    assert measured is not None
    found = _quality(measured, "base")
    assert found.average_precision.queries == 2
    assert found.average_precision.mean == pytest.approx((1 + 2 / 3) / 2)
    assert found.precision_at_recall[0] == 1
    assert len(found.precision_at_recall) == 11
    assert found.difference is None


def test_the_test_of_a_teacher_against_phi_is_taken_over() -> None:
    """The second ranks the relevant passage first, and φ it second, third and second."""
    scores = {"teacher": np.array([3.0, 2.0, 1.0])}
    base = {"q1": [2.0, 3.0, 1.0], "q2": [1.0, 3.0, 2.0], "q3": [2.0, 3.0, 1.0]}
    lists = [
        CandidateList(name, np.array([1, 0, 0]), {"base": np.array(values), **scores}, np.array([1]))
        for name, values in base.items()
    ]
    measured = quality(lists, 1)
    assert measured is not None
    found = _quality(measured, "teacher")
    assert found.difference is not None
    assert found.difference.difference.mean == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    assert found.difference.t_test == pytest.approx(stats.ttest_1samp([1 / 2, 2 / 3, 1 / 2], 0).pvalue)

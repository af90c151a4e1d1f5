"""Teachers by hand: which candidates they are compared on, what is taken over of a measurement, and an example."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from colabel.collective import Centroids
from colabel.evaluation.precision_recall import CandidateList, quality
from colabel.findings.teacher_quality import _example, _judged_candidates, _quality
from colabel.labels import Flag, QueryLabels

NAMES = {7: "nut", 8: "oil", 9: "heart"}


def study(tokens: list[int], sigma: list[float], held: dict[int, list[int]]) -> Any:
    """A study of two candidates a query whose centroids have these tokens and σ; row → the tokens of a passage."""
    encoder = SimpleNamespace(tokens=lambda ids: [NAMES[one] for one in ids])
    store = SimpleNamespace(passage_tokens=lambda rows: [np.array(held[row]) for row in rows])
    centroids = Centroids(torch.zeros(1, len(tokens), 2), torch.tensor([sigma]), np.array([tokens], dtype=np.int32))
    index = SimpleNamespace(encoder=encoder, store=store)
    ranking = SimpleNamespace(query=lambda _: (np.array([5, 6], dtype=np.int32), np.array([3.0, 2.0])))
    knowledge = SimpleNamespace(centroids=lambda _: centroids, index=index, ranking=ranking)

    class Passages:
        ids = tuple(f"d{row}" for row in range(10))

        def __getitem__(self, row: int) -> Any:
            return SimpleNamespace(title=f"title {row}", text=f"text {row}")

    dataset = SimpleNamespace(passages=Passages(), queries={"q": "nuts?"}, relevant_from=1, _hidden={"q": {"d6": 1}})
    recipe = SimpleNamespace(study=SimpleNamespace(texts=True), labels=SimpleNamespace(candidates=2))
    return SimpleNamespace(knowledge=lambda: knowledge, dataset=dataset, recipe=recipe)


def labels() -> Any:
    """φ ranks 5 and 6; 7 is labelled and was put behind them, where the teacher has it first."""
    found = QueryLabels(
        np.array([5, 6, 7], dtype=np.int32),
        np.array([1.0, 2.0, 9.0], dtype=np.float32),
        np.array([3.0, 2.0, 1.0], dtype=np.float32),
        np.array([Flag.HARD_NEGATIVE, Flag.HARD_NEGATIVE, Flag.LABELLED], dtype=np.uint8),
    )
    return SimpleNamespace(query=lambda _: found)


def test_each_token_is_shown_once_with_its_highest_sigma() -> None:
    held = {5: [1, 9], 6: [7, 7, 8], 7: [7, 8, 9]}
    found = _example(study([8, 7, 7, 9, -1], [4.0, 3.0, 2.0, 1.0, 0.0], held), labels(), "q")
    assert found.tokens == (("oil", 4.0), ("nut", 3.0), ("heart", 1.0))
    matched = {passage.passage_id: passage.matched for passage in found.passages}
    assert matched == {"d7": ("oil", "nut", "heart"), "d6": ("oil", "nut"), "d5": ("heart",)}


def test_a_passage_behind_the_candidates_has_no_rank_by_phi() -> None:
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), labels(), "q")
    moves = {one.passage_id: (one.before, one.after, one.labelled, one.hidden_positive) for one in found.passages}
    assert moves == {"d7": (None, 1, True, False), "d6": (2, 2, False, True), "d5": (1, 3, False, False)}
    assert found.candidates == 2


def test_a_positive_that_an_approximate_ranking_missed_has_no_rank_either() -> None:
    """φ puts 7 first, but the ranking does not hold it: the place among candidates is none of the ranking."""
    missed = labels()
    missed.query("q").base[2] = 9.0
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), missed, "q")
    assert {one.passage_id: one.before for one in found.passages} == {"d7": None, "d5": 1, "d6": 2}


def test_texts_are_shown() -> None:
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), labels(), "q")
    assert (found.query, found.passages[0].text) == ("nuts?", "text 7")


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

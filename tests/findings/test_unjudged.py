"""What is known without judged queries, worked out by hand on three passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from colabel.data import Dataset
from colabel.data.splits import DEV, TRAIN
from colabel.findings.unjudged import Unjudged, find_unjudged
from colabel.types import Mask

IDS = ["a", "b", "c"]
RECORDS = [{"id": name, "title": "", "text": f"text of {name}"} for name in IDS]


class Fixed:
    """Ranks every text as it was told: query text → rows."""

    def __init__(self, answers: Mapping[str, Sequence[int]]) -> None:
        self.answers, self.ids = answers, IDS

    def rank(self, texts: Sequence[str], depth: int, allowed: Mask | None = None) -> tuple[Any, Any]:
        rows = np.array([self.answers[text] for text in texts])[:, :depth]
        return rows, np.tile(np.linspace(3, 1, rows.shape[1], dtype=np.float32), (len(rows), 1))


def ranked(**answers: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    return {name: Fixed(held) for name, held in answers.items()}


def made(train: dict[str, dict[str, int]], dev: dict[str, dict[str, int]]) -> Dataset:
    queries = {query: f"ask {query}" for query in (*train, *dev)}
    data = Dataset.from_records(RECORDS, queries, {TRAIN: {"x": ["a"]}} if "x" in train else None)
    return replace(data, pseudo=(TRAIN, DEV), _labels={TRAIN: train, DEV: dev})


def test_known_items_and_agreement_by_hand() -> None:
    data = made({"x": {"a": 1}}, {"d": {"b": 1}, "e": {"c": 1}})
    rankers = ranked(
        bm25={"ask d": [1, 0, 2], "ask e": [2, 0, -1]},
        colbert={"ask d": [0, 1, 2], "ask e": [0, 1, -1]},
        views={"ask d": [1, 0, 2], "ask e": [2, 0, -1]},
    )
    found = find_unjudged(data, rankers, "views")
    assert (found.held_out, found.asked, found.real) == (2, 2, False)
    assert found.known_items["colbert"] == {"RR@10": pytest.approx(0.25), "R@10": pytest.approx(0.5)}
    assert found.known_items["views"] == found.known_items["bm25"] == {"RR@10": 1.0, "R@10": 1.0}
    assert found.agreement == {"colbert": pytest.approx((1 + 0.5) / 2), "views": 1.0}
    assert [(one.query, one.before, one.after) for one in found.changed] == [("ask e", ("a", "b"), ("c", "a"))]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Unjudged) == found


def test_queries_that_people_asked_are_compared_where_there_are_any() -> None:
    data = made({"x": {"a": 1}, "real": {}}, {"d": {"b": 1}})
    answers = {"ask d": [0, 1, 2], "ask real": [2, 1, 0]}
    found = find_unjudged(data, ranked(bm25=answers, colbert=answers, views=answers), "views")
    assert (found.held_out, found.asked, found.real, found.changed) == (1, 1, True, ())


def test_dev_labels_of_people_are_no_known_items() -> None:
    data = replace(made({"x": {"a": 1}}, {"d": {"b": 1}}), pseudo=())
    answers = {"ask x": [0, 1, 2]}
    found = find_unjudged(data, ranked(bm25=answers, colbert=answers, views=answers), "views")
    assert (found.held_out, found.known_items, found.asked, found.real) == (0, {}, 1, True)

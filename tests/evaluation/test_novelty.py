"""Which test queries are new."""

from __future__ import annotations

from colabel import Dataset
from colabel.evaluation.novelty import UNLIKE, UNSEEN, novel_queries


def test_queries_are_sorted_by_labelled_passages_and_by_likeness() -> None:
    dataset = Dataset.from_records(
        {f"d{n}": f"passage {n}" for n in range(5)},
        {"t": "ice caves of Iceland", "a": "caves of Iceland", "b": "ice caves of Iceland in winter", "c": "harbours"},
        {"train": {"t": {"d1": 1}}, "test": {"a": {"d1": 1}, "b": {"d2": 1}, "c": {"d1": 1, "d3": 1}}},
    )
    found = novel_queries(dataset)
    assert found[UNSEEN] == {"b"}
    assert found[UNLIKE] == {"c"}


def test_without_training_labels_nothing_is_told_apart() -> None:
    dataset = Dataset.from_records({"d": "x y"}, {"q": "x"}, {"test": {"q": {"d": 1}}})
    assert novel_queries(dataset) == {}

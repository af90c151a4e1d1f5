"""Datasets from memory: plain Python and tables of several libraries give the same."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from colabel.data import Dataset
from colabel.errors import DataError, UsageError
from colabel.types import Passage, Query

PASSAGES = [{"id": "d1", "title": "Cave", "text": "In ice.", "year": 1999}, {"id": "d2", "title": "", "text": "Fjord."}]
QUERIES = [{"id": "q1", "text": "ice cave"}, {"id": "q2", "text": "fjord"}]
LABELS = [
    {"query_id": "q1", "passage_id": "d1", "grade": 2, "split": "train"},
    {"query_id": "q2", "passage_id": "d2", "grade": 1, "split": "test"},
]


class Polars:
    """As much of a polars table as is asked for."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        raise AssertionError("columns")

    def to_dicts(self) -> list[dict[str, Any]]:
        return self.rows


@pytest.mark.parametrize("kind", [list, pd.DataFrame, pa.Table.from_pylist, Polars])
def test_tables_of_any_library(kind: Any) -> None:
    data = Dataset.from_records(kind(PASSAGES), kind(QUERIES), kind(LABELS), name="mine")
    assert [(one.id, one.title, one.text) for one in data.passages] == [("d1", "Cave", "In ice."), ("d2", "", "Fjord.")]
    assert [one.metadata for one in data.passages] == [{"year": 1999}, {}]
    assert dict(data.queries) == {"q1": "ice cave", "q2": "fjord"}
    assert (data.labels("train"), data.labels("test")) == ({"q1": {"d1": 2}}, {"q2": {"d2": 1}})
    assert data.name == "mine"


@pytest.mark.parametrize(
    "labels",
    [
        {"train": {"q1": {"d1": 2}}, "test": {"q2": {"d2": 1}}},
        LABELS,
    ],
)
def test_plain_python(labels: Any) -> None:
    data = Dataset.from_records(
        [Passage("d1", "Cave", "In ice.", {"year": 1999}), Passage("d2", "", "Fjord.")],
        [Query("q1", "ice cave"), ("q2", "fjord")],
        labels,
    )
    assert data.passages[0] == Passage("d1", "Cave", "In ice.", {"year": 1999})
    assert (data.labels("train"), data.labels("test")) == ({"q1": {"d1": 2}}, {"q2": {"d2": 1}})


def test_labels_by_split_may_be_lists_of_passages() -> None:
    labels = {"train": {"q1": ["d1", "d2"]}, "test": {"q2": ("d2",)}}
    data = Dataset.from_records(PASSAGES, QUERIES, labels)
    assert (data.labels("train"), data.labels("test")) == ({"q1": {"d1": 1, "d2": 1}}, {"q2": {"d2": 1}})


def test_passages_alone() -> None:
    data = Dataset.from_records(["one text", "another"])
    assert (list(data.passages.ids), data.splits, dict(data.queries)) == (["1", "2"], (), {})


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(UsageError, match="passages: expected"):
        Dataset.from_records("text")
    with pytest.raises(DataError, match="record 1 of passages is a int"):
        Dataset.from_records([1])
    with pytest.raises(DataError, match="no field 'passage_id'"):
        Dataset.from_records(["one"], {"q": "x"}, [{"query_id": "q"}])
    with pytest.raises(DataError, match="passage 'd9' does not exist"):
        Dataset.from_records({"d1": "x"}, {"q1": "y"}, {"q1": ["d9"]})

"""Metadata of a collection, and the choice of passages by it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from colabel.data import Dataset
from colabel.data.metadata import Metadata, join
from colabel.errors import UsageError

SHIRTS = [
    {"id": "a", "text": "blue shirt", "brand": "Acme", "price": "19.90", "zip": "01234", "since": "2024-05-01"},
    {"id": "b", "text": "red shirt", "brand": "O'Neil", "price": "30", "zip": "1234", "since": "2025-01-01"},
    {"id": "c", "text": "green shirt", "price": "7", "tags": ["new", "linen"], "size": {"eu": 40}},
]


@pytest.fixture(scope="module")
def shirts() -> Metadata:
    return Metadata.of(Dataset.from_records(SHIRTS).passages)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("price < 30", "ac"),
        ("brand = 'Acme' and price < 30", "a"),
        ("brand = 'O''Neil' or price < 10", "bc"),
        ("since >= '2024-06-01'", "b"),
        ("zip = '1234'", "b"),  # a code, not the number 1234
        ("brand is null", "c"),
        ("list_contains(tags, 'linen')", "c"),
        ("size ->> 'eu' = '40'", "c"),
        ("id in ('b', 'c')", "bc"),
        ("brand ilike '%ac%'", "a"),
        ("price > 1000", ""),
    ],
)
def test_conditions(shirts: Metadata, where: str, expected: str) -> None:
    assert "".join(name for name, chosen in zip("abc", shirts.select(where), strict=True) if chosen) == expected


@pytest.mark.parametrize(
    "where",
    [
        *("brnd = 'Acme'", "price <", "price < 'cheap'", "brand < 3", "sum(price) > 3", "", "true; drop table x"),
        *("id in (select content from read_text('/etc/hostname'))", "true) or (true"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_is_answered_with_the_columns(shirts: Metadata, where: str) -> None:
    with pytest.raises(UsageError) as raised:
        shirts.select(where)
    assert '"price" (double)' in str(raised.value)
    assert "__row__" not in str(raised.value)


def test_columns_of_several_kinds_become_strings() -> None:
    joined = join([pa.table({"a": [1], "b": ["x"]}), pa.table({"a": ["y"], "c": [2.5]})])
    assert joined.to_pydict() == {"a": ["1", "y"], "b": ["x", None], "c": [None, 2.5]}


def test_every_piece_of_a_document_has_its_metadata() -> None:
    long = {"id": "a", "text": "one two three. four five six. seven eight nine.", "price": 3}
    cut = Metadata.of(Dataset.from_records([long, {"id": "b", "text": "ten", "price": 5}], chunk=3).passages)
    assert cut.select("price = 3").tolist() == [True, True, True, False]

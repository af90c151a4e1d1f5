"""Catalogues: one file of any kind, its columns found by their names, all others kept."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import PASSAGES as CAVES
from tests.conftest import QUERIES

from colabel.data import check, convert, load_dataset
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage

ROWS = [
    {"SKU": "007", "Product Name": "Tent", "Description": 'For two, "light"\nand dry', "price": "99.5", "tags": ""},
    {"SKU": "b-2", "Product Name": "Stove", "Description": "Boils water; 加热", "price": "20", "tags": "gas"},
]
PASSAGES = [
    Passage("007", "Tent", 'For two, "light"\nand dry', {"price": "99.5"}),
    Passage("b-2", "Stove", "Boils water; 加热", {"price": "20", "tags": "gas"}),
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    opened = gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="")  # noqa: SIM115
    with opened as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            separator = "\t" if ".tsv" in path.name else ","
            writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.tsv", "p.jsonl", "p.jsonl.gz", "p.parquet"])
def test_every_kind_gives_the_same_passages(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / name)
    with caplog.at_level(logging.INFO):
        dataset = load_dataset(path, cache=tmp_path / "cache")
    assert list(dataset.passages) == PASSAGES
    assert list(load_dataset(path, cache=tmp_path / "cache").passages) == PASSAGES, "metadata survives on disk"
    assert (dict(dataset.queries), dataset.splits, dataset.name) == ({}, (), "p")
    assert all(f"'{column}'" in caplog.text for column in ("SKU", "Product Name", "Description"))
    assert check(str(path)).ok
    convert(dataset, tmp_path / "beir")
    assert list(load_dataset(tmp_path / "beir").passages) == PASSAGES


def test_columns_can_be_named_and_joined(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", [{"a": "1", "b": "x", "c": "y", "id": "no"}])
    columns = {"passage_id": "a", "passage_text": "b+c", "passage_title": ""}
    (passage,) = load_dataset(DataSettings(source=str(path), columns=columns)).passages
    assert passage == Passage("1", "", "x y", {"id": "no"})
    with pytest.raises(UsageError, match=r"'z'.*a, b, c, id"):
        load_dataset(DataSettings(source=str(path), columns={"passage_text": "z"}))
    with pytest.raises(UsageError, match="passage_text=COLUMN"):
        load_dataset(str(path))


def test_rows_without_an_id_are_numbered(tmp_path: Path) -> None:
    dataset = load_dataset(write(tmp_path / "p.csv", [{"text": "one"}, {"text": "two"}]))
    assert list(dataset.passages.ids) == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", b"id,text\n1,a,b\n"),
        ("p.csv", b"id,text\n1,\xff\n"),
        ("p.csv", b""),
        ("p.parquet", b"PAR1 no"),
        ("p.jsonl", b"{"),
        ("p.csv.gz", b"\x1f\x8b broken"),
        ("p.csv", b"id,text\n1,a\n1,b\n"),
        ("p.csv", b"id,text\n1 2,a\n"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        load_dataset(tmp_path / name)


def test_a_csv_file_may_have_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("\ufeffid;text;price\n1;one, two;9,50\n", encoding="utf-8")
    assert list(load_dataset(path).passages) == [Passage("1", "", "one, two", {"price": "9,50"})]


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "books.csv"
    path.write_text("id,text\n1," + "word " * 500_000 + "\n2,short\n")
    assert [len(one.text.split()) for one in load_dataset(str(path)).passages] == [500_000, 1]


def test_jsonl_with_free_columns(tmp_path: Path) -> None:
    docs = [{"docno": row["_id"], "head": row["title"], "a": row["text"][:5], "b": row["text"][5:]} for row in CAVES]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"qid": q, "ask": t}) + "\n" for q, t in QUERIES.items()))
    (tmp_path / "train.jsonl").write_text('{"qid": "q1", "doc": "d1"}\n')
    (tmp_path / "test.txt").write_text("q2 0 d4 2\n")
    settings = DataSettings(
        source=f"{tmp_path / 'docs.jsonl'}",
        queries=(str(tmp_path / "q.jsonl"),),
        labels={"train": str(tmp_path / "train.jsonl"), "test": str(tmp_path / "test.txt")},
        columns={
            "passage_id": "docno",
            "passage_title": "head",
            "passage_text": "a+b",
            "query_id": "qid",
            "query_text": "ask",
            "label_query": "qid",
            "label_passage": "doc",
            "label_grade": "",
        },
        holdout=0.0,
    )
    dataset = load_dataset(settings)
    assert dataset.passages.get("d1") == Passage("d1", "Glacier cave", "A cav e formed within the ice of a glacier.")
    assert dataset.labels("train") == {"q1": {"d1": 1}}
    assert dataset.labels("test") == {"q2": {"d4": 2}}

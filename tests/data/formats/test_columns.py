"""Hugging Face data and JSON lines with free columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import LABELS, PASSAGES, QUERIES
from tests.data.caves import assert_is_caves

from colabel.data import load_dataset
from colabel.errors import DataError
from colabel.settings import DataSettings
from colabel.types import Passage

WriteBeir = Callable[..., Path]


def test_jsonl_with_free_columns(tmp_path: Path) -> None:
    docs = [{"docno": row["_id"], "head": row["title"], "a": row["text"][:5], "b": row["text"][5:]} for row in PASSAGES]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"qid": q, "ask": t}) + "\n" for q, t in QUERIES.items()))
    (tmp_path / "train.jsonl").write_text('{"qid": "q1", "doc": "d1"}\n')
    (tmp_path / "test.txt").write_text("q2 0 d4 2\n")
    settings = DataSettings(
        source=f"jsonl:{tmp_path / 'docs.jsonl'}",
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


def test_hugging_face_on_disk(tmp_path: Path, write_beir: WriteBeir) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(PASSAGES).save_to_disk(str(tmp_path / "hf" / "corpus"))
    rows = [{"_id": query, "text": text} for query, text in QUERIES.items()]
    datasets.DatasetDict({"queries": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "hf" / "queries"))
    qrels = {
        split: datasets.Dataset.from_list([{"query-id": q, "corpus-id": p, "score": g} for q, p, g in labels])
        for split, labels in LABELS.items()
    }
    datasets.DatasetDict(qrels).save_to_disk(str(tmp_path / "hf" / "qrels"))
    assert_is_caves(f"hf:{tmp_path / 'hf'}")
    with pytest.raises(DataError, match="save_to_disk"):
        load_dataset(f"hf:{write_beir('other')}")

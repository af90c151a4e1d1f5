"""Datasets by name, with more query and label files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colabel.data import load_dataset, open_source
from colabel.errors import UsageError
from colabel.settings import DataSettings

WriteBeir = Callable[..., Path]


def test_extra_labels_replace_a_split(write_beir: WriteBeir, tmp_path: Path) -> None:
    (tmp_path / "test.qrels").write_text("q2 0 d1 3\n")
    (tmp_path / "more.tsv").write_text("q9\tanother question\n")
    settings = DataSettings(
        source=str(write_beir()), labels={"test": str(tmp_path / "test.qrels")}, queries=(str(tmp_path / "more.tsv"),)
    )
    dataset = load_dataset(settings)
    assert dataset.labels("test") == {"q2": {"d1": 3}}
    assert dataset.queries["q9"] == "another question"


def test_binary_training_labels_stay_relevant_where_test_counts_from_a_higher_grade(
    write_beir: WriteBeir, tmp_path: Path
) -> None:
    (tmp_path / "train.qrels").write_text("q1 0 d1 1\nq1 0 d2 0\n")
    (tmp_path / "test.qrels").write_text("q2 0 d1 1\nq2 0 d2 2\n")
    files = {split: str(tmp_path / f"{split}.qrels") for split in ("train", "test")}
    dataset = load_dataset(DataSettings(source=str(write_beir()), labels=files, relevant_from=2, holdout=0.0))
    assert dataset.positives("train") == {"q1": ("d1",)}
    assert dataset.labels("test") == {"q2": {"d1": 1, "d2": 2}} and dataset.positives("test") == {"q2": ("d2",)}


def test_former_sources_name_what_reads_them_now(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"write 'a\.jsonl'"):
        open_source(DataSettings(source="jsonl:a.jsonl"))
    (tmp_path / "documents.trec").write_text("<DOC>\n</DOC>\n")
    with pytest.raises(UsageError, match="irds:ID"):
        open_source(DataSettings(source=str(tmp_path)))


def test_unknown_places(tmp_path: Path) -> None:
    for source in ("nowhere", "hf:nowhere", "pydocs:many", str(tmp_path)):
        with pytest.raises(UsageError):
            open_source(DataSettings(source=source))

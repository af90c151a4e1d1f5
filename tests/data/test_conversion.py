"""Conversions, read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.caves import assert_is_caves

from colabel.data import check, convert, hide_labels, load_dataset
from colabel.data.splits import hidden_labels
from colabel.errors import UsageError

WriteBeir = Callable[..., Path]


@pytest.mark.parametrize("to", ["beir", "msmarco"])
def test_convert_and_read_back(write_beir: WriteBeir, tmp_path: Path, to: str) -> None:
    convert(load_dataset(str(write_beir())), tmp_path / "out", to)
    assert_is_caves(str(tmp_path / "out"), titles=to != "msmarco")


def test_convert_refuses_an_unknown_format_and_keeps_hidden_labels_out_of_ms_marco(
    write_beir: WriteBeir, tmp_path: Path
) -> None:
    dataset = load_dataset(str(write_beir()))
    with pytest.raises(UsageError, match="expected one of beir, msmarco"):
        convert(dataset, tmp_path / "out", "xml")
    with pytest.raises(UsageError, match="hidden labels"):
        convert(hide_labels(dataset), tmp_path / "out", "msmarco")
    assert not (tmp_path / "out").exists()


def test_hidden_labels_survive_conversion(write_beir: WriteBeir, tmp_path: Path) -> None:
    sparse = hide_labels(load_dataset(str(write_beir())), keep=1, seed=0)
    convert(sparse, tmp_path / "sparse", "beir")
    again = load_dataset(str(tmp_path / "sparse"))
    assert hidden_labels(again) == hidden_labels(sparse) != {}
    assert again.labels("train") == sparse.labels("train")
    assert check(str(tmp_path / "sparse")).splits["train"].hidden == 2


def test_conversion_keeps_the_cut_off_and_unlabelled_queries(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir("trec-dl-mine")
    with (folder / "queries.jsonl").open("a") as file:
        file.write('{"_id": "extra", "text": "nobody judged this"}\n')
    for to in ("beir", "msmarco"):
        convert(load_dataset(str(folder)), tmp_path / to, to)
        again = load_dataset(str(tmp_path / to))
        assert again.relevant_from == 2
        assert again.queries["extra"] == "nobody judged this"


def test_conversion_follows_everything_it_writes(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir()
    convert(load_dataset(str(folder)), tmp_path / "out")
    (folder / "queries.jsonl").write_text(
        (folder / "queries.jsonl").read_text().replace("tunnels in ice", "ice tunnels")
    )
    convert(load_dataset(str(folder)), tmp_path / "out")
    assert load_dataset(str(tmp_path / "out")).queries["q5"] == "ice tunnels"
    with pytest.raises(UsageError, match="holds the collection that is to be converted"):
        convert(load_dataset(str(tmp_path / "out")), tmp_path / "out", "msmarco")
    assert check(str(tmp_path / "out")).ok

"""BEIR, MS MARCO and Hugging Face folders; counts of the real collections are what their makers say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import LABELS, PASSAGES, QUERIES
from tests.data.caves import assert_is_caves

from colabel.data import check, load_dataset
from colabel.errors import DataError

WriteBeir = Callable[..., Path]


@pytest.mark.parametrize("gzipped", [False, True])
def test_beir(write_beir: WriteBeir, gzipped: bool) -> None:
    assert_is_caves(str(write_beir(gzipped=gzipped)))


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


@pytest.mark.parametrize("name", ["nfcorpus", "semanlink", "cranfield", "scifact", "cosqa", "wikiqa", "trec-dl19-pool"])
def test_real_collections_have_the_counts_their_makers_state(shared_data: Callable[[str], Path], name: str) -> None:
    folder = shared_data(name)
    stats = json.loads((folder / "stats.json").read_text(encoding="utf-8"))
    report = check(str(folder))
    assert report.ok
    assert report.passages == stats["docs"]
    found = {
        split: {
            "queries": counts.queries,
            "qrels": counts.labels,
            "positive": counts.positive,
            "mean_rel": round(counts.mean_positive, 2),
        }
        for split, counts in report.splits.items()
    }
    assert found == stats["splits"]
    assert report.relevant_from == (2 if name == "trec-dl19-pool" else 1)
    assert report.problems.counts["test-query-in-train"] == {"nfcorpus": 4, "scifact": 2}.get(name, 0)
    assert round(report.passage_words.mean, 1) == stats["mean_doc_words"]

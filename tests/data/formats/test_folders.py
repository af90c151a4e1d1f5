"""BEIR, MS MARCO and TREC folders; counts of the real collections are what their makers say."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import LABELS, PASSAGES, QUERIES
from tests.data.caves import assert_is_caves

from colabel.data import check
from colabel.data.text_lines import Collected

WriteBeir = Callable[..., Path]


@pytest.mark.parametrize("gzipped", [False, True])
def test_beir(write_beir: WriteBeir, gzipped: bool) -> None:
    assert_is_caves(str(write_beir(gzipped=gzipped)))


def test_trec(tmp_path: Path) -> None:
    texts = [{key: html.escape(value) for key, value in row.items()} for row in PASSAGES]
    (tmp_path / "documents.trec").write_text(
        "".join(
            f"<DOC>\n<DOCNO> {row['_id']} </DOCNO>\n<HEAD>{row['title']}</HEAD>\n<TEXT>{row['text']}</TEXT>\n</DOC>\n"
            for row in texts
        )
    )
    for split, labels in LABELS.items():
        asked = dict.fromkeys(query for query, _, _ in labels)
        (tmp_path / f"topics.{split}.tsv").write_text("".join(f"{one}\t{QUERIES[one]}\n" for one in asked))
        (tmp_path / f"qrels.{split}.txt").write_text("".join(f"{q} 0 {p} {grade}\n" for q, p, grade in labels))
    assert_is_caves(str(tmp_path))


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


def test_hostile_documents_are_read_in_linear_time(tmp_path: Path) -> None:
    import time

    from colabel.data.formats.folders import read_documents

    path = tmp_path / "documents.trec"
    path.write_text("<DOC>\n<DOCNO>d1</DOCNO>\n" + "<TEXT> <BODY> " * 20_000 + "\n</DOC>\n")
    start = time.perf_counter()
    assert len(list(read_documents(path, Collected()))) == 1
    assert time.perf_counter() - start < 2

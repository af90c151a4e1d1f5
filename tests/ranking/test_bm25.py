"""BM25: worked out by hand, tied scores, languages, and real collections."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colabel.data import load_dataset
from colabel.errors import SettingsError, UsageError
from colabel.evaluation import evaluate
from colabel.ranking import Bm25, rank
from colabel.ranking.bm25 import best_rows, tokenise
from colabel.settings import RankSettings

WriteBeir = Callable[..., Path]


def test_ties_are_broken_as_trec_eval_does_also_at_the_cut(write_beir: WriteBeir, tmp_path: Path) -> None:
    corpus = "".join(json.dumps({"_id": name, "text": "cat"}) + "\n" for name in ("b", "d", "a", "c"))
    corpus += json.dumps({"_id": "x", "text": "hen"}) + "\n"
    folder = write_beir(corpus=corpus, qrels__train=None, qrels__dev=None, qrels__test="q1\ta\t1\n")
    bm25 = Bm25(load_dataset(str(folder)).passages, RankSettings(), tmp_path / "bm25")
    for depth in (1, 2, 4):
        rows, _ = bm25.rank(["cat"], depth)
        assert [bm25.ids[int(row)] for row in rows[0]] == ["d", "c", "b", "a"][:depth]


def test_bm25_without_words(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir(corpus='{"_id": "d1", "text": "the of"}\n', qrels__train=None, qrels__dev=None,
                        qrels__test="q1\td1\t1\n")  # fmt: skip
    with pytest.raises(UsageError, match="no passage holds a word"):
        Bm25(load_dataset(str(folder)).passages, RankSettings(), tmp_path / "bm25")


def test_bm25_by_hand(write_beir: WriteBeir, tmp_path: Path) -> None:
    """Two passages, one query word: idf and saturation of Lucene's BM25 worked out on paper."""
    corpus = '{"_id": "a", "text": "cat cat dog"}\n{"_id": "b", "text": "dog fox"}\n{"_id": "c", "text": "hen"}\n'
    folder = write_beir(corpus=corpus, qrels__train=None, qrels__dev=None, qrels__test="q1\ta\t1\n")
    passages = load_dataset(str(folder)).passages
    bm25 = Bm25(passages, RankSettings(k1=1.2, b=0.75), tmp_path / "bm25")
    rows, scores = bm25.rank(["cat", "dog", "zebra"], 3)
    assert rows.tolist() == [[0, -1, -1], [1, 0, -1], [-1, -1, -1]]
    idf_cat = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length = 1.2 * (1 - 0.75 + 0.75 * 3 / 2)
    assert scores[0, 0] == pytest.approx(idf_cat * 2 / (2 + length), rel=1e-5)
    again = Bm25(passages, RankSettings(k1=1.2, b=0.75), tmp_path / "bm25")
    assert again.fingerprint == bm25.fingerprint != Bm25(passages, RankSettings(), tmp_path / "other").fingerprint
    given = bm25.scores(["dog", "zebra"], np.array([[0, 2, 1, -1], [0, 1, 2, -1]]))
    assert given[0].tolist() == [scores[1, 1], 0.0, scores[1, 0], -np.inf]
    assert given[1].tolist() == [0.0, 0.0, 0.0, -np.inf]
    only_b = bm25.rank(["dog"], 3, allowed=np.array([False, True, True]))
    assert only_b[0].tolist() == [[1, -1, -1]]


def test_bm25_languages(write_beir: WriteBeir, tmp_path: Path) -> None:
    assert tokenise(["The caves are formed"], "english") == [["cave", "form"]]
    assert tokenise(["The caves"], "none") == [["the", "caves"]]
    with pytest.raises(SettingsError, match=r"'rank\.language' is 'klingon'; expected 'none' or one of"):
        tokenise(["x"], "klingon")
    bm25 = Bm25(load_dataset(str(write_beir())).passages, RankSettings(language="french"), tmp_path / "fr")
    assert bm25.ids[int(bm25.rank(["saisons"], 1)[0][0, 0])] == "d5"


def test_best_rows() -> None:
    values = np.array([0.0, 3.0, 1.0, 3.0, 2.0], dtype=np.float32)
    ranks = np.array([0, 4, 3, 1, 2], dtype=np.int32)
    assert best_rows(values, 10, ranks).tolist() == [3, 1, 4, 2]
    assert best_rows(values, 1, ranks).tolist() == [3]
    assert best_rows(values, 3, ranks).tolist() == [3, 1, 4]


BM25_NDCG = {"scifact": 0.66, "nfcorpus": 0.32, "cranfield": 0.43, "semanlink": 0.47, "trec-dl19-pool": 0.45}


@pytest.mark.parametrize("name", BM25_NDCG)
def test_bm25_on_real_collections(shared_data: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    dataset = load_dataset(str(shared_data(name)))
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    ranking = rank(bm25, dataset.split_queries("test"), tmp_path / "run", depth=100)
    found = evaluate(dataset, {"bm25": ranking.run()}, measures=["nDCG@10"]).means["bm25"]["nDCG@10"]
    assert found == pytest.approx(BM25_NDCG[name], abs=0.025)

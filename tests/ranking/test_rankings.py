from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.data import load_dataset
from colabel.data.strings import StringTable
from colabel.errors import DataError, SettingsError
from colabel.evaluation import evaluate, read_run_file
from colabel.measures import mean_values, measure_run, parse_measure
from colabel.ranking import Bm25, open_ranking, rank
from colabel.ranking.bm25 import best_rows, tokenise
from colabel.ranking.rankings import allowed_rows, break_ties
from colabel.settings import RankSettings

WriteBeir = Callable[..., Path]


class Fixed:
    """A ranker with known answers: passage row r has score 9 − r, except that rows 1 and 2 tie."""

    name = "fixed"
    fingerprint = "fixed"

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = StringTable.of(ids)
        self.asked: list[str] = []

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        self.asked += texts
        rows = np.arange(len(self.ids)) if allowed is None else np.flatnonzero(allowed)
        scores = (9 - np.where(rows == 2, 1, rows)).astype(np.float32)
        rows, scores = rows[:depth], scores[:depth]
        missing = depth - len(rows)
        rows = np.pad(rows, (0, missing), constant_values=-1)
        scores = np.pad(scores, (0, missing), constant_values=-np.inf)
        return np.tile(rows, (len(texts), 1)), np.tile(scores, (len(texts), 1))


def test_ranking_is_kept_as_arrays_and_as_a_run(tmp_path: Path) -> None:
    ranker = Fixed(["d9", "d8", "d7", "d6"])
    queries = {f"q{number}": f"text {number}" for number in range(2500)}
    ranking = rank(ranker, queries, tmp_path / "r", depth=3)
    assert len(ranking) == 2500
    rows, scores = ranking.query("q2049")
    assert rows.tolist() == [0, 2, 1], "d7 comes before d8: equal scores are ordered by id"
    assert scores.tolist() == [9.0, 8.0, 8.0]
    assert (tmp_path / "r" / "run.trec").read_text().splitlines()[:3] == [
        "q0 Q0 d9 1 9 fixed",
        "q0 Q0 d7 2 8 fixed",
        "q0 Q0 d8 3 8 fixed",
    ]
    assert read_run_file(tmp_path / "r") == ranking.run()
    assert sum(len(query_ids) for query_ids, _, _ in ranking.blocks()) == 2500
    with pytest.raises(DataError, match="no query 'q9999'"):
        ranking.query("q9999")
    ranker.asked.clear()
    rank(ranker, queries, tmp_path / "r", depth=3)
    assert ranker.asked == [], "up to date"
    assert open_ranking(tmp_path / "r").query("q0")[0].tolist() == [0, 2, 1]


def test_an_interrupted_ranking_continues_with_the_next_block(tmp_path: Path) -> None:
    ranker = Fixed(["d1", "d2", "d3"])
    queries = {f"q{number}": f"text {number}" for number in range(2500)}
    original = ranker.rank

    def dies(texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None) -> object:
        if "text 2048" in texts:
            raise KeyboardInterrupt
        return original(texts, depth, allowed)

    ranker.rank = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        rank(ranker, queries, tmp_path / "r", depth=2)
    assert not (tmp_path / "r").exists()
    ranker.rank = original  # type: ignore[method-assign]
    ranker.asked.clear()
    rank(ranker, queries, tmp_path / "r", depth=2)
    assert len(ranker.asked) == 2500 - 2048
    rank(Fixed(["d1", "d2", "d3"]), queries, tmp_path / "whole", depth=2)
    assert (tmp_path / "r" / "run.trec").read_bytes() == (tmp_path / "whole" / "run.trec").read_bytes()


def test_filters(tmp_path: Path) -> None:
    ranker = Fixed(["d1", "d2", "d3", "d4"])
    only = rank(ranker, {"q": "x"}, tmp_path / "only", only=["d4", "d2"])
    assert list(only.run()["q"]) == ["d2", "d4"]
    without = rank(ranker, {"q": "x"}, tmp_path / "exclude", exclude=["d1"])
    assert list(without.run()["q"]) == ["d2", "d3", "d4"]
    assert allowed_rows(ranker.ids, None, None) is None
    with pytest.raises(DataError, match="passage 'nope'"):
        rank(ranker, {"q": "x"}, tmp_path / "bad", only=["nope"])
    assert not (tmp_path / "bad").exists()


def test_break_ties_leaves_other_places_alone() -> None:
    ids = StringTable.of(["b", "a", "d", "c"])
    rows = np.array([[0, 1, 2, 3, -1, -1]])
    scores = np.array([[2.0, 2.0, 1.0, 1.0, -np.inf, -np.inf]], dtype=np.float32)
    assert break_ties(rows, scores, ids).tolist() == [[1, 0, 3, 2, -1, -1]]


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
    assert best_rows(values, 10).tolist() == [1, 3, 4, 2]
    assert best_rows(values, 1).tolist() == [1]
    assert best_rows(values, 3).tolist() == [1, 3, 4]


def test_measures_by_hand() -> None:
    labels = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"a": 1}, "q3": {"z": 1}}
    run = {"q1": {"c": 3.0, "b": 2.0, "a": 1.0}, "q2": {"a": 1.0}}
    values = measure_run(labels, run, ["RR@10", "R@2", "nDCG@10"])
    assert values["RR@10"] == {"q1": 0.5, "q2": 1.0, "q3": 0.0}, "a query without an answer counts 0"
    assert values["R@2"]["q1"] == 0.5
    ideal = 2 + 1 / np.log2(3)
    assert values["nDCG@10"]["q1"] == pytest.approx((1 / np.log2(3) + 2 / 2) / ideal)
    assert mean_values(values)["RR@10"] == 0.5
    strict = measure_run(labels, run, ["RR@10", "RR(rel=1)@10"], relevant_from=2)
    assert strict["RR@10"]["q1"] == pytest.approx(1 / 3)
    assert strict["RR(rel=1)@10"]["q1"] == 0.5, "a measure's own cut-off wins"


@pytest.mark.parametrize("name", ["nope", "nDCG@@", "", "RR@ten", "__import__('os')"])
def test_unknown_measures(name: str) -> None:
    with pytest.raises(Exception, match="is not a measure"):
        parse_measure(name)


def test_evaluate_runs_of_other_programs(write_beir: WriteBeir, tmp_path: Path) -> None:
    dataset = load_dataset(str(write_beir()))
    (tmp_path / "other.trec").write_text("q2 Q0 d4 1 9.5 other\nq5 Q0 d3 1 2.0 other\nq99 Q0 d1 1 1 other\n")
    evaluation = evaluate(dataset, {"other": tmp_path / "other.trec"}, measures=["RR@10"])
    assert evaluation.means == {"other": {"RR@10": 0.5}}
    assert evaluation.per_query["other"]["RR@10"] == {"q2": 1.0, "q5": 0.0}
    json.dumps(evaluation.as_dict())
    with pytest.raises(DataError, match="none of its 1 queries has labels in the split 'dev'"):
        (tmp_path / "wrong.trec").write_text("q99 Q0 d1 1 1 x\n")
        evaluate(dataset, {"wrong": tmp_path / "wrong.trec"}, split="dev")
    (tmp_path / "twice.trec").write_text("q2 Q0 d4 1 9.5 x\nq2 Q0 d4 2 9.5 x\n")
    with pytest.raises(DataError, match=r"twice\.trec:2: passage 'd4' stands twice"):
        read_run_file(tmp_path / "twice.trec")
    (tmp_path / "empty.trec").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_run_file(tmp_path / "empty.trec")


BM25_NDCG = {"scifact": 0.66, "nfcorpus": 0.32, "cranfield": 0.43, "semanlink": 0.47, "trec-dl19-pool": 0.45}


@pytest.mark.parametrize("name", BM25_NDCG)
def test_bm25_on_real_collections(shared_data: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    dataset = load_dataset(str(shared_data(name)))
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    ranking = rank(bm25, dataset.split_queries("test"), tmp_path / "run", depth=100)
    found = evaluate(dataset, {"bm25": ranking.run()}, measures=["nDCG@10"]).means["bm25"]["nDCG@10"]
    assert found == pytest.approx(BM25_NDCG[name], abs=0.025)

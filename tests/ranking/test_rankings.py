from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.data import load_dataset
from colabel.data.strings import StringTable
from colabel.errors import DataError, SettingsError, UsageError
from colabel.evaluation import evaluate, read_run_file
from colabel.measures import mean_values, measure_run, parse_measure
from colabel.ranking import Bm25, open_ranking, rank
from colabel.ranking.bm25 import best_rows, tokenise
from colabel.ranking.rankings import allowed_rows
from colabel.settings import RankSettings

WriteBeir = Callable[..., Path]


class Fixed:
    """A ranker with known answers: passage row r has score 9 − r."""

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
        scores = (9 - rows).astype(np.float32)
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
    assert rows.tolist() == [0, 1, 2]
    assert scores.tolist() == [9.0, 8.0, 7.0]
    assert (tmp_path / "r" / "run.trec").read_text().splitlines()[:3] == [
        "q0 Q0 d9 1 9 fixed",
        "q0 Q0 d8 2 8 fixed",
        "q0 Q0 d7 3 7 fixed",
    ]
    assert read_run_file(tmp_path / "r") == ranking.run()
    assert sum(len(query_ids) for query_ids, _, _ in ranking.blocks()) == 2500
    with pytest.raises(DataError, match="no query 'q9999'"):
        ranking.query("q9999")
    ranker.asked.clear()
    rank(ranker, queries, tmp_path / "r", depth=3)
    assert ranker.asked == [], "up to date"
    assert open_ranking(tmp_path / "r").query("q0")[0].tolist() == [0, 1, 2]


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


def test_queries_in_another_order_are_another_ranking(tmp_path: Path) -> None:
    """Blocks are positional: an interrupted ranking must not be continued with the queries in another order."""
    ranker = Fixed(["d1", "d2", "d3"])
    queries = {f"q{number}": f"text {number}" for number in range(3)}
    first = rank(ranker, queries, tmp_path / "r")
    again = rank(ranker, dict(reversed(queries.items())), tmp_path / "r")
    assert first.manifest.fingerprint != again.manifest.fingerprint
    assert list(again.query_ids) == ["q2", "q1", "q0"]


def test_ties_are_broken_as_trec_eval_does_also_at_the_cut(write_beir: WriteBeir, tmp_path: Path) -> None:
    corpus = "".join(json.dumps({"_id": name, "text": "cat"}) + "\n" for name in ("b", "d", "a", "c"))
    corpus += json.dumps({"_id": "x", "text": "hen"}) + "\n"
    folder = write_beir(corpus=corpus, qrels__train=None, qrels__dev=None, qrels__test="q1\ta\t1\n")
    bm25 = Bm25(load_dataset(str(folder)).passages, RankSettings(), tmp_path / "bm25")
    for depth in (1, 2, 4):
        rows, _ = bm25.rank(["cat"], depth)
        assert [bm25.ids[int(row)] for row in rows[0]] == ["d", "c", "b", "a"][:depth]


def test_measures_agree_on_tied_scores() -> None:
    run = {"q": {"a": 1.0, "b": 1.0}}
    values = mean_values(measure_run({"q": {"a": 1}}, run, ["RR@10", "P@1", "nDCG@1"]))
    assert values == {"RR@10": 0.5, "P@1": 0.0, "nDCG@1": 0.0}, "trec_eval puts b before a"


def test_one_measure_under_two_names() -> None:
    labels, run = {"q": {"a": 2}}, {"q": {"a": 1.0}}
    assert mean_values(measure_run(labels, run, ["RR@10", "MRR@10"])) == {"RR@10": 1.0, "MRR@10": 1.0}
    twice = measure_run(labels, run, ["R@10", "R(rel=2)@10"], relevant_from=2)
    assert mean_values(twice) == {"R@10": 1.0, "R(rel=2)@10": 1.0}


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nDCG@0", "'cutoff' is 0; expected 1 or more"),
        ("P(rel=0)@5", "'rel' is 0"),
        ("P", "'P' lacks 'cutoff'"),
        ("INST", "lacks 'max_rel'"),
        ("IPrec@7", "recall=7"),
    ],
)
def test_measures_that_cannot_be_computed_are_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parse_measure(name)


def test_expected_reciprocal_rank_takes_any_query_ids() -> None:
    if shutil.which("perl") is None:
        pytest.skip("ir_measures computes ERR with a perl script, and there is no perl")
    values = measure_run({"why me": {"a": 1}, "7": {"b": 1}}, {"why me": {"a": 1.0}}, ["ERR@10"])
    assert values == {"ERR@10": {"why me": pytest.approx(1 / 16), "7": 0.0}}, "(2¹ − 1) / 2⁴ at the first place"


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

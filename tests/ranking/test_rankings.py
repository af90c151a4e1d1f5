"""Rankings on disk: kept, continued after a kill, filtered, read by evaluation."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.data import load_dataset
from colabel.data.string_table import StringTable
from colabel.errors import DataError
from colabel.evaluation import evaluate, read_run_file
from colabel.ranking import Bm25, Ranking, rank
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
    assert Ranking(tmp_path / "r").query("q0")[0].tolist() == [0, 1, 2]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.ranking.test_rankings import IDS, QUERIES, Fixed
from colabel.ranking import rank

class Dies(Fixed):
    def rank(self, texts, depth, allowed=None):
        if "text 2048" in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().rank(texts, depth, allowed)

rank(Dies(IDS), QUERIES, Path(sys.argv[1]), depth=2)
"""
IDS = ["d1", "d2", "d3"]
QUERIES = {f"q{number}": f"text {number}" for number in range(2500)}


def test_a_killed_ranking_continues_with_the_next_block(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "r")], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "r").exists()
    ranker = Fixed(IDS)
    rank(ranker, QUERIES, tmp_path / "r", depth=2)
    assert len(ranker.asked) == 2500 - 2048
    rank(Fixed(IDS), QUERIES, tmp_path / "whole", depth=2)
    assert (tmp_path / "r" / "run.trec").read_bytes() == (tmp_path / "whole" / "run.trec").read_bytes()


def test_ids_are_stored_once_and_the_run_file_on_demand(write_beir: WriteBeir, tmp_path: Path) -> None:
    dataset = load_dataset(str(write_beir()), cache=tmp_path / "data")
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    ranking = rank(bm25, dict(dataset.queries), tmp_path / "r", run_file=False)
    assert not ranking.run_file.exists()
    for part in ("text", "offsets", "hashes", "order"):
        assert (tmp_path / "r" / f"ids.{part}.npy").samefile(tmp_path / "data" / "passages" / f"ids.{part}.npy")
    shutil.rmtree(tmp_path / "data")
    assert list(Ranking(tmp_path / "r").passage_ids) == ["d1", "d2", "d3", "d4", "d5"]


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

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colabel.data import Dataset, load_dataset
from colabel.errors import DataError, UsageError
from colabel.ranking import Bm25, rank
from colabel.settings import RankSettings
from colabel.teachers import ScoreFileTeacher, score_file

WriteBeir = Callable[..., Path]
# Rows: d1 = 0 … d5 = 4.

TREC = "q1 Q0 d1 1 9.5 ce\nq1 Q0 d3 2 -1.25 ce\nq3 Q0 d5 1 3 ce\n"
TABLE = "q1\td1\t9.5\nq1\td3\t-1.25\nq3\td5\t3\n"
TRIPLES = "9.5\t-1.25\tq1\td1\td3\n9.5\t-7\tq1\td1\td4\n3\t2\tq3\td5\td4\n"
JSONL = '{"query_id": "q1", "passage_id": "d1", "score": 9.5}\n{"passage_id": "d3", "query_id": "q1", "score": -1.25}\n'


@pytest.fixture
def dataset(write_beir: WriteBeir) -> Dataset:
    return load_dataset(str(write_beir()))


def teach(tmp_path: Path, dataset: Dataset, text: str | bytes, name: str = "scores.tsv") -> ScoreFileTeacher:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return ScoreFileTeacher(path, dataset)


@pytest.mark.parametrize(
    "text",
    [
        TREC,
        TABLE,
        "query_id\tpassage_id\tscore\n" + TABLE,
        TABLE.replace("\t", " ").replace("\n", "\r\n"),
        TRIPLES,
        JSONL + '{"query_id": "q3", "passage_id": "d5", "score": 3}\n',
        gzip.compress(TABLE.encode(), mtime=0),
    ],
    ids=["trec", "table", "header", "spaces", "triples", "jsonl", "gzip"],
)
def test_formats(tmp_path: Path, dataset: Dataset, text: str | bytes) -> None:
    teacher = teach(tmp_path, dataset, text)
    scores = teacher.scores(["q3", "q1", "q2"], np.array([[4, -1, 0], [0, 2, 1], [0, 1, 2]]))
    assert scores.dtype == np.float32
    assert scores[0].tolist()[:2] == [3.0, -np.inf]
    assert scores[1].tolist()[:2] == [9.5, -1.25]
    assert np.isnan(scores[[0, 1, 2, 2, 2], [2, 2, 0, 1, 2]]).all(), "pairs that the file does not have"


def test_triples_hold_each_positive_once(tmp_path: Path, dataset: Dataset) -> None:
    teacher = teach(tmp_path, dataset, TRIPLES)
    assert len(teacher) == 5
    assert teacher.scores(["q1"], np.array([[0, 2, 3]])).tolist() == [[9.5, -1.25, -7.0]]


def test_parquet(tmp_path: Path, dataset: Dataset) -> None:
    table = {
        "query_id": ["q1", "q1", "q1", "q3"],
        "passage_id": ["d1", "d2", "d3", "d5"],
        "teacher_score": pa.array([9.5, None, float("nan"), 3.0], pa.float32()),
        "labelled": [True, False, False, True],
    }
    pq.write_table(pa.table(table), tmp_path / "labels.parquet")
    teacher = ScoreFileTeacher(tmp_path / "labels.parquet", dataset)
    assert len(teacher) == 2, "pairs that were not annotated are not scores"
    assert teacher.scores(["q1", "q3"], np.array([[0], [4]])).tolist() == [[9.5], [3.0]]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"query_id": ["q1"], "passage_id": ["d1"]}, ": no column 'teacher_score'"),
        (
            {"query_id": ["q1"], "passage_id": ["d1"], "teacher_score": ["high"]},
            ":1: the score of passage 'd1'",
        ),
        ({"query_id": [["q1"]], "passage_id": ["d1"], "teacher_score": [1.0]}, ":1: 'query_id' is a list"),
        ({"query_id": ["q1"], "passage_id": ["d 1"], "teacher_score": [1.0]}, ":1: the id 'd 1' contains white"),
    ],
)
def test_bad_parquet(tmp_path: Path, dataset: Dataset, columns: dict[str, list[object]], expected: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=rf"bad\.parquet{expected}"):
        ScoreFileTeacher(tmp_path / "bad.parquet", dataset)


def test_a_cut_parquet_file(tmp_path: Path, dataset: Dataset) -> None:
    pq.write_table(pa.table({"query_id": ["q1"]}), tmp_path / "whole.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet: cannot be read as a table"):
        ScoreFileTeacher(tmp_path / "cut.parquet", dataset)


def test_a_ranking_of_ours_is_a_file_of_scores(tmp_path: Path, dataset: Dataset) -> None:
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    ranking = rank(bm25, {"q1": dataset.queries["q1"]}, tmp_path / "run")
    rows, scores = ranking.query("q1")
    teacher = ScoreFileTeacher(tmp_path / "run", dataset)
    assert teacher.scores(["q1"], rows[None].astype(np.int64))[0].tolist() == scores.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q1 0 d1 1\n", r"scores\.tsv:1: the rank is 'd1'"),
        ("query passage rank\nq1 d1 1\n", "holds ranks"),
        (TRIPLES + TABLE, r"scores\.tsv:4: 3 columns; expected 5"),
        ("q1 d1 1e39\n", r"scores\.tsv:1: the score is '1e39'; expected a finite number that fits"),
        (JSONL + '{"query_id": "q1"}\n', r"scores\.tsv:3: no field 'passage_id'"),
        (JSONL + "q1 d1 2\n", r"scores\.tsv:3: not JSON"),
        (
            '{"query_id": "q1", "passage_id": "d1", "score": "9"}\n',
            r"scores\.tsv:1: the score of passage 'd1'",
        ),
        ('{"query_id": true, "passage_id": "d1", "score": 9}\n', r"scores\.tsv:1: 'query_id' is a bool"),
        ("", r"scores\.tsv: there is no score to use: it is empty"),
        ("\n\n", r"scores\.tsv: there is no score to use: it is empty"),
        (b"q1 d1 1\nq1 \xff 1\n", r"scores\.tsv:2: not UTF-8"),
        (gzip.compress(TABLE.encode() * 100, mtime=0)[:-30], "gzip data breaks off"),
        ("x d1 1\ny d1 1\n", r"none of its 2 pairs is of this collection, such as query 'x' at line 1"),
        ("q1 d99 1\n", r"none of its 1 pairs is of this collection, such as passage 'd99' at line 1"),
    ],
)
def test_bad_files(tmp_path: Path, dataset: Dataset, text: str | bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        teach(tmp_path, dataset, text)


def test_missing_file(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(UsageError, match=r"nope\.tsv: no such score file; expected a TREC run"):
        ScoreFileTeacher(tmp_path / "nope.tsv", dataset)


def test_repeated_scores_must_agree(tmp_path: Path, dataset: Dataset) -> None:
    text = "3 1 q1 d1 d2\n3.00001 2 q1 d1 d3\n1 2.5 q3 d5 d1\n"
    assert len(teach(tmp_path, dataset, text)) == 5
    with pytest.raises(
        DataError, match=r":4: query 'q1', passage 'd2' has different scores: 1 at line 1, 1\.5 at line 4; keep one"
    ):
        teach(tmp_path, dataset, text + "3 1.5 q1 d1 d2\n")


def test_unknown_ids_are_left_out_and_said(tmp_path: Path, dataset: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        teacher = teach(tmp_path, dataset, TABLE + "q1 d99 1\nq99 d1 1\n")
    assert len(teacher) == 3
    assert "2 pairs name a query or passage that the collection does not have, such as passage 'd99' at line 4" in (
        caplog.text
    )


def test_against_a_plain_dictionary(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_file, "_REMEMBERED", 2)
    random = np.random.default_rng(0)
    expected = {}
    lines = []
    for _ in range(60):
        query, row = f"q{random.integers(1, 6)}", int(random.integers(5))
        score = expected.setdefault((query, row), round(float(random.normal()), 3))
        lines.append(f"{query} d{row + 1} {score}\n")
    teacher = teach(tmp_path, dataset, "".join(lines))
    assert len(teacher) == len(expected)
    queries = [f"q{number}" for number in range(1, 6)]
    scores = teacher.scores(queries, np.tile(np.arange(5), (5, 1)))
    for place, query in enumerate(queries):
        for row in range(5):
            found = expected.get((query, row))
            assert np.isnan(scores[place, row]) if found is None else scores[place, row] == np.float32(found)


def test_fingerprint_follows_the_file(tmp_path: Path, dataset: Dataset) -> None:
    first, again = teach(tmp_path, dataset, TABLE), teach(tmp_path, dataset, TABLE, "copy.tsv")
    assert first.fingerprint == again.fingerprint != teach(tmp_path, dataset, TABLE + "q1 d2 4\n").fingerprint

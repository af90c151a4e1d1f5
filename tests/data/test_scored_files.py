"""Files of scores: every format for runs and teachers, what is refused, and no bytes that make a traceback."""

from __future__ import annotations

import gzip
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.test_text_lines import any_json

from colabel.data.scored_files import read_scores, run_line
from colabel.errors import DataError, UsageError
from colabel.types import ScoredPassage


def test_run_files(tmp_path: Path) -> None:
    rows = [ScoredPassage("q1", "d1", 1, 12.345678), ScoredPassage("q1", "d2", 2, -3.0)]
    path = tmp_path / "run.txt.gz"
    path.write_bytes(gzip.compress("".join(run_line(row, "x") + "\n" for row in rows).encode()))
    assert [located.value for located in read_scores(path)] == rows
    (tmp_path / "other.run").write_text("q1 Q0 d1 1.0 3 x\nq1 Q0 d2 -1 2 x\n")
    assert [(one.value.rank, one.value.score) for one in read_scores(tmp_path / "other.run")] == [
        (1, 3),
        (-1, 2),
    ]
    (tmp_path / "swapped.run").write_text("q1 Q0 d1 12.5 1 x\n")
    with pytest.raises(DataError, match=r"swapped\.run:1: the rank is '12\.5'; expected a whole number"):
        list(read_scores(tmp_path / "swapped.run"))
    (tmp_path / "bad.run").write_text("q1 Q0 d1 1 nan x\n")
    with pytest.raises(DataError, match=r"bad\.run:1: the score is 'nan'"):
        list(read_scores(tmp_path / "bad.run"))
    (tmp_path / "bad.run").write_text("q1 Q0 d1 1 1_0 x\n")
    with pytest.raises(DataError, match=r"bad\.run:1: the score is '1_0'"):
        list(read_scores(tmp_path / "bad.run"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q1\td7\t1\t22.5\nq1\td9\t2\t-1\n", [("d7", 1, 22.5), ("d9", 2, -1.0)]),
        ("query passage rank score\nq1 d7 1 22.5\n", [("d7", 1, 22.5)]),
        ("q1\td7\t1\nq1\td9\t2\n", [("d7", 1, -1.0), ("d9", 2, -2.0)]),
        ("qid pid rank\nq1 d7 0\nq1 d9 1\n", [("d7", 0, 0.0), ("d9", 1, -1.0)]),
        ("qid pid rank\nq1 d7 3\nq1 d9 1\n", [("d7", 3, -3.0), ("d9", 1, -1.0)]),
        ("qid pid score\nq1 d7 1\nq1 d9 2\n", [("d7", 0, 1.0), ("d9", 0, 2.0)]),
        ("q1 d7 1.0\nq1 d9 2.0\n", [("d7", 1, -1.0), ("d9", 2, -2.0)]),
        ("q1 d7 1\nq1 d8 1\nq1 d9 4\n", [("d7", 1, -1.0), ("d8", 1, -1.0), ("d9", 4, -4.0)]),
        ("q1 d7 1\n", [("d7", 0, 1.0)]),
        ("q1 d7 -1\nq1 d9 0\n", [("d7", 0, -1.0), ("d9", 0, 0.0)]),
        ("q1\td7\t2\nq1\td9\t1\n", [("d7", 0, 2.0), ("d9", 0, 1.0)]),
        ("q1 d7 0.25\nq1 d9 0.5\n", [("d7", 0, 0.25), ("d9", 0, 0.5)]),
        ('{"q1": {"d7": 2, "d9": -0.5}}', [("d7", 0, 2.0), ("d9", 0, -0.5)]),
        ('{\n "q1": {\n  "d7": 2\n }\n}\n', [("d7", 0, 2.0)]),
        ("{}", []),
    ],
)
def test_runs_of_other_programs(tmp_path: Path, text: str, expected: list[tuple[str, int, float]]) -> None:
    (tmp_path / "run").write_bytes(gzip.compress(text.encode()))
    found = [located.value for located in read_scores(tmp_path / "run")]
    assert [(one.passage_id, one.rank, one.score) for one in found] == expected
    assert {one.query_id for one in found} <= {"q1"}


def test_a_query_id_may_begin_as_json_does_and_damaged_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("{q1} Q0 d7 1 2.5 x\n")
    assert [located.value for located in read_scores(tmp_path / "run")] == [ScoredPassage("{q1}", "d7", 1, 2.5)]
    entries = ", ".join(f'"d{number}": {number / 7}' for number in range(2000))
    whole = gzip.compress(('{"q1":\n {' + entries + "}}").encode())
    for place in range(20, len(whole), 397):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "run").write_bytes(bytes(damaged))
        with pytest.raises(DataError):
            list(read_scores(tmp_path / "run"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 d1\n", r"run:1: 2 columns; expected a TREC run \(6 columns"),
        ("q1 d1 1 2.0\nq1 d1 1 2.0 x\n", r"run:2: 5 columns; expected 4: query, passage, rank, score"),
        ("q1 d1 2\nq1 d2 1\nq1 d3 3\n", "the third column may be a rank or a score.* on a line before them"),
        ("q1 d1 2\nq1 d2 3\n", "the third column may be a rank or a score"),
        ("q1 d1 1\nq1 d2 2\nq2 d1 9\nq2 d2 3\n", "the third column may be a rank or a score"),
        ("q p rank\nq1 d2 1\nq p rank\n", r"run:3: a header line inside the file"),
        ("q p rank score\nq1 d2 1 2\nq p rank score\n", r"run:3: a header line inside the file"),
        ("q1 d1 1\nq1 x rank\n", r"run:2: a header line inside the file"),
        ("101 0 7187158 1\n", "four columns, of which the third is no rank"),
        ("q1 a 30 1\nq1 b 20 2\n", "four columns, of which the third is no rank"),
        ('{"q1": {"d1": ' + "1" * 5000 + "}}", "cannot be read: Exceeds the limit"),
        ('{"q1": {"\\ud800": 1}}', "query 'q1': 'passage_id' holds half of a surrogate pair"),
        ("q1 d1 2\nq1 d2\n", r"run:2: 2 columns; expected 3"),
        ("q1 d1 high\n", r"run:1: the score is 'high'"),
        ('{"q1": {"d1": 1.0},\n', r"run:2: not JSON \(.*expected a TREC run"),
        ('{"q1": [1]}', r"query 'q1' has a list; expected JSON \{query: \{passage: score\}\}"),
        ('{"q1": {"d1": "2"}}', "query 'q1': the score of passage 'd1' is a str; expected a number"),
        ('{"q1": {"d1": NaN}}', "query 'q1': the score is 'nan'; expected a finite number"),
        ('{"q1": {"d 1": 1}}', "query 'q1': .*white space"),
    ],
)
def test_what_is_no_run_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_scores(tmp_path / "run"))


words = st.sampled_from(
    ["q1", "q2", "d1", "0", "1", "2", "2.0", "0.5", "-1", "nan", "1_0", "rank", "score", "Q0", "{q}"]
)
run_lines = st.sampled_from([3, 4, 6]).flatmap(lambda width: st.lists(words, min_size=width, max_size=width))
run_files = (
    st.lists(run_lines.map(" ".join), max_size=6).map("\n".join).map(str.encode)
    | st.dictionaries(st.text(max_size=3), any_json, max_size=3).map(json.dumps).map(str.encode)
    | st.dictionaries(words, st.dictionaries(words | st.just("\ud800"), st.floats() | st.integers(), max_size=3))
    .map(json.dumps)
    .map(str.encode)
)


tokens = st.sampled_from(
    ["q1", "d1", "Q0", "0.5", "-3", "nan", "9" * 400, "1e400", "\t", " ", "\n", "\r\n", "query_id", "score", "{", "}",
     '"query_id"', '"passage_id"', '"score"', ":", ",", '"\\ud800"', "true", "[", "]", "\x00", "\u2028", "é", "\ufeff"]
)  # fmt: skip
near_files = st.lists(tokens, max_size=25).map("".join).map(str.encode)
json_files = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("q1")
            for name in ("query_id", "passage_id", "score")
        },
    ),
    max_size=3,
).map(lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode())
any_files = st.binary(max_size=80) | near_files | near_files.map(gzip.compress) | json_files
any_files |= run_files | run_files.map(gzip.compress)
any_files |= st.binary(max_size=80).map(lambda tail: b"PAR1" + tail + b"PAR1")


@given(any_files, st.booleans())
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes, ranks: bool) -> None:
    path = tmp_path_factory.mktemp("scores") / "input"
    path.write_bytes(content)
    try:
        scores = list(read_scores(path, ranks=ranks))
    except (DataError, UsageError) as error:
        assert str(path) in str(error)
        return
    for scored, *_ in scores:
        assert math.isfinite(struct.unpack("f", struct.pack("f", scored.score))[0])
        assert len(f"{scored.query_id} {scored.passage_id}".encode().split()) == 2


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.floats(width=32, allow_nan=False,
       allow_infinity=False)), max_size=20), st.sampled_from(["table", "trec", "jsonl"]))  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int, float]], form: str
) -> None:
    """The property test above would be idle if nothing ever parsed."""
    pairs = [(query, passage, score) for query, passage, score in pairs if abs(score) < 3e38]
    write = {
        "table": lambda q, p, s: f"q{q}\tp{p}\t{s!r}\n",
        "trec": lambda q, p, s: f"q{q} Q0 p{p} 1 {s!r} x\n",
        "jsonl": lambda q, p, s: json.dumps({"query_id": f"q{q}", "passage_id": f"p{p}", "score": s}) + "\n",
    }[form]
    path = tmp_path_factory.mktemp("scores") / "input"
    path.write_text("".join(write(*pair) for pair in pairs))
    assert [(one.value.query_id, one.value.passage_id, one.value.score) for one in read_scores(path, ranks=False)] == [
        (f"q{query}", f"p{passage}", score) for query, passage, score in pairs
    ]

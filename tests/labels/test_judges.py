"""Several judges, people and programs: agreement, programs over pipes, files of others, and old files of verdicts."""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from colabel.data import Dataset
from colabel.errors import DataError, UsageError
from colabel.labels.agreement import PEOPLE, agreements, alpha
from colabel.labels.programs import Question, ask_program, program_name
from colabel.labels.verdict_files import read_review
from colabel.labels.verdicts import FILE, Verdict, VerdictStore, decide, of_people

QUESTIONS = [Question(f"q{number}", f"d{number}", "ice", "", "An ice cave.") for number in range(5)]


def said(letters: str, judge: str) -> list[Verdict]:
    words = {"y": "yes", "n": "no", "u": "unsure"}
    return [Verdict("q", f"d{n}", words[one], judge) for n, one in enumerate(letters) if one in words]  # type: ignore[arg-type]


def program(tmp_path: Path, body: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(
        f"import json, sys, time\nfor number, line in enumerate(sys.stdin):\n    asked = json.loads(line)\n{body}"
    )
    return shlex.join([sys.executable, str(path)])


def test_agreement_of_people_and_of_a_program_with_what_people_decided() -> None:
    from sklearn.metrics import cohen_kappa_score

    ann, bob = "yyynnynnyn", "yynnnynyyn"
    (found,) = agreements([*said(ann, "ann"), *said(bob, "bob"), *said("u", "cy")])
    assert (found.judges, found.pairs, found.same) == (("ann", "bob"), 10, 8)
    assert found.kappa == pytest.approx(cohen_kappa_score(list(ann), list(bob)))
    assert agreements(said(ann, "ann")) == []
    assert agreements([*said("y", "ann"), *said("y", "bob")])[0].kappa is None
    everything = [*said("yynn", "ann"), *said("yyyn", "bob"), *said("yynnn", "program:x")]
    by_judges = {one.judges: one for one in agreements(everything)}
    assert set(by_judges) == {("ann", "bob"), ("program:x", PEOPLE)}, "programs are compared with people alone"
    one = by_judges["program:x", PEOPLE]
    assert (one.pairs, one.same, one.yes, one.yes_right, one.kappa) == (3, 3, 2, 2, 1.0), "ties are no decision"


def test_alpha_is_krippendorffs_of_people() -> None:
    # Nominal, two judges, no gaps: α = 1 − (n − 1) · disagreements · 2 / Σ n_c · n_k, with n = 2 · pairs values.
    everything = [*said("yyynnynnyn", "ann"), *said("yynnnynyyn", "bob"), *said("nnnnnn", "program:x")]
    assert alpha(everything) == pytest.approx(1 - 19 * (2 * 2) / (2 * 10 * 10))
    assert alpha(said("yn", "ann")) is None and alpha([*said("yy", "ann"), *said("yy", "bob")]) is None
    assert alpha([]) is None


def test_a_program_never_outvotes_a_person() -> None:
    everything = [*said("n", "ann"), *said("yy", "program:x"), *said("yy", "program:y")]
    decided = decide(everything)
    assert decided["q", "d0"].relevant is False and decided["q", "d0"].judges == ("ann",)
    assert decided["q", "d1"].relevant is True
    assert [one.judge for one in of_people(everything)] == ["ann"]


def test_a_program_judges_as_it_goes_and_stray_lines_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = """
    if number == 0: print("loading the model")
    answer = [{"verdict": "yes", "reason": "ice"}, {"grade": 7}, {"judgment": 0}, {"verdict": True}, {}][number]
    print(json.dumps({**asked, **answer} if number != 3 else answer), flush=True)
"""
    judge = program_name("python3 judges/mine.py")
    found = list(ask_program(program(tmp_path, body), QUESTIONS, judge, guidelines="Be strict.", relevant_from=2))
    assert [(one.query_id, one.answer, one.grade, one.reason, one.judge) for one in found] == [
        ("q0", "yes", None, "ice", "program:mine"),
        ("q2", "no", 0, "", "program:mine"),
    ]
    named = [line for line in caplog.messages if "line " in line]
    assert [line.split("line ")[1].split()[0] for line in named] == ["1", "3", "5", "6"]
    assert "3 pairs" in caplog.text


def test_a_program_may_answer_in_any_order_and_sees_guidelines(tmp_path: Path) -> None:
    body = """
    assert asked["guidelines"] == "Be strict." and asked["passage"] == "An ice cave."
    kept = [*globals().get("kept", []), asked]
for asked in reversed(kept): print(json.dumps({**asked, "verdict": "no"}))
"""
    found = list(ask_program(program(tmp_path, body), QUESTIONS, "program:x", guidelines="Be strict."))
    assert [one.query_id for one in found] == ["q4", "q3", "q2", "q1", "q0"]


def test_a_program_that_hangs_or_fails_keeps_what_it_said(tmp_path: Path) -> None:
    for body in ("time.sleep(60 * (number > 1))", "sys.exit(3) if number > 1 else 0"):
        path = program(tmp_path, f"    {body}\n    print(json.dumps(dict(asked, verdict='no')), flush=True)\n")
        found, begun = [], time.monotonic()
        with pytest.raises(DataError):
            for verdict in ask_program(path, QUESTIONS, "program:x", timeout=2):
                found.append(verdict)
        assert len(found) == 2 and time.monotonic() - begun < 20
    with pytest.raises(DataError):
        list(ask_program("yes", QUESTIONS, "program:x", timeout=5))  # says "y" for ever
    for command in ("no-such-program-at-all", "", "'"):
        with pytest.raises(UsageError):
            list(ask_program(command, QUESTIONS, "program:x"))


def test_files_of_other_programs(tmp_path: Path) -> None:
    caves = Dataset.from_records(
        {"d1": "An  ice cave.", "d2": "A fjord."}, {"q1": "ice", "q2": "water"}, {"q1": ["d1"], "q2": ["d2"]}
    )
    labels = tmp_path / "umbrela.txt"
    labels.write_text("q1 0 d2 0\nq2 Q0 d1 3\n")
    found = read_review(labels, caves, "program:umbrela")
    assert [(one.query_id, one.passage_id, one.answer, one.grade) for one in found] == [
        ("q1", "d2", "no", 0),
        ("q2", "d1", "yes", 3),
    ]
    lines = tmp_path / "umbrela.jsonl"
    record = {"model": "m", "query": "Ice", "passage": "A fjord.", "prediction": "…", "judgment": 2, "result_status": 1}
    unread = {**record, "judgment": 0, "result_status": 0}
    named = {"qid": "q2", "docid": "d1", "verdict": "no", "reasoning": "dry"}
    lines.write_text("".join(json.dumps(one) + "\n" for one in (record, unread, named)))
    found = read_review(lines, caves, "program:umbrela")
    assert [(one.query_id, one.passage_id, one.grade, one.reason) for one in found] == [
        ("q1", "d2", 2, ""),
        ("q2", "d1", None, "dry"),
    ]
    for text in ("[1]", "{", json.dumps({**record, "passage": "A volcano."})):
        lines.write_text("\n" + text + "\n")
        with pytest.raises(DataError, match=r"umbrela\.jsonl:2"):
            read_review(lines, caves, "program:umbrela")
    labels.write_text("q1 d2\n")
    with pytest.raises(DataError, match=r"umbrela\.txt:1"):
        read_review(labels, caves, "program:umbrela")


def test_verdicts_of_the_first_version_gain_reasons(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    store.add(Verdict("q", "d", "yes", "ann"))
    store.close()
    with sqlite3.connect(tmp_path / FILE) as old:
        old.execute("ALTER TABLE lines DROP COLUMN reason")
        old.execute("PRAGMA user_version = 1")
    old.close()
    store = VerdictStore(tmp_path)
    assert store.current()[0].reason == ""
    store.add(Verdict("q", "d", "no", "program:x", reason="dry"))
    assert [one.reason for one in store.current()] == ["", "dry"]
    store.close()

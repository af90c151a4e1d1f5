"""Verdicts: durable, never changed, shared by processes, and added to a dataset's labels."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels.verdict_files import new_verdicts, read_review, write_verdicts
from colabel.labels.verdicts import FILE, Decision, Verdict, VerdictStore, apply_verdicts, decide

ROOT = Path(__file__).parents[2]
WRITER = """
import itertools, sys
from colabel.labels.verdicts import Verdict, VerdictStore
store, judge = VerdictStore(sys.argv[1]), sys.argv[2]
for number in itertools.islice(itertools.count(), int(sys.argv[3])):
    kept = store.add(Verdict("q", f"d{number}", "yes", judge))
    print(kept.id, f"d{number}", flush=True)
"""


def yes(passage: str, judge: str = "ann", **more: object) -> Verdict:
    return dataclasses.replace(Verdict("q1", passage, "yes", judge), **more)


def writer(folder: Path, judge: str, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", WRITER, str(folder), judge, str(count)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_verdict_is_kept_and_found_again(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "verdicts")
    assert store.current() == [] and store.history() == [] and store.last == 0
    assert not store.path.exists(), "reading makes no file"
    kept = store.add(yes("d1", grade=2, query="ice", source="search"))
    assert (kept.id, kept.time[:2]) == (1, "20")
    again = VerdictStore(tmp_path / "verdicts")
    assert again.current() == [kept] and again.last == 1
    modes = [again._connection().execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert modes == ["wal", 2], "2 is FULL"


def test_undo_keeps_the_history_and_restores_what_was_before(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    assert store.undo("ann") is None
    first, second = store.add(yes("d1")), store.add(yes("d1", answer="no"))
    store.add(yes("d1", judge="bob"))
    assert [one.answer for one in store.current()] == ["no", "yes"]
    assert store.undo("ann") == second
    assert [(one.judge, one.answer) for one in store.current()] == [("ann", "yes"), ("bob", "yes")]
    assert store.undo("ann", verdict_id=second.id) is None, "undone already"
    assert store.undo("bob", verdict_id=first.id) is None, "another judge's"
    assert store.undo("ann") == first and store.undo("ann") is None
    assert [one["undoes"] for one in store.history()] == [None, None, None, 2, 1]


def test_lines_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    store.add(yes("d1"))
    for statement in ("UPDATE lines SET answer = 'no'", "DELETE FROM lines"):
        with (
            contextlib.closing(sqlite3.connect(store.path)) as other,
            pytest.raises(sqlite3.IntegrityError, match="never"),
        ):
            other.execute(statement)


def test_a_call_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    first = store.add(yes("d1"), call="a1")
    assert store.add(yes("d1"), call="a1") == first
    assert store.last == 1


def test_several_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    with pytest.raises(ArtefactError, match="nothing was lost"):
        store.add_all([yes("d1"), yes("d2", source=None)])
    assert store.current() == []
    for wrong in (yes("d 1"), yes(""), yes("d1", judge=" "), yes("d1", judge="x" * 61), yes("d1", judge="a\nb")):
        with pytest.raises(UsageError):
            store.add(wrong)
    for wrong in (yes("d1", grade=4), yes("d1", answer="perhaps")):
        with pytest.raises(UsageError):
            store.add_all([yes("d1"), wrong])
    assert store.current() == []


def test_a_file_of_a_later_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "later")
    store.add(yes("d1"))
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(ArtefactError, match="later version"):
        VerdictStore(tmp_path / "later").current()
    (tmp_path / FILE).write_text("something else entirely, longer than a header of one hundred bytes " * 3)
    with pytest.raises(ArtefactError, match="not a database"):
        VerdictStore(tmp_path).current()


def test_kill_loses_no_acknowledged_verdict(tmp_path: Path) -> None:
    said: list[list[str]] = []
    for times in range(2):
        with writer(tmp_path, "ann", 1_000_000) as process:
            assert process.stdout is not None
            for _ in range(20 + 7 * times):
                said.append(process.stdout.readline().split())
            process.send_signal(signal.SIGKILL)
            said += [line.split() for line in process.stdout.read().splitlines() if len(line.split()) == 2]
        assert process.returncode == -signal.SIGKILL
    kept = {(str(one["id"]), one["passage_id"]) for one in VerdictStore(tmp_path).history()}
    assert {(number, passage) for number, passage in said} <= kept
    assert len(kept) <= len(said) + 2, "at most the one that was being acknowledged"


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    processes = [writer(tmp_path, judge, 60) for judge in ("ann", "bob")]
    store = VerdictStore(tmp_path)
    for number in range(60):
        store.add(yes(f"d{number}", judge="cy", query_id="q"))
    lines = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [len(one) for one in lines] == [60, 60]
    assert [process.returncode for process in processes] == [0, 0]
    current = store.current()
    assert len(current) == 180 and len({one.id for one in current}) == 180
    assert all(len(one.judges) == 3 and one.relevant for one in decide(current).values())


def test_the_majority_decides_and_unsure_does_not_vote() -> None:
    said = [yes("d1", grade=3), yes("d1", judge="bob", grade=1), yes("d1", judge="cy", answer="unsure")]
    assert decide(said) == {("q1", "d1"): Decision("q1", "d1", "", True, 1, ("ann", "bob", "cy"))}
    assert decide([yes("d1"), yes("d1", judge="bob", answer="no")])["q1", "d1"].relevant is None
    assert decide([yes("d1", answer="no", grade=0)])["q1", "d1"].grade is None


@pytest.fixture
def caves() -> Dataset:
    passages = {f"d{number}": f"A cave of ice, number {number}." for number in range(1, 6)}
    queries = {"q1": "ice cave", "q2": "fjord", "q3": "summer"}
    labels = {"train": {"q1": {"d1": 1, "d5": 0}}, "test": {"q3": {"d2": 1}}}
    return Dataset.from_records(passages, queries, labels)


def test_labels_are_only_ever_added_to(caves: Dataset) -> None:
    said = [
        yes("d1", answer="no"),  # contradicts a label: it stays
        yes("d5"),  # contradicts a judgement: it stays
        yes("d2", grade=3),
        yes("d3", answer="no"),
        yes("d4", answer="unsure"),
        yes("gone"),
        yes("d4", query_id="q3"),  # a test query is no training query
        yes("d4", query_id="typed-1", query="Summer"),  # nor is its text
        yes("d4", query_id="typed-2", query="melt water"),
        yes("d4", query_id="q9", query="unknown"),
        yes("d2", query_id="q2"),
    ]
    applied = apply_verdicts(caves, said)
    assert applied.dataset.labels("train") == {
        "q1": {"d1": 1, "d5": 0, "d2": 3},
        "typed-2": {"d4": 1},
        "q2": {"d2": 1},
    }
    assert applied.dataset.labels("test") == caves.labels("test")
    assert applied.dataset.queries["typed-2"] == "melt water"
    assert applied.negatives == {"q1": ("d3",)}
    assert applied.contested == (("q1", "d1"), ("q1", "d5"))
    assert (applied.left_out, applied.added) == (4, 3)
    assert caves.labels("train") == {"q1": {"d1": 1, "d5": 0}}, "the dataset itself is as it was"
    assert applied.dataset.labels_fingerprint("train") != caves.labels_fingerprint("train")
    assert apply_verdicts(caves, []).dataset.labels_fingerprint("train") == caves.labels_fingerprint("train")


def test_verdicts_are_written_as_labels(caves: Dataset, tmp_path: Path) -> None:
    said = [yes("d2", grade=3), yes("d3", answer="no"), yes("d4", answer="unsure"), yes("d1", answer="no")]
    assert write_verdicts(said, tmp_path / "new" / "mine.qrels") == 3
    assert (tmp_path / "new" / "mine.qrels").read_text() == "q1 0 d2 3\nq1 0 d3 0\nq1 0 d1 0\n"
    assert write_verdicts(said, tmp_path / "mine.tsv", relevant_from=2, visible=caves.labels("train")) == 4
    lines = ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q1\td5\t0", "q1\td2\t3", "q1\td3\t0"]
    assert (tmp_path / "mine.tsv").read_text().splitlines() == lines
    assert write_verdicts(said, tmp_path / "mine.jsonl") == 4
    assert '"judge": "ann"' in (tmp_path / "mine.jsonl").read_text()
    with pytest.raises(UsageError, match="endings"):
        write_verdicts(said, tmp_path / "mine.xlsx")
    with pytest.raises(UsageError, match="no judge"):
        write_verdicts(said, tmp_path / "mine.jsonl", visible={})


def test_a_table_from_a_spreadsheet_is_read(caves: Dataset, tmp_path: Path) -> None:
    rows = ["query_id\tquery\tpassage_id\ttext\tverdict", 'q1\t"ice ""cave"""\td2\t"quoted\tY', "q1\tx\td3\tx\t", "\t"]
    rows[-1] = "q2\tx\td4\tx\t0"
    (tmp_path / "review.tsv").write_text("\ufeff" + "\r\n".join(rows) + "\r\n\r\n", encoding="utf-8")
    found = read_review(tmp_path / "review.tsv", caves, "ann")
    assert [(one.query_id, one.passage_id, one.answer, one.grade) for one in found] == [
        ("q1", "d2", "yes", None),
        ("q2", "d4", "no", 0),
    ]
    store = VerdictStore(tmp_path)
    store.add_all(new_verdicts(found, store))
    assert new_verdicts(found, store) == []
    (tmp_path / "review.csv").write_text('verdict;passage_id;query_id;text\nunsure;d2;q1;"a;b"\n2;d3;q1;c\n')
    found = read_review(tmp_path / "review.csv", caves, "ann")
    assert [(one.answer, one.grade) for one in found] == [("unsure", None), ("yes", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query_id\tpassage_id\n", "no column 'verdict'"),
        ("", "no column 'query_id'"),
        ("query_id\tpassage_id\tverdict\nq1\td1\tperhaps\n", r"2: the verdict is 'perhaps'"),
        ("query_id\tpassage_id\tverdict\nq7\td1\tyes\n", r"2: the collection has no query 'q7'"),
        ("query_id\tpassage_id\tverdict\nq1\td9\tyes\n", r"2: the collection has no passage 'd9'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_line(
    caves: Dataset, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "review.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_review(tmp_path / "review.tsv", caves, "ann")

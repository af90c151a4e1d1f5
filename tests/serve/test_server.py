"""The server as a process, and the commands around it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from colabel import Run
from colabel.cli import main
from colabel.labels import VerdictStore
from colabel.pipeline.folder import versions
from colabel.serve import app as apps

ROOT = Path(__file__).parents[2]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def typed(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return typed


def test_a_killed_server_loses_no_acknowledged_verdict(opened: Run) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "colabel", "serve", str(opened.folder), "--no-open", "--port", "0"]
    pairs = [(f"q{query}", f"d{passage}") for passage in range(40) for query in range(10)]
    kept: list[tuple[int, str, str]] = []
    enough = threading.Event()

    def judge(address: str, judge: str) -> None:
        for query_id, passage_id in pairs:
            body = {"judge": judge, "query_id": query_id, "passage_id": passage_id, "answer": "yes"}
            head = {"content-type": "application/json"}
            asked = urllib.request.Request(f"{address}api/verdicts", json.dumps(body).encode(), head)
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    kept.append((json.loads(answer.read())["verdict"]["id"], query_id, passage_id))
            except (OSError, http.client.HTTPException, ValueError):  # killed in the midst of an answer
                return
            if len(kept) > 25:
                enough.set()

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        assert address.startswith("http://localhost:")
        threads = [threading.Thread(target=judge, args=(address, name)) for name in ("ann", "bob", "cy")]
        for thread in threads:
            thread.start()
        assert enough.wait(120)
        process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
    stored = {
        (one["id"], one["query_id"], one["passage_id"]) for one in VerdictStore(opened.folder / "verdicts").history()
    }
    assert set(kept) <= stored
    assert len({one.judge for one in opened.verdicts()}) == 3


def test_the_command_serves_a_run(opened: Run, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import uvicorn

    seen = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: seen.append(sockets[0].getsockname()))
    code, out, err = call("serve", opened.folder, "--no-open", "--port", 0)
    assert (code, err) == (0, "") and f"http://localhost:{seen[0][1]}/" in out
    code, out, _ = call("serve", opened.folder, "--no-open", "--port", 0, "--host", "0.0.0.0")
    assert code == 0 and "?token=" in out, "an address that others reach gets a token"
    code, out, _ = call("serve", opened.folder, "--no-open", "--port", 0, "--token", "mine")
    assert "?token=mine" in out
    assert call("serve", opened.folder, "--no-open", "--host", "no.such.host.invalid")[0] == 2
    assert call("serve", tmp_path, "--no-open")[0] == 1
    with apps._listener("127.0.0.1", 0) as taken, apps._listener("127.0.0.1", taken.getsockname()[1]) as other:
        assert other.getsockname()[1] > taken.getsockname()[1], "the next free port"


def test_a_table_goes_out_and_comes_back_as_labels(opened: Run, call: Call, tmp_path: Path) -> None:
    review = tmp_path / "review.tsv"
    assert call("missing", opened.folder, "--limit", 4, "--out", review)[0] == 0
    lines = review.read_text().splitlines()
    assert lines[0].endswith("\treasons\tverdict")
    filled = [line + said for line, said in zip(lines[1:], ("yes", "n", "", "3"), strict=True)]
    review.write_text("\n".join([lines[0], *filled]) + "\n")
    code, out, err = call("judge", opened.folder, review, "--as", "anna")
    assert (code, err) == (0, "") and "3 new verdicts of anna" in out
    assert "0 new verdicts" in call("judge", opened.folder, review, "--as", "anna")[1]
    said = opened.verdicts()
    assert [(one.answer, one.grade, one.judge) for one in said] == [
        ("yes", None, "anna"),
        ("no", None, "anna"),
        ("yes", 3, "anna"),
    ]
    code, out, _ = call("labels", opened.folder, "--out", tmp_path / "mine.qrels")
    assert code == 0 and "3 labels" in out
    grades = [line.split()[3] for line in (tmp_path / "mine.qrels").read_text().splitlines()]
    assert grades == ["1", "0", "3"]
    assert call("labels", opened.folder, "--out", tmp_path / "mine.qrels")[0] == 2
    code, out, _ = call("labels", opened.folder, "--with-labels", "--out", tmp_path / "all.tsv")
    assert f"{3 + 11} labels" in out
    assert call("judge", opened.folder, review, "--as", " ")[0] == 2
    review.write_text("query_id\tpassage_id\tverdict\nq1\td1\tperhaps\n")
    code, _, err = call("judge", opened.folder, review, "--as", "anna")
    assert code == 1 and "review.tsv:2" in err


def test_a_version_shares_the_verdicts_of_its_run(opened: Run) -> None:
    assert versions(opened.folder) == []
    place = opened.folder / "versions" / "0001"
    place.mkdir(parents=True)
    for path in opened.folder.iterdir():
        if path.name != "versions":
            (place / path.name).symlink_to(path)
    assert Run(place).verdict_store.path == opened.folder / "verdicts" / "verdicts.sqlite"


def test_a_program_judges_a_run_and_goes_on_where_it_was_stopped(opened: Run, call: Call, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    body = """import json, sys
for number, line in enumerate(sys.stdin):
    if number == {0}: sys.exit(4)
    asked = json.loads(line)
    answer = {{"verdict": "yes" if asked["guidelines"] else "no", "reason": asked["query"]}}
    print(json.dumps({{**asked, **answer}}), flush=True)
"""
    command = f"{sys.executable} {script}"
    best = opened.missing(6)
    opened.judge([(one.query_id, one.passage_id, "yes") for one in best[:2]], "ann")
    (opened.folder / "guidelines.md").write_text("Relevant means that it answers.")
    script.write_text(body.format(3))
    code, _, err = call("judge", opened.folder, "--command", command, "--limit", 4)
    assert code == 1 and "code 4" in err
    script.write_text(body.format(99))
    code, out, _ = call("judge", opened.folder, "--command", command, "--limit", 4)
    assert code == 0 and "3 new verdicts of program:mine, who has given 6" in out
    assert "people decided 2 of these pairs as well: the same on 2" in out
    assert "0 new verdicts" in call("judge", opened.folder, "--command", command, "--limit", 4)[1]
    assert {one.judge for one in opened.verdicts()} == {"ann"}, "never mixed in silently"
    assert all(one.reason for one in opened.verdicts(programs=True) if one.by_program)
    assert "2 labels" in call("labels", opened.folder, "--out", tmp_path / "people.qrels")[1]
    assert "6 labels" in call("labels", opened.folder, "--programs", "--out", tmp_path / "all.qrels")[1]
    assert call("judge", opened.folder)[0] == 2
    assert call("judge", opened.folder, "--command", "no-such-program-at-all")[0] == 2

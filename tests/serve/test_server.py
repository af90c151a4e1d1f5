"""The server as a process, and the commands around it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from colabel import Run
from colabel.labels import VerdictStore
from colabel.pipeline.versions import versions
from colabel.serve import app as apps
from tests.conftest import Call

ROOT = Path(__file__).parents[2]


def test_a_killed_server_loses_no_acknowledged_verdict(opened: Run) -> None:
    kept: list[tuple[int, str, str, str]] = []
    numbers = iter(range(10**9))
    with served(opened.folder) as (process, address):
        assert address.startswith("http://localhost:")
        threads = [threading.Thread(target=keep_judging, args=(address, name, numbers, kept)) for name in "abc"]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 120
        while len(kept) < 25 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
    history = VerdictStore(opened.folder / "verdicts").history()
    assert len(kept) >= 25
    assert set(kept) <= {(one["id"], one["judge"], one["query_id"], one["passage_id"]) for one in history}


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


LAUNCHER = """
import os, sys
import torch, uvicorn
from colabel import open_run
from colabel.serve import serve
torch.set_num_threads(1)
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        serve(open_run(sys.argv[1]), port=0, told=lambda address: print(os.getpid(), address, flush=True))
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_fifty_kills_under_load_lose_no_acknowledged_verdict(opened: Run) -> None:
    """Servers of one run, one after another, each killed at a random moment while three clients judge."""
    chance, numbers = random.Random(0), iter(range(10**9))
    kept: list[tuple[int, str, str, str]] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", LAUNCHER, str(opened.folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, cwd=ROOT, **pipes) as launcher:  # type: ignore[call-overload]
        for turn in range(int(os.environ.get("COLABEL_KILLS", "50"))):
            launcher.stdin.write("\n")
            launcher.stdin.flush()
            pid, address = launcher.stdout.readline().split()
            threads = [threading.Thread(target=keep_judging, args=(address, name, numbers, kept)) for name in "abc"]
            before, until = len(kept), time.monotonic() + 300
            for thread in threads:
                thread.start()
            while len(kept) == before and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 1))
            os.kill(int(pid), signal.SIGKILL)
            for thread in threads:
                thread.join()
            stored = VerdictStore(opened.folder / "verdicts").history()
            found = {(one["id"], one["judge"], one["query_id"], one["passage_id"]) for one in stored}
            assert len(kept) > before and set(kept) <= found, f"after kill {turn + 1}"
        launcher.stdin.close()


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_requests(opened: Run) -> None:
    with contextlib.ExitStack() as stack:
        process, address = stack.enter_context(served(opened.folder))
        host = address.split("/")[2]
        connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host, timeout=60)))
        sizes = []
        for number in range(10_000):
            if number % 4 == 3:
                connection.request("GET", "/api/suggestions?judge=ann")
            else:
                connection.request("GET", f"/api/search?query=ice+{number}&ranker={('bm25', 'hybrid')[number % 2]}")
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            if number % 1000 == 999:
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
                sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        process.kill()
    assert sizes[-1] - sizes[2] < 20, f"MiB after each thousand: {[round(one) for one in sizes]}"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process of its own, and its address once it answers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "colabel", "serve", str(folder), "--no-open", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with urllib.request.urlopen(f"{address}api/health", timeout=120):
                yield process, address
        finally:
            process.kill()


def keep_judging(address: str, judge: str, numbers: Iterator[int], kept: list[tuple[int, str, str, str]]) -> None:
    """Judge pairs until the server is gone; what it acknowledged is in ``kept``."""
    for number in numbers:
        query_id, passage_id = f"q{number % 10}", f"d{number // 10 % 40}"
        body = {"judge": judge, "query_id": query_id, "passage_id": passage_id, "answer": ("yes", "no")[number % 2]}
        head = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{address}api/verdicts", json.dumps(body).encode(), head)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                kept.append((json.loads(answer.read())["verdict"]["id"], judge, query_id, passage_id))
        except (OSError, http.client.HTTPException, ValueError):  # killed in the midst of an answer
            return

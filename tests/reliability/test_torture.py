"""Killed, starved, locked out and damaged: nothing is lost, nothing is wrong, and every failure is a sentence.

The fast suite runs a few trials; ``make torture`` runs ``COLABEL_TORTURE`` of each kind, at other random places every
time (``COLABEL_TORTURE_SEED`` repeats one).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from colabel import verify
from colabel.labels import VerdictStore
from tests.pipeline.small import small_recipe

ROOT = Path(__file__).resolve().parents[2]
LONG = int(os.environ.get("COLABEL_TORTURE") or 0)
SEED = int(os.environ.get("COLABEL_TORTURE_SEED") or (time.time() if LONG else 1))
PLAIN_DATA = (".npy", ".safetensors", ".tsv", ".trec", ".parquet", ".qrels", ".faiss")
WRITERS = ("index", "rank", "run", "label", "missing", "export")
MORE_WRITERS = ("convert", "collect", "study", "transfer", "judge", "again", "prune")
BEGIN = {"judge": "run", "again": "judge", "prune": "again"}
"""Commands that change a folder → whose result they begin with."""
READERS = ("search", "search run", "suggest", "evaluate", "runs", "inspect", "search study")
Arguments = list[str]


def trials(fast: int) -> Iterator[random.Random]:
    """A source of chance per trial."""
    for number in range(LONG or fast):
        sys.stderr.write(f"COLABEL_TORTURE_SEED={SEED}, trial {number}\n")  # shown where one fails
        yield random.Random(f"{SEED} {number}")


@dataclass
class Ended:
    code: int
    out: str
    err: str


class Machine:
    """Starts commands, and waits for them."""

    def __init__(self, logs: Path) -> None:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        program = [sys.executable, str(Path(__file__).parent / "server.py")]
        self._logs, self._count = logs, 0
        self._files: dict[int, tuple[Path, Path]] = {}
        self._server = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        assert self._answer() == "ready"

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.kill()
        self._server.communicate()

    def start(self, arguments: Arguments, *, size: int = 0, powerless: bool = False) -> int:
        self._count += 1
        files = (self._logs / f"{self._count}.out", self._logs / f"{self._count}.err")
        for path in files:
            path.touch()  # a command may be killed before it opens them
        out, err = map(str, files)
        child = int(self._ask({"arguments": arguments, "out": out, "err": err, "bytes": size, "powerless": powerless}))
        self._files[child] = files
        return child

    def wait(self, child: int) -> Ended:
        code = int(self._ask({"wait": child}))
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in self._files.pop(child))
        assert "Traceback" not in err and "a bug in colabel" not in err, err
        assert code in (0, 1, 2, -signal.SIGKILL), (code, err)
        return Ended(code, out, err)

    def run(self, arguments: Arguments, *, size: int = 0, powerless: bool = False) -> Ended:
        return self.wait(self.start(arguments, size=size, powerless=powerless))

    def _ask(self, question: dict[str, object]) -> str:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(question) + "\n")
        self._server.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()


@dataclass
class Scene:
    """A tiny collection, what every command makes of it undisturbed, and how long that takes."""

    home: Path
    machine: Machine
    seconds: dict[str, float]
    printed: dict[str, str]
    made: dict[str, dict[str, object]]

    def command(self, name: str, work: Path, source: Path | None = None) -> Arguments:
        """A command that writes to ``work``, and reads results from ``source``."""
        home, source = self.home, source or self.home
        encoder = ("model", "dimension=16", "query_length=12", "passage_length=24", "device=cpu")
        sets = [text for key in encoder for text in ("--set", f"encoder.{key}")]
        sets[1] = f"encoder.model={home / 'model'}"
        recipe, run, data = str(home / "recipe.toml"), str(source / "run"), str(home / "data")
        out = ["--out", str(work / name)]
        return {
            "index": ["index", data, *sets, *out],
            "rank": ["rank", data, "--index", str(source / "index"), *out],
            "run": ["run", recipe, *out],
            "label": ["label", recipe, "--knowledge", str(source / "run" / "knowledge"), *out],
            "missing": ["missing", run, "--out", str(work / "missing.tsv")],
            "export": ["export", run, "--format", "parquet", *out],
            "convert": ["convert", data, *out],
            "collect": ["collect", data, "--index", str(source / "index"), *out],
            "study": ["study", recipe, *out],
            "transfer": ["transfer", str(source / "study"), data, *out],
            "judge": ["judge", str(work / name), str(home / "review.tsv")],
            "again": ["run", str(work / name)],
            "prune": ["runs", str(work / name), "--prune"],
            "search study": ["search", str(source / "study"), "glacier ice", "--json"],
            "search": ["search", str(source / "index"), "glacier ice", "--json"],
            "search run": ["search", run, "glacier ice", "--json"],
            "suggest": ["missing", run, "--json"],
            "evaluate": ["evaluate", run, "--json"],
            "runs": ["runs", run],
            "inspect": ["inspect", run, "q1", "--json"],
        }[name]

    def begin(self, name: str, work: Path) -> None:
        """Lay out what a command changes."""
        if name in BEGIN:
            shutil.copytree(self.home / BEGIN[name], work / name)

    def same(self, name: str, work: Path) -> None:
        """The command made in ``work`` what it made undisturbed, all of it whole, and left nothing beside it."""
        found = contents(work / place(name))
        assert {key for key in {**found, **self.made[name]} if found.get(key) != self.made[name].get(key)} == set(), (
            name
        )
        assert [path.name for path in work.rglob(".*")] == [], name
        if name != "missing":
            assert not verify(work / name).damaged
        if name in BEGIN:
            assert judged(work / name) == judged(self.home / name)


def judged(run: Path) -> list[tuple[str, str, str]]:
    return [(one.query_id, one.passage_id, one.answer) for one in VerdictStore(run / "verdicts").current()]


def place(name: str) -> str:
    return "missing.tsv" if name == "missing" else name


def contents(path: Path) -> dict[str, object]:
    """Every file below a folder: data as bytes, manifests by fingerprint, pages and logs, which hold times, by name."""
    found: dict[str, object] = {}
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = file.relative_to(path).as_posix()
        if file.name == "manifest.json":
            found[name] = json.loads(file.read_text())["fingerprint"]
        elif file.is_file():
            found[name] = file.read_bytes() if file.suffix in PLAIN_DATA else None
    return found


RECIPE = """
[data]
source = "data"
[encoder]
model = "{model}"
dimension = 16
query_length = 12
passage_length = 24
device = "cpu"
[rank]
depth = 20
[collective]
clusters = 6
centroids = 3
[labels]
candidates = 10
[train]
steps = 2
batch_queries = 2
[distil]
steps = 2
batch_queries = 2
passages = 3
[fit]
evaluate_every = 1
evaluate_queries = 2
[study]
systems = ["bm25", "colbert", "collective-0.5", "views"]
"""


@pytest.fixture(scope="module")
def scene(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("torture")
    small_recipe(home / "data", tiny_model)
    shutil.copytree(tiny_model, home / "model")
    (home / "recipe.toml").write_text(RECIPE.format(model=home / "model"))
    (home / "logs").mkdir()
    machine = Machine(home / "logs")
    found = Scene(home, machine, {}, {}, {})
    for name in (*WRITERS, *READERS[:-1], *(MORE_WRITERS if LONG else ()), *(READERS[-1:] if LONG else ())):
        if name == "judge":
            pairs = [(one["query_id"], one["passage_id"]) for one in json.loads(found.printed["suggest"])][:4]
            lines = [
                f"{query}\t{passage}\t{'yes' if place % 2 else 'no'}" for place, (query, passage) in enumerate(pairs)
            ]
            (home / "review.tsv").write_text("\n".join(["query_id\tpassage_id\tverdict", *lines]) + "\n")
        found.begin(name, home)
        began = time.monotonic()
        ended = machine.run(found.command(name, home))
        assert ended.code == 0, (name, ended.err)
        found.seconds[name], found.printed[name] = time.monotonic() - began, ended.out
        if name in (*WRITERS, *MORE_WRITERS):  # before others add to it what they remember
            found.made[name] = contents(home / place(name))
    yield found
    machine.close()


@pytest.fixture
def work(tmp_path: Path) -> Callable[[], Path]:
    """A new folder, in place of the one before."""

    def fresh() -> Path:
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        (tmp_path / "work").mkdir()
        return tmp_path / "work"

    return fresh


def test_killed_at_random_moments_the_same_command_ends_as_if_nothing_had_been(
    scene: Scene, work: Callable[[], Path]
) -> None:
    for number, chance in enumerate(trials(6)):
        names = (*WRITERS, "search", *(MORE_WRITERS if LONG else ()))
        name, folder = names[number % len(names)], work()
        scene.begin(name, folder)
        for _ in range(chance.randint(1, 3)):
            child = scene.machine.start(scene.command(name, folder))
            time.sleep(chance.uniform(0, scene.seconds[name]))
            os.kill(child, signal.SIGKILL)
            scene.machine.wait(child)
        before = folder / "missing.tsv"
        whole = before.exists()
        ended = scene.machine.run(scene.command(name, folder))
        if name == "missing" and whole:  # it was done already, and labels are not overwritten
            assert ended.code == 2 and "exists and may hold" in ended.err
        else:
            assert ended.code == 0, ended.err
        if name == "search":
            assert ended.out == scene.printed[name]
        else:
            scene.same(name, folder)


def test_a_limit_on_files_is_a_sentence_and_then_the_command_continues(scene: Scene, work: Callable[[], Path]) -> None:
    for number, chance in enumerate(trials(2)):
        name, folder = chance.choice(("index", "run", "label", "rank", "export")) if LONG else WRITERS[number], work()
        made = sorted((scene.home / name).rglob("*"))
        largest = max(path.stat().st_size for path in made if path.is_file())
        ended = scene.machine.run(scene.command(name, folder), size=chance.randint(512, largest))
        assert ended.code in (0, 1) and (ended.code == 0 or ended.err.strip()), ended
        assert scene.machine.run(scene.command(name, folder)).code == 0
        scene.same(name, folder)


def test_a_full_disk_is_a_sentence_and_then_the_command_continues(scene: Scene, work: Callable[[], Path]) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]
    for number, chance in enumerate(trials(2)):
        name, folder = (
            chance.choice(("index", "run", "label", "rank", "export")) if LONG else WRITERS[2 * number],
            work(),
        )
        if shutil.which("mount") is None or subprocess.run([*mount, str(folder)], check=False).returncode:
            pytest.skip("a small disk can be made by root alone, and not in every container")
        try:
            pages = chance.randint(4, 150 if name == "run" else 24)
            subprocess.run(["mount", "-o", f"remount,size={4 * pages}k", str(folder)], check=True)
            ended = scene.machine.run(scene.command(name, folder))
            assert ended.code == 0 or (ended.code == 1 and "o space left" in ended.err), ended
            subprocess.run(["mount", "-o", "remount,size=100m", str(folder)], check=True)
            ended = scene.machine.run(scene.command(name, folder))
            assert ended.code == 0, ended.err
            scene.same(name, folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_is_read_only(scene: Scene, work: Callable[[], Path], name: str) -> None:
    folder = work()
    folder.chmod(0o555)
    try:
        probe = scene.machine.run(["convert", str(scene.home / "data"), "--out", str(folder / "x")], powerless=True)
        if probe.code == 0:
            pytest.skip("this user may write anywhere")
        ended = scene.machine.run(scene.command(name, folder), powerless=True)
        assert ended.code == 1 and str(folder) in ended.err and "ermission" in ended.err, ended
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)


def test_of_two_writers_one_is_refused_or_finds_it_done(scene: Scene, work: Callable[[], Path]) -> None:
    for number, chance in enumerate(trials(3)):
        name, folder = WRITERS[(2 * number) % 6] if not LONG else chance.choice(WRITERS), work()
        first = scene.machine.start(scene.command(name, folder))
        time.sleep(chance.uniform(0, scene.seconds[name]))
        second = scene.machine.start(scene.command(name, folder))
        ended = [scene.machine.wait(child) for child in (first, second)]
        assert any(one.code == 0 for one in ended), ended
        for one in ended:
            assert one.code == 0 or "is being written by" in one.err or "exists and may hold" in one.err, ended
        scene.same(name, folder)


def test_damage_at_random_places_is_refused_or_makes_no_difference(scene: Scene, work: Callable[[], Path]) -> None:
    readers = (*READERS[:-1], "rank", "label", "export")
    for number, chance in enumerate(trials(9)):
        folder = work()
        shutil.copytree(scene.home / "run", folder / "run")
        shutil.copytree(scene.home / "index", folder / "index")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if number % 3 == 1:  # of an earlier version, whose damage shows in nothing but what comes of it
            forget_sums(folder)
        if number % 3 == 2:  # what stands beside artefacts and has no sums
            files = [path for path in files if not in_artefact(path, folder)]
        victim = chance.choice(files)
        how = spoil(victim, chance)
        known = number % 3 == 0 and in_artefact(victim, folder)
        if known:
            assert str(victim) in found_damaged(folder), how
        name = chance.choice(readers)
        (folder / "made").mkdir()
        ended = scene.machine.run(scene.command(name, folder / "made", folder))
        told = f"{name} after {victim}: {how}: {ended}"
        assert ended.code == 0 or ended.err.strip(), told
        assert "NaN" not in ended.out and "nan" not in ended.out.split(), told
        if ended.code == 0 and known and name in ("search", "search run", "suggest", "evaluate", "inspect"):
            assert ended.out == scene.printed[name].replace(str(scene.home), str(folder)), told


def spoil(path: Path, chance: random.Random) -> str:
    """Overwrite a part of a file, cut it, or remove it; what was done."""
    content = bytearray(path.read_bytes())
    kind = chance.choice(("overwrite", "overwrite", "overwrite", "cut", "remove"))
    if kind == "remove" or not content:
        path.unlink()
        return "removed"
    at = chance.randrange(len(content))
    if kind == "cut":
        path.write_bytes(content[:at])
        return f"cut at {at}"
    length = min(chance.choice((1, 20, 1000)), len(content) - at)
    content[at : at + length] = bytes(byte ^ chance.randint(1, 255) for byte in content[at : at + length])
    path.write_bytes(content)
    return f"{length} bytes overwritten at {at}"


def forget_sums(folder: Path) -> None:
    for path in folder.rglob("manifest.json"):
        table = json.loads(path.read_text())
        del table["sums"]
        path.write_text(json.dumps(table))


def in_artefact(path: Path, top: Path) -> bool:
    """Whether a file is a manifest's or listed in one."""
    return path.name != "manifest.json" and any(
        (outer / "manifest.json").exists() for outer in path.parents if outer.is_relative_to(top)
    )


def found_damaged(folder: Path) -> set[str]:
    return {one.file for one in verify(folder).damaged}

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import kill_once

import colabel
from colabel.artefacts import Spec, Workspace, build, folder_lock, read_manifest
from colabel.errors import ArtefactError, LockedError

PLAN = Spec("toy", {"size": 3}, {"corpus": "abc"}, seed=1)


def write_three(space: Workspace) -> dict[str, int]:
    for number in range(3):
        if not space.done(f"part-{number}.npy"):
            with space.file(f"part-{number}.npy") as path, path.open("wb") as file:
                np.save(file, np.full(4, number))
    return {"parts": 3}


def test_manifest_says_how_it_was_made(tmp_path: Path) -> None:
    manifest = build(tmp_path / "toy", PLAN, write_three)
    stored = json.loads((tmp_path / "toy" / "manifest.json").read_text())
    assert stored["stage"] == "toy"
    assert stored["settings"] == {"size": 3}
    assert stored["inputs"] == {"corpus": "abc"}
    assert stored["seed"] == 1
    assert stored["counts"] == {"parts": 3}
    assert "torch" in stored["versions"] and "colabel" in stored["versions"]
    assert set(stored["files"]) == {"part-0.npy", "part-1.npy", "part-2.npy"}
    assert read_manifest(tmp_path / "toy", "toy") == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"], "nothing is left beside the artefact"
    hidden = [path.name for path in (tmp_path / "toy").iterdir() if path.name.startswith(".")]
    assert not hidden


def test_time_of_an_interrupted_attempt_counts_up_to_its_last_save_point(tmp_path: Path) -> None:
    def interrupted(space: Workspace) -> dict[str, int]:
        time.sleep(0.3)
        space.keep_time()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "toy", PLAN, interrupted)
    assert build(tmp_path / "toy", PLAN, write_three).seconds > 0.3


def test_files_of_other_writers_can_be_read_by_all_who_may_read_ours(tmp_path: Path) -> None:
    def write(space: Workspace) -> dict[str, int]:
        with space.file("weights") as path:
            path.write_bytes(b"w")
            path.chmod(0o600)
        return {}

    build(tmp_path / "toy", PLAN, write)
    ours = (tmp_path / "toy" / "manifest.json").stat().st_mode
    assert (tmp_path / "toy" / "weights").stat().st_mode == ours


def test_commit_of_a_checkout_and_of_an_installed_package(tmp_path: Path) -> None:
    """A package that lies untracked inside somebody's repository is not named by that repository's commit."""
    package = tmp_path / "theirs" / "site-packages" / "colabel"
    shutil.copytree(Path(colabel.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(tmp_path / "theirs"), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)

    def told() -> str:
        program = "from colabel.artefacts.manifest import source_commit; print(source_commit())"
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        asked = [sys.executable, "-c", program]
        return subprocess.run(asked, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    assert told() == ""
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "ours now"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert told() == head[:12]
    changed = package / "artefacts" / "manifest.py"
    changed.write_text(changed.read_text() + "\n")
    assert told() == f"{head[:12]}+"


def test_the_same_plan_is_not_built_twice(tmp_path: Path) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    (tmp_path / ".toy.outdated").mkdir()  # as a kill right after the last rename would leave it

    def must_not_run(space: Workspace) -> dict[str, int]:
        raise AssertionError("built again")

    build(tmp_path / "toy", PLAN, must_not_run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


@pytest.mark.parametrize(
    "changed",
    [
        Spec("toy", {"size": 4}, {"corpus": "abc"}, seed=1),
        Spec("toy", {"size": 3}, {"corpus": "abd"}, seed=1),
        Spec("toy", {"size": 3}, {"corpus": "abc"}, seed=2),
        Spec("toy", {"size": 3}, {"corpus": "abc"}, seed=1, format=2),
    ],
)
def test_any_changed_part_of_the_plan_builds_again(tmp_path: Path, changed: Spec) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    assert build(tmp_path / "toy", changed, write_three).fingerprint == changed.fingerprint != PLAN.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


def test_a_changed_setting_invalidates_exactly_what_depends_on_it(tmp_path: Path) -> None:
    built: list[str] = []

    def chain(*, index: int, other: int) -> None:
        def stage(name: str, settings: dict[str, int], inputs: dict[str, str]) -> str:
            def write(space: Workspace) -> dict[str, int]:
                built.append(name)
                return {}

            return build(tmp_path / name, Spec(name, settings, inputs), write).fingerprint

        data = stage("data", {}, {})
        indexed = stage("index", {"index": index}, {"data": data})
        stage("rank", {}, {"index": indexed})
        stage("bm25", {"other": other}, {"data": data})

    chain(index=1, other=1)
    assert built == ["data", "index", "rank", "bm25"]
    built.clear()
    chain(index=1, other=1)
    assert built == []
    chain(index=2, other=1)
    assert built == ["index", "rank"]
    built.clear()
    chain(index=2, other=2)
    assert built == ["bm25"]


def test_a_failing_stage_leaves_the_old_artefact_and_no_new_one(tmp_path: Path) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    changed = Spec("toy", {"size": 9}, {}, seed=1)

    def breaks(space: Workspace) -> dict[str, int]:
        with space.file("half.npy") as path:
            path.write_bytes(b"half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        build(tmp_path / "toy", changed, breaks)
    assert read_manifest(tmp_path / "toy").fingerprint == PLAN.fingerprint
    assert np.load(tmp_path / "toy" / "part-2.npy").tolist() == [2, 2, 2, 2]
    build(tmp_path / "toy", changed, write_three)
    assert not (tmp_path / "toy" / "half.npy").exists()


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "thesis.tex").write_text("precious")
    with pytest.raises(ArtefactError, match="not a colabel artefact"):
        build(tmp_path / "toy", PLAN, write_three)
    assert (tmp_path / "toy" / "thesis.tex").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


@pytest.mark.parametrize("manifest", ['{"name": "my web app"}', "{", "[]"])
def test_a_folder_with_a_manifest_of_another_program_is_untouched(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "manifest.json").write_text(manifest)
    with pytest.raises(ArtefactError, match="not a colabel artefact"):
        build(tmp_path / "toy", PLAN, write_three)
    assert (tmp_path / "toy" / "manifest.json").read_text() == manifest


def test_an_artefact_of_another_stage_is_untouched(tmp_path: Path) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    with pytest.raises(ArtefactError, match="holds the result of 'toy' and would be replaced by one of 'index'"):
        build(tmp_path / "toy", Spec("index", {}, {}), write_three)
    assert read_manifest(tmp_path / "toy").stage == "toy"


def test_what_a_user_put_into_an_artefact_is_not_deleted(tmp_path: Path) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    (tmp_path / "toy" / "notes.txt").write_text("mine")
    build(tmp_path / "toy", PLAN, write_three)
    with pytest.raises(ArtefactError, match=r"holds 'notes\.txt', which colabel did not write"):
        build(tmp_path / "toy", Spec("toy", {"size": 4}, {}), write_three)
    assert (tmp_path / "toy" / "notes.txt").read_text() == "mine"


def test_odd_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    build(tmp_path / "link", PLAN, write_three)
    build(tmp_path / "link", Spec("toy", {"size": 4}, {}), write_three)
    assert (tmp_path / "link").is_symlink()
    assert read_manifest(tmp_path / "real").settings == {"size": 4}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build(Path(), PLAN, write_three)
    assert read_manifest(tmp_path / "here").stage == "toy"
    with pytest.raises(ArtefactError, match="mount point"):
        build(Path("/proc"), PLAN, write_three)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="is a file"):
        build(tmp_path / "file", PLAN, write_three)


RACER = """
import sys
from pathlib import Path
from colabel.artefacts import Spec, build
from colabel.errors import LockedError

def write(space):
    with space.file("a.txt") as path:
        path.write_text("a")
    return {}

refused = 0
for number in range(300):
    try:
        build(Path(sys.argv[1]) / "toy", Spec("toy", {"number": number % 3}, {}), write)
    except LockedError:
        refused += 1
print("finished", refused)
"""


def test_two_processes_only_ever_refuse_each_other(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ends = [racer.communicate(timeout=60) for racer in racers]
    for output, errors in ends:
        assert output.startswith(b"finished"), errors.decode()
    assert read_manifest(tmp_path / "toy").files == {"a.txt": 1}


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    build(tmp_path / "toy", PLAN, write_three)


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_damage_is_noticed_and_repaired_by_the_same_command(tmp_path: Path, damage: str) -> None:
    build(tmp_path / "toy", PLAN, write_three)
    part = tmp_path / "toy" / "part-1.npy"
    if damage == "truncate":
        part.write_bytes(part.read_bytes()[:10])
    else:
        part.unlink()
    with pytest.raises(ArtefactError, match=r"part-1\.npy"):
        read_manifest(tmp_path / "toy")
    build(tmp_path / "toy", PLAN, write_three)
    assert np.load(part).tolist() == [1, 1, 1, 1]


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist"):
        read_manifest(tmp_path / "none")
    with pytest.raises(ArtefactError, match=r"no manifest\.json"):
        read_manifest(tmp_path)
    build(tmp_path / "toy", PLAN, write_three)
    with pytest.raises(ArtefactError, match="result of 'toy'; expected one of 'index'"):
        read_manifest(tmp_path / "toy", "index")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    def second(space: Workspace) -> dict[str, int]:
        with pytest.raises(LockedError, match=rf"pid {os.getpid()} on .*choose another output folder"):
            build(tmp_path / "toy", Spec("toy", {"size": 99}, {}), write_three)
        return write_three(space)

    build(tmp_path / "toy", PLAN, second)


def test_lock_ends_with_its_block(tmp_path: Path) -> None:
    with folder_lock(tmp_path / "out"), pytest.raises(LockedError), folder_lock(tmp_path / "out"):
        pass
    with folder_lock(tmp_path / "out"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ArtefactError, match="is a file"), folder_lock(tmp_path / "out"):
        pass


CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from colabel.artefacts import Spec, build

def write(space):
    for number in range(6):
        name = f"shard-{number}.npy"
        if not space.done(name):
            with space.file(name) as path, path.open("wb") as file:
                rows = np.random.default_rng(number).standard_normal((50, 8))
                np.save(file, rows)
                file.flush()
                time.sleep(float(sys.argv[2]))
    return {"shards": 6}

out = Path(sys.argv[1])
for stage in ("old", "new"):  # "new" replaces a finished artefact of other settings
    build(out / "toy", Spec("toy", {"stage": stage}, {}), write)
"""


def shards(out: Path) -> int:
    try:
        return len(list(out.rglob("shard-*.npy")))
    except FileNotFoundError:  # the child renames folders while we look
        return 0


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "manifest.json"}


def test_killed_at_any_moment_it_continues_to_the_same_bytes(tmp_path: Path) -> None:
    child = [sys.executable, "-c", CHILD]
    subprocess.run([*child, str(tmp_path / "whole"), "0"], check=True, timeout=60)
    expected = contents(tmp_path / "whole" / "toy")
    assert len(expected) == 6
    out = tmp_path / "killed"
    # each run is killed as soon as one shard more is there: in the first artefact, at its end, in the second …
    for wanted in (0, 1, 3, 5, 6, 7, 9, 12):
        kill_once(partial(lambda wanted: shards(out) >= wanted, wanted), [*child, str(out), "0.02"], 30)
        final = out / "toy" / "manifest.json"
        assert not final.exists() or read_manifest(out / "toy")
    subprocess.run([*child, str(out), "0"], check=True, timeout=60)
    assert contents(out / "toy") == expected
    manifests = [json.loads((folder / "toy" / "manifest.json").read_text()) for folder in (tmp_path / "whole", out)]
    for manifest in manifests:
        manifest.pop("seconds")
        manifest["sums"].pop("manifest.json")  # of the seconds, too
    assert manifests[0] == manifests[1]
    assert [path.name for path in out.iterdir()] == ["toy"]


@pytest.mark.parametrize("moment", ["before rename", "between renames"])
def test_killed_while_publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    build(tmp_path / "toy", Spec("toy", {"old": 1}, {}), write_three)
    rename = Path.rename
    calls = 0

    def killed(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == (1 if moment == "before rename" else 2):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "toy", PLAN, write_three)
    monkeypatch.undo()

    def must_not_run(space: Workspace) -> dict[str, int]:
        raise AssertionError("the finished work was thrown away")

    build(tmp_path / "toy", PLAN, must_not_run)
    assert read_manifest(tmp_path / "toy").fingerprint == PLAN.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


def test_a_file_that_is_linked_a_second_time_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """As after a kill: a rename onto another name of the same file does nothing."""
    (tmp_path / "ids.npy").write_bytes(b"ids")

    def link(space: Workspace) -> dict[str, int]:
        for _ in range(2):
            with space.file("ids.npy") as path:
                path.hardlink_to(tmp_path / "ids.npy")
        return {}

    assert build(tmp_path / "toy", PLAN, link).files == {"ids.npy": 3}

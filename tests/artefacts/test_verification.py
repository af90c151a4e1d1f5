from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from colabel import verify
from colabel.artefacts import Spec, Workspace, build, read_manifest
from colabel.artefacts.manifest import _CHECKED, BLOCK, SAMPLE_BYTES, block_sums
from colabel.errors import ArtefactError

PLAN = Spec("toy", {"size": 3}, {"corpus": "abc"}, seed=1)


def write_two(space: Workspace) -> dict[str, int]:
    with space.file("part/vectors.npy") as path, path.open("wb") as file:
        np.save(file, np.arange(1000.0))
    (space.folder / "config.json").write_text("{}")  # as libraries write
    with space.file("empty.txt") as path:
        path.touch()
    return {"parts": 2}


def damage(path: Path, at: int = 200) -> None:
    """Change a byte and keep the size, as another process sees it: ours has not opened the artefact yet."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    _CHECKED.clear()


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    build(tmp_path / "toy", PLAN, write_two)
    return tmp_path / "toy"


def test_every_file_has_sums_and_fingerprints_stay(toy: Path) -> None:
    manifest = read_manifest(toy)
    assert set(manifest.sums) == {*manifest.files, "manifest.json"}
    assert manifest.fingerprint == PLAN.fingerprint
    assert manifest.sums["empty.txt"] == "" and len(manifest.sums["part/vectors.npy"]) == 16


def test_sums_by_block(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(2 * BLOCK + 5)
    (tmp_path / "long").write_bytes(content)
    (tmp_path / "tail").write_bytes(content[2 * BLOCK :])
    sums = block_sums(tmp_path / "long")
    assert len(sums) == 3 * 16 and sums[32:] == block_sums(tmp_path / "tail")


def test_damage_of_equal_size_is_refused_and_built_again(toy: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = (toy / "part" / "vectors.npy").read_bytes()
    damage(toy / "part" / "vectors.npy")
    with pytest.raises(ArtefactError, match=r"vectors\.npy is damaged: .*Delete .*toy and build it again"):
        read_manifest(toy)
    build(toy, PLAN, write_two)
    assert "it is built again" in caplog.text and (toy / "part" / "vectors.npy").read_bytes() == whole


def test_a_damaged_manifest_is_refused(toy: Path) -> None:
    path = toy / "manifest.json"
    path.write_text(path.read_text().replace('"parts": 2', '"parts": 3'))
    with pytest.raises(ArtefactError, match=r"manifest\.json is damaged"):
        read_manifest(toy)
    assert [one.problem for one in verify(toy).damaged] == ["is not what was written"]


def test_an_artefact_is_sampled_once_in_a_process(toy: Path) -> None:
    read_manifest(toy)
    kept = set(_CHECKED)
    damage(toy / "part" / "vectors.npy")
    _CHECKED.update(kept)
    read_manifest(toy)


def test_an_artefact_without_sums_opens_and_is_not_checked(toy: Path) -> None:
    table = json.loads((toy / "manifest.json").read_text())
    del table["sums"]
    (toy / "manifest.json").write_text(json.dumps(table))
    damage(toy / "part" / "vectors.npy")
    assert read_manifest(toy).sums == {}
    found = verify(toy)
    assert found.unchecked == (str(toy),) and not found.damaged


def test_the_sample_of_a_large_artefact_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB with every block damaged but one sum: found at once, having read 4 MiB at most."""

    def write(space: Workspace) -> dict[str, int]:
        with space.file("large") as path:
            path.write_bytes(bytes(64 * BLOCK))
        return {}

    build(tmp_path / "toy", PLAN, write)
    read: list[int] = []
    import os

    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: read.append(size) or pread(file, size, at))
    _CHECKED.clear()
    began = time.perf_counter()
    read_manifest(tmp_path / "toy")
    assert sum(read) <= SAMPLE_BYTES and time.perf_counter() - began < 0.5
    (tmp_path / "toy" / "large").write_bytes(b"\1" * 64 * BLOCK)
    _CHECKED.clear()
    with pytest.raises(ArtefactError, match="MiB from byte"):
        read_manifest(tmp_path / "toy")


def test_verify_finds_artefacts_in_folders_and_names_the_command(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("index/tokens", "index/encoder", "theta", ".hidden.partial"):
        build(run / name, PLAN, write_two)
    assert not verify(str(run)).damaged and verify(run).artefacts == 3
    (run / "index" / "index.json").write_text("{}")
    damage(run / "index" / "tokens" / "part" / "vectors.npy")
    (run / "theta" / "config.json").unlink()
    for mark, command in (("", "index"), ("recipe.json", "run"), ("study.json", "study")):
        if mark:
            (run / mark).write_text("{}")
        tokens, theta = verify(run).damaged
        assert tokens.file == str(run / "index" / "tokens" / "part" / "vectors.npy")
        assert f"delete {run / 'index' / 'tokens'} and repeat the `colabel {command}`" in tokens.remedy
        assert theta.problem == "is missing"
    (run / "theta" / "manifest.json").write_text("{")
    assert "cannot be read as a manifest" in verify(run).damaged[-1].problem
    with pytest.raises(ArtefactError, match="holds no artefact"):
        verify(tmp_path / "none")

"""Dry runs: what is up to date, and why anything else is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from colabel.artefacts import Builder, DryBuilder, Spec, Stale, Workspace, assemble, build, read_manifest

SPEC = Spec("toy", {"size": 3, "names": ("a",)}, {"corpus": "abc"}, seed=1)


def write(space: Workspace) -> Mapping[str, Any]:
    with space.file("one.txt") as path:
        path.write_text("1", encoding="utf-8")
    return {"files": 1}


def test_a_dry_build_returns_what_is_there_and_writes_nothing(tmp_path: Path) -> None:
    with DryBuilder(), pytest.raises(Stale) as stale:
        build(tmp_path / "toy", SPEC, write)
    assert (stale.value.stage, stale.value.differs) == ("toy", ())
    assert not list(tmp_path.iterdir())
    made = build(tmp_path / "toy", SPEC, write)
    with DryBuilder():
        assert build(tmp_path / "toy", SPEC, write) == made


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        (Spec("toy", {"size": 4, "names": ("a",)}, {"corpus": "other"}, seed=1), ("size",)),
        (Spec("toy", {"size": 3, "names": ("a",), "new": True}, {"corpus": "abc"}, seed=2), ("new", "seed")),
        (Spec("toy", {"size": 3, "names": ("a",)}, {"corpus": "other"}, seed=1), ("its corpus",)),
        (
            Spec("toy", {"size": 3, "names": ("a",)}, {"corpus": "abc"}, seed=1, format=2),
            ("the format of another version",),
        ),
    ],
)
def test_stale_names_what_differs(tmp_path: Path, changed: Spec, differs: tuple[str, ...]) -> None:
    build(tmp_path / "toy", SPEC, write)
    with DryBuilder(), pytest.raises(Stale) as stale:
        build(tmp_path / "toy", changed, write)
    assert stale.value.differs == differs


def test_a_copied_artefact_is_up_to_date_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    build(tmp_path / "toy", SPEC, write)
    shutil.copytree(tmp_path / "toy", tmp_path / "copy", copy_function=shutil.copyfile)  # other times
    with DryBuilder():
        build(tmp_path / "copy", SPEC, write)
    (tmp_path / "copy" / "one.txt").write_text("", encoding="utf-8")
    with DryBuilder(), pytest.raises(Stale):
        build(tmp_path / "copy", SPEC, write)


def test_an_artefact_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    """A manifest as version 0.1 wrote it: an artefact that is there is not made again by a later version."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.txt").write_text("1", encoding="utf-8")
    table = {
        "counts": {"files": 1},
        "files": {"one.txt": 1},
        "fingerprint": GOLDEN,
        "format": 1,
        "inputs": {"corpus": "abc"},
        "seconds": 0.5,
        "seed": 1,
        "settings": {"names": ["a"], "size": 3},
        "stage": "toy",
        "versions": {"colabel": "0.1.0"},
    }

    (tmp_path / "toy" / "manifest.json").write_text(json.dumps(table), encoding="utf-8")
    assert read_manifest(tmp_path / "toy", "toy").seconds == 0.5
    with DryBuilder():
        assert build(tmp_path / "toy", SPEC, write).versions == {"colabel": "0.1.0"}


GOLDEN = "cd3f18033ea3eb33ec6f51c77968b0cd"
"""Fingerprint of SPEC: committed, so that no later version discards every artefact."""


def test_a_builder_remembers_results_and_failures(tmp_path: Path) -> None:
    builder, calls = Builder(), []

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [builder.once(tmp_path / "a", make), builder.once(tmp_path / "a", make)] == [1, 1]
    assert builder.once(tmp_path / "b", make) == 2


def test_assembling_writes_its_file_last_and_not_again(tmp_path: Path) -> None:
    def make() -> Mapping[str, Any]:
        build(tmp_path / "whole" / "part", SPEC, write)
        return {"engine": "exact", "place": place}

    place = "here"
    with DryBuilder(), pytest.raises(Stale):
        assemble(tmp_path / "whole", "whole.json", make)
    assert not (tmp_path / "whole").exists()
    assemble(tmp_path / "whole", "whole.json", make)
    before = (tmp_path / "whole" / "whole.json").stat()
    assemble(tmp_path / "whole", "whole.json", make)
    assert (tmp_path / "whole" / "whole.json").stat().st_mtime_ns == before.st_mtime_ns
    place = "elsewhere"
    with DryBuilder():
        assemble(tmp_path / "whole", "whole.json", make)  # where data lies changes no artefact
    assemble(tmp_path / "whole", "whole.json", make)
    assert json.loads((tmp_path / "whole" / "whole.json").read_text(encoding="utf-8"))["place"] == "elsewhere"
    (tmp_path / "whole" / "whole.json").unlink()
    with DryBuilder(), pytest.raises(Stale):
        assemble(tmp_path / "whole", "whole.json", make)

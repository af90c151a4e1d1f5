"""A study that is killed again and again ends with the report of an undisturbed one; two at once do not meet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colabel import Recipe, study
from colabel.artefacts import folder_lock, write_json
from colabel.errors import LockedError
from colabel.settings import StudySettings

ROOT = Path(__file__).resolve().parents[2]
TIMES = ("milliseconds", "seconds", "ratios")
KILLS = ("25", "60", "report")


def start(recipe: Path, out: Path, kill: str = "") -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    program = [sys.executable, str(Path(__file__).parent / "drive.py"), str(recipe), str(out)]
    return subprocess.Popen(
        [*program, *([kill] if kill else [])], stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=600)
    return process.returncode, said


def figures(out: Path) -> dict[str, Any]:
    """All that metrics.json holds but times, by its place."""
    found: dict[str, Any] = {}

    def walk(value: Any, place: str) -> None:
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                if key not in TIMES:
                    walk(inner, f"{place}.{key}")
        else:
            found[place] = value

    table = json.loads((out / "metrics.json").read_text())
    walk(table, "")
    return found


def same_figures(one: Path, other: Path) -> None:
    expected, found = figures(one), figures(other)
    assert found.keys() == expected.keys()
    for place, value in expected.items():
        assert found[place] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), place


@pytest.fixture
def chosen(recipe: Recipe, tmp_path: Path) -> Path:
    """A folder with the settings of a small study with a row of each kind."""
    rows = ("bm25", "colbert", "ce-kd", "collective-0.5", "colbert-prf-0.5")
    settings = StudySettings(systems=rows, seeds=2, repeated=("colbert",), measures=("nDCG@10",))
    write_json(tmp_path / "recipe.json", replace(recipe, study=settings).as_dict())
    (tmp_path / "other").mkdir()
    write_json(tmp_path / "other" / "recipe.json", {**replace(recipe, study=settings).as_dict(), "seed": 7})
    return tmp_path


@pytest.mark.slow
def test_killed_at_any_point_the_same_command_ends_with_the_same_report(chosen: Path) -> None:
    whole, other = start(chosen, chosen / "whole"), start(chosen / "other", chosen / "other" / "out")
    for process in (whole, other):  # at once: two studies share nothing but the collection
        code, said = ended(process)
        assert code == 0, said
    assert figures(chosen / "other" / "out") != figures(chosen / "whole"), "another seed"
    for kill in KILLS:
        code, said = ended(start(chosen, chosen / "killed", kill))
        assert code == -signal.SIGKILL, f"killed at {kill}: {said}"
        assert not (chosen / "killed" / "report.html").exists()
    code, said = ended(start(chosen, chosen / "killed"))
    assert code == 0, said
    same_figures(chosen / "whole", chosen / "killed")


def test_killed_while_a_student_is_trained(recipe: Recipe, tmp_path: Path) -> None:
    """The same with one kill and few rows."""
    few = StudySettings(systems=("colbert", "collective-0.5"), sweep=False, measures=("nDCG@10",))
    small = replace(recipe, study=few)
    write_json(tmp_path / "recipe.json", small.as_dict())
    study(small, tmp_path / "whole")
    code, said = ended(start(tmp_path, tmp_path / "killed", "student (collective)"))
    assert code == -signal.SIGKILL, said
    assert (tmp_path / "killed" / "seed-0" / "theta" / "manifest.json").exists(), "θ was done"
    assert not (tmp_path / "killed" / "seed-0" / "students" / "collective-0.5" / "model").exists()
    study(small, tmp_path / "killed")
    same_figures(tmp_path / "whole", tmp_path / "killed")


def test_a_second_writer_is_told_who_holds_the_study(recipe: Recipe, tmp_path: Path) -> None:
    with folder_lock(tmp_path / "out"), pytest.raises(LockedError, match=rf"pid {os.getpid()} on .*choose another"):
        study(recipe, tmp_path / "out")
    assert not (tmp_path / "out" / "data").exists(), "nothing was begun"

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import colabel
from colabel.cli import main
from colabel.reporting import ReportFiles, StudyDocument

SLUGS = {"bm25", "zero-shot", "colbert", "colbert-hn", "ce3-kd", "collective-1", "colbert-prf-rerank-0.5", "mixed"}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_rendering_again_gives_the_same_bytes(rendered: ReportFiles, tmp_path: Path) -> None:
    """In another process, with another order of sets and another user's plot settings."""
    shutil.copy(rendered.html.with_name("study.json"), tmp_path)
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nsvg.fonttype: path\naxes.grid: False\n")
    environment = {**os.environ, "PYTHONHASHSEED": "7", "MATPLOTLIBRC": str(tmp_path), "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "colabel", "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(tmp_path / name) for name in ("report.html", "report.md", "report.tex", "metrics.json")
    ]
    for file in (rendered.html, rendered.markdown, rendered.latex, rendered.metrics):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_metrics_for_other_programs(rendered: ReportFiles, full_study: StudyDocument) -> None:
    found = json.loads(rendered.metrics.read_text(encoding="utf-8"))
    assert found["systems"].keys() >= SLUGS
    assert "collective-tuned" not in found["systems"]
    assert found["failed"].keys() == {"collective-tuned"}
    for system in full_study.finished:
        assert found["systems"][system.slug] == system.means
    significance = found["significance"]["nDCG@10"]
    assert significance["test"] == "t-test"
    assert set(significance["beats_holm"]["collective-1"]) < set(significance["beats"]["collective-1"])
    assert "colbert" in significance["beats_holm"]["collective-1"]
    assert len(significance["pairs"]) == 78
    assert {"system", "against", "test", "t_test_holm", "randomisation_holm"} <= significance["pairs"][0].keys()
    assert found["seconds"]["systems"]["colbert"]["training"] > 0
    assert found["seconds"]["stages"] == full_study.seconds
    assert found["seconds"]["to_target"]["queries"] == 90
    assert found["seconds"]["to_target"]["origin"].startswith("1 % above")
    assert found["unjudged_share"]["zero-shot"] == 0.26
    assert found["collective"]["feedback"] == "labelled"
    assert found["per_seed"].keys() == {system.slug for system in full_study.finished if system.seeds > 1}
    seeds = [found["per_seed"]["colbert"][seed]["nDCG@10"] for seed in "012"]
    assert sum(seeds) / 3 == pytest.approx(found["systems"]["colbert"]["nDCG@10"])


def test_the_function_has_the_name_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"format": 1, "name": "x", "measures": ["AP"]}')
    files = colabel.report(tmp_path)
    written = {"study.json", "report.html", "report.md", "report.tex", "metrics.json"}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert json.loads(files.metrics.read_text())["systems"] == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no study.json, so it is not a finished study; expected the output folder of `colabel study`"),
        (b'{"format": 1,\n"name": }', "study.json:2: not JSON"),
        (b'{"name": "\xff"}', "study.json: not UTF-8 at byte 10"),
        (b"[]", "study.json: the document: expected an object, found a list"),
        (b"{}", "study.json: format: expected 1, found None"),
        (b'{"format": 1, "name": "x"}', "study.json: the document has no 'measures'"),
    ],
)
def test_a_study_that_cannot_be_read(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "study.json").write_bytes(content)
    (tmp_path / "report.html").write_text("the last good one")
    code, out, err = call(capsys, "report", tmp_path)
    assert (code, out) == (1, "")
    assert words in err
    assert "Traceback" not in err
    assert (tmp_path / "report.html").read_text() == "the last good one"
    assert not (tmp_path / "metrics.json").exists()


def test_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for name, words in (("none", "none does not exist"), ("file", "file is a file")):
        code, _, err = call(capsys, "report", tmp_path / name)
        assert code == 1
        assert words in err

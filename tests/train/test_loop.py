"""Kills, repeats and several processes, each in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from colabel.encode import prepare_encoder
from colabel.settings import DistilSettings, EncoderSettings
from colabel.train import candidates_from_ranking, groups_for, open_model
from colabel.train.loop import GroupTrainer
from tests.train import drive
from tests.train.small import ENCODER, Small

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "steps": 12,
    "batch_queries": 4,
    "passages": 3,
    "learning_rate": 1e-3,
}
FIT = {"evaluate_every": 6}


@pytest.fixture(autouse=True)
def steps_of_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drive.py sets, put back after each test that calls it in this process."""
    monkeypatch.setattr("colabel.train.loop.SAVE_EVERY", 4)
    monkeypatch.setattr("colabel.train.loop.LOG_EVERY", 2)


def run(place: Path, name: str, processes: int = 1, **job: Any) -> subprocess.CompletedProcess[str]:
    """Run tests/train/drive.py with a job."""
    path = place / f"{name}.json"
    path.write_text(json.dumps({"out": str(place / name), **job}))
    launcher = [sys.executable]
    if processes > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    program = str(Path(__file__).parent / "drive.py")
    return subprocess.run(
        [*launcher, program, str(path)], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = load_file(folder / "model.safetensors")
    return found | {
        f"dense.{name}": value for name, value in load_file(folder / "1_Dense" / "model.safetensors").items()
    }


def furthest(first: Path, second: Path, leave_out: str = " ") -> float:
    """The largest difference of a weight."""
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours if leave_out not in name)


def job_of(kind: str, small: Small, start: Path, **fit: Any) -> dict[str, Any]:
    """A job that trains θ or a student."""
    how = {"settings": SETTINGS, "fit": {**FIT, **fit}, "dev": True}
    return {"folder": str(small.folder), "kind": kind, "start": str(start), **how}


@pytest.fixture
def start(small: Small, tiny_model: Path, tmp_path: Path) -> Path:
    """An encoder with dropout, so that the state of the random numbers matters."""
    settings = EncoderSettings(model=str(tiny_model), dropout=0.1, **ENCODER)
    prepare_encoder(settings, small.dataset.passages, tmp_path / "start")
    return tmp_path / "start"


def test_kill_and_resume(small: Small, start: Path, tmp_path: Path) -> None:
    job = job_of("student", small, start, keep="last")
    killed = run(tmp_path, "killed", dies_at=7, **job)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed").exists()
    assert [place.name for place in (tmp_path / ".killed.partial" / "checkpoints").glob("checkpoint-*")] == [
        "checkpoint-6"
    ]
    drive.main({"out": str(tmp_path / "killed"), **job})
    drive.main({"out": str(tmp_path / "whole"), **job})
    assert furthest(tmp_path / "whole", tmp_path / "killed") <= 1e-6
    assert furthest(tmp_path / "whole", start) > 1e-4
    logs = [open_model(tmp_path / name).log for name in ("whole", "killed")]
    assert [line["step"] for line in logs[0]] == [line["step"] for line in logs[1]]
    assert [line.get("loss") for line in logs[0]] == pytest.approx([line.get("loss") for line in logs[1]], abs=1e-5)


def test_a_run_that_was_killed_after_its_last_step_trains_no_more(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of("student", small, small.encoder)
    killed = run(tmp_path, "killed", dies_at_the_end=True, **job)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    drive.main({"out": str(tmp_path / "whole"), **job})
    monkeypatch.setattr(GroupTrainer, "training_step", lambda *_, **__: pytest.fail("trained again"))
    drive.main({"out": str(tmp_path / "killed"), **job})
    assert furthest(tmp_path / "whole", tmp_path / "killed") == 0.0
    assert open_model(tmp_path / "killed").manifest.counts["kept_step"] == 12


def test_a_killed_run_goes_on_with_its_logs(small: Small, tmp_path: Path) -> None:
    """The teacher speaks in the first step alone, before the save point: it is known after the kill that it did."""
    settings = DistilSettings(steps=4, batch_queries=2, passages=3, learning_rate=1e-3)
    candidates = candidates_from_ranking(small.dataset, small.train, depth=settings.candidates)
    silent = groups_for(candidates, settings, 0).query_ids[2:]
    job = {**job_of("student", small, small.encoder), "settings": settings.as_dict(), "fit": {"evaluate_every": 0}}
    job |= {"silent": silent, "save_every": 2, "log_every": 1}
    killed = run(tmp_path, "killed", dies_at=3, **job)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    drive.main({"out": str(tmp_path / "killed"), **job})
    log = open_model(tmp_path / "killed").log
    assert [(line["step"], line["taught"]) for line in log] == [(1, 1.0), (2, 0.0), (3, 0.0), (4, 0.0)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["theta", "student"])
def test_two_processes_train_as_one(small: Small, tmp_path: Path, kind: str) -> None:
    """Every group is read once, by one of the two; the weights are those of one process with the same batches."""
    job = job_of(kind, small, small.encoder)
    both = run(tmp_path, "both", processes=2, watch=str(tmp_path / "seen"), **job)
    assert both.returncode == 0, both.stderr
    seen = [[int(line) for line in (tmp_path / f"seen.{rank}").read_text().split()] for rank in range(2)]
    assert sorted(seen[0] + seen[1]) == list(range(12 * 4))
    assert len(seen[0]) == len(seen[1]) == 24
    assert both.stdout == ""
    drive.main({"out": str(tmp_path / "one"), **job})
    # Attention does not depend on the bias of its keys: its gradient is rounding, which Adam blows up to a whole step.
    assert furthest(tmp_path / "one", tmp_path / "both", leave_out="key.bias") <= 1e-5
    assert furthest(tmp_path / "one", small.encoder) > 1e-4
    again = run(tmp_path, "both", processes=2, **job)
    assert again.returncode == 0, "nothing to do, and nobody waits for anybody: " + again.stderr
    assert not list(tmp_path.glob(".both*"))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("not ours")
    refused = run(tmp_path, "theirs", processes=2, **job)
    assert refused.returncode != 0
    assert "exists and is not a colabel artefact" in refused.stderr
    assert (tmp_path / "theirs" / "thesis.txt").read_text() == "not ours"

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder

from colabel.data import hide_labels
from colabel.encode import open_encoder, prepare_encoder
from colabel.encode.weights import weights_fingerprint
from colabel.errors import DataError, SettingsError, TrainingError, UsageError
from colabel.progress import Task
from colabel.settings import CollectiveSettings, DistilSettings, EncoderSettings, FitSettings, TrainSettings
from colabel.train import (
    TrainedModel,
    candidates_from_ranking,
    describe_collective,
    dev_set,
    distil,
    export_pylate,
    groups_for,
    open_model,
    train_theta,
)
from colabel.train.callbacks import last_checkpoint, mark_complete
from colabel.train.loop import GroupTrainer, check_device, choose_precision
from colabel.train.losses import Outcome
from colabel.train.objective import teacher_scale
from colabel.train.pulling import verdict
from tests.train.small import ENCODER, Overlap, Silent, Small

BY_HEART = TrainSettings(steps=60, batch_queries=5, passages=3, learning_rate=2e-3)
SHORT = DistilSettings(steps=4, batch_queries=2, passages=3, learning_rate=1e-3)
UNWATCHED = FitSettings(evaluate_every=0)


@pytest.fixture(autouse=True)
def log_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colabel.train.loop.LOG_EVERY", 1)


HARD = object()


def student(small: Small, out: Path, teacher: Any = None, *, seed: int = 0, **kwargs: Any) -> TrainedModel:
    """Train a student for a few steps."""
    settings, depth = kwargs.pop("settings", SHORT), kwargs.pop("depth", 20)
    kwargs.setdefault("fit", UNWATCHED)
    groups = groups_for(candidates_from_ranking(small.dataset, small.train, depth=depth), settings, seed)
    taught = None if teacher is HARD else teacher or Overlap(small.dataset)
    return distil(small.dataset, small.encoder, groups, taught, out, settings=settings, seed=seed, **kwargs)


def same(first: Path, second: Path) -> bool:
    """Whether two checkpoints hold the same bytes of weights."""
    names = ("model.safetensors", "1_Dense/model.safetensors")
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def scores_of(model: MultiVectorEncoder, small: Small) -> torch.Tensor:
    queries = model.encode_query([small.dataset.queries[f"q{n}"] for n in range(5)], show_progress_bar=False)
    passages = model.encode_document([small.dataset.passages[n].full_text for n in range(9)], show_progress_bar=False)
    return model.similarity(queries, passages)


@pytest.fixture(scope="module")
def teacher(small: Small, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A model that was trained on ten queries until it knew them."""
    out = tmp_path_factory.mktemp("teacher") / "model"
    dev = dev_set(small.dataset, small.train, queries=10, depth=20, split="train")
    return train_theta(
        small.dataset, small.encoder, small.train, out, settings=BY_HEART, fit=FitSettings(evaluate_every=30), dev=dev
    )


def test_a_model_learns_ten_queries_by_heart(teacher: TrainedModel) -> None:
    losses = [line["loss"] for line in teacher.log if "loss" in line]
    assert losses[-1] < 0.1 * losses[0]
    values = [line["nDCG@10"] for line in teacher.log if "nDCG@10" in line]
    assert len(values) == 3, "before the first step, and every 30"
    assert values[-1] > values[0] + 0.4
    assert teacher.manifest.counts["kept_value"] == max(values[1:])
    assert teacher.manifest.counts["start_value"] == values[0]


def test_a_student_learns_its_teacher_by_heart(small: Small, tmp_path: Path) -> None:
    """Ten queries, distilled: the student ends with the teacher's distribution over passages that it was shown."""
    settings = DistilSettings(
        steps=120, batch_queries=5, passages=4, learning_rate=3e-3, floor="none", teacher_scale="raw",
        teacher_temperature=1.0,
    )  # fmt: skip
    taught = student(small, tmp_path / "student", settings=settings, depth=5)
    losses = [line["loss"] for line in taught.log if "loss" in line]
    assert losses[-1] < 0.15 * losses[0]
    assert all(line["target_entropy"] > 0.5 for line in taught.log if "loss" in line), "no hard labels in disguise"


def test_teachers_of_any_scale_teach_the_same(small: Small, tmp_path: Path) -> None:
    class Larger(Overlap):
        fingerprint = "larger"

        def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            return 64 * super().scores(query_ids, rows)

    settings = dataclasses.replace(SHORT, passages=6)
    groups = groups_for(candidates_from_ranking(small.dataset, small.train, depth=20), settings, 0)
    plain, larger = Overlap(small.dataset), Larger(small.dataset)
    assert teacher_scale(groups, plain) == pytest.approx(64 * teacher_scale(groups, larger))
    models = [
        student(
            small, tmp_path / f"{name}-{scale}", target, settings=dataclasses.replace(settings, teacher_scale=scale)
        )
        for name, target in (("plain", plain), ("larger", larger))
        for scale in ("matched", "raw")
    ]
    matched, raw, matched_larger, raw_larger = (model.folder for model in models)
    assert same(matched, matched_larger)
    assert not same(raw, raw_larger)


def test_the_log(teacher: TrainedModel) -> None:
    lines = [line for line in teacher.log if "loss" in line]
    assert [line["step"] for line in lines] == [10, 20, 30, 40, 50, 60]
    for line in lines:
        assert set(line) == {
            "step", "loss", "learning_rate", "gradient_norm", "target_entropy", "taught", "passages_per_second",
            "teacher_seconds",
        }  # fmt: skip
        assert line["passages_per_second"] > 0
        assert line["taught"] == 1.0
    assert lines[0]["learning_rate"] > lines[-1]["learning_rate"] > 0
    assert not list(teacher.folder.rglob("*.bin")) + list(teacher.folder.rglob("*.pt*")), "no pickles in an artefact"
    assert sorted(path.name for path in (teacher.folder / "training").iterdir()) == ["log.jsonl", "summary.json"]


def test_a_process_without_colabel_reads_the_checkpoint(teacher: TrainedModel, small: Small) -> None:
    program = """
import json, sys
sys.modules["colabel"] = None
from sentence_transformers import MultiVectorEncoder
folder, queries, passages = json.loads(sys.argv[1])
model = MultiVectorEncoder(folder, device="cpu")
found = model.similarity(model.encode_query(queries), model.encode_document(passages))
print(json.dumps(found.tolist()))
"""
    queries = [small.dataset.queries[f"q{n}"] for n in range(5)]
    passages = [small.dataset.passages[n].full_text for n in range(9)]
    argument = json.dumps([str(teacher.folder), queries, passages])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", program, argument], capture_output=True, text=True, check=True, cwd="/", env=environment
    )
    theirs = torch.tensor(json.loads(run.stdout.splitlines()[-1]))
    ours = open_model(teacher.folder)
    prepare = EncoderSettings(model=str(ours.folder))
    prepare_encoder(prepare, small.dataset.passages, teacher.folder.parent / "prepared")
    encoder = open_encoder(teacher.folder.parent / "prepared", prepare.device)
    assert torch.allclose(scores_of(encoder.model, small), theirs, atol=1e-5)
    assert encoder.passage_limit == 24, "lengths and markers go along"
    assert encoder.model.prompts["query"] == "[unused0] "


@pytest.mark.parametrize("expanded", [False, True])
def test_pylates_layout(small: Small, tiny_model: Path, teacher: TrainedModel, tmp_path: Path, expanded: bool) -> None:
    """Read back through sentence-transformers' own reader of PyLate checkpoints."""
    folder = teacher.folder
    if expanded:
        folder = tmp_path / "expanded"
        settings = EncoderSettings(model=str(tiny_model), expand_queries=True, **ENCODER)
        prepare_encoder(settings, small.dataset.passages, folder)
    export_pylate(folder, tmp_path / "pylate")
    table = json.loads((tmp_path / "pylate" / "config_sentence_transformers.json").read_text())
    assert table["model_type"] == "ColBERT"
    assert (table["query_prefix"], table["document_prefix"], table["query_length"]) == ("[unused0]", "[unused1]", 12)
    assert table["do_query_expansion"] is expanded
    modules = json.loads((tmp_path / "pylate" / "modules.json").read_text())
    assert [module["type"].split(".")[0] for module in modules] == ["sentence_transformers", "pylate"]
    ours, theirs = (MultiVectorEncoder(str(path), device="cpu") for path in (folder, tmp_path / "pylate"))
    assert torch.allclose(scores_of(ours, small), scores_of(theirs, small), atol=1e-5)
    assert "," in small.dataset.passages[1].full_text, "punctuation is skipped by both"


def test_the_card(teacher: TrainedModel, small: Small, tmp_path: Path) -> None:
    about = describe_collective(CollectiveSettings(beta=0.5))
    model = student(small, tmp_path / "s", about=about)
    card = (model.folder / "README.md").read_text()
    for part in (
        "| β | 0.5 |",
        "f_p | 3",
        "f_c | 24",
        "f_e | 10",
        "| target | overlap |",
        "sentence-transformers | 6.",
    ):
        assert part in card
    assert "nDCG@10 on dev" in (teacher.folder / "README.md").read_text()


def test_the_same_seed_gives_the_same_weights(small: Small, tmp_path: Path) -> None:
    first, again = (student(small, tmp_path / name) for name in ("first", "again"))
    assert first.fingerprint == again.fingerprint
    assert same(first.folder, again.folder)
    assert weights_fingerprint(str(first.folder)) == weights_fingerprint(str(again.folder)), "an index of it is reused"
    other = student(small, tmp_path / "other", seed=1)
    assert not same(first.folder, other.folder)
    assert not same(first.folder, small.encoder)


def test_hidden_labels_do_not_change_a_student(small: Small, tmp_path: Path) -> None:
    """Two datasets that differ in hidden labels alone give the same fingerprint and the same bytes."""
    sparse = hide_labels(small.dataset, keep=1, seed=0)
    without = type(sparse)(**{**vars(sparse), "_hidden": {}})
    made = []
    for name, dataset in (("with", sparse), ("without", without)):
        groups = groups_for(candidates_from_ranking(dataset, small.train, depth=20), SHORT, 0)
        made.append(distil(dataset, small.encoder, groups, None, tmp_path / name, settings=SHORT, fit=UNWATCHED))
    assert made[0].fingerprint == made[1].fingerprint
    assert same(made[0].folder, made[1].folder)


def test_fingerprints_name_what_matters(small: Small, tmp_path: Path) -> None:
    base = student(small, tmp_path / "m", HARD)
    stamp = (tmp_path / "m" / "manifest.json").stat().st_mtime_ns
    student(small, tmp_path / "m", HARD, settings=dataclasses.replace(SHORT, teacher_temperature=0.1))
    student(small, tmp_path / "m", HARD, fit=dataclasses.replace(UNWATCHED, measure="RR@10"))
    assert (tmp_path / "m" / "manifest.json").stat().st_mtime_ns == stamp, "nothing of that concerns hard labels"
    smoothed = student(small, tmp_path / "m", HARD, smoothing=0.2)
    assert smoothed.fingerprint != base.fingerprint
    assert smoothed.manifest.settings["target"] == "uniform"


def test_the_best_weights_are_kept_and_training_stops_early(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = iter([0.9, 0.3, 0.5, 0.4, 0.4])
    monkeypatch.setattr("colabel.train.dev.DevSet.evaluate", lambda *args: {"nDCG@10": {"v0": next(values)}})
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    longer, wanted = dataclasses.replace(SHORT, steps=8), FitSettings(evaluate_every=2, patience=4, keep="best")
    with caplog.at_level(logging.WARNING, logger="colabel"):
        best = student(small, tmp_path / "best", settings=longer, fit=wanted, dev=dev)
    assert best.manifest.counts["kept_step"] == 4
    assert best.manifest.counts["kept_value"] == 0.5
    assert "no step was better on dev than the start" in caplog.text
    values = iter([0.9, 0.3, 0.5])
    fit = dataclasses.replace(wanted, patience=2, keep="best-or-start")
    start = student(small, tmp_path / "start", settings=longer, fit=fit, dev=dev)
    assert start.manifest.counts["stopped_early"]
    assert (start.manifest.counts["steps"], start.manifest.counts["kept_step"]) == (4, 0)
    assert same(start.folder, small.encoder)
    values = iter([0.1, 0.3, 0.5, 0.4, 0.2])
    last = student(small, tmp_path / "last", settings=longer, fit=dataclasses.replace(wanted, keep="last"), dev=dev)
    assert last.manifest.counts["kept_step"] == 8
    unseen = student(small, tmp_path / "four", settings=longer, fit=dataclasses.replace(UNWATCHED, keep="last"))
    assert same(last.folder, unseen.folder), "evaluating does not disturb training"


class Told:
    """Dev with known values for two queries, in the order of the evaluations: the start, steps, then mixed weights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: float | Exception) -> None:
        self.left = list(values)
        monkeypatch.setattr("colabel.train.dev.DevSet.evaluate", lambda *_: self.next())

    def next(self) -> dict[str, dict[str, float]]:
        value = self.left.pop(0)
        if isinstance(value, Exception):
            raise value
        return {"nDCG@10": {"v0": value - 0.1, "v1": value + 0.1}}


PULLED = FitSettings(evaluate_every=2)


def summary_of(model: TrainedModel) -> dict[str, Any]:
    return dict(json.loads((model.folder / "training" / "summary.json").read_text()))


def test_a_student_is_pulled_back_to_its_start_as_far_as_dev_says(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    told = Told(monkeypatch, 0.5, 0.6, 0.4, 0.55, 0.7, 0.65)
    model = student(small, tmp_path / "pulled", fit=PULLED, dev=dev)
    found = summary_of(model)
    assert (found["alpha"], found["kept_step"], found["dev_queries"], told.left) == (0.5, 2, 2, [])
    assert found["dev"] == pytest.approx({"0.0": 0.5, "0.25": 0.55, "0.5": 0.7, "0.75": 0.65, "1.0": 0.6})
    assert found["gain"] == pytest.approx([0.2, 0.2, 0.2]) and found["kept_value"] == pytest.approx(0.7)
    Told(monkeypatch, 0.5, 0.6, 0.4)
    best = student(small, tmp_path / "best", fit=dataclasses.replace(PULLED, keep="best"), dev=dev)
    assert "alpha" not in summary_of(best) and not verdict(best.folder)
    for name, value in load_file(model.folder / "model.safetensors").items():
        both = [load_file(folder / "model.safetensors")[name] for folder in (small.encoder, best.folder)]
        assert torch.allclose(value, (both[0] + both[1]) / 2, atol=1e-7), name
    assert "mean of student and θ (α = 0.5)" in verdict(model.folder)
    assert "| α | 0.5 |" in (model.folder / "README.md").read_text()
    Told(monkeypatch, 0.5, 0.6, 0.7, 0.55, 0.6, 0.65)
    whole = student(small, tmp_path / "whole", fit=PULLED, dev=dev)
    last = student(small, tmp_path / "last", fit=dataclasses.replace(UNWATCHED, keep="last"))
    assert summary_of(whole)["alpha"] == 1.0 and same(whole.folder, last.folder)


def test_a_student_that_is_no_better_than_theta_is_theta_unless_forced(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    values = (0.6, 0.3, 0.4, 0.6, 0.5, 0.45)
    with caplog.at_level(logging.WARNING, logger="colabel"):
        Told(monkeypatch, *values)
        model = student(small, tmp_path / "kept", fit=PULLED, dev=dev)
        assert "no better on dev than θ" in caplog.text
        Told(monkeypatch, *values)
        forced = student(small, tmp_path / "forced", fit=dataclasses.replace(PULLED, keep="forced"), dev=dev)
        assert "dev says to keep θ" in caplog.text
    assert same(model.folder, small.encoder) and verdict(model.folder).startswith("Keep θ")
    assert summary_of(forced)["alpha"] == 0.25 and not same(forced.folder, small.encoder)
    assert verdict(forced.folder).startswith("Taken although dev says to keep θ")
    assert summary_of(model)["dev"] == summary_of(forced)["dev"], "what would have happened stands in both"


def test_without_dev_a_student_is_the_mean(small: Small, tmp_path: Path) -> None:
    model = student(small, tmp_path / "mean")
    assert summary_of(model)["alpha"] == 0.5 and "Nothing was measured on dev" in verdict(model.folder)
    again = student(small, tmp_path / "mean", fit=dataclasses.replace(UNWATCHED, keep="last"))
    assert again.fingerprint != model.fingerprint and not verdict(again.folder)


def test_a_kill_between_two_mixtures_repeats_none(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    Told(monkeypatch, 0.5, 0.6, 0.4, 0.55, TrainingError("killed"))
    with pytest.raises(TrainingError, match="killed"):
        student(small, tmp_path / "m", fit=PULLED, dev=dev)
    left = Told(monkeypatch, 0.7, 0.65)
    model = student(small, tmp_path / "m", fit=PULLED, dev=dev)
    assert left.left == [] and list(summary_of(model)["dev"].values()) == pytest.approx([0.5, 0.55, 0.7, 0.65, 0.6])


def test_theta_is_not_pulled(small: Small, tmp_path: Path) -> None:
    settings = TrainSettings(steps=2, batch_queries=2, passages=2)
    made = [
        train_theta(small.dataset, small.encoder, small.train, tmp_path / keep, settings=settings, fit=FitSettings(
            keep=keep, evaluate_every=0)) for keep in ("pulled", "forced", "best")
    ]  # fmt: skip
    assert len({one.fingerprint for one in made}) == 1, "--force trains no other θ"
    assert "alpha" not in summary_of(made[0])


def test_a_loss_that_is_no_number_stops_with_a_remedy(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Outcome(torch.tensor(math.nan, requires_grad=True), torch.zeros(()), 2)
    with monkeypatch.context() as patch:
        patch.setattr("colabel.train.objective.distillation_loss", lambda *args, **kwargs: nothing)
        with pytest.raises(TrainingError, match=r"nan at step 1.*learning rate \(now 0\.001\)"):
            student(small, tmp_path / "mad")
    assert not (tmp_path / "mad").exists()

    def full(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    with monkeypatch.context() as patch:
        patch.setattr(GroupTrainer, "training_step", full)
        with pytest.raises(TrainingError, match=r"2 queries × 3 passages per step: lower 'distil\.batch_queries'"):
            student(small, tmp_path / "full")
    monkeypatch.setattr("colabel.train.dev.DevSet.evaluate", full)
    dev = dev_set(small.dataset, small.dev, queries=5, depth=20)
    with pytest.raises(TrainingError, match=r"5 dev queries × 20 passages .*'fit\.evaluate_queries'"):
        student(small, tmp_path / "full", fit=FitSettings(evaluate_every=2), dev=dev)


def drawn(small: Small, steps: slice) -> list[str]:
    """Queries of some steps of a short run, in which each query comes once."""
    groups = groups_for(candidates_from_ranking(small.dataset, small.train, depth=20), SHORT, 0)
    ids = [groups.candidates.query_ids[number] for number in groups.queries.tolist()]
    assert len(set(ids)) == len(ids) == SHORT.steps * SHORT.batch_queries
    return [query_id for step in range(SHORT.steps)[steps] for query_id in ids[2 * step : 2 * step + 2]]


def test_a_teacher_that_scored_none_of_the_drawn_pairs_is_noticed(small: Small, tmp_path: Path) -> None:
    """As happens with labels whose pairs were chosen for another seed."""
    mute = Silent(small.dataset, small.dataset.queries)
    with pytest.raises(TrainingError, match="'overlap' has scored none of the passages drawn up to step 1"):
        student(small, tmp_path / "mute", mute)
    helped = student(small, tmp_path / "helped", mute, settings=dataclasses.replace(SHORT, hard_weight=0.5))
    assert [line["taught"] for line in helped.log] == [0.0] * 4
    assert not same(helped.folder, small.encoder), "the labels teach"


def test_a_teacher_may_have_nothing_to_say_for_a_while(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Silent(small.dataset, drawn(small, slice(1, None)))
    model = student(small, tmp_path / "first", first)
    assert [line["taught"] for line in model.log] == [1.0, 0.0, 0.0, 0.0]
    monkeypatch.setattr("colabel.train.loop.LOG_EVERY", 3)
    late = Silent(small.dataset, drawn(small, slice(0, 3)))
    with pytest.raises(TrainingError, match="drawn up to step 3"):
        student(small, tmp_path / "late", late)


def test_what_does_not_fit_is_refused_before_training(small: Small, tmp_path: Path) -> None:
    pool = candidates_from_ranking(small.dataset, small.train, depth=20)
    groups = groups_for(pool, SHORT, 0)
    longer = DistilSettings(**{**SHORT.as_dict(), "steps": 5})
    with pytest.raises(UsageError, match="8 groups of 3 passages were drawn, and the settings ask for 10 of 3"):
        distil(small.dataset, small.encoder, groups, None, tmp_path / "x", settings=longer)
    whole = DistilSettings(**{**SHORT.as_dict(), "scope": "batch"})
    stored = types.SimpleNamespace(name="ce", fingerprint="f", knows="candidates", scores=lambda *_: None)
    with pytest.raises(UsageError, match=r"'ce'.*distil\.scope"):
        distil(small.dataset, small.encoder, groups, stored, tmp_path / "x", settings=whole)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'nope' is not a measure"):
        student(small, tmp_path / "x", fit=FitSettings(measure="nope"))
    with pytest.raises(UsageError, match="does not exist"):
        distil(small.dataset, tmp_path / "nowhere", groups, None, tmp_path / "x", settings=SHORT)
    with pytest.raises(SettingsError, match=r"'fit\.precision' is 'bf16', and the training runs on a CPU"):
        choose_precision(FitSettings(precision="bf16"), "cpu")
    assert choose_precision(FitSettings(), "cpu") == "fp32"
    assert check_device("cpu") == "cpu"
    with pytest.raises(SettingsError, match="stopping early needs evaluations"):
        FitSettings(patience=2, evaluate_every=0)
    with pytest.raises(DataError, match="no query 'v0'"):
        dev_set(small.dataset, small.train, queries=5, depth=5)
    assert not list(tmp_path.iterdir())


def test_half_written_save_points_do_not_count(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"x")
    assert last_checkpoint(tmp_path / "none") is None
    mark_complete(tmp_path, 5, keep={10, 15})
    mark_complete(tmp_path, 10, keep={5, 15})
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert not (tmp_path / "checkpoint-15").exists()
    mark_complete(tmp_path, 10, keep=set())
    assert [place.name for place in tmp_path.iterdir()] == ["checkpoint-10"]


class Bar:
    """Records what a progress bar is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def start(self, what: str, total: int | None, unit: str) -> Task:
        self.told.append((what, total, unit))
        return self

    def advance(self, steps: int = 1) -> None:
        self.told.append(steps)

    def close(self) -> None:
        self.told.append("closed")


def test_progress_and_silence(small: Small, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    student(small, tmp_path / "m", progress=bar)
    assert bar.told == [("student (overlap)", 4, "steps"), 0, 1, 1, 1, 1, "closed"]
    assert capfd.readouterr().out == ""


def test_the_weights_do_change_and_all_of_them(small: Small, teacher: TrainedModel) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in (small.encoder, teacher.folder))
    still = [name for name in before if torch.equal(before[name], after[name])]
    assert all("pooler" in name for name in still), still

"""Train θ from hard labels and students from a teacher, each as its own artefact.

config_sentence_transformers.json, modules.json, model.safetensors …   a standard sentence-transformers checkpoint
README.md                   the model card
training/log.jsonl          loss, learning rate, target entropy, throughput, dev measures
training/summary.json       which step was kept, how much of it (α), and why
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Spec, Workspace, fingerprint, read_manifest
from colabel.artefacts.manifest import library_versions
from colabel.data import Dataset
from colabel.encode.encoder import no_progress_bars
from colabel.encode.weights import check_exists, is_late_interaction, weights_fingerprint
from colabel.errors import SettingsError, UsageError
from colabel.measures import parse_measure
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.settings import DistilSettings, FitSettings, TrainSettings
from colabel.teachers.guarded import CheckedTeacher
from colabel.teachers.protocol import Teacher
from colabel.train.callbacks import LOG_FILE, evaluations, read_log
from colabel.train.dev import DevSet
from colabel.train.distributed import build_together, connect, tell_all
from colabel.train.exports import model_card
from colabel.train.groups import Groups, candidates_from_ranking, groups_for
from colabel.train.loop import (
    CHECKPOINTS,
    GRADIENT_CLIP,
    WEIGHT_DECAY,
    Job,
    check_batch,
    check_device,
    choose_precision,
    pull_back,
)
from colabel.train.loop import fit as run_fit
from colabel.train.objective import LossSettings, target_name, teacher_scale
from colabel.train.pulling import UNDECIDED

STAGE = "model"
_SUMMARY = "training/summary.json"


@dataclass(frozen=True)
class TrainedModel:
    """A finished model: its folder is a sentence-transformers checkpoint."""

    folder: Path
    manifest: Manifest

    @property
    def fingerprint(self) -> str:
        """Names everything that the weights depend on."""
        return self.manifest.fingerprint

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the training log."""
        return read_log(self.folder / "training" / LOG_FILE)


def open_model(folder: Path) -> TrainedModel:
    """Open a finished model."""
    return TrainedModel(folder, read_manifest(folder, STAGE))


def train_theta(
    dataset: Dataset,
    start: Path,
    ranking: Ranking,
    out: Path,
    *,
    settings: TrainSettings | None = None,
    fit: FitSettings | None = None,
    seed: int = 0,
    dev: DevSet | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> TrainedModel:
    """Train θ: hard labels, negatives from a ranking of the training queries (the paper: BM25's top 1,000).

    Args:
        start: a prepared encoder (:func:`colabel.encode.prepare_encoder`) or any late-interaction checkpoint.
        dev: what to evaluate on (:func:`colabel.train.dev_set`); None: the last weights are kept.
    """
    settings = settings or TrainSettings()
    groups = groups_for(candidates_from_ranking(dataset, ranking, depth=settings.candidates), settings, seed)
    loss = LossSettings(scope="batch", temperature=settings.temperature)
    how = (settings, (fit or FitSettings()).unpulled(), seed, dev, device, settings.layers)
    job = Job("training θ", start, dataset, groups, None, loss, *how)
    return _train(job, out, {}, progress)


def distil(
    dataset: Dataset,
    start: Path,
    groups: Groups,
    teacher: Teacher | None,
    out: Path,
    *,
    smoothing: float = 0.0,
    settings: DistilSettings | None = None,
    fit: FitSettings | None = None,
    hard_scope: str = "group",
    layers: int | str = "all",
    seed: int = 0,
    dev: DevSet | None = None,
    device: str = "auto",
    about: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> TrainedModel:
    """Train a student from θ's checkpoint, and keep as much of it as dev says: α·student + (1 − α)·θ (``fit.keep``).

    Args:
        start: θ's folder.
        groups: what :func:`groups_for` drew; the same for all students that are to be compared.
        teacher: whose scores are the target: one that is asked in every step, or one whose scores are stored. None: the
            hard labels. It may be an object of your own; what it returns is checked.
        smoothing: ε of hard labels, the mass that is spread evenly over all passages of a step.
        hard_scope: what the hard-label term compares a query with, "group" or "batch" (the paper's cross-encoder rows).
        layers: how many upper layers are trained; see ``train.layers``.
        about: what the model card says of the teacher (β, f_p, …).
    """
    settings = settings or DistilSettings()
    teacher = None if teacher is None else CheckedTeacher(teacher)
    expected = (settings.steps * settings.batch_queries, settings.passages)
    if (len(groups), groups.size) != expected:
        raise UsageError(
            f"{len(groups)} groups of {groups.size} passages were drawn, and the settings ask for {expected[0]} of "
            f"{expected[1]}; draw them with the same settings"
        )
    if not 0.0 <= smoothing < 1.0:
        raise SettingsError(f"the smoothing ε is {smoothing}; expected a number from 0 up to, not including, 1")
    if smoothing and teacher is not None:
        raise UsageError(f"the smoothing ε is {smoothing}, and '{teacher.name}' teaches; only hard labels are smoothed")
    if settings.scope == "batch" and teacher is not None and teacher.knows != "any":
        raise UsageError(
            f"the teacher '{teacher.name}' scores a query's own candidates only, and 'distil.scope' is 'batch', which "
            "needs scores of every passage of a step; use scope 'group', a teacher that scores any pair, or "
            "StoredTeacher(labels, others_irrelevant=True)"
        )
    scale = 1.0
    if teacher is not None and settings.teacher_scale == "matched":
        scale = teacher_scale(groups, teacher)
    loss = LossSettings(
        scope=settings.scope,
        temperature=settings.temperature,
        teacher_temperature=settings.teacher_temperature / scale,
        floor=settings.floor,
        hard_weight=settings.hard_weight,
        hard_scope=hard_scope,
        smoothing=smoothing,
    )
    what = f"student ({target_name(teacher, smoothing)})"
    how = (settings, fit or FitSettings(), seed, dev, device, layers)
    job = Job(what, start, dataset, groups, teacher, loss, *how)
    return _train(job, out, about or {}, progress)


def _train(job: Job, out: Path, about: Mapping[str, Any], progress: Progress) -> TrainedModel:
    parse_measure(job.fit.measure)  # refused before training starts, not at the first evaluation
    check_exists(str(job.start))
    if not is_late_interaction(str(job.start)):
        raise UsageError(f"{job.start} is a plain encoder; make it a late-interaction model first: prepare_encoder")
    check_batch(job.settings)
    device = check_device(job.device)
    spec = _spec(job, choose_precision(job.fit, device))
    connect(cpu=device == "cpu")

    def follow(folder: Path) -> None:
        if tell_all(None):
            run_fit(job, folder)

    build_together(out, spec, lambda space: _write(job, space, about, progress), follow)
    return open_model(out)


def _spec(job: Job, precision: str) -> Spec:
    evaluating = job.evaluator is not None
    kept = {
        **job.settings.effective("always" if job.teacher is None else "teaching"),
        **job.fit.effective("evaluation" if evaluating else "always"),
        "weight_decay": WEIGHT_DECAY,
        "gradient_clip": GRADIENT_CLIP,
        "precision": precision,
        "target": job.target_name,
    }
    if job.layers != "all":
        kept["layers"] = job.layers
    if job.fit.pulls and not evaluating:
        kept["alpha"] = UNDECIDED
    if job.teacher is not None and job.loss.hard_weight:
        kept["hard_scope"] = job.loss.hard_scope
    hard = fingerprint({"target": job.target_name, "smoothing": job.loss.smoothing})
    inputs = {
        "start": weights_fingerprint(str(job.start)),
        "groups": job.groups.fingerprint,
        "target": hard if job.teacher is None else job.teacher.fingerprint,
    }
    if evaluating and job.dev is not None:
        inputs["dev"] = job.dev.fingerprint
    return Spec(STAGE, kept, inputs, seed=job.seed)


def _write(job: Job, space: Workspace, about: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    tell_all(not space.done(_SUMMARY))
    if not space.done(_SUMMARY):
        model, state, kept = run_fit(job, space.folder, progress, saved=space.keep_time)
        summary = _summary(job, state.global_step, kept, evaluations(state.log_history))
        if job.fit.pulls:
            summary |= pull_back(model, job, space.folder, kept)
        with no_progress_bars():
            model.save(str(space.folder), create_model_card=False)
        with space.file(_SUMMARY) as path:
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(space.folder / CHECKPOINTS, ignore_errors=True)
    summary = json.loads((space.folder / _SUMMARY).read_text(encoding="utf-8"))
    with space.file("README.md") as path:
        path.write_text(_card(job, summary, about), encoding="utf-8")
    return {name: value for name, value in summary.items() if name != "evaluations"}


def _summary(job: Job, steps: int, kept: int, found: list[tuple[int, float]]) -> dict[str, Any]:
    values = dict(found)
    return {
        "steps": steps,
        "kept_step": kept,
        "measure": job.fit.measure if found else None,
        "start_value": values.get(0),
        "kept_value": values.get(kept),
        "stopped_early": steps < job.settings.steps,
        "groups": len(job.groups),
        "queries": len(job.groups.candidates),
        "filled_negatives": job.groups.filled,
        "empty_positives": job.groups.candidates.empty_positives,
        "unranked_queries": job.groups.candidates.unranked,
        "evaluations": found,
    }


def _card(job: Job, summary: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    data = {"collection": job.dataset.name, "passages": len(job.dataset.passages), "queries": summary["queries"]}
    teacher = {"target": job.target_name, **about}
    if job.loss.smoothing:
        teacher["ε"] = job.loss.smoothing
    settings = job.settings.effective("always" if job.teacher is None else "teaching")
    training = {
        **settings,
        "layers": job.layers,
        **job.fit.as_dict(),
        "seed": job.seed,
        "kept step": summary["kept_step"],
        **({"α": summary["alpha"]} if "alpha" in summary else {}),
    }
    sections = {"Data": data, "Teacher": teacher, "Training": training, "Versions": library_versions()}
    return model_card(f"{job.dataset.name}: {job.what}", sections, summary["evaluations"], job.fit.measure)

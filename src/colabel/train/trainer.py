"""Train the teacher θ from hard labels, and students from any target, each as an artefact of its own.

config_sentence_transformers.json, modules.json, model.safetensors …   a standard sentence-transformers checkpoint
README.md                   the model card
training/log.jsonl          loss, learning rate, target entropy, throughput, dev measures
training/summary.json       which step was kept, and why
training/tensorboard/       the same as the log, where TensorBoard is installed
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Plan, Workspace, read_manifest
from colabel.artefacts.manifest import library_versions
from colabel.data import Dataset
from colabel.encode.quiet import no_progress_bars
from colabel.encode.weights import check_exists, is_late_interaction, weights_fingerprint
from colabel.errors import UsageError
from colabel.measures import parse_measure
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.settings import DistilSettings, FitSettings, TrainSettings
from colabel.teachers.base import Teacher
from colabel.train.card import model_card
from colabel.train.evaluator import DevPool
from colabel.train.fit import Fitted, Job, check_batch, check_device, choose_precision, fit, remove_checkpoints
from colabel.train.groups import Groups, Mining, draw_groups
from colabel.train.keeping import evaluations
from colabel.train.logs import LOG_FILE, read_log
from colabel.train.objective import Comparison
from colabel.train.pool import Pool, pool_from_ranking
from colabel.train.processes import build_together, connect, tell_all
from colabel.train.scale import teacher_scale
from colabel.train.targets import HardLabels, Target

log = logging.getLogger(__name__)

STAGE = "model"
_SUMMARY = "training/summary.json"
_EVALUATION_ONLY = (
    "measure",
    "evaluate_every",
    "evaluate_queries",
    "evaluate_depth",
    "keep",
    "keep_start",
    "patience",
)
TEACHING_ONLY = ("teacher_temperature", "teacher_scale", "floor", "hard_weight", "hard_scope")
_WITHOUT_EFFECT = (
    "teacher",
    "save_every",
    "log_every",
    "tensorboard",
    "candidates",
    "mining",
    "mining_margin",
    "mining_share",
    "others",
)
"""Settings that do not change the weights, or are named by the groups or the target."""


@dataclass(frozen=True)
class TrainedModel:
    """A finished model: its folder is a sentence-transformers checkpoint."""

    folder: Path
    manifest: Manifest

    @property
    def fingerprint(self) -> str:
        """Names all that the weights depend on."""
        return self.manifest.fingerprint

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the training log."""
        return read_log(self.folder / "training" / LOG_FILE)


def open_model(folder: Path) -> TrainedModel:
    """Open a finished model."""
    return TrainedModel(folder, read_manifest(folder, STAGE))


def groups_for(pool: Pool, settings: FitSettings, seed: int, scorer: Teacher | None = None) -> Groups:
    """The groups of a whole run by its settings; the same for every target.

    Args:
        scorer: gives the score φ⁺ of positives that mining needs where they are not among a query's candidates.
    """
    value = settings.mining_margin if settings.mining == "margin" else settings.mining_share
    mining = Mining(settings.mining, value)
    count = settings.steps * settings.batch_queries
    groups = draw_groups(pool, count=count, size=settings.passages, seed=seed, mining=mining, scorer=scorer)
    left_out, looked_at = groups.mined
    if left_out:
        log.info("mining left out %s of %s candidates", f"{left_out:,}", f"{looked_at:,}")
    if groups.filled:
        log.info("%s negatives come from the whole collection, since pools were too small", f"{groups.filled:,}")
    return groups


def train_teacher(
    dataset: Dataset,
    start: Path,
    ranking: Ranking,
    out: Path,
    *,
    settings: TrainSettings | None = None,
    seed: int = 0,
    dev: DevPool | None = None,
    device: str = "auto",
    batch_tokens: int = 4096,
    progress: Progress = SILENT,
) -> TrainedModel:
    """Train θ: hard labels, negatives from a ranking of the training queries (the paper: BM25's top 1,000).

    Args:
        start: a prepared encoder (:func:`colabel.encode.prepare_encoder`) or any late-interaction checkpoint.
        dev: what to evaluate on (:func:`colabel.train.dev_pool`); None: the last weights are kept.
        batch_tokens: padded tokens that an evaluation encodes at once.
    """
    settings = settings or TrainSettings()
    groups = groups_for(pool_from_ranking(dataset, ranking, depth=settings.candidates), settings, seed)
    comparison = Comparison(scope=settings.scope, temperature=settings.temperature)
    target = HardLabels()
    job = Job("training θ", start, dataset, groups, target, comparison, settings, seed, dev, device, batch_tokens)
    return _train(job, out, {}, progress)


def distil(
    dataset: Dataset,
    start: Path,
    groups: Groups,
    target: Target,
    out: Path,
    *,
    settings: DistilSettings | None = None,
    seed: int = 0,
    dev: DevPool | None = None,
    device: str = "auto",
    batch_tokens: int = 4096,
    about: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> TrainedModel:
    """Train a student from θ's checkpoint.

    Args:
        start: θ's folder.
        groups: what :func:`groups_for` drew; the same for all students that are to be compared.
        target: hard labels, stored scores or a teacher that is asked.
        batch_tokens: padded tokens that an evaluation encodes at once.
        about: what the model card says of the teacher (β, f_p, …).
    """
    settings = settings or DistilSettings()
    expected = (settings.steps * settings.batch_queries, settings.passages)
    if (len(groups), groups.size) != expected:
        raise UsageError(
            f"{len(groups)} groups of {groups.size} passages were drawn, and the settings ask for {expected[0]} of "
            f"{expected[1]}; draw them with the same settings"
        )
    if settings.scope == "batch" and not target.any_passage:
        raise UsageError(
            f"stored labels of '{target.name}' hold a query's own candidates, and 'distil.scope' is 'batch', which "
            "needs scores of every passage of a step; use scope 'group', a teacher that is asked while training, or "
            "StoredScores(labels, others_irrelevant=True)"
        )
    scale = teacher_scale(groups, target) if settings.teacher_scale == "matched" else 1.0
    comparison = Comparison(
        scope=settings.scope,
        temperature=settings.temperature,
        teacher_temperature=settings.teacher_temperature / scale,
        floor=settings.floor,
        hard_weight=settings.hard_weight,
        hard_scope=settings.hard_scope,
    )
    what = f"student ({target.name})"
    job = Job(what, start, dataset, groups, target, comparison, settings, seed, dev, device, batch_tokens)
    return _train(job, out, about or {}, progress)


def _train(job: Job, out: Path, about: Mapping[str, Any], progress: Progress) -> TrainedModel:
    parse_measure(job.settings.measure)  # refused before training starts, not at the first evaluation
    check_exists(str(job.start))
    if not is_late_interaction(str(job.start)):
        raise UsageError(f"{job.start} is a plain encoder; make it a late-interaction model first: prepare_encoder")
    check_batch(job.settings)
    device = check_device(job.device)
    plan = _plan(job, choose_precision(job.settings, device))
    connect(cpu=device == "cpu")

    def write(space: Workspace) -> Mapping[str, Any]:
        return _write(job, space, about, progress)

    def follow(folder: Path) -> None:
        if tell_all(None):
            fit(job, folder)

    build_together(out, plan, write, follow)
    return open_model(out)


def _plan(job: Job, precision: str) -> Plan:
    kept = {**job.settings.as_dict(), "precision": precision, "target": job.target.name}
    evaluating = job.dev is not None and job.settings.evaluate_every > 0
    for name in _WITHOUT_EFFECT:
        kept.pop(name, None)
    if isinstance(job.target, HardLabels):
        for name in TEACHING_ONLY:
            kept.pop(name, None)
    if not evaluating:
        for name in _EVALUATION_ONLY:
            kept.pop(name)
    inputs = {
        "start": weights_fingerprint(str(job.start)),
        "groups": job.groups.fingerprint,
        "target": job.target.fingerprint,
    }
    if evaluating and job.dev is not None:
        inputs["dev"] = job.dev.fingerprint
    return Plan(STAGE, kept, inputs, seed=job.seed)


def _write(job: Job, space: Workspace, about: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    tell_all(not space.done(_SUMMARY))
    if not space.done(_SUMMARY):
        fitted = fit(job, space.folder, progress, saved=space.keep_time)
        with no_progress_bars():
            fitted.model.save(str(space.folder), create_model_card=False)
        summary = _summary(job, fitted)
        with space.file(_SUMMARY) as path:
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    remove_checkpoints(space.folder)
    summary = json.loads((space.folder / _SUMMARY).read_text(encoding="utf-8"))
    with space.file("README.md") as path:
        path.write_text(_card(job, summary, about), encoding="utf-8")
    return {name: value for name, value in summary.items() if name != "evaluations"}


def _summary(job: Job, fitted: Fitted) -> dict[str, Any]:
    found = evaluations(fitted.history)
    values = dict(found)
    left_out, looked_at = job.groups.mined
    return {
        "steps": fitted.steps,
        "kept_step": fitted.kept_step,
        "measure": job.settings.measure if found else None,
        "start_value": values.get(0),
        "kept_value": values.get(fitted.kept_step),
        "stopped_early": fitted.steps < job.settings.steps,
        "groups": len(job.groups),
        "queries": len(job.groups.pool),
        "filled_negatives": job.groups.filled,
        "mined_candidates": left_out,
        "looked_at_candidates": looked_at,
        "empty_positives": job.groups.pool.empty_positives,
        "unranked_queries": job.groups.pool.unranked,
        "evaluations": found,
    }


def _card(job: Job, summary: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    settings = job.settings
    data = {
        "collection": job.dataset.name,
        "passages": f"{len(job.dataset.passages):,}",
        "training queries with a positive": f"{summary['queries']:,}",
    }
    training = {
        "steps": f"{summary['steps']:,} (kept: {summary['kept_step']:,})",
        "queries × passages a step": f"{settings.batch_queries} × {settings.passages}",
        "compared with": "all passages of the step" if job.comparison.scope == "batch" else "its own passages",
        "learning rate": f"{settings.learning_rate:g} ({settings.schedule}, warm-up {settings.warmup:g})",
        "temperature": settings.temperature,
        "seed": job.seed,
    }
    teacher: dict[str, Any] = {"target": job.target.name, **about}
    if not isinstance(job.target, HardLabels):
        teacher |= {
            "teacher temperature": f"{job.comparison.teacher_temperature:.4g}",
            "label floor": job.comparison.floor,
            "weight of the hard-label term": job.comparison.hard_weight,
        }
    elif job.target.smoothing:
        teacher["ε"] = job.target.smoothing
    sections = {"Data": data, "Teacher": teacher, "Training": training, "Versions": library_versions()}
    found = [(int(step), float(value)) for step, value in summary["evaluations"]]
    return model_card(
        f"{job.dataset.name}: {job.what}", sections, found, measure=settings.measure, kept_step=summary["kept_step"]
    )

"""The training loop: sentence-transformers' trainer with our batches, our loss and save points that survive a kill."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
from sentence_transformers.base.trainer import BaseTrainer
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from transformers import PrinterCallback, TrainerState

from colabel.data import Dataset
from colabel.encode.colbert import choose_device, load_checkpoint, refuse_token_pooling
from colabel.encode.encoder import no_progress_bars
from colabel.errors import SettingsError, TrainingError, UsageError
from colabel.progress import SILENT, Progress
from colabel.settings import DistilSettings, FitSettings, TrainSettings
from colabel.teachers.protocol import Teacher
from colabel.train.callbacks import (
    LOG_FILE,
    DevEvaluator,
    Keeper,
    TrainingLog,
    best_step,
    last_checkpoint,
    mark_complete,
    memory_in_words,
    should_stop,
)
from colabel.train.dev import DevSet
from colabel.train.distributed import connect, is_main_process, process_count, tell_all, wait_for_all
from colabel.train.groups import Groups, GroupTexts, collator_for
from colabel.train.lower_layers import FOLDER, LowerLayers
from colabel.train.objective import LossSettings, Objective, target_name
from colabel.train.pulling import ALPHAS, choose_alpha, describe_choice, mixed

log = logging.getLogger(__name__)

WEIGHT_DECAY = 0.0  # as the authors train
GRADIENT_CLIP = 2.0  # longest gradient, the authors' too
SAVE_EVERY = 100  # steps between two save points
LOG_EVERY = 10  # steps between two lines of the training log
CHECKPOINTS = "checkpoints"
"""The folder of save points, which is removed at the end."""

_SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


@dataclass(frozen=True)
class Job:
    """Everything that a training run depends on."""

    what: str
    start: Path
    dataset: Dataset
    groups: Groups
    teacher: Teacher | None
    loss: LossSettings
    settings: TrainSettings | DistilSettings
    fit: FitSettings
    seed: int
    dev: DevSet | None
    device: str
    layers: int | str = "all"

    @property
    def texts(self) -> dict[str, list[str]]:
        """All passages and queries that steps and evaluations read, each once, by task."""
        rows, queries = (
            np.unique(self.groups.rows),
            [self.groups.candidates.query_ids[one] for one in np.unique(self.groups.queries)],
        )
        if self.dev is not None and self.fit.evaluate_every:
            rows, queries = np.union1d(rows, self.dev.rows[self.dev.rows >= 0]), [*queries, *self.dev.query_ids]
        passages = [self.dataset.passages[row].full_text for row in rows.tolist()]
        return {"document": passages, "query": [self.dataset.queries[one] for one in queries]}

    @property
    def evaluator(self) -> DevEvaluator | None:
        """Measures weights on dev; None where nothing is."""
        if self.dev is None or not self.fit.evaluate_every:
            return None
        return DevEvaluator(self.dev, self.fit.measure)

    @property
    def target_name(self) -> str:
        """What the model learns from."""
        return target_name(self.teacher, self.loss.smoothing)


def fit(
    job: Job, folder: Path, progress: Progress = SILENT, saved: Callable[[], None] = lambda: None
) -> tuple[MultiVectorEncoder, TrainerState, int]:
    """Train in ``folder``, where save points and the log are; a run that was killed goes on at the last save point.

    ``saved`` is called after each save point.

    Returns:
        The model with the weights that are kept, the trainer's state, and the step of those weights.
    """
    device = check_device(job.device)
    connect(cpu=device == "cpu")
    model = load_checkpoint(str(job.start), device)
    refuse_token_pooling(model)
    lower = LowerLayers(model, job.layers) if isinstance(job.layers, int) else None
    checkpoints = folder / CHECKPOINTS
    resume = tell_all(last_checkpoint(checkpoints) if is_main_process() else None)
    objective = Objective(model, job.groups, job.teacher, job.loss)
    evaluator = job.evaluator
    evaluating = evaluator is not None
    trainer = GroupTrainer(
        model=model,
        args=_arguments(job, checkpoints, device, evaluating=evaluating, resumed=resume is not None),
        train_dataset=GroupTexts(job.dataset, job.groups),
        loss=objective,
        evaluator=evaluator,
        data_collator=collator_for(model),  # type: ignore[arg-type] # any function will do
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Keeper(job.fit.patience, evaluating=evaluating))
    task = progress.start(job.what, job.settings.steps, "steps")
    if is_main_process():
        path, hard = folder / "training" / LOG_FILE, job.loss.hard_weight > 0
        trainer.add_callback(TrainingLog(path, task, saved, objective.meter, job.target_name, hard_labels=hard))
    section = job.settings.section
    memory = memory_in_words(
        f"{job.settings.batch_queries} queries × {job.settings.passages} passages per step",
        f"lower '{section}.batch_queries' or '{section}.passages', or shorten passages ('encoder.passage_length' of a "
        "new encoder)",
    )
    state = None if resume is None else TrainerState.load_from_json(str(Path(resume) / "trainer_state.json"))
    try:
        if state is not None and (
            state.global_step >= job.settings.steps or should_stop(state.log_history, job.fit.patience)
        ):
            _load_weights(model, Path(resume))
        else:
            with memory, no_progress_bars(), _skipping(lower, job, checkpoints / FOLDER, progress):
                trainer.train(resume_from_checkpoint=resume)
            state = trainer.state
    finally:
        task.close()
    kept = _keep(trainer.model, job, state, checkpoints)
    wait_for_all()
    return trainer.model, state, kept


def _skipping(lower: LowerLayers | None, job: Job, folder: Path, progress: Progress) -> AbstractContextManager[None]:
    """Where layers are frozen: their output, computed once in process 0, takes their place."""
    if lower is None:
        return nullcontext()
    if is_main_process():
        lower.compute(job.texts, folder, progress)
    wait_for_all()
    return lower.skipped(folder)


class SafeTrainer(BaseTrainer):
    """Takes the groups in their own order, writes whole save points, and stops where the loss is no number."""

    advice = ""
    """What else to do where training diverges."""

    def _build_dataloader(self, dataset: Any, batch_size: int, dataset_kind: str) -> DataLoader[Any]:
        batches = BatchSampler(SequentialSampler(dataset), batch_size, drop_last=True)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=self.data_collator)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none: the manifest, and a card of our own, say how the model was made."""

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One batch; refuses a loss that is not a number before it reaches the weights' save points."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if not math.isfinite(float(loss)):
            raise TrainingError(
                f"training diverged: the loss is {float(loss)} at step {self.state.global_step + 1}. Lower the "
                f"learning rate (now {self.args.learning_rate:g}){self.advice}"
            )
        return loss

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self.model.save_pretrained(str(output_dir), create_model_card=False)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        wait_for_all()  # every process has written its part
        if is_main_process():
            best = best_step(self.state.log_history) or 0
            mark_complete(Path(str(self.args.output_dir)), self.state.global_step, keep={best})


class GroupTrainer(SafeTrainer, MultiVectorEncoderTrainer):
    """Trains θ and students."""

    advice = ', raise the temperatures or lengthen the warm-up; on a GPU try fit.precision = "fp32"'

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        _load_weights(self.model, Path(checkpoint_path))


def check_device(name: str) -> str:
    """'cpu' or 'cuda'; which of several GPUs is for the launcher to say."""
    device = choose_device(name)
    if ":" in device:
        raise UsageError(
            f"training uses the first visible GPU; instead of '{device}' use 'cuda' and set CUDA_VISIBLE_DEVICES="
            + device.split(":")[1]
        )
    return device


def choose_precision(settings: FitSettings, device: str) -> str:
    """The arithmetic of a device: fp32 on a CPU, where half precision is slow or missing."""
    wanted = settings.precision
    if device == "cpu":
        if wanted in ("bf16", "fp16"):
            raise SettingsError(f"'fit.precision' is '{wanted}', and the training runs on a CPU; use 'auto' or 'fp32'")
        return "fp32"
    if wanted == "auto":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    return wanted


def check_batch(settings: TrainSettings | DistilSettings) -> None:
    """Refuse a batch that the processes cannot share evenly."""
    processes = process_count()
    if settings.batch_queries % processes:
        raise SettingsError(
            f"'{settings.section}.batch_queries' is {settings.batch_queries}, which {processes} processes cannot share "
            "evenly; choose a multiple of the number of processes"
        )


def _arguments(
    job: Job, folder: Path, device: str, *, evaluating: bool, resumed: bool
) -> MultiVectorEncoderTrainingArguments:
    settings, fit = job.settings, job.fit
    arguments = MultiVectorEncoderTrainingArguments(
        **common_arguments(folder, job.seed, choose_precision(fit, device), device),
        per_device_train_batch_size=settings.batch_queries // process_count(),
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=_SCHEDULES[fit.schedule],
        warmup_steps=round(fit.warmup * settings.steps),
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=GRADIENT_CLIP,
        data_seed=job.seed,
        eval_strategy="steps" if evaluating else "no",
        eval_steps=fit.evaluate_every or None,
        eval_on_start=evaluating and not resumed,
        logging_steps=LOG_EVERY,
        dataloader_drop_last=True,
        ddp_broadcast_buffers=False,  # processes forward different numbers of chunks, and broadcasts would not match
        dataloader_pin_memory=device != "cpu",
    )
    arguments._n_gpu = min(1, arguments._n_gpu)  # one process, one GPU: several are for torchrun
    return arguments


def common_arguments(folder: Path, seed: int, precision: str, device: str) -> dict[str, Any]:
    """What the trainers of both kinds of model are given: where save points go, arithmetic, seed, and silence."""
    return {
        "output_dir": str(folder),
        "optim": "adamw_torch",
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "use_cpu": device == "cpu",
        "seed": seed,
        "save_strategy": "steps",
        "save_steps": SAVE_EVERY,
        "remove_unused_columns": False,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "report_to": "none",
    }


def _keep(model: MultiVectorEncoder, job: Job, state: TrainerState, checkpoints: Path) -> int:
    """Put the weights that are kept into the model; returns their step."""
    last = int(state.global_step)
    best = best_step(state.log_history, count_start=job.fit.keep == "best-or-start")
    kept = last if job.fit.keep == "last" or best is None else best
    if best_step(state.log_history, count_start=True) == 0 and is_main_process() and not job.fit.pulls:
        log.warning("%s: no step was better on dev than the start; the weights of step %d are kept", job.what, kept)
    if kept == last:
        return last
    _load_weights(model, job.start if kept == 0 else checkpoints / f"checkpoint-{kept}")
    return kept


def pull_back(model: MultiVectorEncoder, job: Job, folder: Path, kept: int) -> dict[str, Any]:
    """Give a trained model the mean of its weights and the start's that is best on dev; what the summary says of it.

    α = 0 and 1 were measured while it was trained, which leaves an evaluation for each of the others. A call that was
    killed goes on with those that are left.
    """
    start = load_checkpoint(str(job.start), "cpu").state_dict()
    trained = {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}
    evaluator, values = job.evaluator, {}
    names: dict[float, object] = {0.0: 0, 1.0: kept}
    for alpha in ALPHAS:
        if evaluator is not None:
            model.load_state_dict(mixed(start, trained, alpha))
            values[alpha] = evaluator.values(model, folder / CHECKPOINTS, names.get(alpha, f"{kept}-alpha-{alpha}"))
    alpha = choose_alpha(values, job.what, force=job.fit.keep == "forced")
    model.load_state_dict(mixed(start, trained, alpha))
    found = describe_choice(alpha, values, job.fit.measure if values else None)
    if job.dev is not None and values:
        found |= {"reranked": job.dev.rows.shape[1], "kept_value": found["dev"][str(alpha)]}
    return found


def _load_weights(model: MultiVectorEncoder, folder: Path) -> None:
    model.load_state_dict(load_checkpoint(str(folder), "cpu").state_dict())

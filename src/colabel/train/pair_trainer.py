"""sentence-transformers' cross-encoder trainer, made silent, deterministic and safe to kill."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.util import batch_to_device
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from colabel.encode.encoder import length_batches
from colabel.encode.quiet import no_progress_bars
from colabel.errors import TrainingError
from colabel.progress import Progress
from colabel.settings import CrossEncoderSettings
from colabel.teachers.pairs import PairReader
from colabel.train.batches import PASSAGE, QUERY, GroupTexts
from colabel.train.checkpoints import drop_outdated, last_checkpoint, mark_complete
from colabel.train.logs import AfterSaving, ProgressBar, read_log
from colabel.train.memory import memory_in_words

LOG_FILE = "training.jsonl"
_CHECKPOINTS = "checkpoints"
_TOGETHER = 4096  # padded tokens that go through the model at once


class PairLoss(torch.nn.Module):
    """The loss of a batch of groups: a query with its labelled passage first and hard negatives behind it.

    ``listwise``: −ln softmax(s)₀ over a group's passages, the mean over groups.
    ``binary``: the cross-entropy of sigmoid(s) with 1 for the labelled passage and 0 for the others, over all pairs.
    """

    def __init__(self, model: CrossEncoder, reader: PairReader, kind: str) -> None:
        super().__init__()
        self.model = model
        self._reader = reader
        self._listwise = kind == "listwise"

    def forward(
        self, inputs: list[Any], labels: object = None, prompt: str | None = None, task: str | None = None
    ) -> torch.Tensor:
        """The loss, float32 []; ``inputs`` are queries [groups] and their passages [groups][1 + n]."""
        queries, passages = inputs
        pairs = [(query, passage) for query, found in zip(queries, passages, strict=True) for passage in found]
        places, parts = [], []
        for batch in length_batches(self._lengths(pairs), _TOGETHER):
            chosen = [pairs[place] for place in batch]
            features = self.model.preprocess(chosen, prompt=prompt, task=task, processing_kwargs=self._reader.options)
            parts.append(self.model(batch_to_device(features, self.model.device))["scores"].view(-1).float())
            places += batch
        order = torch.tensor(places, device=parts[0].device).argsort()
        return pair_loss(torch.cat(parts)[order].view(len(queries), -1), listwise=self._listwise)

    def _lengths(self, pairs: list[tuple[str, str]]) -> list[int]:
        """Tokens of each pair, so that short pairs are not padded to the longest of the whole batch."""
        queries, passages = (self._reader.count_tokens(texts) for texts in zip(*pairs, strict=True))
        return [self._reader.pair_length(*counts) for counts in zip(queries, passages, strict=True)]


def pair_loss(scores: torch.Tensor, *, listwise: bool) -> torch.Tensor:
    """Loss of scores [groups, 1 + n], the labelled passage's first.

    >>> pair_loss(torch.zeros(3, 4), listwise=True).exp().item()
    4.0
    """
    if listwise:
        return torch.nn.functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1.0
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, targets)


def train_pairs(
    model: CrossEncoder,
    texts: GroupTexts,
    settings: CrossEncoderSettings,
    folder: Path,
    *,
    queries: Sequence[str],
    seed: int,
    precision: str,
    progress: Progress,
    saved: Callable[[], None] = lambda: None,
) -> None:
    """Train ``model`` in place over the groups in their order, from the last save point in ``folder`` if there is one.

    Save points are the trainer's own checkpoints, in a folder that is removed at the end. ``queries`` are all that may
    come, so that those too long to leave room for a passage are cut, and said, once. ``precision`` is 'fp32', 'bf16' or
    'fp16'. ``saved`` is called after each save point.
    """
    reader = PairReader(model, settings.max_length)
    cut = {whole: fitted for whole, fitted in zip(queries, reader.fit_queries(queries), strict=True) if whole != fitted}
    last = last_checkpoint(folder / _CHECKPOINTS)
    _cut_log(folder / LOG_FILE, 0 if last is None else int(last.rpartition("-")[2]))
    arguments = _arguments(settings, folder, model, seed, precision)
    trainer = _Trainer(model, PairLoss(model, reader, settings.loss), texts, cut, arguments)
    bar = ProgressBar(progress, "training the cross-encoder")
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(bar)
    trainer.add_callback(_Log(folder / LOG_FILE))
    trainer.add_callback(_SavePoints(settings.save_seconds))
    trainer.add_callback(AfterSaving(saved))
    try:
        with _memory(settings), no_progress_bars():
            trainer.train(resume_from_checkpoint=last)
    finally:
        bar.close()
    shutil.rmtree(folder / _CHECKPOINTS, ignore_errors=True)


def _memory(settings: CrossEncoderSettings) -> AbstractContextManager[None]:
    return memory_in_words(
        f"{settings.batch_queries} queries × {1 + settings.negatives} passages a step of the cross-encoder",
        "lower 'cross_encoder.batch_queries', 'cross_encoder.negatives' or 'cross_encoder.max_length'",
    )


def _arguments(
    settings: CrossEncoderSettings, folder: Path, model: CrossEncoder, seed: int, precision: str
) -> CrossEncoderTrainingArguments:
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder / _CHECKPOINTS),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_queries,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch",
        seed=seed,
        use_cpu=model.device.type == "cpu",
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        eval_strategy="no",
        save_strategy="no",  # save points go by the clock
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # else each batch would be split over all devices
    return arguments


class _Trainer(CrossEncoderTrainer):
    """Takes the groups one after another, and saves neither model cards nor pickled arguments."""

    def __init__(
        self,
        model: CrossEncoder,
        loss: PairLoss,
        texts: GroupTexts,
        cut: Mapping[str, str],
        arguments: CrossEncoderTrainingArguments,
    ) -> None:
        self._texts, self._cut = texts, cut
        super().__init__(model=model, args=arguments, loss=loss)

    def get_train_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Batches in the order of the groups."""
        size = self.args.per_device_train_batch_size
        loader = DataLoader(self._texts, batch_size=size, shuffle=False, collate_fn=self._collate)
        prepared: DataLoader[dict[str, Any]] = self.accelerator.prepare(loader)
        return prepared

    def _collate(self, groups: list[dict[str, Any]]) -> dict[str, list[Any]]:
        return {
            QUERY: [self._cut.get(group[QUERY], group[QUERY]) for group in groups],
            PASSAGE: [group[PASSAGE] for group in groups],
        }

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: our manifest says how the model was made."""

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        self.model.save_pretrained(str(output_dir), create_model_card=False)


class _Log(TrainerCallback):
    """A line of JSON for every step: step, loss, learning_rate, gradient_norm."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the line, or stop where the loss is no number any more."""
        if not logs or "loss" not in logs:
            return
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise TrainingError(
                f"the cross-encoder's loss is {loss} at step {state.global_step}; lower 'cross_encoder.learning_rate', "
                'and on a GPU try cross_encoder.precision = "fp32"'
            )
        line = {
            "step": state.global_step,
            "loss": loss,
            "learning_rate": float(logs["learning_rate"]),
            "gradient_norm": float(logs.get("grad_norm", 0.0)),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class _SavePoints(TrainerCallback):
    """Asks for a save point when it is time, and says when it is whole."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._saved = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask."""
        if time.monotonic() - self._saved >= self._seconds and state.global_step < state.max_steps:
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Say so, and remove the one before."""
        folder = Path(str(args.output_dir))
        mark_complete(folder, state.global_step)
        drop_outdated(folder, keep={state.global_step})
        self._saved = time.monotonic()


def _cut_log(path: Path, step: int) -> None:
    """Drop the lines of steps after the save point: they come again."""
    kept = [line for line in read_log(path) if line["step"] <= step]
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    temporary.replace(path)

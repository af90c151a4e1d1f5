"""What a training run does beside its steps: logs, save points, evaluations, and the choice of the weights to keep.

Which weights are kept and when training stops is decided from the evaluations so far and nothing else. They are part of
every save point, so an interrupted run decides as an undisturbed one.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments
from transformers.trainer_callback import ExportableState

from colabel.artefacts.build import sync
from colabel.errors import TrainingError
from colabel.progress import Progress, Task
from colabel.train.dev import DevSet
from colabel.train.distributed import process_count
from colabel.train.objective import Meter

log = logging.getLogger(__name__)

LOG_FILE = "log.jsonl"
BOARD_FOLDER = "tensorboard"
VALUE = "eval_value"
"""Under this name the chosen measure stands in the trainer's history."""
_TRAINERS_OWN = {
    VALUE,
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "eval_model_preparation_time",
}
_COMPLETE = "complete"
_MEMORY_WORDS = ("out of memory", "not enough memory", "allocate memory")


class JsonLog(TrainerCallback):
    """A file of JSON lines with a step each; lines of steps that an interrupted run repeats are dropped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Keep the lines up to the save point from which the run goes on."""
        kept = [line for line in read_log(self._path) if state.global_step and line["step"] <= state.global_step]
        temporary = self._path.with_name(f".tmp-{self._path.name}")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        temporary.replace(self._path)

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class TrainingLog(JsonLog, ExportableState):
    """The log of θ and students; in process 0 only.

    A line of a few steps holds step, loss, learning_rate, gradient_norm, target_entropy (nats), taught (share of the
    queries whose target said something), passages_per_second, teacher_seconds (per step); one of an evaluation holds
    step and measures. How many queries were taught since the first step is part of every save point.

    Args:
        hard_labels: whether labels teach beside the teacher; if not, a teacher that has said nothing ends the run.
    """

    def __init__(self, folder: Path, meter: Meter, teacher: str, *, hard_labels: bool) -> None:
        super().__init__(folder / LOG_FILE)
        self._meter = meter
        self._teacher = teacher
        self._hard_labels = hard_labels
        self._taught = 0
        self._board_folder = folder / BOARD_FOLDER
        self._board: Any = None
        self._mark = time.perf_counter()
        self._busy = 0.0

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Go on where the save point was written."""
        super().on_train_begin(args, state, control)
        saved: Any = state.stateful_callbacks  # a dict, whatever its annotation says
        self._taught = saved.setdefault(type(self).__name__, self.state())["attributes"]["taught"]
        self._board = _open_board(self._board_folder, state.global_step)
        self._mark = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """What the trainer writes into a save point."""
        return {"args": {}, "attributes": {"taught": self._taught + self._meter.taught}}

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Add the time of the step."""
        now = time.perf_counter()
        self._busy += now - self._mark
        self._mark = now

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Leave out the time of an evaluation, and of saving."""
        self._mark = time.perf_counter()

    on_save = on_evaluate

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Write a line."""
        logs: dict[str, Any] = given.get("logs") or {}
        if "loss" in logs:
            values = self._training_values(logs)
            self.write({"step": state.global_step, **values})
            if not self._taught and not self._hard_labels:
                raise TrainingError(
                    f"the teacher '{self._teacher}' has scored none of the passages drawn up to step "
                    f"{state.global_step}, so there is nothing to learn; label again with the pairs of these groups "
                    "(same seed, steps and passages), or label all pairs"
                )
        measured = {
            name: value for name, value in logs.items() if name.startswith("eval_") and name not in _TRAINERS_OWN
        }
        if measured:
            named = {name.removeprefix("eval_"): value for name, value in measured.items()}
            self.write({"step": state.global_step, **named})

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()
            self._board = None

    def _training_values(self, logs: dict[str, Any]) -> dict[str, float]:
        done, busy = self._meter.take(), max(self._busy, 1e-9)
        self._busy = 0.0
        self._taught += done.taught
        steps = max(1, done.steps)
        values = {
            "loss": float(logs["loss"]),
            "learning_rate": float(logs["learning_rate"]),
            "gradient_norm": float(logs.get("grad_norm", 0.0)),
            "target_entropy": done.entropy / steps,
            "taught": done.taught / max(1, done.queries * process_count()),
            "passages_per_second": done.passages * process_count() / busy,
            "teacher_seconds": done.teacher_seconds / steps,
        }
        return {name: float(f"{value:.6g}") for name, value in values.items()}

    def write(self, line: dict[str, Any]) -> None:
        """Append a line, and tell TensorBoard."""
        super().write(line)
        if self._board is not None:
            for name, value in line.items():
                if name != "step":
                    self._board.add_scalar(name.replace("@", "_"), value, line["step"])


class AfterSaving(TrainerCallback):
    """Calls a function when a save point is whole."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_save(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Call the function."""
        self._call()


class ProgressBar(TrainerCallback):
    """Shows the steps; in process 0 only."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._task: Task | None = None

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Open the bar at the step where the run goes on."""
        self._task = self._progress.start(self._what, state.max_steps, "steps")
        self._task.advance(state.global_step)

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Advance by one."""
        if self._task is not None:
            self._task.advance(1)

    def close(self) -> None:
        """Close the bar, after an error too."""
        if self._task is not None:
            self._task.close()
            self._task = None


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log; a line that a kill cut short is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _open_board(folder: Path, step: int) -> Any:
    """TensorBoard's writer after a step, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.debug("nothing is written for TensorBoard, which is not installed (the extra 'tensorboard')")
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)  # hides that step and later ones


class DevEvaluator(BaseEvaluator):
    """Calls the dev evaluation from within the trainer."""

    def __init__(self, dev: DevSet, measure: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dev = dev
        self._measure = measure

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The value of the measure, under its own name and as the value that decides."""
        queries, depth = self._dev.rows.shape
        with memory_in_words(
            f"{queries} dev queries × {depth} passages of an evaluation",
            "lower 'fit.evaluate_queries', or shorten passages ('encoder.passage_length' of a new encoder)",
        ):
            value = self._dev.evaluate(model, [self._measure])[self._measure]
        return {self._measure: value, VALUE.removeprefix("eval_"): value}


class Keeper(TrainerCallback):
    """Saves after each evaluation, so that the best weights can be loaded, and stops where they no longer improve.

    The last step is logged, evaluated and saved whatever its number.
    """

    def __init__(self, steps: int, patience: int, *, evaluating: bool) -> None:
        self._last = steps
        self._patience = patience
        self._evaluating = evaluating

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Log, evaluate and save after the last step."""
        if state.global_step >= self._last:
            control.should_log = control.should_save = True
            control.should_evaluate = self._evaluating

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save the weights, and stop where they no longer improve."""
        if state.global_step:
            control.should_save = True
        if should_stop(state.log_history, self._patience):
            control.should_training_stop = True


def evaluations(history: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    """Step and value of each evaluation; step 0 is the start.

    >>> evaluations([{"step": 0, "eval_value": 0.4}, {"step": 10, "loss": 1.0}, {"step": 10, "eval_value": 0.5}])
    [(0, 0.4), (10, 0.5)]
    """
    return [(int(line["step"]), float(line[VALUE])) for line in history if VALUE in line]


def best_step(history: Sequence[dict[str, Any]], *, count_start: bool = False) -> int | None:
    """The earliest step of the highest value; None without evaluations. The start counts where asked for.

    >>> best_step([{"step": 0, "eval_value": 0.6}, {"step": 5, "eval_value": 0.5}, {"step": 9, "eval_value": 0.5}])
    5
    """
    found = [(value, -step) for step, value in evaluations(history) if step or count_start]
    return -max(found)[1] if found else None


def should_stop(history: Sequence[dict[str, Any]], patience: int) -> bool:
    """Whether the last ``patience`` evaluations brought nothing better than what was before them, the start included.

    >>> should_stop([{"step": 0, "eval_value": 0.6}, {"step": 5, "eval_value": 0.5}], patience=1)
    True
    """
    best = best_step(history, count_start=True)
    if not patience or best is None:
        return False
    return sum(step > best for step, _ in evaluations(history)) >= patience


def mark_complete(folder: Path, step: int) -> None:
    """Mark a save point, ``checkpoint-STEP``, as fully written; without the mark it does not count."""
    place = folder / f"checkpoint-{step}"
    for path in place.rglob("*"):
        if path.is_file():
            sync(path)
    (place / _COMPLETE).touch()
    sync(place)


def drop_outdated(folder: Path, keep: set[int]) -> None:
    """Remove all save points except those of some steps."""
    for step, place in _save_points(folder):
        if step not in keep:
            shutil.rmtree(place, ignore_errors=True)


def last_checkpoint(folder: Path) -> str | None:
    """The last whole save point; those that a kill left half-written are removed."""
    found = None
    for _, place in sorted(_save_points(folder)):
        if (place / _COMPLETE).exists():
            found = place
        else:
            shutil.rmtree(place, ignore_errors=True)
    return None if found is None else str(found)


def _save_points(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    names = ((re.fullmatch(r"checkpoint-(\d+)", place.name), place) for place in folder.iterdir())
    return [(int(match.group(1)), place) for match, place in names if match]


@contextmanager
def memory_in_words(what: str, remedy: str) -> Iterator[None]:
    """Turn any of the errors that torch raises where memory is short into ``out of memory with WHAT: REMEDY``."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason: BaseException = error
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _MEMORY_WORDS):
            raise
        reason = error
    else:
        return
    first = str(reason).splitlines()[0][:100] if str(reason) else type(reason).__name__
    raise TrainingError(f"out of memory with {what}: {remedy} ({first})") from None

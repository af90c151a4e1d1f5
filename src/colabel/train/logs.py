"""What a training run tells: a line every few steps in ``training/log.jsonl``, TensorBoard, a progress bar."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from colabel.errors import TrainingError
from colabel.progress import Progress, Task
from colabel.train.objective import Meter
from colabel.train.processes import process_count

log = logging.getLogger(__name__)

LOG_FILE = "log.jsonl"
BOARD_FOLDER = "tensorboard"
_TRAINERS_OWN = {
    "eval_value",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "eval_model_preparation_time",
}


class TrainingLog(TrainerCallback, ExportableState):
    """Writes the log; in process 0 only.

    A line of a few steps holds step, loss, learning_rate, gradient_norm, target_entropy (nats), taught (share of the
    queries whose target said something), passages_per_second, teacher_seconds (a step); one of an evaluation holds
    step and measures. How many queries were taught since the first step is part of every save point.

    Args:
        hard_labels: whether labels teach beside the teacher; if not, a teacher that has said nothing ends the run.
    """

    def __init__(self, folder: Path, meter: Meter, teacher: str, *, hard_labels: bool, tensorboard: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / LOG_FILE
        self._meter = meter
        self._teacher = teacher
        self._hard_labels = hard_labels
        self._taught = 0
        self._board_folder = folder / BOARD_FOLDER if tensorboard else None
        self._board: Any = None
        self._mark = time.perf_counter()
        self._busy = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget what an interrupted run told of steps that are now done again."""
        kept = [line for line in read_log(self._path) if state.global_step and line["step"] <= state.global_step]
        self._path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        saved: Any = state.stateful_callbacks  # a dict, whatever its annotation says
        self._taught = saved.setdefault(type(self).__name__, self.state())["attributes"]["taught"]
        self._board = _open_board(self._board_folder, state.global_step)
        self._mark = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """What the trainer writes into a save point."""
        return {"args": {}, "attributes": {"taught": self._taught + self._meter.taught}}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the time of the step."""
        now = time.perf_counter()
        self._busy += now - self._mark
        self._mark = now

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """An evaluation is not a step's time."""
        self._mark = time.perf_counter()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Nor is saving."""
        self._mark = time.perf_counter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write a line."""
        logs = logs or {}
        if "loss" in logs:
            values = self._training_values(logs)
            self._write({"step": state.global_step, **values})
            if not self._taught and not self._hard_labels:
                raise TrainingError(
                    f"the teacher '{self._teacher}' has scored none of the passages drawn up to step "
                    f"{state.global_step}, so there is nothing to learn; label again with the pairs of these groups "
                    "(same seed, steps and passages), or label all pairs"
                )
        measures = {name.removeprefix("eval_"): value for name, value in logs.items() if _is_measure(name)}
        if measures:
            self._write({"step": state.global_step, **measures})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
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

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for name, value in line.items():
                if name != "step":
                    self._board.add_scalar(name.replace("@", "_"), value, line["step"])


class AfterSaving(TrainerCallback):
    """Calls a function when a save point is whole."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Call."""
        self._call()


class ProgressBar(TrainerCallback):
    """Shows the steps; in process 0 only."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._task: Task | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar at the step where the run goes on."""
        self._task = self._progress.start(self._what, state.max_steps, "steps")
        self._task.advance(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """One more."""
        if self._task is not None:
            self._task.advance(1)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.close()

    def close(self) -> None:
        """Close the bar, also after an error."""
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


def _is_measure(name: str) -> bool:
    return name.startswith("eval_") and name not in _TRAINERS_OWN


def _open_board(folder: Path | None, step: int) -> Any:
    """TensorBoard's writer after a step, or None where TensorBoard is not installed or not wanted."""
    if folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("nothing is written for TensorBoard, which is not installed (the extra 'tensorboard')")
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)  # hides that step and later ones

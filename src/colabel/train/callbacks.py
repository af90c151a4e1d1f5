"""What a training run does beside its steps: logs, save points, evaluations, and the choice of the weights to keep.

Which weights are kept and when training stops is decided from the evaluations so far and nothing else. They are part of
every save point, so an interrupted run decides as an undisturbed one.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments

from colabel.artefacts import write_json, write_text
from colabel.artefacts.build import sync
from colabel.errors import TrainingError
from colabel.measures import mean_values
from colabel.progress import Task
from colabel.train.dev import DevSet
from colabel.train.distributed import process_count
from colabel.train.objective import Meter

LOG_FILE = "log.jsonl"
VALUE = "eval_value"
"""Under this name the chosen measure stands in the trainer's history."""
_TRAINERS_OWN = (VALUE, "_runtime", "_per_second", "_time")
_COMPLETE = "complete"
_MEMORY_WORDS = ("out of memory", "not enough memory", "allocate memory")


class RunLog(TrainerCallback):
    """Writes what the trainer logs as lines of JSON, shows the steps, and says when a save point is whole.

    Lines of steps that an interrupted run repeats are dropped. In process 0 only.
    """

    def __init__(self, path: Path, task: Task, saved: Callable[[], None] = lambda: None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._task, self._saved = path, task, saved

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Go on at the save point: keep the lines up to it."""
        kept = [line for line in read_log(self._path) if state.global_step and line["step"] <= state.global_step]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))
        self._task.advance(state.global_step)

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Advance by one."""
        self._task.advance(1)

    def on_save(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A save point is whole."""
        self._saved()

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Append a line."""
        values = self.line(given.get("logs") or {}, state)
        if values:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **values}) + "\n")

    def line(self, logs: dict[str, Any], state: TrainerState) -> dict[str, float]:
        """What is kept of the trainer's own values."""
        names = {"loss": "loss", "learning_rate": "learning_rate", "gradient_norm": "grad_norm"}
        return {name: float(logs.get(theirs, 0.0)) for name, theirs in names.items()} if "loss" in logs else {}


class TrainingLog(RunLog):
    """The log of θ and students.

    A line of a few steps holds step, loss, learning_rate, gradient_norm, target_entropy (nats), taught (share of the
    queries whose target said something), passages_per_second, teacher_seconds (per step); one of an evaluation holds
    step and measure.

    Args:
        hard_labels: whether labels teach beside the teacher; if not, a teacher that has said nothing ends the run.
    """

    def __init__(
        self, path: Path, task: Task, saved: Callable[[], None], meter: Meter, teacher: str, *, hard_labels: bool
    ) -> None:
        super().__init__(path, task, saved)
        self._meter, self._teacher, self._hard_labels = meter, teacher, hard_labels
        self._mark, self._busy = time.perf_counter(), 0.0

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Start the clock."""
        super().on_train_begin(args, state, control, **given)
        self._mark = time.perf_counter()

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Add the time of the step."""
        super().on_step_end(args, state, control, **given)
        now = time.perf_counter()
        self._busy, self._mark = self._busy + now - self._mark, now

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Leave out the time of an evaluation."""
        self._mark = time.perf_counter()

    def on_save(self, args: Arguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Leave out the time of saving."""
        super().on_save(args, state, control, **given)
        self._mark = time.perf_counter()

    def line(self, logs: dict[str, Any], state: TrainerState) -> dict[str, float]:
        """Values of training, or the measure of an evaluation."""
        values = super().line(logs, state)
        if not values:
            measured = {name for name in logs if name.startswith("eval_") and not name.endswith(_TRAINERS_OWN)}
            return {name.removeprefix("eval_"): logs[name] for name in measured}
        done, busy = self._meter.take(), max(self._busy, 1e-9)
        self._busy = 0.0
        state.log_history[-1]["taught"] = done.taught  # part of every save point
        if not self._hard_labels and not any(line.get("taught") for line in state.log_history):
            raise TrainingError(
                f"the teacher '{self._teacher}' has scored none of the passages drawn up to step {state.global_step}, "
                "so there is nothing to learn; label again with the pairs of these groups (same seed, steps and "
                "passages), or label all pairs"
            )
        steps = max(1, done.steps)
        values |= {
            "target_entropy": done.entropy / steps,
            "taught": done.taught / max(1, done.queries * process_count()),
            "passages_per_second": done.passages * process_count() / busy,
            "teacher_seconds": done.teacher_seconds / steps,
        }
        return {name: float(f"{value:.6g}") for name, value in values.items()}


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log; a line that a kill cut short is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            lines.append(json.loads(text))
    return lines


class DevEvaluator(BaseEvaluator):
    """Calls the dev evaluation, from within the trainer or for weights that are mixed afterwards.

    Process 0 keeps the value of every query beside the save points, under the step.
    """

    def __init__(self, dev: DevSet, measure: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dev, self._measure = dev, measure

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The mean of the measure, under its own name and as the value that decides."""
        found = self._values(model)
        if output_path is not None:
            write_json(Path(output_path) / f"{steps}.json", found)
        value = mean_values({self._measure: found})[self._measure]
        return {self._measure: value, VALUE.removeprefix("eval_"): value}

    def values(self, model: Any, checkpoints: Path, name: object) -> npt.NDArray[np.float64]:
        """The measure of every query with some weights: as kept of a step or under a name, or else measured now."""
        place = checkpoints / "eval" / f"{name}.json"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, self._values(model))
        return np.array(list(json.loads(place.read_text(encoding="utf-8")).values()))

    def _values(self, model: Any) -> dict[str, float]:
        queries, depth = self._dev.rows.shape
        with memory_in_words(
            f"{queries} dev queries × {depth} passages of an evaluation",
            "lower 'fit.evaluate_queries', or shorten passages ('encoder.passage_length' of a new encoder)",
        ):
            return self._dev.evaluate(model, [self._measure])[self._measure]


class Keeper(TrainerCallback):
    """Saves after each evaluation, so that the best weights can be loaded, and stops where they no longer improve.

    The last step is logged, evaluated and saved whatever its number.
    """

    def __init__(self, patience: int, *, evaluating: bool) -> None:
        self._patience, self._evaluating = patience, evaluating

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Log, evaluate and save after the last step."""
        if state.global_step >= state.max_steps:
            control.should_log = control.should_save = True
            control.should_evaluate = self._evaluating

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save the weights, and stop where they no longer improve."""
        control.should_save |= state.global_step > 0
        control.should_training_stop |= should_stop(state.log_history, self._patience)


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
    return bool(patience) and best is not None and sum(step > best for step, _ in evaluations(history)) >= patience


def mark_complete(folder: Path, step: int, keep: set[int]) -> None:
    """Mark a save point, ``checkpoint-STEP``, as fully written, and remove all but it and those of the steps ``keep``.

    Without the mark a save point does not count.
    """
    place = folder / f"checkpoint-{step}"
    for path in place.rglob("*"):
        if path.is_file():
            sync(path)
    (place / _COMPLETE).touch()
    sync(place)
    for other, outdated in _save_points(folder):
        if other not in {step, *keep}:
            shutil.rmtree(outdated, ignore_errors=True)


def last_checkpoint(folder: Path) -> str | None:
    """The last whole save point; those that a kill left half-written are removed."""
    found = None
    for _, place in _save_points(folder):
        if (place / _COMPLETE).exists():
            found = str(place)
        else:
            shutil.rmtree(place, ignore_errors=True)
    return found


def _save_points(folder: Path) -> list[tuple[int, Path]]:
    """Steps and folders, by step."""
    names = ((re.fullmatch(r"checkpoint-(\d+)", place.name), place) for place in folder.glob("checkpoint-*"))
    return sorted((int(match[1]), place) for match, place in names if match)


@contextmanager
def memory_in_words(what: str, remedy: str) -> Iterator[None]:
    """Turn any of the errors that torch raises where memory is short into ``out of memory with WHAT: REMEDY``."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and not any(words in text.lower() for words in _MEMORY_WORDS):
            raise
        first = text.splitlines()[0][:100] if text else type(error).__name__
        raise TrainingError(f"out of memory with {what}: {remedy} ({first})") from None

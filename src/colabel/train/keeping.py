"""Which weights are kept and when training stops, decided from the evaluations so far and nothing else.

The evaluations are part of every save point, so an interrupted run decides as an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from colabel.settings import FitSettings
from colabel.train.evaluator import DevPool
from colabel.train.memory import memory_in_words

VALUE = "eval_value"
"""Under this name the chosen measure stands in the trainer's history."""


class DevEvaluator(BaseEvaluator):
    """Calls the dev evaluation from within the trainer."""

    def __init__(self, pool: DevPool, settings: FitSettings, batch_tokens: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pool = pool
        self._settings = settings
        self._batch_tokens = batch_tokens

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The value of the measure, under its own name and as the value that decides."""
        measure = self._settings.measure
        with self._memory():
            value = self._pool.evaluate(model, [measure], self._batch_tokens)[measure]
        return {measure: value, VALUE.removeprefix("eval_"): value}

    def _memory(self) -> AbstractContextManager[None]:
        section = self._settings.section
        queries, depth = self._pool.rows.shape
        return memory_in_words(
            f"{queries} dev queries × {depth} passages of an evaluation",
            f"lower 'encoder.batch_tokens' (now {self._batch_tokens:,}), '{section}.evaluate_queries' or "
            f"'{section}.evaluate_depth'",
        )


class Keeper(TrainerCallback):
    """After each evaluation: save, so that the best weights are there, and stop where nothing gets better.

    The last step is logged, evaluated and saved whatever its number.
    """

    def __init__(self, settings: FitSettings, *, evaluating: bool) -> None:
        self._patience = settings.patience
        self._last = settings.steps
        self._evaluating = evaluating

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look whether it is the last."""
        if state.global_step >= self._last:
            control.should_log = control.should_save = True
            control.should_evaluate = self._evaluating

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Decide."""
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

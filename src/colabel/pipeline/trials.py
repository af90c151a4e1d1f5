"""Settings of [distil] tried on dev, the same for every student of θ."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from colabel.artefacts import copy_artefact
from colabel.encode.colbert import load_checkpoint
from colabel.encode.prepare import choose_device
from colabel.errors import ArtefactError, SettingsError, TrainingError, UsageError
from colabel.fields import nearest
from colabel.pipeline.chain import StudentSettings
from colabel.pipeline.kept import measured_once
from colabel.pipeline.systems import System
from colabel.reporting.records import Trial
from colabel.settings import DistilSettings, LabelSettings, Recipe
from colabel.train import DevPool, TrainedModel
from colabel.train.trainer import TEACHING_ONLY

if TYPE_CHECKING:
    from colabel.pipeline.chain import Chain

log = logging.getLogger(__name__)

TRIED = (
    "learning_rate",
    "warmup",
    "schedule",
    "weight_decay",
    "temperature",
    "teacher_temperature",
    "teacher_scale",
    "floor",
    "hard_weight",
    "hard_scope",
)
"""What a trial may change of [distil]: neither the passages that students see nor how many."""
SMOOTHING = "smoothing"
"""ε of [labels], which uniform smoothing alone has."""

DEFAULT = "as in the recipe"


def trial_settings(recipe: Recipe) -> dict[str, StudentSettings]:
    """The trials by their names: the recipe's own settings, then each of 'study.trials'."""
    found = {DEFAULT: StudentSettings(recipe.distil, recipe.labels.smoothing)}
    for text in recipe.study.trials:
        found[text] = _changed(recipe, text)
    return found


def _changed(recipe: Recipe, text: str) -> StudentSettings:
    try:
        table = tomllib.loads(text.replace(";", "\n"))
    except ValueError as error:
        raise SettingsError(
            f"'study.trials' holds '{text}', which cannot be read ({error}); expected settings of [distil] such as "
            "'learning_rate = 1e-5; teacher_temperature = 0.5'"
        ) from None
    known = (*TRIED, SMOOTHING)
    for key in table:
        if key not in known:
            raise SettingsError(f"'study.trials' holds '{text}': a trial cannot change '{key}'{nearest(key, known)}")
    spread = {SMOOTHING: table.pop(SMOOTHING)} if SMOOTHING in table else {}
    return StudentSettings(
        DistilSettings.from_mapping({**recipe.distil.as_dict(), **table}),
        LabelSettings.from_mapping({**recipe.labels.as_dict(), **spread}).smoothing,
    )


class Trials:
    """Trains a student with every trial, with the first seed, and keeps the best on dev for all seeds.

    They are compared on θ's top passages of up to :data:`CHOOSING_QUERIES` dev queries, however few of them training
    looks at. A student that was trained before there were trials is the first of them and is not trained again.
    """

    def __init__(self, recipe: Recipe, out: Path) -> None:
        self._trials = trial_settings(recipe)
        self._out = out
        self._found: dict[str, tuple[Trial, ...]] = {}

    def __len__(self) -> int:
        return len(self._trials)

    def found(self, system: System) -> tuple[Trial, ...]:
        """What the trials of a row gave; nothing where it was not tuned."""
        return self._found.get(system.made_as, ())

    def choose(self, chain: Chain, system: System) -> StudentSettings:
        """The settings with the best value on dev, the earlier of equals; the first seed's student is then there."""
        if len(self) == 1 or system.from_plain:
            return chain.own_settings(system)
        if system.made_as not in self._found:
            self._found[system.made_as] = self._try(chain, system)
        chosen = next(trial.name for trial in self._found[system.made_as] if trial.chosen)
        return self._trials[chosen]

    def _try(self, chain: Chain, system: System) -> tuple[Trial, ...]:
        if chain.choosing_pool is None:
            raise UsageError(
                "'study.trials' are compared on dev: the collection needs dev labels (data.holdout makes some)"
            )
        found: dict[str, Trial] = {}
        models: dict[str, TrainedModel] = {}
        tried: list[StudentSettings] = []
        out = self._out / system.made_as
        own = chain.student_folder(system) / "model"
        if not (out / _folder(DEFAULT)).exists():
            with contextlib.suppress(ArtefactError):  # not trained yet, or damaged: it is trained here
                copy_artefact(own, out / _folder(DEFAULT))
        for name, settings in self._trials.items():
            effective = _effective(system, settings, chain.own_settings(system))
            if effective in tried:
                found[name] = Trial(name, None, "no part of its loss")
                continue
            tried.append(effective)
            try:
                models[name] = chain.train_student(system, settings, out / _folder(name))
            except TrainingError as error:
                log.warning("%s, trial '%s', failed: %s", system.slug, name, error)
                found[name] = Trial(name, None, "failed")
                continue
            value = _value(chain, models[name], chain.choosing_pool, out / f"{_folder(name)}.json")
            found[name] = Trial(name, value, queries=len(chain.choosing_pool.query_ids))
        if not models:
            raise TrainingError("training came apart with every trial of 'study.trials'; lower the learning rates")
        best = max(models, key=lambda name: found[name].value or 0.0)
        copy_artefact(models[best].folder, own)
        return tuple(dataclasses.replace(trial, chosen=trial.name == best) for trial in found.values())


def _folder(name: str) -> str:
    """Where a trial is: its name without what folders cannot have.

    >>> _folder("learning_rate = 6e-5; floor = 'none'")
    'learning_rate=6e-5,floor=none'
    """
    return re.sub(r"[^\w.,=+-]+", "", name.replace(";", ",").replace(DEFAULT, "own"))


def _value(chain: Chain, model: TrainedModel, pool: DevPool, file: Path) -> float:
    """``distil.measure`` of a trained student."""
    measure, encoder = chain.recipe.distil.measure, chain.recipe.encoder

    def evaluate() -> dict[str, float]:
        loaded = load_checkpoint(str(model.folder), choose_device(encoder.device), torch.float32)
        return pool.evaluate(loaded, [measure], encoder.batch_tokens, chain.progress)

    return measured_once(file, [model.fingerprint, pool.fingerprint, measure], evaluate)[measure]


def _effective(system: System, settings: StudentSettings, own: StudentSettings) -> StudentSettings:
    """The settings without what has no part in a row's loss: with hard labels there is no teacher."""
    distil, smoothing = settings.distil, settings.smoothing if system.target == "uniform" else own.smoothing
    if system.target in ("hard", "uniform"):
        distil = dataclasses.replace(distil, **{name: getattr(own.distil, name) for name in TEACHING_ONLY})
    return StudentSettings(distil, smoothing)

"""What can be told to be wrong before anything is trained."""

from __future__ import annotations

from pathlib import Path

from colabel.encode.weights import check_exists, resolve_model
from colabel.errors import UsageError
from colabel.measures import parse_measure
from colabel.pipeline.systems import System, cross_encoder_count
from colabel.pipeline.workbench import takes_teacher
from colabel.ranking.bm25 import stemmer
from colabel.settings import Recipe
from colabel.teachers.pairs import PairModel, load_cross_encoder
from colabel.train.cross_encoder import split_layers
from colabel.train.fit import check_batch, check_device, choose_precision


def check_training(recipe: Recipe, *, student: bool = True) -> None:
    """Refuse settings with which θ, or a student, could not be trained: model, language, measure, device and precision.

    How several processes share a step is asked when one begins.
    """
    check_exists(resolve_model(recipe.encoder.model))
    stemmer(recipe.rank.language)
    device = check_device(recipe.encoder.device)
    trained = [] if takes_teacher(recipe) else [recipe.train]
    for settings in [*trained, *([recipe.distil] if student else [])]:
        parse_measure(settings.measure)
        choose_precision(settings, device)


def check_system(system: System, recipe: Recipe) -> None:
    """Refuse a row that cannot be: the first thing that is asked when it is made."""
    if system.tuned and system.beta is None:
        raise UsageError(f"β of '{system.slug}' is found by a study, on dev; name a number: collective-0.5")
    if system.target == "scores":
        if not recipe.labels.scores:
            raise UsageError("the teacher 'scores' needs a file of scores; name it: labels.scores = \"FILE\"")
        if not Path(recipe.labels.scores).exists():
            raise UsageError(f"'labels.scores' is '{recipe.labels.scores}', and there is no such file")
    if system.target == "ensemble" and cross_encoder_count(system, recipe) < 2:
        raise UsageError("the ensemble needs several cross-encoders; name them in 'cross_encoder.models'")
    for model in recipe.cross_encoder.checkpoints[: cross_encoder_count(system, recipe)]:
        check_exists(model)


def check_run(system: System, recipe: Recipe) -> None:
    """All of it for one student; cross-encoders of the recipe's own are loaded once to see that they can teach."""
    check_training(recipe)
    check_batch(recipe.distil)
    check_system(system, recipe)
    settings, count = recipe.cross_encoder, cross_encoder_count(system, recipe)
    device = check_device(recipe.encoder.device)
    for model in settings.checkpoints[:count]:
        PairModel(load_cross_encoder(model, device), settings.max_length)
    if count and not settings.checkpoints:
        choose_precision(settings, device)
        for model in settings.models[:count]:
            check_exists(resolve_model(split_layers(model)[0]))

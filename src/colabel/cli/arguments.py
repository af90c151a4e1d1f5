"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from colabel.pipeline.engines import Engine
    from colabel.settings import Recipe

F = TypeVar("F", bound=Callable[..., Any])

TEACHERS = ("collective", "self", "uniform", "cross-encoder", "ensemble", "scores", "mixed")
"""Those of :mod:`colabel.teachers`, which takes long to import."""

DATASET_HELP = """DATASET is a BEIR, MS MARCO or TREC folder, irds:ID, hf:FOLDER, jsonl:FILE, pydocs (built from the \
documentation of installed libraries), pydocs:N, or a .toml recipe, whose [data] table is used."""


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, such as data.relevant_from=2. May be given several times.",
)


def dataset_argument(function: F) -> F:
    """DATASET and --set."""
    return click.argument("dataset")(set_option(function))


def out_option(help: str) -> Callable[[F], F]:
    """--out, required."""
    return click.option("--out", required=True, type=click.Path(path_type=Path), help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def recipe_settings(dataset: str, overrides: tuple[str, ...], used: Collection[str] | None = None) -> Recipe:
    """All settings that DATASET (a name or a recipe) and --set mean together.

    A --set of a section that the command does not use is refused: it would change nothing. A recipe may hold all.
    """
    from colabel.recipe import load_recipe, recipe_from_overrides

    from_file = dataset.endswith(".toml")
    recipe = load_recipe(Path(dataset), overrides) if from_file else recipe_from_overrides(dataset, overrides)
    for override in overrides:
        section = override.partition("=")[0].strip().partition(".")[0]
        if used is not None and section not in used:
            names = ", ".join(name if name == "seed" else f"[{name}]" for name in used)
            raise click.UsageError(f"--set {override}: this command uses {names} alone, so it would change nothing")
    return recipe


@contextmanager
def chosen_engine(recipe: Recipe) -> Iterator[Engine]:
    """Who does the heavy stages, while the block runs."""
    from colabel.pipeline import choose_engine

    engine = choose_engine(recipe.compute)
    try:
        yield engine
    finally:
        engine.close()

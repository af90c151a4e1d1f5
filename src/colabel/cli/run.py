"""``colabel run`` and ``colabel demo``."""

from __future__ import annotations

from pathlib import Path

import click

from colabel.cli.arguments import out_option
from colabel.cli.output import emit, table, terminal_progress


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@out_option("Folder for everything that the run writes. The same folder again continues.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe.")
def run_command(recipe: Path, out: Path, overrides: tuple[str, ...]) -> None:
    """Run the method of a recipe end to end; what is finished already is not done again.

    RECIPE is a TOML file with a table per stage. Example:

      colabel run recipe.toml --out runs/mine --set collective.beta=0.5
    """
    from colabel import load_recipe, run

    with terminal_progress() as progress:
        result = run(load_recipe(recipe, overrides), out, progress=progress)
    emit(table(result.header, result.rows))
    emit(result.next_step)


@click.command("demo")
@click.option(
    "--out", default=Path("demo"), show_default=True, type=click.Path(path_type=Path), help="Folder for the demo."
)
def demo_command(out: Path) -> None:
    """Show the method on the documentation of the Python libraries that are installed. No download.

    Example: colabel demo --out demo
    """
    from colabel import demo

    with terminal_progress() as progress:
        result = demo(out, progress=progress)
    emit(table(result.header, result.rows))
    emit("\n".join(result.examples))
    emit(result.next_step)

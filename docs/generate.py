"""Write the reference pages that come from the program itself: ``make docs``."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import click

from colabel.cli import cli
from colabel.settings import Recipe, Settings, allowed

DOCS = Path(__file__).parent


def cli_page() -> str:
    """Every command's help text, as ``colabel COMMAND --help`` prints it."""
    parts = ["# Command line\n\nGenerated from the help texts by `make docs`.\n"]
    context = click.Context(cli, info_name="colabel", terminal_width=100, help_option_names=["-h", "--help"])
    parts.append(f"```\n{cli.get_help(context)}\n```\n")
    for name, command in sorted(cli.commands.items()):
        inner = click.Context(command, info_name=name, parent=context, terminal_width=100)
        parts.append(f"## colabel {name}\n\n```\n{command.get_help(inner)}\n```\n")
    return "\n".join(parts)


def settings_page() -> str:
    """Every setting of a recipe: meaning, allowed values, default."""
    parts = ["# Recipe reference\n\nGenerated from the settings by `make docs`. A recipe is a TOML file.\n"]
    hints = typing.get_type_hints(Recipe)
    top = [field for field in dataclasses.fields(Recipe) if not _section(hints[field.name])]
    parts.append(_table(Recipe, [field.name for field in top]))
    for field in dataclasses.fields(Recipe):
        section = _section(hints[field.name])
        if section:
            parts.append(f"## [{field.name}]\n\n{section.__doc__}\n")
            parts.append(_table(section, [inner.name for inner in dataclasses.fields(section)]))
    return "\n".join(parts)


def _section(hint: object) -> type[Settings] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Settings) else None


def _table(section: type[Settings], names: list[str]) -> str:
    hints = typing.get_type_hints(section)
    lines = ["| key | meaning | takes | default |", "|---|---|---|---|"]
    for field in dataclasses.fields(section):
        if field.name in names:
            takes = allowed(hints[field.name], field.metadata)
            lines.append(f"| `{field.name}` | {field.metadata['help']} | {takes} | {_default(field)} |")
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[typing.Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return "left out" if field.default is None else f"`{field.default!r}`"
    return "required" if field.default_factory is dataclasses.MISSING else f"`{field.default_factory()!r}`"


def main() -> None:
    """Write the pages."""
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")
    (DOCS / "recipe.md").write_text(settings_page(), encoding="utf-8")


if __name__ == "__main__":
    main()

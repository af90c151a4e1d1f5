"""The TOML recipe: read, override, and say the file and line of whatever is wrong in it."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from colabel.errors import SettingsError, UsageError
from colabel.settings import DataSettings, Recipe
from colabel.settings.declare import Settings, nearest

Resolve = Callable[[DataSettings, Path, Collection[str]], DataSettings]


def read_recipe(path: Path, overrides: Iterable[str], resolve: Resolve) -> Recipe:
    """Read a recipe file; ``overrides`` are ``section.key=value`` strings with TOML values.

    ``resolve`` finds the paths of ``[data]`` from the recipe's folder, apart from those that overrides set; the
    collection formats know which names are paths (see :func:`colabel.data.load_recipe`).
    """
    text = _read(path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # besides TOML's own: numbers too long, nesting too deep
        place = re.search(r"\(at line (\d+)", str(error))
        raise SettingsError(f"{path}{f':{place.group(1)}' if place else ''}: not valid TOML: {error}") from None
    given = set(table)
    overridden = _override_all(table, overrides)
    try:
        recipe = build_recipe(table)
    except SettingsError as error:
        named = {part: key for key in overridden for part in (key.partition(".")[0], key) if part not in given}
        typed = next((key for part, key in named.items() if f"'{part}'" in str(error)), None)
        line = locate(text, str(error))
        where = f"--set {typed}" if typed else f"{path}{'' if line is None else f':{line}'}"
        raise SettingsError(f"{where}: {error}") from None
    return dataclasses.replace(recipe, data=resolve(recipe.data, path.parent, overridden))


def recipe_from_overrides(source: str, overrides: Iterable[str] = ()) -> Recipe:
    """A recipe for a dataset named on the command line; paths are relative to the current folder."""
    table: dict[str, Any] = {"data": {"source": source}}
    _override_all(table, overrides)
    return build_recipe(table)


def recipe_text(path: Path, overrides: Iterable[str] = ()) -> str:
    """A recipe file as it was given, or one of a dataset, with what was changed besides as comments at its end."""
    lines = [f"--set {override}" for override in overrides]
    text = _read(path) if path.suffix == ".toml" else f"[data]\nsource = {json.dumps(str(path), ensure_ascii=False)}\n"
    return text if not lines else text.rstrip() + "\n\n" + "".join(f"# {line}\n" for line in lines)


def given_keys(dataset: str, overrides: Iterable[str] = ()) -> set[str]:
    """The settings, as ``section.key``, that a recipe file (where ``dataset`` is one) and overrides spell out."""
    table: dict[str, Any] = tomllib.loads(_read(Path(dataset))) if dataset.endswith(".toml") else {}
    _override_all(table, overrides)
    return {f"{section}.{key}" for section, values in table.items() if isinstance(values, dict) for key in values}


def build_recipe(table: dict[str, Any], *, stored: bool = False) -> Recipe:
    """Build a recipe from nested tables, each section through its own class.

    ``stored``: by an artefact, perhaps of an earlier version; settings that went since are left out.
    """
    hints = typing.get_type_hints(Recipe)
    sections = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Settings)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in sections:
            if not isinstance(value, dict):
                raise SettingsError(f"'{key}' is {value!r}; expected a table: write [{key}] and its keys below it")
            values[key] = sections[key].from_manifest(value) if stored else sections[key].from_mapping(value)
        elif key in hints and key != "section":
            values[key] = value
        else:
            owners = [name for name, kind in sections.items() if key in {one.name for one in dataclasses.fields(kind)}]
            if owners:
                places = " or ".join(f"'{name}.{key}', under [{name}]" for name in owners)
                raise SettingsError(f"unknown key '{key}'; did you mean {places}?")
            valid = [field.name for field in dataclasses.fields(Recipe)]
            raise SettingsError(f"unknown key '{key}'{nearest(key, valid)}")
    return Recipe.from_mapping(values)


def locate(text: str, message: str) -> int | None:
    """Find the line of the first key that an error message quotes as ``'section.key'``.

    >>> locate('[collective]\\nclusters = 8\\ncentroids = 9\\n', "'collective.centroids' is 9")
    3
    """
    quoted = re.search(r"'([\w.-]+)'", message)
    if not quoted:
        return None
    *section, key = quoted.group(1).split(".")
    wanted, current = ".".join(section), ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\s*([\w.\-\"' ]+?)\s*\]", line)
        if header:
            current = header.group(1)
            if not wanted and current == key:
                return number
        elif current == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*(=|\.)", line):
            return number
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such recipe file") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; expected a recipe file such as recipe.toml") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}; save the recipe as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _override_all(table: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Set each ``section.key=value`` and return the keys."""
    keys = []
    for override in overrides:
        key, equals, value_text = override.partition("=")
        if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key.strip()):
            raise SettingsError(f"--set {override!r}: expected SECTION.KEY=VALUE, such as collective.beta=0.5")
        try:
            value = tomllib.loads(f"value = {value_text}")["value"]
        except (ValueError, RecursionError):
            value = value_text.strip()  # a bare word is a string: --set data.source=pydocs
        *sections, name = key.strip().split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"--set {override!r}: '{section}' is not a table")
        inner[name] = value
        keys.append(key.strip())
    return keys

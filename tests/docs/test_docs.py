"""The other pages: every one is linked, quoted messages are in the program, commands and settings exist."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from docs.generate import collection_page, reproducing_page, results_page, scale_page, serve_page

import colabel
from colabel.cli import cli
from colabel.data import load_recipe
from colabel.settings import Recipe
from docs import results
from tests.docs.pages import ROOT, blocks

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
HOLE = "…"


def templates() -> set[str]:
    """Every text in the program, … in place of what is filled in."""
    found = set()
    for path in Path(colabel.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


TEMPLATES = templates()
MESSAGES = re.findall(r"^> (.+)$", (DOCS / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("message", MESSAGES)
def test_every_quoted_message_is_in_the_program(message: str) -> None:
    assert any(message in template for template in TEMPLATES), "the program does not say this any more"


def test_messages_are_found_and_inventions_are_not() -> None:
    assert len(MESSAGES) >= 15
    assert not any("there is no such message" in template for template in TEMPLATES)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_page_is_linked_from_the_index(page: Path) -> None:
    assert page.name == "README.md" or f"]({page.name})" in (DOCS / "README.md").read_text(encoding="utf-8")


def test_the_site_builds_without_warnings_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|link)[^>]+https?://[^>]+>", page)
    assert (tmp_path / "search" / "search_index.json").is_file()


def commands() -> list[tuple[str, str]]:
    """(page, command) for every line of a shell block that calls colabel."""
    return [
        (page.stem, line.partition("  #")[0])
        for page in PAGES
        if page.stem != "cli"
        for block in blocks(page.read_text(encoding="utf-8"))
        if not block.kind
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("colabel ")
    ]


@pytest.mark.parametrize(("page", "command"), commands())
def test_every_command_on_a_page_can_be_parsed(page: str, command: str) -> None:
    name, *arguments = shlex.split(command)[1:]
    made = cli.commands[name].make_context(name, arguments, parent=click.Context(cli, info_name="colabel"))
    assert made.params


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_setting_named_on_a_page_exists(page: Path) -> None:
    recipe = Recipe.from_mapping({"data": load_recipe(ROOT / "recipes" / "msmarco.toml").data})
    sections = {
        field.name: set(vars(getattr(recipe, field.name)))
        for field in dataclasses.fields(Recipe)
        if dataclasses.is_dataclass(getattr(recipe, field.name))
    }
    named = re.findall(rf"`({'|'.join(sections)})\.([a-z_]+)(?![a-z_.(/])", page.read_text(encoding="utf-8"))
    wrong = [f"{section}.{key}" for section, key in named if key not in sections[section] and key not in FILES]
    assert not wrong


FILES = {"md", "toml", "json", "jsonl", "tsv", "trec", "py", "parquet"}


def test_the_papers_recipe_is_valid_and_says_what_the_paper_says() -> None:
    recipe = load_recipe(ROOT / "recipes" / "msmarco.toml")
    chosen = recipe.collective
    assert (chosen.feedback_passages, chosen.clusters, chosen.centroids, chosen.beta) == (3, 24, 10, 1.0)
    assert (chosen.feedback, chosen.expansion_scale) == ("top", "paper")
    assert (recipe.encoder.query_length, recipe.encoder.passage_length, recipe.encoder.dimension) == (32, 180, 128)
    assert (recipe.train.candidates, recipe.distil.candidates, recipe.rank.depth) == (1000, 100, 1000)
    assert {"collective-0.5", "collective-1", "colbert-prf-0.5", "colbert-prf-1"} <= set(recipe.study.systems)


@pytest.mark.parametrize("name", ["scifact", "cranfield"])
def test_the_recipe_for_studies_is_that_of_the_results(name: str) -> None:
    """Keys may have moved between tables since; the values that a study was run with may not."""
    used = tomllib.loads(results.read(name)["study"]["recipe"])
    given = tomllib.loads((ROOT / "recipes" / "study.toml").read_text(encoding="utf-8"))
    assert used["encoder"] == given["encoder"]
    for section in ("train", "distil", "cross_encoder"):
        for key in ("steps", "learning_rate"):
            assert used[section][key] == given[section][key], (section, key)
    assert set(used["study"]["systems"]) <= set(given["study"]["systems"])
    assert load_recipe(ROOT / "recipes" / "study.toml").study.seeds == 3


def test_results_are_generated_from_small_committed_figures() -> None:
    assert (results.FOLDER / "README.md").read_text(encoding="utf-8") == results_page(), "run `make docs`"
    for name in results.COLLECTIONS:
        page = (results.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        assert page == collection_page(name), "run `make docs`"
        assert len(re.findall(r"\w[^\s|]*", page)) <= 2000, name
        assert (results.FOLDER / f"{name}.json").stat().st_size <= results.MOST_BYTES
    others = {path.name for path in results.FOLDER.iterdir()}
    assert others == {
        "README.md",
        "query-side.md",
        *(f"{name}.{kind}" for name in results.COLLECTIONS for kind in ("md", "json")),
    }


def test_ids_of_the_recipe_are_known_and_one_for_each_split() -> None:
    import ir_datasets

    from colabel.data.formats.irds import split_name

    recipe = load_recipe(ROOT / "recipes" / "msmarco.toml")
    ids = recipe.data.source.removeprefix("irds:").split("+")
    assert [split_name(name) for name in ids] == ["train", "dev", "test"]
    assert all(name in ir_datasets.registry for name in [*ids, "msmarco-passage/trec-dl-2020/judged"])


def test_estimates_come_from_the_committed_figures() -> None:
    assert (DOCS / "reproducing.md").read_text(encoding="utf-8") == reproducing_page(), "run `make docs`"
    assert (DOCS / "scale.md").read_text(encoding="utf-8") == scale_page(), "run `make docs`"
    assert (DOCS / "serve.md").read_text(encoding="utf-8") == serve_page(), "run `make docs`"

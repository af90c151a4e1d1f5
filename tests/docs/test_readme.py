"""The README cannot rot: its commands and its example run, its figures and its picture come from committed ones."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
from docs.generate import picture, readme_page

from docs import results
from tests.cli.test_train_commands import settings, write_shop
from tests.docs.pages import ROOT, blocks, inside, run_command
from tests.train.small import write_collection

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = [block for block in blocks(README) if not block.kind]
COMMANDS = [line.partition("  #")[0].strip() for block in SHELL for line in block.text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A folder with what the README takes for granted: my-collection and recipe.toml."""
    folder = tmp_path_factory.mktemp("readme")
    collection = write_collection(folder / "my-collection")
    head, *judged = (collection / "qrels" / "dev.tsv").read_text().splitlines()
    (collection / "qrels" / "dev.tsv").write_text("\n".join([head, *judged[:4]]) + "\n")
    (collection / "qrels" / "test.tsv").write_text("\n".join([head, *judged[4:]]) + "\n")
    (folder / "recipe.toml").write_text(
        f"""
        [data]
        source = "my-collection"
        [encoder]
        model = "{tiny_model}"
        dimension = 16
        passage_length = 24
        [collective]
        clusters = 6
        centroids = 3
        [train]
        steps = 1
        [distil]
        steps = 1
        [query_side]
        steps = 1
        [study]
        systems = ["bm25", "colbert", "collective-0.5"]
        sweep = false
        """
    )
    write_shop(folder)
    (folder / "new-products.csv").write_text("sku,product,description,price\np90,glacier lamp,made of old ice,9.50\n")
    return folder


@pytest.fixture(scope="module")
def typed(desk: Path, tiny_model: Path) -> dict[str, str]:
    """Every command of the README with what it printed; in order, since later ones read what earlier ones wrote."""
    typed = [command.replace("QUERY_ID", "q1") for command in COMMANDS if command.startswith("colabel ")]
    small = shlex.join(map(str, settings(tiny_model)))
    with inside(desk):
        return {
            command: run_command(f"{command} {small}" if "run products.csv" in command else command)
            for command in typed
            if not command.startswith("colabel serve")  # it serves until it is stopped: see tests/serve
        }


def test_every_command_works_as_printed(desk: Path, typed: dict[str, str]) -> None:
    assert len(typed) >= 14
    assert not [command for command, output in typed.items() if not output.strip()]
    assert (desk / "studies" / "mine" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_the_programs_of_the_search_page_work(
    desk: Path, typed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those for other programs, on what the README's commands left: a student, an index, labels."""
    page = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    programs = [block.text for block in blocks(page) if block.kind == "python"]
    (search,) = (text for text in programs if text.startswith("from sentence_transformers import MultiVectorEncoder\n"))
    (train,) = (text for text in programs if "MultiVectorEncoderTrainer" in text)
    with inside(desk):
        (desk / "search.py").write_text(search)
        (desk / "train.py").write_text(train)
        runpy.run_path("search.py")
        assert capsys.readouterr().out.startswith("tensor([[")
        run_command(next(line for line in page.splitlines() if line.startswith("colabel export my-labels/")))
        runpy.run_path("train.py")
        assert (desk / "trained-elsewhere" / "modules.json").is_file()


def test_there_is_no_other_kind_of_command() -> None:
    others = [command for command in COMMANDS if not command.startswith(("colabel ", "make ", "pip install '."))]
    assert not others


@pytest.mark.parametrize("target", re.findall(r"make ([\w-]+)", README))
def test_every_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_python_example_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block.text for block in blocks(README) if block.kind == "python"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    small = code.replace(
        'colabel.Recipe(data=colabel.DataSettings(source="my-collection"))', "load_recipe('recipe.toml')"
    )
    assert small != code
    imported = "from colabel.data import load_recipe\n"
    (desk / "example.py").write_text(imported + small.replace("runs/mine", "runs/python"))
    with inside(desk):
        runpy.run_path("example.py")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["bm25", "colbert", "views", "hybrid", "hybrid-views"]
    assert lines[5].startswith(("Take", "Keep"))
    assert [line.split()[0] for line in lines[6:]] == ["1", "2", "3"]


def test_figures_and_picture_come_from_the_committed_ones() -> None:
    assert readme_page() == README, "run `make docs`"
    assert (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8") == picture(), "run `make docs`"


def links() -> list[tuple[Path, str]]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S))
        if "://" not in target
    ]


def test_every_link_leads_somewhere() -> None:
    broken = [f"{page.name}: {target}" for page, target in links() if not (page.parent / target).exists()]
    assert not broken


def means(name: str, part: str = "study") -> dict[str, float]:
    return {slug: one["means"]["nDCG@10"] for slug, one in results.read(name)[part]["systems"].items()}


def test_what_readme_and_page_say_of_the_demo_is_in_its_figures() -> None:
    """Shares of hidden labels among the first suggestions, and the gain."""
    page = (results.FOLDER / "demo.md").read_text(encoding="utf-8")
    found = means("demo")
    gain = f"{found['collective-0.5'] - found['colbert']:.3f}".removeprefix("0")
    assert f"is {gain} above ColBERT" in page
    shares = [f"{100 * one[0]:.0f} %" for one in results.read("demo")["study"]["suggestions"].values()]
    for text in (README, page):
        assert set(shares) <= set(re.findall(r"\d+ %", text))


def test_differences_in_the_readme_are_those_of_the_transfers() -> None:
    said = README.split("<!-- /results -->")[1].split("## In Python")[0]
    for name, slugs in {"nfcorpus": ("collective-0.5", "colbert-hn"), "scifact": ("collective-0.5",)}.items():
        found = means(name, "transfer")
        for slug in slugs:
            difference = f"{found[slug] - found['colbert']:+.3f}"
            assert difference.replace("0.", ".").replace("-", "−") in said, (name, slug)


def test_the_student_is_above_colbert_where_the_readme_says_so() -> None:
    above = [name for name in results.COLLECTIONS if means(name)["collective-0.5"] > means(name)["colbert"]]
    assert (len(above), len(results.COLLECTIONS)) == (4, 5)
    assert "above ColBERT on four of five collections" in README

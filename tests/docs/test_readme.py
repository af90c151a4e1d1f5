"""The README cannot rot: its commands and its example run, its figures and its picture come from committed ones."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest
from docs.generate import RESULTS, picture, readme_page

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
        projection_sample = 16
        passage_length = 24
        [collective]
        clusters = 6
        centroids = 3
        [train]
        steps = 1
        [distil]
        steps = 1
        [study]
        systems = ["bm25", "colbert", "collective-0.5"]
        timed_queries = 1
        sweep = false
        """
    )
    return folder


@pytest.fixture(scope="module")
def typed(desk: Path) -> dict[str, str]:
    """Every command of the README with what it printed; in order, since later ones read what earlier ones wrote."""
    typed = [command.replace("QUERY_ID", "q1") for command in COMMANDS if command.startswith("colabel ")]
    with inside(desk):
        return {command: run_command(command) for command in typed}


def test_every_command_works_as_printed(desk: Path, typed: dict[str, str]) -> None:
    assert len(typed) >= 14
    assert not [command for command, output in typed.items() if not output.strip()]
    assert (desk / "studies" / "mine" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_the_page_on_sentence_transformers_works(
    desk: Path, typed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its programs, on what the README's commands left: a student, an index with its model, labels."""
    page = (ROOT / "docs" / "sentence-transformers-and-pylate.md").read_text(encoding="utf-8")
    search, train = [block.text for block in blocks(page) if block.kind == "python"]
    with inside(desk):
        (desk / "search.py").write_text(search)
        (desk / "train.py").write_text(train)
        runpy.run_path("search.py")
        assert capsys.readouterr().out.startswith("tensor([[")
        run_command(next(line for line in page.splitlines() if line.startswith("colabel export my-labels/")))
        runpy.run_path("train.py")
        assert (desk / "trained-elsewhere" / "modules.json").is_file()


def test_there_is_no_other_kind_of_command_than_colabel_and_make() -> None:
    others = [command for command in COMMANDS if not command.startswith(("colabel ", "make "))]
    assert not others


@pytest.mark.parametrize("target", re.findall(r"make ([\w-]+)", README))
def test_every_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_python_example_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block.text for block in blocks(README) if block.kind == "python"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    (desk / "example.py").write_text(re.sub(r"steps=\d+", "steps=1", code).replace("runs/mine", "runs/python"))
    with inside(desk):
        runpy.run_path("example.py")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["bm25", "zero-shot", "colbert", "collective-0.5", "1", "2", "3"]


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


def test_what_readme_and_reading_say_of_the_demo_is_on_its_page() -> None:
    """Shares of hidden labels among the first suggestions, and the gain."""
    page = json.loads((ROOT / "docs" / "results" / "demo.json").read_text(encoding="utf-8"))
    gain = page["systems"]["collective-0.5"]["nDCG@10"] - page["systems"]["colbert"]["nDCG@10"]
    told = (ROOT / "docs" / "results" / "demo.reading.md").read_text(encoding="utf-8")
    assert f"is {gain:.3f} above ColBERT".replace("0.", ".") in told
    for text in (README, told):
        assert {"52 %", "40 %"} <= set(re.findall(r"\d+ %", text))


def test_differences_in_the_readme_are_those_of_the_transfers() -> None:
    told = README.split("<!-- /results -->")[1].split("## In Python")[0]
    for name, slugs in {"nfcorpus-dl19": ("collective-0.5", "colbert-hn"), "scifact-dl19": ("collective-0.5",)}.items():
        means = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))["systems"]
        for slug in slugs:
            difference = f"{means[slug]['nDCG@10'] - means['colbert']['nDCG@10']:+.3f}"
            assert difference.replace("0.", ".").replace("-", "−") in told, (name, slug)


def test_the_student_is_above_colbert_where_the_readme_says_so() -> None:
    above = 0
    for name in RESULTS:
        means = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))["systems"]
        above += means["collective-0.5"]["nDCG@10"] > means["colbert"]["nDCG@10"]
    assert (above, len(RESULTS)) == (4, 5)
    assert "above ColBERT on four of five collections" in README

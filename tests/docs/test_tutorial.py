"""The tutorial as its reader lives it: every file written, every command typed, every output compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, run_page, same, typed

TUTORIAL = ROOT / "docs" / "tutorial.md"
SHOP = Path(__file__).parent / "shop"


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    shown = TUTORIAL.read_text(encoding="utf-8")
    shutil.copytree(SHOP, tmp_path / "work")
    real = run_page(shown, tmp_path / "work")
    pairs = zip(blocks(shown), blocks(real), strict=True)
    for before, after in ((a, b) for a, b in pairs if a.kind == "console"):
        for page, machine in zip(typed(before), typed(after), strict=True):
            advice = "run `python -m tests.docs.pages docs/tutorial.md tests/docs/shop`"
            assert same(page.output, machine.output), f"{page.command} prints otherwise; {advice}\n{machine.output}"


def test_blocks_of_a_page() -> None:
    page = "`a.toml`:\n\n```toml\nx = 1\n```\n\n…\n\n```console\n$ colabel check a  # why\n  1 two\n$ colabel -V\n```\n"
    first, second = blocks(page)
    assert (first.kind, first.text, first.file) == ("toml", "x = 1\n", "a.toml")
    assert second.file is None
    assert [(one.command, one.output) for one in typed(second)] == [
        ("colabel check a  # why", "  1 two\n"),
        ("colabel -V", ""),
    ]
    assert page[second.start :].startswith(second.text)


def test_a_page_is_filled_with_what_commands_print(tmp_path: Path) -> None:
    page = "`x.py`:\n\n```python\nprint('one')\n```\n\n```console\n$ python x.py\n$ colabel --version\nold\n```\nend\n"
    filled = run_page(page, tmp_path)
    assert "$ python x.py\none\n$ colabel --version\ncolabel, version" in filled
    assert filled.endswith("```\nend\n")
    assert "old" not in filled
    with pytest.raises(AssertionError, match="no such recipe file"):
        run_page("```console\n$ colabel run none.toml --out x\n```\n", tmp_path)


@pytest.mark.parametrize("output", ["0.91 of 3", "0.91 to 3 4"])
def test_outputs_with_other_words_or_numbers_differ(output: str) -> None:
    assert typed(Block("console", f"$ x\n{output}\n", None, 0))[0].output == f"{output}\n"
    assert same(output, output.replace("0.91", "0.93"))
    assert not same(output, output.replace("0.91", "0.51"))
    assert not same(output, f"{output} more")

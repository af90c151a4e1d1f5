"""Pages of documentation as programs: the files they show are written, the commands they show are run.

    ```console
    $ colabel check shop
    shop: 60 passages …
    ```

A block below a line that is nothing but a file's name in backticks and a colon is that file. ``python -m
tests.docs.pages PAGE FOLDER`` runs a page with the files of FOLDER beside it and writes the real output into it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from colabel.cli import main

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e-?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the file that it is, if any; ``start`` is where its text begins."""

    kind: str
    text: str
    file: str | None
    start: int


@dataclass(frozen=True)
class Typed:
    """A command and the output that the page shows for it."""

    command: str
    output: str


def blocks(page: str) -> Iterator[Block]:
    """All fenced blocks of a page, in order."""
    for match in _FENCE.finditer(page):
        yield Block(match["kind"], match["text"], match["file"], match.start("text"))


def typed(block: Block) -> list[Typed]:
    """The commands of a console block with their outputs."""
    found: list[Typed] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        found.append(Typed(command, output))
    return found


def run_command(command: str) -> str:
    """Run a command as its reader would and return what it prints; comments behind it are left out.

    Raises:
        AssertionError: it ends with an error.
    """
    program, *arguments = shlex.split(command, comments=True)
    printed, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            if program == "colabel":
                main(arguments)
            elif program == "python":
                runpy.run_path(arguments[0], run_name="__main__")
            else:
                raise AssertionError(f"{command}: a page shows colabel and python only")
        except SystemExit as stop:
            code = stop.code
    assert not code, f"{command}\n{errors.getvalue()}"
    return printed.getvalue()


def run_page(page: str, folder: Path) -> str:
    """Do in a folder all that a page says; the page with the real outputs."""
    done, before = [], 0
    with inside(folder):
        for block in blocks(page):
            if block.file:
                Path(block.file).write_text(block.text, encoding="utf-8")
            if block.kind != "console":
                continue
            lines = [f"$ {one.command}\n{_tidy(run_command(one.command))}" for one in typed(block)]
            done += [page[before : block.start], "".join(lines)]
            before = block.start + len(block.text)
    return "".join([*done, page[before:]])


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder with a terminal of a fixed width."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns


def same(shown: str, real: str, tolerance: float = 0.05) -> bool:
    """Whether two outputs agree: the same words, and numbers that differ by rounding or another machine's arithmetic.

    >>> same("nDCG@10 0.9587", "nDCG@10 0.9590"), same("nDCG@10 0.95", "nDCG@10 0.55"), same("one", "two")
    (True, False, False)
    """
    if _NUMBER.sub("#", shown).split() != _NUMBER.sub("#", real).split():
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(real), strict=True)
    return all(_close(float(one.replace(",", "")), float(other.replace(",", "")), tolerance) for one, other in pairs)


def _close(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(1.0, abs(one), abs(other))


def _tidy(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def rewrite(path: Path, files: Path) -> None:
    """Run a page and write the real outputs into it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        page = run_page(path.read_text(encoding="utf-8"), Path(folder))
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]), Path(sys.argv[2]))

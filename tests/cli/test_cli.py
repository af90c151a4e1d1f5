"""The command line as a user meets it: separate processes, real exit codes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.conftest import Call

from colabel.cli import cli

WriteBeir = Callable[..., Path]
DOCS = Path(__file__).resolve().parents[2] / "docs"


def colabel(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "colabel", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_check(write_beir: WriteBeir) -> None:
    done = colabel("check", write_beir())
    assert done.returncode == 0
    assert done.stderr == ""
    assert "5 passages, 5 queries" in done.stdout
    assert "no problems" in done.stdout


def test_check_as_json_is_nothing_but_json(write_beir: WriteBeir) -> None:
    done = colabel("check", write_beir(qrels__dev="q4\tgone\t1\n"), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problem_counts"] == {"unknown-passage": 1}


def test_check_shows_ten_of_a_kind_unless_asked(write_beir: WriteBeir) -> None:
    folder = write_beir(qrels__dev="".join(f"q4\tgone{number}\t1\n" for number in range(15)))
    assert "… and 5 more" in colabel("check", folder).stdout
    assert "gone14" in colabel("check", folder, "--all").stdout


def test_errors_are_sentences(write_beir: WriteBeir, tmp_path: Path) -> None:
    broken = write_beir(corpus="{nope\n")
    for arguments, code, words in [
        (("check", "nowhere"), 2, "does not exist"),
        (("convert", broken, "--out", tmp_path / "x"), 1, "corpus.jsonl:1: not JSON"),
        (("run", tmp_path / "none.toml", "--out", tmp_path / "x"), 2, "no such recipe file"),
        (("check", broken, "--set", "data.hodlout=1"), 2, "did you mean 'holdout'"),
        (("check", broken, "--set", "rank.depth=5"), 2, "--set rank.depth=5"),
        (("chekc", broken), 2, "No such command 'chekc'"),
        (("convert", broken), 2, "--out"),
    ]:
        done = colabel(*arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert not (tmp_path / "x").exists()


def test_debug_shows_the_traceback(write_beir: WriteBeir, tmp_path: Path) -> None:
    done = colabel("--debug", "convert", write_beir(corpus="{nope\n"), "--out", tmp_path / "x")
    assert "Traceback" in done.stderr


def test_a_second_process_on_the_same_folder_is_refused(write_beir: WriteBeir, tmp_path: Path) -> None:
    from colabel.artefacts import folder_lock

    (tmp_path / "recipe.toml").write_text(f'[data]\nsource = "{write_beir()}"\n')
    with folder_lock(tmp_path / "out"):
        done = colabel("run", tmp_path / "recipe.toml", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"pid {os.getpid()}" in done.stderr


def test_run_takes_a_folder_as_text(write_beir: WriteBeir, tmp_path: Path) -> None:
    from colabel import run
    from colabel.artefacts import folder_lock
    from colabel.errors import ColabelError
    from colabel.settings.recipe import recipe_from_overrides

    with folder_lock(tmp_path / "out"), pytest.raises(ColabelError, match=f"pid {os.getpid()}"):
        run(recipe_from_overrides(str(write_beir()), ()), str(tmp_path / "out"))


def test_a_reader_that_has_seen_enough_is_no_error(write_beir: WriteBeir) -> None:
    command = f"{sys.executable} -m colabel check {write_beir()} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_a_full_disk_is_a_sentence(write_beir: WriteBeir) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f"{sys.executable} -m colabel check {write_beir()} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "bug" not in done.stderr


def test_convert_leaves_nothing_beside_its_result(write_beir: WriteBeir, tmp_path: Path) -> None:
    done = colabel("convert", write_beir(gzipped=True), "--out", tmp_path / "out" / "x")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x"]


def commands() -> list[tuple[str, click.Command]]:
    return sorted(cli.commands.items())


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_has_help_with_an_example_and_stands_in_the_docs(name: str, command: click.Command) -> None:
    assert command.help, f"colabel {name} has no help text"
    assert f"colabel {name}" in command.help, f"the help of colabel {name} shows no example"
    for option in command.params:
        assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{option.name} has no help"
    assert f"## colabel {name}\n" in (DOCS / "cli.md").read_text(encoding="utf-8"), "run `make docs`"


def test_reference_pages_are_generated_from_the_program() -> None:
    from docs.generate import cli_page, figures_page, settings_page

    assert (DOCS / "cli.md").read_text(encoding="utf-8") == cli_page(), "run `make docs`"
    assert (DOCS / "recipe.md").read_text(encoding="utf-8") == settings_page(), "run `make docs`"
    assert (DOCS / "figures.md").read_text(encoding="utf-8") == figures_page(), "run `make docs`"


def test_control_characters_never_reach_the_terminal(write_beir: WriteBeir, tmp_path: Path) -> None:
    evil = "\x1b]0;gone\x07\x9b2J\u202e"
    folder = write_beir(corpus=json.dumps({"_id": f"d{evil}", "title": evil, "text": evil}) + "\n")
    for arguments in (("check", folder, "--all"), ("check", folder, "--json"), ("check", evil), ("evaluate", evil)):
        done = colabel(*arguments)
        printed = (done.stdout + done.stderr).replace("\n", "").replace("\t", "")
        assert printed
        assert not [character for character in printed if character in evil and not character.isprintable()]


def test_json_never_holds_a_number_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    from colabel.cli.output import print_json
    from colabel.errors import DataError

    with pytest.raises(DataError):
        print_json({"score": float("nan")})
    print_json({"text": "\x7f\x9b"})
    assert json.loads(capsys.readouterr().out) == {"text": "\x7f\x9b"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("Error while serializing: IoError(Os { code: 28, No space left on device })"), "space"),
        (pickle.UnpicklingError("Weights only load failed. Re-running with weights_only=False …"), "safetensors"),
        (ZeroDivisionError("oops"), "a bug in colabel: ZeroDivisionError: oops"),
    ],
)
def test_what_the_user_can_mend_is_not_a_bug(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("colabel.data.check", broken)
    code, _, said = call("check", "pydocs")
    assert (code, words in said) == (1, True)
    assert ("bug" in said) == ("bug" in words)
    assert "weights_only" not in said


def test_every_command_stands_in_a_group_with_a_whole_sentence() -> None:
    said = colabel("--help").stdout
    for name, command in cli.commands.items():
        assert f"  {name} " in said
        assert str(command.help).partition("\n\n")[0].endswith("."), name

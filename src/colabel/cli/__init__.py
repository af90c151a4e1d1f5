"""The command line: thin calls of the public functions with the same names.

Data goes to stdout; progress, log lines and errors go to stderr. Exit 0: done; 1: the data or an artefact is
wrong; 2: the call is wrong; 130: interrupted.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sys
import traceback
from types import ModuleType

import click

from colabel import __version__
from colabel.cli import (
    compare_commands,
    dataset_commands,
    folder_commands,
    label_commands,
    review_commands,
    search_commands,
    train_commands,
)
from colabel.cli.output import clean, configure_logging, fail
from colabel.errors import ColabelError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_DISK_FULL = re.compile(
    r"No space left on device|os error 28|Disk quota exceeded"
    r"|inline_container.*unexpected pos|PytorchStreamWriter failed writing"  # all that torch says of it
)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as libraries written in Rust say it
_ARRAY_READER = re.compile(r"numpy.lib.(_?npyio|_?format)")
_GROUPS = {
    "Bring data": dataset_commands,
    "Train a retriever": train_commands,
    "Look and label": label_commands,
    "Review": review_commands,
    "Search": search_commands,
    "Compare systems": compare_commands,
    "Look after results": folder_commands,
}
"""What one wants to do → the module with the commands for it, in the order of the help."""
_GONE = {
    "--per-query": "--json has the values of every query",
    "--seeds": "`colabel study` trains and compares several seeds",
    "--prf": "--ranker prf does it",
    "--beta": "--set collective.beta=… does it",
    "--with-labels": "judge the suggestions with `colabel judge`; `colabel labels --with-labels` writes the labels",
    "--full": "--set study.systems=[] --set study.sweep=true does it, with more --minutes",
    "--force": "no file is replaced: choose another name",
}
"""Options of earlier versions → what does it now."""


class _Grouped(click.Group):
    """Lists the commands by what one wants to do, each with the first sentence of its help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, module in _GROUPS.items():
            with formatter.section(title):
                sentences = [(one.name or "", (one.help or "").partition("\n\n")[0]) for one in commands(module)]
                formatter.write_dl(sentences)


def commands(module: ModuleType) -> list[click.Command]:
    """The commands that a module defines, in its order."""
    return [value for value in vars(module).values() if isinstance(value, click.Command)]


@click.group(cls=_Grouped, context_settings=_CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="colabel")
@click.option("-v", "--verbose", is_flag=True, help="Show the warnings of the libraries as well.")
@click.option("-q", "--quiet", is_flag=True, help="Only print errors.")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def cli(verbose: bool, quiet: bool, debug: bool) -> None:
    """Train retrievers from incomplete relevance labels.

    Example: colabel check my-collection/
    """
    configure_logging(verbose=verbose, quiet=quiet)


for _module in _GROUPS.values():
    for _command in commands(_module):
        _command.context_settings.update(_CONTEXT)  # its help says so without a parent, too
        cli.add_command(_command)


def _unexpected(error: Exception) -> str:
    """A sentence for what a library raised: what the user can mend, else a bug."""
    if _DISK_FULL.search(str(error)):
        return "no space left on the disk; make room and repeat the command, which continues"
    if found := _OS_ERROR.search(str(error)):
        return f"a file could not be read or written: {os.strerror(int(found.group(1)))}"
    if any(_ARRAY_READER.search(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
        return f"a stored array cannot be read ({error}); `colabel verify FOLDER` says which file is damaged"
    if isinstance(error, pickle.UnpicklingError) or "torch.load" in str(error):
        return (
            "a model's weights are a pickle, which could run any code when it is read; expected safetensors "
            "(model.safetensors): convert the checkpoint where you trust it"
        )
    return f"a bug in colabel: {type(error).__name__}: {error}. Run again with --debug before the command"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure becomes a sentence and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no error
    try:
        code = cli.main(args=arguments, prog_name="colabel", standalone_mode=False)
    except click.exceptions.Abort:
        fail("interrupted; finished stages are kept and will be skipped", 130)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        if isinstance(error, click.NoSuchOption) and error.option_name in _GONE:
            shown.write(f"{_GONE[error.option_name]}\n")
        click.echo(clean(shown.getvalue()), err=True, nl=False)
        sys.exit(2)
    except ColabelError as error:
        if debug:
            traceback.print_exc()
        fail(str(error), error.exit_code)
    except OSError as error:
        if debug:
            traceback.print_exc()
        fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    except Exception as error:
        if debug:
            raise
        fail(_unexpected(error), 1)
    sys.exit(code if isinstance(code, int) else 0)

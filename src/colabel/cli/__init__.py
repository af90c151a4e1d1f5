"""The command line: thin calls of the public functions with the same names.

Data goes to stdout; progress, log lines and errors go to stderr. Exit 0: done; 1: the data or an artefact is
wrong; 2: the call is wrong; 130: interrupted.
"""

from __future__ import annotations

import io
import sys
import traceback

import click

from colabel import __version__
from colabel.cli.collective import collect_command, inspect_command, sweep_command
from colabel.cli.data import check_command, convert_command
from colabel.cli.demo import demo_command
from colabel.cli.evaluate import evaluate_command, label_quality_command
from colabel.cli.labels import export_command, label_command
from colabel.cli.missing import missing_command
from colabel.cli.output import configure_logging, fail
from colabel.cli.plan import plan_command
from colabel.cli.report import report_command
from colabel.cli.run import distil_command, run_command, study_command, train_command, transfer_command
from colabel.cli.search import index_command, rank_command, search_command
from colabel.errors import ColabelError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="colabel")
@click.option("-v", "--verbose", is_flag=True, help="Show the warnings of the libraries as well.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--debug", is_flag=True, help="Show a traceback where something goes wrong.")
def cli(verbose: bool, quiet: bool, debug: bool) -> None:
    """Train retrievers from incomplete relevance labels.

    Example: colabel check my-collection/
    """
    configure_logging(verbose=verbose, quiet=quiet)


for _command in (
    check_command,
    collect_command,
    convert_command,
    demo_command,
    distil_command,
    evaluate_command,
    export_command,
    index_command,
    inspect_command,
    label_command,
    label_quality_command,
    missing_command,
    plan_command,
    rank_command,
    report_command,
    run_command,
    search_command,
    study_command,
    sweep_command,
    train_command,
    transfer_command,
):
    _command.context_settings.update(_CONTEXT)  # its help says so without a parent, too
    cli.add_command(_command)


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
        fail("interrupted; finished stages are kept and are not done again", 130)
    except click.ClickException as error:
        error.show()
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
        fail(f"a bug in colabel: {type(error).__name__}: {error}. Run again with --debug before the command", 1)
    sys.exit(code if isinstance(code, int) else 0)

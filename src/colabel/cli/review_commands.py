"""Review in a browser: ``colabel serve``, ``judge`` and ``labels``."""

from __future__ import annotations

from pathlib import Path

import click

from colabel.cli import options
from colabel.cli.options import FOLDER
from colabel.cli.output import emit
from colabel.errors import MissingExtraError, UsageError

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("serve")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    help="Where to listen; the next free one where it is taken, any with 0.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; others than this machine need a token.",
)
@click.option("--token", help="What requests have to show; made up and printed where --host is no loopback address.")
def serve_command(folder: Path, no_open: bool, port: int, host: str, token: str | None) -> None:
    """Review suspected labels, search and see how far the labels are, in a browser.

    RUN is the folder of `colabel run`. Verdicts are kept in RUN/verdicts. Examples:

      colabel serve runs/mine

      colabel serve runs/mine --no-open --port 9000
    """
    from colabel import open_run

    try:
        from colabel.serve import serve
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "serve", "the web app") from None
    serve(
        open_run(folder),
        host=host,
        port=port,
        token=token,
        open_browser=not no_open,
        told=lambda address: emit(f"Serving {folder} at {address}\nStop it with Ctrl+C; every verdict is kept."),
    )


@click.command("judge")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.argument("table", metavar="FILE", type=_FILE)
@click.option("--as", "judge", default="", help="Who judged.  [default: your user name]")
def judge_command(folder: Path, table: Path, judge: str) -> None:
    """Read verdicts from a table that somebody filled in.

    FILE is what `colabel missing RUN --out review.tsv` wrote, its column 'verdict' filled in (yes, no, unsure, or 0 to
    3), as .tsv or .csv. Lines without a verdict are left out; a file that is read twice adds nothing. Example:

      colabel judge runs/mine review.tsv
    """
    from colabel import open_run
    from colabel.labels.verdict_files import user_name

    judge = judge or user_name()
    run = open_run(folder)
    new = run.judge(table, judge)
    mine = sum(one.judge == judge for one in run.verdicts())
    emit(f"{table}: {new:,} new verdicts of {judge}, who has given {mine:,}")
    emit(options.next_command("run", folder))


@click.command("labels")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.option("--out", required=True, type=_FILE, help="File to write.")
@click.option("--with-labels", is_flag=True, help="Put the visible labels of the collection into it as well.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def labels_command(folder: Path, out: Path, with_labels: bool, force: bool) -> None:
    """Write the verdicts of a run as labels.

    OUT ends in .qrels (TREC), .tsv (BEIR), or .jsonl, which holds every verdict with its judge and time. Where judges
    differ, the majority decides. Example:

      colabel labels runs/mine --with-labels --out train.qrels
    """
    from colabel import open_run
    from colabel.labels import write_verdicts

    if out.exists() and not force:
        raise UsageError(f"{out} exists; choose another name, or replace it with --force")
    run = open_run(folder)
    visible = run.dataset.source_labels("train") if with_labels else None
    count = write_verdicts(run.verdicts(), out, relevant_from=run.dataset.relevant_from, visible=visible)
    emit(f"{out}: {count:,} {'verdicts' if out.suffix.lower() == '.jsonl' else 'labels'}")

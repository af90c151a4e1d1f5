"""Review in a browser: ``colabel serve``, ``judge`` and ``labels``."""

from __future__ import annotations

from pathlib import Path

import click

from colabel.cli import options
from colabel.cli.options import FOLDER
from colabel.cli.output import emit, terminal_progress
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
@click.option(
    "--double",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Percentage of the judged pairs that a second judge is shown, to see how far judges agree.",
)
@click.option("--guidelines", type=_FILE, help="A text that judges see.  [default: RUN/guidelines.md, if there]")
def serve_command(
    folder: Path, no_open: bool, port: int, host: str, token: str | None, double: int, guidelines: Path | None
) -> None:
    """Review suspected labels, search and see how far the labels are, in a browser.

    RUN is the folder of a run or study. Verdicts are kept in RUN/verdicts. Examples:

      colabel serve runs/mine

      colabel serve runs/mine --no-open --port 9000
    """
    from colabel import open_run
    from colabel.pipeline.judging import guidelines as read_guidelines

    try:
        from colabel.serve import serve
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "serve", "the web app") from None
    run = open_run(folder)
    serve(
        run,
        host=host,
        port=port,
        token=token,
        double=double / 100,
        guidelines=read_guidelines(run, guidelines),
        open_browser=not no_open,
        told=lambda address: emit(f"Serving {folder} at {address}\nStop it with Ctrl+C; every verdict is kept."),
    )


@click.command("judge")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.argument("table", metavar="[FILE]", type=_FILE, required=False)
@click.option("--as", "judge", default="", help="Who judged.  [default: your user name, or the program's]")
@click.option("--command", help="A program that judges: JSON lines in, JSON lines out.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="Suggestions that it judges.")
@click.option("--guidelines", type=_FILE, help="What it should go by.  [default: RUN/guidelines.md, if there]")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300,
    show_default=True,
    help="Seconds without an answer after which it is stopped.",
)
def judge_command(
    folder: Path,
    table: Path | None,
    judge: str,
    command: str | None,
    limit: int,
    guidelines: Path | None,
    timeout: float,
) -> None:
    """Read verdicts from a table that somebody filled in, or let a program judge.

    FILE is what `colabel missing RUN --out review.tsv` wrote, its column 'verdict' filled in (yes, no, unsure, or 0 to
    3), as .tsv or .csv; or what a program judged, as .qrels or .jsonl. Lines without a verdict are left out; a file
    that is read twice adds nothing. Examples:

      colabel judge runs/mine review.tsv

      colabel judge runs/mine umbrela.jsonl --as program:umbrela

    A program gets one JSON object per line (query_id, passage_id, query, title, passage, guidelines) and answers with
    one (query_id, passage_id, and verdict or grade; reason if it likes). It judges as program:NAME, and no label comes
    from that unless `run` or `labels` has --programs. Repeat the command to go on after an interruption:

      colabel judge runs/mine --command 'python my_judge.py' --limit 500
    """
    from colabel import open_run
    from colabel.labels.agreement import PEOPLE, agreements
    from colabel.labels.programs import program_name
    from colabel.labels.verdict_files import user_name
    from colabel.pipeline.judging import ask_judge, use_verdicts
    from colabel.pipeline.judging import guidelines as read_guidelines

    if (table is None) == (command is None):
        raise click.UsageError("give a FILE or --command, one of them")
    run = open_run(folder)
    if command is not None:
        judge = program_name(command, judge)
        with terminal_progress() as progress:
            text = read_guidelines(run, guidelines)
            new = ask_judge(run, command, judge, limit=limit, text=text, timeout=timeout, progress=progress)
    else:
        judge = judge or user_name()
        new = run.judge(table, judge)
    everything = run.verdicts(programs=True)
    mine = sum(one.judge == judge for one in everything)
    emit(f"{table or command}: {new:,} new verdicts of {judge}, who has given {mine:,}")
    for one in agreements(everything):
        if one.judges == (judge, PEOPLE):
            kappa = "undefined" if one.kappa is None else f"{one.kappa:.2f}"
            emit(
                f"people decided {one.pairs:,} of these pairs as well: the same on {one.same:,} (κ = {kappa}); of "
                f"{one.yes:,} that it finds relevant, they find {one.yes_right:,} so"
            )
    emit(options.next_command(*use_verdicts(run)))


@click.command("labels")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.option("--out", required=True, type=_FILE, help="File to write.")
@click.option("--with-labels", is_flag=True, help="Put the visible labels of the collection into it as well.")
@click.option("--programs", is_flag=True, help="Also what programs judged, about pairs that no person has judged.")
def labels_command(folder: Path, out: Path, with_labels: bool, programs: bool) -> None:
    """Write the verdicts of a run as labels.

    OUT ends in .qrels (TREC), .tsv (BEIR), or .jsonl, which holds every verdict with its judge and time. Where judges
    differ, the majority decides. Example:

      colabel labels runs/mine --with-labels --out train.qrels
    """
    from colabel import open_run
    from colabel.labels import write_verdicts

    if out.exists():
        raise UsageError(f"{out} exists; choose another name")
    run = open_run(folder)
    visible = run.dataset.source_labels("train") if with_labels else None
    count = write_verdicts(
        run.verdicts(programs=programs), out, relevant_from=run.dataset.relevant_from, visible=visible
    )
    emit(f"{out}: {count:,} {'verdicts' if out.suffix.lower() == '.jsonl' else 'labels'}")

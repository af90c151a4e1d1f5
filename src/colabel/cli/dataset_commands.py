"""Bring data: ``colabel check`` and ``convert``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.options import DATASET_HELP, loaded_dataset, recipe_settings
from colabel.cli.output import emit, print_json, table, terminal_progress

if TYPE_CHECKING:
    from colabel.data import CheckReport

_SHOWN = 10


@click.command(
    "check",
    help=f"""Validate a dataset: report its contents and every problem found.

    {DATASET_HELP}

    Exits 1 if there is a fatal problem. Examples:

      colabel check my-collection/ --json > check.json

      colabel check products.csv --clicks clicks.csv""",
)
@options.dataset_argument
@options.json_option
@click.option("--all", "show_all", is_flag=True, help=f"List every problem, not the first {_SHOWN} of each kind.")
def check_command(dataset: str, overrides: tuple[str, ...], as_json: bool, show_all: bool) -> int:
    """Thin call of :func:`colabel.check`."""
    from colabel import check

    with terminal_progress() as progress:
        recipe = recipe_settings(dataset, overrides, ("data", "encoder"))
        report = check(recipe.data, passage_length=recipe.encoder.passage_length, progress=progress)
    if as_json:
        print_json(report.as_dict())
    else:
        emit("\n".join(check_lines(report, None if show_all else _SHOWN)))
        if report.ok:
            place = Path("runs") / (re.sub(r"\W+", "-", report.name).strip("-") or "mine")
            emit(options.next_command("run", *options.same_data(dataset, overrides, ""), "--out", place))
    return 0 if report.ok else 1


def check_lines(report: CheckReport, shown: int | None) -> list[str]:
    """The report as text."""
    words, queries = report.passage_words, report.query_words
    lines = [
        f"{report.name}: {report.passages:,} passages, {report.queries:,} queries",
        f"passage length in words: mean {words.mean:.1f}, median {words.median:.0f}, 95 % below {words.p95:.0f}, "
        f"longest {words.longest:,}",
        *_cut_lines(report),
        f"query length in words: mean {queries.mean:.1f}, median {queries.median:.0f}, longest {queries.longest:,}",
        f"relevant means grade {report.relevant_from} or higher ({report.relevant_from_reason})",
        "",
    ]
    header = ["split", "queries", "labels", "grade>=1", "relevant", "relevant/query", "hidden"]
    rows = []
    for name, split in report.splits.items():
        counts = (split.queries, split.labels, split.positive, split.relevant)
        rows.append([name, *(f"{count:,}" for count in counts), f"{split.mean_relevant:.2f}", f"{split.hidden:,}"])
    lines.append(table(header, rows) if rows else "no labels: it can be searched, but not trained on or evaluated")
    if report.held_out_share:
        lines.append(f"no dev split: {report.held_out_share:.0%} of the train queries will be held out as dev")
    elif report.held_out_share is not None:
        lines.append("no dev split, and no train query will be held out as one: weights are kept without evaluation")
    return [*lines, "", *_problem_lines(report, shown)]


def _cut_lines(report: CheckReport) -> Iterator[str]:
    """How documents are cut, and what a model does not read of them."""
    from colabel.data.pieces import chunk_for, readable_words

    in_pieces, length = report.pieces > report.passages, report.passage_length
    if in_pieces:
        yield f"cut into {report.pieces:,} pieces (data.chunk); a document is ranked by its best piece"
    if report.long:
        what, smaller = ("pieces", "smaller ") if in_pieces else ("passages", "")
        yield (
            f"{report.long:,} {what} have more than {readable_words(length)} words, about what a model of {length} "
            f"tokens reads (encoder.passage_length); about {report.lost:.0%} of all text would be lost; "
            f"--chunk {chunk_for(length)} cuts them into {smaller}pieces"
        )


def _problem_lines(report: CheckReport, shown: int | None) -> list[str]:
    from colabel.errors import location

    lines = []
    for kind, group in itertools.groupby(report.problems, key=lambda problem: problem.kind):
        count, problems = report.problems.counts[kind.slug], list(group)[:shown]
        lines.append(f"{'ERROR' if kind.fatal else 'warning'}: {count:,} × {kind.slug}: {kind.remedy}")
        lines += [f"  {location(problem.file, problem.line)}: {problem.message}" for problem in problems]
        if count > len(problems):
            lines.append(f"  … and {count - len(problems):,} more (--all lists them)")
    fatal, total = report.problems.fatal, sum(report.problems.counts.values())
    return [*lines, f"{fatal:,} errors, {total - fatal:,} warnings" if total else "no problems"]


@click.command(
    "convert",
    help=f"""Write a dataset in another format: beir or msmarco.

    {DATASET_HELP}

    The splits are those colabel works with (no query in two splits; a dev split held out where there is none).
    With --set data.keep_labels=1 the train labels beyond one per query are hidden, in OUT/hidden. Example:

      colabel convert irds:beir/scifact --to beir --out scifact/""",
)
@options.dataset_argument
@click.option("--to", default="beir", show_default=True, metavar="FORMAT", help="beir or msmarco.")
@options.out_option("Folder to write.")
def convert_command(dataset: str, overrides: tuple[str, ...], to: str, out: Path) -> None:
    """Thin call of :func:`colabel.convert`."""
    from colabel import convert

    with loaded_dataset(recipe_settings(dataset, overrides, ("data",)), out) as (loaded, progress, _):
        counts = convert(loaded, out, to, progress=progress).counts
    emit(f"{out}: {counts['passages']:,} passages, {counts['queries']:,} queries, {', '.join(counts['splits'])}")

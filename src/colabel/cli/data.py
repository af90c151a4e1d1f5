"""``colabel check`` and ``colabel convert``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import DATASET_HELP, dataset_argument, json_option, out_option, recipe_settings
from colabel.cli.output import beside, emit, print_json, table, terminal_progress

if TYPE_CHECKING:
    from colabel.data import CheckReport

_SHOWN = 10


@click.command(
    "check",
    help=f"""Read a dataset once and report what it holds and all that is wrong with it.

    {DATASET_HELP}

    Exits 1 if there is a fatal problem. Example:

      colabel check my-collection/ --json > check.json""",
)
@dataset_argument
@json_option
@click.option("--all", "show_all", is_flag=True, help=f"List every problem, not the first {_SHOWN} of each kind.")
def check_command(dataset: str, overrides: tuple[str, ...], as_json: bool, show_all: bool) -> int:
    """Thin call of :func:`colabel.check`."""
    from colabel import check

    with terminal_progress() as progress:
        report = check(recipe_settings(dataset, overrides, ("data",)).data, progress=progress)
    if as_json:
        print_json(report.as_dict())
    else:
        emit("\n".join(check_lines(report, None if show_all else _SHOWN)))
    return 0 if report.ok else 1


def check_lines(report: CheckReport, shown: int | None) -> list[str]:
    """The report as text."""
    words, queries = report.passage_words, report.query_words
    lines = [
        f"{report.name}: {report.passages:,} passages, {report.queries:,} queries",
        f"passage length in words: mean {words.mean:.1f}, median {words.median:.0f}, 95 % below {words.p95:.0f}, "
        f"longest {words.longest:,}",
        f"query length in words: mean {queries.mean:.1f}, median {queries.median:.0f}, longest {queries.longest:,}",
        f"relevant means grade {report.relevant_from} or higher ({report.relevant_from_reason})",
        "",
    ]
    header = ["split", "queries", "labels", "grade>=1", "relevant", "relevant/query", "hidden"]
    rows = [
        [
            name,
            f"{split.queries:,}",
            f"{split.labels:,}",
            f"{split.positive:,}",
            f"{split.relevant:,}",
            f"{split.mean_relevant:.2f}",
            f"{split.hidden:,}",
        ]
        for name, split in report.splits.items()
    ]
    lines.append(table(header, rows) if rows else "no labels: it can be searched, not trained on or evaluated")
    if report.held_out_share:
        lines.append(f"no dev split: {report.held_out_share:.0%} of the train queries will be held out as dev")
    return [*lines, "", *_problem_lines(report, shown)]


def _problem_lines(report: CheckReport, shown: int | None) -> list[str]:
    from colabel.errors import location

    lines = []
    for kind, group in itertools.groupby(report.problems, key=lambda problem: problem.kind):
        count = report.problems.counts[kind.name]
        lines.append(f"{'ERROR' if kind.fatal else 'warning'}: {count:,} × {kind.name}: {kind.remedy}")
        problems = list(group)
        for problem in problems[:shown]:
            lines.append(f"  {location(problem.file, problem.line)}: {problem.message}")
        if count > len(problems[:shown]):
            lines.append(f"  … and {count - len(problems[:shown]):,} more (--all lists them)")
    fatal, total = report.problems.fatal, sum(report.problems.counts.values())
    lines.append(f"{fatal:,} errors, {total - fatal:,} warnings" if total else "no problems")
    return lines


@click.command(
    "convert",
    help=f"""Write a dataset in another format: beir, trec or msmarco.

    {DATASET_HELP}

    The splits are those colabel works with (no query in two splits; a dev split held out where there is none).
    With --set data.keep_labels=1 the train labels beyond one a query are hidden, in OUT/hidden. Example:

      colabel convert irds:beir/scifact --to beir --out scifact/""",
)
@dataset_argument
@click.option("--to", default="beir", show_default=True, metavar="FORMAT", help="beir, trec or msmarco.")
@out_option("Folder to write.")
def convert_command(dataset: str, overrides: tuple[str, ...], to: str, out: Path) -> None:
    """Thin call of :func:`colabel.convert`."""
    from colabel import convert, load_dataset

    with terminal_progress() as progress, beside(out, "passages") as cache:
        loaded = load_dataset(recipe_settings(dataset, overrides, ("data",)).data, cache=cache, progress=progress)
        manifest = convert(loaded, out, to, progress=progress)
    counts = manifest.counts
    emit(f"{out}: {counts['passages']:,} passages, {counts['queries']:,} queries, {', '.join(counts['splits'])}")

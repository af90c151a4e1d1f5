"""``colabel missing``."""

from __future__ import annotations

import io
import math
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import DATASET_HELP, dataset_argument, json_option, recipe_settings
from colabel.cli.labels import labels_argument, same_data, temperature_option
from colabel.cli.output import emit, print_json

if TYPE_CHECKING:
    from colabel.labels import MissingLabel

_ORDERS = ("standout", "deviation", "margin", "probability", "rank")
_WIDTH = 120
_SHOWN_TEXT = 180


@click.command(
    "missing",
    help=f"""List the passages that seem to be relevant and have no label, most suspect first.

    LABELS is a folder that `colabel label` wrote. {DATASET_HELP} Give the same settings as for labelling.

    Orders: standout (how far the teacher score lies above the mean of the query's candidates, by the query's weight),
    deviation (the same in standard deviations; for cross-encoders), margin (the teacher score minus that of the query's
    best labelled passage), probability, rank (each query's best first).
    OUT ends in .tsv, .jsonl, .json, or .qrels, a TREC label file of all that is listed. Examples:

      colabel missing labels/collective my-collection/ --limit 50 --out review.tsv

      colabel missing labels/collective my-collection/ --limit 200 --with-labels --out more.qrels""",
)
@labels_argument
@dataset_argument
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 10_000_000), help="How many suggestions, at most."
)
@click.option(
    "--order", default=_ORDERS[0], show_default=True, type=click.Choice(_ORDERS), help="What makes a passage suspect."
)
@click.option("--margin", type=float, help="Only passages that score at least this much above the labelled one.")
@temperature_option
@click.option(
    "--knowledge",
    "knowledge_folder",
    type=click.Path(path_type=Path),
    help="Where the knowledge is now; default: where it was when the labels were made.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write, instead of the screen.")
@click.option("--with-labels", is_flag=True, help="Put the visible labels into the .qrels file as well.")
@json_option
def missing_command(
    labels_folder: Path,
    dataset: str,
    overrides: tuple[str, ...],
    limit: int,
    order: str,
    margin: float | None,
    temperature: float | None,
    knowledge_folder: Path | None,
    out: Path | None,
    with_labels: bool,
    as_json: bool,
) -> None:
    """Thin call of :func:`colabel.missing_labels`."""
    from colabel import load_dataset, missing_labels, open_labels
    from colabel.collective.knowledge import open_knowledge
    from colabel.labels import check_missing_file, remembered_knowledge, write_missing

    check_missing_file(out, with_labels=with_labels)
    recipe = recipe_settings(dataset, overrides, ("data", "labels"))
    labels = open_labels(labels_folder)
    loaded = load_dataset(recipe.data)
    knowledge = open_knowledge(knowledge_folder) if knowledge_folder else remembered_knowledge(labels)
    found = missing_labels(
        labels,
        knowledge,
        loaded,
        limit=limit,
        order=order,
        margin=margin,
        temperature=temperature or recipe.labels.temperature,
    )
    if out is not None:
        visible = loaded.source_labels(labels.split) if with_labels else None
        write_missing(found, out, grade=loaded.relevant_from, visible=visible)
    if as_json:
        print_json([label.as_dict() for label in found])
        return
    if out is None and found:
        emit(missing_text(found))
    emit(f"{out or labels_folder}: {len(found):,} passages without a label, most suspect first")
    emit(f"Next: {_after_missing(labels_folder, same_data(dataset, overrides), out)}")


def missing_text(found: Sequence[MissingLabel]) -> str:
    """Suggestions as a table: place, query, passage, scores, and the expansion tokens that spoke for it."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from colabel.labels.missing import reason_text

    columns = ("", Column("query", ratio=3), Column("passage", ratio=5), "margin", Column("why", ratio=3))
    shown = Table(*columns, show_lines=True, expand=True)
    for place, label in enumerate(found, start=1):
        head = (
            f"{label.passage_id}  {label.title}"
            if label.title and label.title != label.passage_id
            else label.passage_id
        )
        shown.add_row(
            str(place),
            Text(f"{label.query_id}\n{label.query}"),
            Text(f"{head}\n{textwrap.shorten(label.text, _SHOWN_TEXT, placeholder=' …')}"),
            "" if math.isnan(label.margin) else f"{label.margin:+.2f}",
            Text(reason_text(label.reasons, 4)),
        )
    page = io.StringIO()
    console = Console(file=page, width=min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns))
    console.print(shown)
    return page.getvalue().rstrip()


def _after_missing(labels_folder: Path, dataset: str, out: Path | None) -> str:
    if out is None:
        return f"colabel missing {labels_folder} {dataset} --out review.tsv"
    if out.suffix == ".qrels":
        return f'name it in a recipe as [data] labels = {{ train = "{out}" }}, and colabel check that recipe'
    return f"colabel missing {labels_folder} {dataset} --limit 200 --with-labels --out more.qrels"

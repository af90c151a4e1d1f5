"""Look and label: ``colabel collect``, ``inspect``, ``label``, ``missing`` and ``label-quality``."""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.options import (
    DATASET_HELP,
    FOLDER,
    LABELS_HELP,
    chosen_engine,
    loaded_dataset,
    opened_labels,
    recipe_settings,
    same_data,
)
from colabel.cli.output import difference_cells, emit, hit_lines, interval_text, print_json, table
from colabel.errors import UsageError
from colabel.systems import TEACHERS

if TYPE_CHECKING:
    from colabel.collective.knowledge import Inspection, Knowledge
    from colabel.evaluation import LabelQuality
    from colabel.labels import MissingLabel
    from colabel.settings import CollectiveSettings, Recipe

_USED = ("data", "encoder", "rank", "collective", "labels", "cross_encoder", "compute")
_READERS = ("cross-encoder", "ensemble", "mixed")
_ORDERS = ("standout", "deviation")
_WIDTH, _SHOWN_TEXT = 120, 180  # characters of the table of missing labels, and of a passage in it

_order_option = click.option(
    "--order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="By how far the teacher score lies above the mean of the query's candidates: relative to the query's weight "
    "(standout), or in standard deviations (deviation; for cross-encoders).",
)


@click.command(
    "collect",
    help=f"""Collect what the feedback passages of each query have in common.

    {DATASET_HELP}

    Ranks the queries of a split with the index, clusters the token vectors of their feedback passages and keeps the
    centroids of highest IDF. [collective] says how; β may be chosen later. Examples:

      colabel collect my-collection/ --index my-index/ --out my-knowledge/

      colabel collect my-collection/ --index my-index/ --set collective.feedback=top --out paper/""",
)
@options.dataset_argument
@click.option("--index", "index_folder", required=True, type=FOLDER, help="An index that `colabel index` wrote.")
@options.split_option("train", "Whose queries.")
@options.out_option("Folder of the knowledge.")
def collect_command(dataset: str, overrides: tuple[str, ...], index_folder: Path, split: str, out: Path) -> None:
    """Thin call of :func:`colabel.collect`."""
    from colabel import collect

    recipe = recipe_settings(dataset, overrides, ("data", "rank", "collective", "compute", "seed"))
    with loaded_dataset(recipe, out) as (loaded, progress, _), chosen_engine(recipe) as engine:
        knowledge = collect(
            loaded,
            engine.open_index(index_folder, loaded.passages),
            out,
            settings=recipe.collective,
            split=split,
            depth=recipe.rank.depth,
            seed=recipe.seed,
            progress=progress,
        )
    counts = knowledge.counts
    emit(
        f"{out}: {counts['queries']:,} queries of '{split}', feedback '{knowledge.settings.feedback}', "
        f"{counts['with_fewer_centroids']:,} with fewer than {knowledge.settings.centroids} centroids, "
        f"{counts['without_centroids']:,} with none (they keep the plain query)"
    )
    emit(options.next_command("inspect", out, knowledge.queries.ids[0]))


@click.command("inspect")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.argument("query_id")
@click.option(
    "-k", "count", default=3, show_default=True, type=click.IntRange(1, 100), help="Passages before and after."
)
@click.option("--beta", type=click.FloatRange(min=0), help="β; default: that of the knowledge.")
@options.json_option
def inspect_command(folder: Path, query_id: str, count: int, beta: float | None, as_json: bool) -> None:
    """Show a query's feedback passages, its expansion tokens, and its best passages before and after.

    RUN is the folder of a run or study, or one that `colabel collect` wrote. Examples:

      colabel inspect runs/mine q17

      colabel inspect my-knowledge/ q17 --beta 1
    """
    from colabel import inspect, open_knowledge, open_run

    known = open_run(folder).knowledge if options.is_run(folder) else open_knowledge(folder)
    seen = inspect(known, query_id, count=count, beta=beta)
    if as_json:
        print_json(seen.as_dict())
    else:
        emit("\n".join(inspection_lines(seen)))


def inspection_lines(seen: Inspection) -> list[str]:
    """An inspection as text."""
    lines = [f"{seen.query_id}: {seen.text}", "", "feedback passages"]
    lines += [line for hit in seen.feedback for line in hit_lines(hit)]
    lines += ["", f"expansion tokens (σ, weight at β = {seen.beta:g})"]
    lines += [f"     {token.token:<16} {token.sigma:6.2f} {token.weight:8.3f}" for token in seen.tokens]
    if not seen.tokens:
        lines.append("     none: the plain query is used")
    for title, hits in (("before: by the query alone", seen.before), ("after: with the centroids", seen.after)):
        lines += ["", title, *(line for hit in hits for line in hit_lines(hit))]
    return lines


@click.command(
    "label",
    help=f"""Let a teacher score the candidates of every training query.

    {DATASET_HELP}

    Candidates are the top labels.candidates passages of the ranking in the knowledge, and the labelled positives.
    Teachers: collective (the query with its collective centroids), self (the query alone), cross-encoder (--model),
    ensemble (several --model), scores (the score file labels.scores), mixed (collective and cross-encoder in equal
    parts, --model). β and its scale are the knowledge's, unless --set collective.beta=… or a recipe says
    otherwise. Examples:

      colabel label my-collection/ --knowledge my-knowledge/ --out labels/collective

      colabel label my-collection/ --knowledge my-knowledge/ --teacher cross-encoder --model my-cross-encoder/
      --out labels/cross-encoder""",
)
@options.dataset_argument
@click.option("--knowledge", "knowledge_folder", required=True, type=FOLDER, help="What `colabel collect` wrote.")
@click.option("--teacher", default="collective", show_default=True, type=click.Choice(TEACHERS), help="Who scores.")
@click.option("--model", "models", multiple=True, help="A cross-encoder, folder or hub id; several for ensemble.")
@options.json_option
@options.out_option("Folder of the labels.")
def label_command(
    dataset: str,
    overrides: tuple[str, ...],
    knowledge_folder: Path,
    teacher: str,
    models: tuple[str, ...],
    as_json: bool,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.label`."""
    from colabel import label, open_knowledge
    from colabel.pipeline.stages import cross_encoder
    from colabel.ranking import Bm25
    from colabel.systems import named_teacher
    from colabel.systems.students import Sources

    if models and teacher not in _READERS:
        raise UsageError(f"--model is for the teacher {' or '.join(_READERS)}; the teacher is '{teacher}'")
    recipe = recipe_settings(dataset, overrides, _USED)
    scores = Path(recipe.labels.scores) if recipe.labels.scores else None
    pairs = out.absolute().with_name(f".{out.absolute().name}.pairs")  # stays after a kill, to be continued
    with loaded_dataset(recipe, out) as (loaded, progress, _), chosen_engine(recipe) as engine:
        knowledge = open_knowledge(
            knowledge_folder, open_index=lambda folder: engine.open_index(folder, loaded.passages)
        )
        readers = tuple(cross_encoder(model, loaded, recipe, engine, pairs, progress) for model in models)
        collective = _collective(recipe, dataset, overrides, knowledge)
        words = functools.partial(Bm25, loaded.passages, recipe.rank, pairs / "bm25", progress)
        sources = Sources(loaded, knowledge, collective, readers, scores, words, progress)
        chosen = named_teacher(teacher, sources)
        found = label(knowledge, loaded, chosen, out, settings=recipe.labels, progress=progress)
    shutil.rmtree(pairs, ignore_errors=True)
    counts = found.manifest.counts
    if as_json:
        print_json({"teacher": found.teacher, "split": found.split, **counts})
        return
    emit(f"{out}: {counts['queries']:,} queries labelled by the teacher '{found.teacher}'")
    names = ("scored", "labelled", "feedback", "hard_negatives", "skipped_queries", "empty_positives")
    rows = [[name.replace("_", " "), f"{counts[name]:,}"] for name in names]
    emit(table(["candidates", f"{counts['pairs']:,}"], rows))
    emit(options.next_command("missing", out, *same_data(dataset, overrides)))


def _collective(recipe: Recipe, dataset: str, overrides: tuple[str, ...], knowledge: Knowledge) -> CollectiveSettings:
    """β and its scale as the recipe or --set gives them, else as the knowledge remembers them."""
    from colabel.settings.recipe import given_keys

    given = given_keys(dataset, overrides)
    chosen = {
        name: getattr(recipe.collective, name) for name in ("beta", "expansion_scale") if f"collective.{name}" in given
    }
    return dataclasses.replace(knowledge.settings, **chosen)


@click.command(
    "missing",
    help=f"""List the passages that seem to be relevant and have no label, the most likely first.

    {LABELS_HELP}

    OUT ends in .tsv or .jsonl; `colabel judge` reads it with its column 'verdict' filled in. Examples:

      colabel missing runs/mine --limit 50 --out review.tsv

      colabel missing labels/collective my-collection/ --limit 200""",
)
@options.labels_arguments
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 10_000_000), help="How many passages, at most."
)
@_order_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write, instead of the screen.")
@options.json_option
def missing_command(
    labels_folder: Path,
    dataset: str | None,
    overrides: tuple[str, ...],
    limit: int,
    order: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Thin call of :func:`colabel.missing_labels`."""
    from colabel import missing_labels
    from colabel.labels.missing import check_missing_file, remembered_knowledge, write_missing

    if out is not None:
        check_missing_file(out)
    labels, loaded, _, run = opened_labels(labels_folder, dataset, overrides, ("data", "labels"))
    if run is not None:
        found = run.missing(limit, order=order)
    else:
        found = missing_labels(labels, remembered_knowledge(labels), loaded, limit=limit, order=order)
    if out is not None:
        write_missing(found, out)
    if as_json:
        print_json([label.as_dict() for label in found])
        return
    if out is None and found:
        emit(missing_text(found))
    emit(f"{out or labels_folder}: {len(found):,} passages without a label, the most likely first")
    if run is not None and (missing := run.missing_in_all()) is not None:
        emit("about {:,.0f} labels of the training queries are missing in all [{:,.0f}, {:,.0f}]".format(*missing))
    if out is None:
        data = same_data(dataset, overrides) if dataset else []
        emit(options.next_command("missing", labels_folder, *data, "--out", options.unused_file("review.tsv")))
    elif run is not None and out.suffix == ".tsv":
        emit("Fill in its column 'verdict': yes, no or unsure; what is left empty is left open.")
        emit(options.next_command("judge", labels_folder, out))


def missing_text(found: Sequence[MissingLabel]) -> str:
    """Missing labels as a table: place, query, passage, scores, and the expansion tokens that spoke for it."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from colabel.labels.missing import reason_text

    known = ("p",) if any(label.probability is not None for label in found) else ()
    columns = ("", Column("query", ratio=3), Column("passage", ratio=5), "margin", *known, Column("why", ratio=3))
    shown = Table(*columns, show_lines=True, expand=True)
    for place, label in enumerate(found, start=1):
        title = f"  {label.title}" if label.title and label.title != label.passage_id else ""
        shown.add_row(
            str(place),
            Text(f"{label.query_id}\n{label.query}"),
            Text(f"{label.passage_id}{title}\n{textwrap.shorten(label.text, _SHOWN_TEXT, placeholder=' …')}"),
            "" if math.isnan(label.margin) else f"{label.margin:+.2f}",
            *(f"{label.probability:.2f}" for _ in known),
            Text(reason_text(label.reasons, 4)),
        )
    page = io.StringIO()
    Console(file=page, width=min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)).print(shown)
    return page.getvalue().rstrip()


@click.command(
    "label-quality",
    help=f"""Show how well labels find the positives that were hidden before labelling.

    {LABELS_HELP}

    The teacher's scores and the base scores φ rank each query's candidates, the labelled ones taken out; hidden
    positives should come first. Examples:

      colabel label-quality runs/mine

      colabel label-quality labels/collective my-collection/ --set data.keep_labels=1""",
)
@options.labels_arguments
@_order_option
@options.json_option
def label_quality_command(
    labels_folder: Path, dataset: str | None, overrides: tuple[str, ...], order: str, as_json: bool
) -> None:
    """Thin call of :func:`colabel.label_quality`."""
    from colabel import label_quality
    from colabel.evaluation import suggestion_precision
    from colabel.labels import find_missing

    opened, loaded, recipe, _ = opened_labels(labels_folder, dataset, overrides, ("data", "seed"))
    found = label_quality(opened, loaded, seed=recipe.seed)
    missing = find_missing(opened, loaded, limit=5 * len(opened), order=order)
    shares = suggestion_precision([(one.query_id, one.row) for one in missing], loaded, queries=len(opened))
    if as_json:
        print_json({**found.as_dict(), "order": order, "suggestions": [one.as_dict() for one in shares]})
        return
    emit("\n\n".join("\n".join(quality_lines(found, grade)) for grade in found.grades))
    emit("\nshare of hidden positives among the first passages that `colabel missing` lists:")
    for one in shares:
        share = "none" if one.precision is None else f"{one.precision:.3f}"
        emit(f"  {one.suggestions:,} passages ({one.multiple:g} × queries): {share}")


def quality_lines(found: LabelQuality, grade: int) -> list[str]:
    """Teacher against base at one grade from which passages count as relevant."""
    from colabel.evaluation.hidden_labels import BASE, TEACHER
    from colabel.measures import p_text

    quality = found.grades[grade]
    base, teacher, tests = quality.systems[BASE], quality.systems[TEACHER], quality.differences[TEACHER]
    tested = [("average precision", base.average_precision, teacher.average_precision, tests["AP"])]
    if base.auc and teacher.auc:
        tested.append(("AUC per query", base.auc, teacher.auc, tests["AUC"]))
    rows = []
    for title, one, other, test in tested:
        mean, bounds = difference_cells(test)
        p_values = [p_text(p, "none") for p in (test.t_test, test.randomisation)]
        rows.append([title, interval_text(one), interval_text(other), f"{mean} [{bounds}]", *p_values])
    titles = ["base φ", found.teacher, "difference", "t-test p", "random. p"]
    header = [f"{found.dataset}, hidden, grade >= {grade}", *titles]
    lines = [
        f"{quality.found:,} of {quality.relevant:,} hidden positives are among the candidates, "
        f"{quality.recall.mean:.1%} of a query's on average",
        f"{quality.queries:,} queries measured, {quality.left_out:,} without a hidden positive among their candidates",
    ]
    lines += [f"{quality.unscored:,} candidates without a teacher score are left out"] if quality.unscored else []
    return [*lines, table(header, rows), f"in brackets: {quality.recall.confidence:.0%} intervals"]

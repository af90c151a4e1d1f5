"""``colabel collect``, ``inspect`` and ``sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import (
    DATASET_HELP,
    chosen_engine,
    dataset_argument,
    json_option,
    out_option,
    recipe_settings,
)
from colabel.cli.labels import same_data
from colabel.cli.output import beside, emit, print_json, table, terminal_progress
from colabel.cli.search import hit_lines
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.collective.inspection import Inspection
    from colabel.evaluation.sweeping import Grid


@click.command(
    "collect",
    help=f"""Collect what the feedback passages of each query have in common.

    {DATASET_HELP}

    Ranks the queries of a split with the index, clusters the token vectors of their feedback passages and keeps the
    centroids of highest IDF. [collective] says how; β may be chosen later. Examples:

      colabel collect my-collection/ --index my-index/ --out my-knowledge/

      colabel collect my-collection/ --index my-index/ --set collective.feedback=top --out paper/""",
)
@dataset_argument
@click.option("--index", "index_folder", required=True, type=click.Path(path_type=Path), help="An index.")
@click.option("--split", default="train", show_default=True, help="Whose queries.")
@out_option("Folder of the knowledge.")
def collect_command(dataset: str, overrides: tuple[str, ...], index_folder: Path, split: str, out: Path) -> None:
    """Thin call of :func:`colabel.collect`."""
    from colabel import collect, load_dataset

    recipe = recipe_settings(dataset, overrides, ("data", "rank", "collective", "compute", "seed"))
    with terminal_progress() as progress, beside(out, "work") as scratch, chosen_engine(recipe) as engine:
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
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
    first = knowledge.queries.ids[0]
    data = same_data(dataset, overrides)
    emit(f"Next: colabel inspect {out} {first}, or colabel label {data} --knowledge {out} --out LABELS")


@click.command("inspect")
@click.argument("knowledge_folder", metavar="KNOWLEDGE", type=click.Path(path_type=Path))
@click.argument("query_id")
@click.option(
    "-k", "count", default=3, show_default=True, type=click.IntRange(1, 100), help="Passages before and after."
)
@click.option("--beta", type=click.FloatRange(min=0), help="β; default: that of the knowledge.")
@json_option
def inspect_command(knowledge_folder: Path, query_id: str, count: int, beta: float | None, as_json: bool) -> None:
    """Show a query's feedback passages, its expansion tokens, and its best passages before and after.

    Example:

      colabel inspect my-knowledge/ q17
    """
    from colabel import inspect, open_knowledge

    seen = inspect(open_knowledge(knowledge_folder), query_id, count=count, beta=beta)
    if as_json:
        print_json(seen.as_dict())
    else:
        emit("\n".join(inspection_lines(seen)))


def inspection_lines(seen: Inspection) -> list[str]:
    """An inspection for people."""
    lines = [f"{seen.query_id}: {seen.text}", "", "feedback passages"]
    lines += [line for hit in seen.feedback for line in hit_lines(hit)]
    lines += ["", f"expansion tokens (σ, weight at β = {seen.beta:g})"]
    lines += [f"     {token.token:<16} {token.sigma:6.2f} {token.weight:8.3f}" for token in seen.tokens]
    if not seen.tokens:
        lines.append("     none: the plain query is used")
    for title, hits in (("before: by the query alone", seen.before), ("after: with the centroids", seen.after)):
        lines += ["", title, *(line for hit in hits for line in hit_lines(hit))]
    return lines


def _values(text: str | None, kind: type, name: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"--{name} is '{text}'; expected numbers with commas between them, such as 1,3,5") from None


@click.command(
    "sweep",
    help=f"""Measure the teacher for other values of (f_p, f_c, f_e, β).

    {DATASET_HELP}

    One value at a time differs from [collective], or with --full every combination is tried. Feedback is always the
    top f_p, as the labels serve to measure. Examples:

      colabel sweep my-collection/ --index my-index/ --out sweeps/dev

      colabel sweep my-collection/ --index my-index/ --full --beta 0.1,0.3,1 --rerank --out sweeps/grid""",
)
@dataset_argument
@click.option("--index", "index_folder", required=True, type=click.Path(path_type=Path), help="An index.")
@click.option("--split", default="dev", show_default=True, help="Whose queries and labels.")
@click.option("--full", is_flag=True, help="Every combination, not one value at a time.")
@click.option("--rerank", is_flag=True, help="Score the first candidates anew instead of searching again.")
@click.option("--f-p", "feedback", help="Numbers of feedback passages; default: 1,3,5.")
@click.option("--f-c", "clusters", help="Numbers of clusters; default: 12,24.")
@click.option("--f-e", "centroids", help="Numbers of centroids; default: 5,10.")
@click.option("--beta", "betas", help="Values of β; default: 0,0.25,0.5,1.")
@click.option(
    "-m", "--measure", "measures", multiple=True, help="A measure of ir_measures; may be given several times."
)
@json_option
@out_option("Folder of the sweep.")
def sweep_command(
    dataset: str,
    overrides: tuple[str, ...],
    index_folder: Path,
    split: str,
    full: bool,
    rerank: bool,
    feedback: str | None,
    clusters: str | None,
    centroids: str | None,
    betas: str | None,
    measures: tuple[str, ...],
    as_json: bool,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.sweep`."""
    from colabel import Index, load_dataset, sweep
    from colabel.evaluation.sweeping import MEASURES

    recipe = recipe_settings(dataset, overrides, ("data", "rank", "collective", "seed"))
    wanted = measures or MEASURES
    with terminal_progress() as progress, beside(out, "work") as scratch:
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
        points = sweep(
            loaded,
            Index.open(index_folder),
            out,
            settings=recipe.collective,
            grid=_grid(feedback, clusters, centroids, betas),
            full=full,
            rerank=rerank,
            split=split,
            measures=wanted,
            depth=recipe.rank.depth,
            seed=recipe.seed,
            progress=progress,
        )
    if as_json:
        print_json([point.as_dict() for point in points])
        return
    rows = [
        [
            str(point.feedback_passages),
            str(point.clusters),
            str(point.centroids),
            f"{point.beta:g}",
            *(f"{point.measures[name]:.4f}" for name in wanted),
        ]
        for point in points
    ]
    emit(table(["f_p", "f_c", "f_e", "β", *wanted], rows))
    best = max(points, key=lambda point: point.measures[wanted[0]])
    emit(
        f"Next: best by {wanted[0]} on '{split}': --set collective.feedback_passages={best.feedback_passages} "
        f"--set collective.clusters={best.clusters} --set collective.centroids={best.centroids} "
        f"--set collective.beta={best.beta:g}"
    )


def _grid(feedback: str | None, clusters: str | None, centroids: str | None, betas: str | None) -> Grid:
    from colabel.evaluation.sweeping import Grid

    given = {
        "feedback_passages": _values(feedback, int, "f-p"),
        "clusters": _values(clusters, int, "f-c"),
        "centroids": _values(centroids, int, "f-e"),
        "beta": _values(betas, float, "beta"),
    }
    return Grid(**{name: values for name, values in given.items() if values is not None})  # type: ignore[arg-type]

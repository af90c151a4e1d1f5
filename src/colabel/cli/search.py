"""``colabel index``, ``rank``, ``search`` and ``evaluate``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from colabel.cli.arguments import DATASET_HELP, dataset_argument, json_option, out_option, recipe_settings
from colabel.cli.output import beside, emit, print_json, table, terminal_progress
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.ranking.ask import Hit


@click.command(
    "index",
    help=f"""Encode a dataset's passages and index them.

    {DATASET_HELP}

    The folder OUT holds the model, the token vectors and what search needs; the same command continues an
    interrupted build. Example:

      colabel index my-collection/ --set encoder.model=minilm --out my-index/""",
)
@dataset_argument
@out_option("Folder of the index.")
def index_command(dataset: str, overrides: tuple[str, ...], out: Path) -> None:
    """Thin call of :func:`colabel.build_index`."""
    from colabel import build_index, load_dataset

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress:
        loaded = load_dataset(recipe.data, cache=out / "data", progress=progress)
        index = build_index(
            loaded, out, data=recipe.data, encoder=recipe.encoder, index=recipe.index, progress=progress
        )
    counts = index.store.manifest.counts
    emit(
        f"{out}: {counts['passages']:,} passages, {counts['tokens']:,} token vectors of {counts['dimension']} "
        f"dimensions, {counts['truncated']:,} passages cut; engine {index.engine}"
    )
    emit(f'Next: colabel search {out} "your question"')


@click.command(
    "rank",
    help=f"""Rank passages for the queries of a split, with an index or with BM25.

    {DATASET_HELP}

    OUT gets arrays and run.trec, a TREC run file. Example:

      colabel rank my-collection/ --index my-index/ --split test --out runs/zero-shot""",
)
@dataset_argument
@click.option("--index", "index_folder", type=click.Path(path_type=Path), help="An index that `colabel index` wrote.")
@click.option("--bm25", is_flag=True, help="Rank with BM25 instead of an index.")
@click.option("--split", default="test", show_default=True, help="Whose queries are ranked.")
@click.option("--depth", type=click.IntRange(1, 100_000), help="Passages per query; default: rank.depth.")
@click.option(
    "--only", type=click.Path(path_type=Path), help="File with the passage ids that may be ranked, one a line."
)
@click.option("--exclude", type=click.Path(path_type=Path), help="File with passage ids to leave out, one a line.")
@out_option("Folder of the ranking.")
def rank_command(
    dataset: str,
    overrides: tuple[str, ...],
    index_folder: Path | None,
    bm25: bool,
    split: str,
    depth: int | None,
    only: Path | None,
    exclude: Path | None,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.rank`."""
    from colabel import Bm25, Index, LateInteraction, load_dataset, rank

    if bm25 == (index_folder is not None):
        raise UsageError("choose one: --index FOLDER or --bm25")
    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress, beside(out, "work") as scratch:
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
        ranker: Any
        if index_folder is None:
            ranker = Bm25(loaded.passages, recipe.rank, scratch / "bm25", progress)
        else:
            index = Index.open(index_folder)
            index.check_collection(loaded.passages)
            ranker = LateInteraction(index)
        ranking = rank(
            ranker,
            loaded.split_queries(split),
            out,
            depth=depth or recipe.rank.depth,
            only=_read_ids(only),
            exclude=_read_ids(exclude),
            progress=progress,
        )
    emit(f"{ranking.run_file}: {len(ranking):,} queries")
    emit(f"Next: colabel evaluate {dataset} {out} --split {split}")


@click.command("search")
@click.argument("index_folder", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("text")
@click.option("-k", "count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many passages.")
@json_option
def search_command(index_folder: Path, text: str, count: int, as_json: bool) -> None:
    """Search an index and show rank, score, id, title and text.

    Example:

      colabel search my-index/ "how are glacier caves formed" -k 5
    """
    from colabel import Index, search

    hits = search(Index.open(index_folder), text, count)
    if as_json:
        print_json([hit.as_dict() for hit in hits])
    else:
        emit("\n".join(line for hit in hits for line in hit_lines(hit)))


def hit_lines(hit: Hit) -> list[str]:
    """A hit for people: a head line, and its text in at most three lines."""
    head = f"{hit.rank:>3}  {hit.score:.3f}  {hit.passage_id}"
    title = f"  {hit.title}" if hit.title and hit.title != hit.passage_id else ""
    body = textwrap.wrap(hit.text, width=96, max_lines=3, placeholder=" …")
    return [head + title, *(f"     {line}" for line in body)]


@click.command(
    "evaluate",
    help=f"""Measure runs against a dataset's labels.

    {DATASET_HELP}

    RUNS are TREC run files of any program, or folders that `colabel rank` wrote. Example:

      colabel evaluate my-collection/ runs/bm25 other.trec -m nDCG@10 -m RR@10 -m R@1000""",
)
@dataset_argument
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--split", default="test", show_default=True, help="Whose labels count.")
@click.option(
    "-m", "--measure", "measures", multiple=True, help="A measure of ir_measures; may be given several times."
)
@json_option
def evaluate_command(
    dataset: str,
    overrides: tuple[str, ...],
    runs: tuple[Path, ...],
    split: str,
    measures: tuple[str, ...],
    as_json: bool,
) -> None:
    """Thin call of :func:`colabel.evaluate`."""
    from colabel import evaluate, load_dataset
    from colabel.measures import DEFAULT_MEASURES

    wanted = measures or DEFAULT_MEASURES
    named = {str(run): run for run in runs}
    evaluation = evaluate(load_dataset(recipe_settings(dataset, overrides).data), named, split=split, measures=wanted)
    if as_json:
        print_json(evaluation.as_dict())
        return
    rows = [[system, *(f"{values[name]:.4f}" for name in wanted)] for system, values in evaluation.means.items()]
    emit(table([f"{evaluation.dataset} {split}", *wanted], rows))
    emit(f"relevant means grade {evaluation.relevant_from} or higher")


def _read_ids(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    from colabel.data.lines import read_lines
    from colabel.data.problems import Strict

    return [line.text.strip() for line in read_lines(path, Strict())]

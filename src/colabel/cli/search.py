"""``colabel index``, ``rank`` and ``search``."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from colabel.cli.arguments import (
    DATASET_HELP,
    chosen_engine,
    dataset_argument,
    json_option,
    out_option,
    recipe_settings,
)
from colabel.cli.output import beside, emit, print_json, terminal_progress
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress

if TYPE_CHECKING:
    from colabel.index import Index
    from colabel.ranking import Ranker
    from colabel.ranking.ask import Hit
    from colabel.settings import CollectiveSettings


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
    from colabel import load_dataset

    recipe = recipe_settings(dataset, overrides, ("data", "encoder", "index", "compute"))
    with terminal_progress() as progress, chosen_engine(recipe) as engine:
        loaded = load_dataset(recipe.data, cache=out / "data", progress=progress)
        index = engine.build_index(
            loaded, out, data=recipe.data, encoder=recipe.encoder, index=recipe.index, progress=progress
        )
    counts = index.store.manifest.counts
    emit(
        f"{out}: {counts['passages']:,} passages, {counts['tokens']:,} token vectors of {counts['dimension']} "
        f"dimensions, {counts['truncated']:,} passages cut; engine {index.engine}"
    )
    emit(f'Next: colabel search {out} "your question"')


_PRF_HELP = """Expand each query with the collective centroids of its own top passages (ColBERT-PRF) and search again
(ranker), or only score the first candidates anew (reranker)."""


def _prf_options(function: Any) -> Any:
    function = click.option("--beta", type=click.FloatRange(min=0), help="β of --prf; default: collective.beta.")(
        function
    )
    return click.option("--prf", type=click.Choice(["ranker", "reranker"]), help=_PRF_HELP)(function)


def _prf_ranker(
    index: Index,
    prf: str | None,
    beta: float | None,
    settings: CollectiveSettings,
    *,
    seed: int = 0,
    strict: bool = False,
    progress: Progress = SILENT,
) -> Ranker | None:
    """The ranker that --prf and --beta ask for; None without --prf."""
    from colabel.collective import PrfRanker

    if prf is None:
        if beta is not None:
            raise UsageError("--beta is the weight of --prf; add --prf ranker or --prf reranker")
        return None
    chosen = settings if beta is None else dataclasses.replace(settings, beta=beta)
    return PrfRanker(index, chosen, rerank=prf == "reranker", seed=seed, strict=strict, progress=progress)


@click.command(
    "rank",
    help=f"""Rank passages for the queries of a split, with an index or with BM25.

    {DATASET_HELP}

    OUT gets arrays and run.trec, a TREC run file. Example:

      colabel rank my-collection/ --index my-index/ --split test --out runs/zero-shot

      colabel rank my-collection/ --index my-index/ --prf ranker --beta 0.5 --out runs/colbert-prf""",
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
@_prf_options
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
    prf: str | None,
    beta: float | None,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.rank`."""
    from colabel import Bm25, LateInteraction, load_dataset, rank

    if bm25 == (index_folder is not None):
        raise UsageError("choose one: --index FOLDER or --bm25")
    if bm25 and prf:
        raise UsageError("--prf expands queries of an index; it does not go with --bm25")
    recipe = recipe_settings(dataset, overrides, ("data", "rank", "collective", "compute", "seed"))
    with terminal_progress() as progress, beside(out, "work") as scratch, chosen_engine(recipe) as engine:
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
        ranker: Any
        if index_folder is None:
            ranker = Bm25(loaded.passages, recipe.rank, scratch / "bm25", progress)
        else:
            index = engine.open_index(index_folder, loaded.passages)
            index.check_collection(loaded.passages)
            ranker = _prf_ranker(
                index, prf, beta, recipe.collective, seed=recipe.seed, progress=progress
            ) or LateInteraction(index, progress=progress)
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
@_prf_options
@json_option
def search_command(
    index_folder: Path, text: str, count: int, prf: str | None, beta: float | None, as_json: bool
) -> None:
    """Search an index and show rank, score, id, title and text.

    Examples:

      colabel search my-index/ "how are glacier caves formed" -k 5

      colabel search my-index/ "how are glacier caves formed" --prf ranker --beta 0.5
    """
    from colabel import CollectiveSettings, Index, search

    index = Index.open(index_folder)
    hits = search(index, text, count, ranker=_prf_ranker(index, prf, beta, CollectiveSettings(), strict=True))
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


def _read_ids(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    from colabel.data.lines import read_lines
    from colabel.data.problems import Strict

    return [line.text.strip() for line in read_lines(path, Strict())]

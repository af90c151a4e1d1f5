"""Search: ``colabel index``, ``rank`` and ``search``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from colabel.cli import options
from colabel.cli.options import DATASET_HELP, FOLDER, chosen_engine, loaded_dataset, next_command, recipe_settings
from colabel.cli.output import emit, hit_lines, print_json, terminal_progress
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.index import Index
    from colabel.pipeline.folder import Run
    from colabel.ranking import Hit
    from colabel.ranking.highlights import WordMatch

_RANKERS = ("hybrid", "student", "colbert", "prf", "bm25")
_HIGHLIGHTED = 100  # hits whose matching words are looked up, at most


@click.command(
    "index",
    help=f"""Encode a dataset's passages and index them, or change an index.

    {DATASET_HELP}

    OUT gets the model, the token vectors and what search needs. Repeat the command to continue an interrupted build.
    Examples:

      colabel index my-collection/ --set encoder.model=minilm --out my-index/

      colabel index products.csv --columns text=description --out my-index/

    With --add, --update, --delete or --compact, DATASET is an index, or a run, which is changed: new passages alone are
    encoded, nothing is trained, and whoever searches meanwhile sees the old state or the new one. Examples:

      colabel index my-index/ --add new-products.csv

      colabel index runs/shop --add new-products.csv

      colabel index my-index/ --delete sold-out.txt --compact""",
)
@options.dataset_argument
@click.option("--out", type=FOLDER, help="Folder of the index; required where one is built.")
@click.option("--add", metavar="DATASET", help="Add the passages of a dataset; ids must be new.")
@click.option("--update", metavar="DATASET", help="Add passages, and replace those with the same ids.")
@click.option(
    "--delete", type=click.Path(path_type=Path, dir_okay=False), help="Delete passages: a file with an id per line."
)
@click.option("--compact", is_flag=True, help="Rewrite the index in one piece, and remove what was deleted from disk.")
def index_command(
    dataset: str,
    overrides: tuple[str, ...],
    out: Path | None,
    add: str | None,
    update: str | None,
    delete: Path | None,
    compact: bool,
) -> None:
    """Thin call of :func:`colabel.build_index`, or of :func:`colabel.index.living.change`."""
    from colabel import load_dataset
    from colabel.index.index import check_place

    if add or update or delete or compact:
        if out or overrides or (add and update):
            given = "--out" if out else f"--set {overrides[0]}" if overrides else "--add or --update"
            raise UsageError(
                f"{dataset} is changed in place, with the settings that it was built with; leave out {given}"
            )
        _change(Path(dataset), add or update, bool(update), delete, compact)
        return
    if out is None:
        raise UsageError("name the folder of the new index: --out FOLDER")
    recipe = recipe_settings(dataset, overrides, ("data", "encoder", "index", "compute"))
    check_place(out)
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
    emit(next_command("search", out, "your question"))


def _change(folder: Path, add: str | None, update: bool, delete: Path | None, compact: bool) -> None:
    from colabel import Index, open_run
    from colabel.index.living import change, refuse_run

    of_run = options.is_run(folder)
    if not of_run:
        refuse_run(folder)
    try:
        ids = delete.read_text(encoding="utf-8").split("\n") if delete else []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{delete} cannot be read as a list of ids: {error}") from None
    gone = [one.strip() for one in ids if one.strip()]
    with terminal_progress() as progress:
        how: Any = {"add": add, "update": update, "delete": gone, "compact": compact, "progress": progress}
        index = open_run(folder).change(**how).index if of_run else change(Index.open(folder), **how)
    emit(f"{folder}: {len(index.store):,} passages, {index.store.tokens:,} token vectors; {len(gone):,} deleted")


_where_option = click.option(
    "--where",
    default="",
    metavar="CONDITION",
    help="Rank only passages whose metadata fulfil a condition of SQL, such as \"brand = 'Acme' and price < 30\".",
)


@click.command(
    "rank",
    help=f"""Rank passages for the queries of a split, with an index or with BM25.

    {DATASET_HELP}

    OUT gets arrays and run.trec, a TREC run file. Examples:

      colabel rank my-collection/ --index my-index/ --split test --out runs/zero-shot

      colabel rank my-collection/ --index my-index/ --prf ranker --set collective.beta=0.5 --out runs/colbert-prf

      colabel rank products.csv --bm25 --where "price < 30" --set data.queries=queries.jsonl --out runs/cheap""",
)
@options.dataset_argument
@click.option("--index", "index_folder", type=FOLDER, help="An index that `colabel index` wrote.")
@click.option("--bm25", is_flag=True, help="Rank with BM25 instead of an index.")
@options.split_option("test", "Whose queries are ranked.")
@click.option(
    "--prf",
    type=click.Choice(["ranker", "reranker"]),
    help="Expand each query with the collective centroids of its own top passages (ColBERT-PRF) and search again "
    "(ranker), or only rescore the first candidates (reranker). β is collective.beta.",
)
@_where_option
@options.out_option("Folder of the ranking.")
def rank_command(
    dataset: str,
    overrides: tuple[str, ...],
    index_folder: Path | None,
    bm25: bool,
    split: str,
    prf: str | None,
    where: str,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.rank`."""
    from colabel import Bm25, LateInteraction, rank
    from colabel.collective import PrfRanker
    from colabel.data.metadata import Metadata
    from colabel.index.living import LivingIndex

    if bm25 == (index_folder is not None):
        raise UsageError("choose one: --index FOLDER or --bm25")
    if bm25 and prf:
        raise UsageError("--prf expands queries of an index; it cannot be combined with --bm25")
    recipe = recipe_settings(dataset, overrides, ("data", "rank", "collective", "compute", "seed"))
    with loaded_dataset(recipe, out) as (loaded, progress, scratch), chosen_engine(recipe) as engine:
        ranker: Any
        if index_folder is None:
            ranker = Bm25(loaded.passages, recipe.rank, scratch / "bm25", progress)
            only = Metadata.of(loaded.passages).select(where) if where else None
        else:
            index = engine.open_index(index_folder, loaded.passages)
            if not isinstance(index, LivingIndex):  # it ranks its own passages
                index.check_collection(loaded.passages)
            ranker = LateInteraction(index, progress=progress)
            if prf:
                how: Any = {"rerank": prf == "reranker", "seed": recipe.seed, "progress": progress}
                ranker = PrfRanker(index, recipe.collective, **how)
            only = index.where(where) if where else None
        ranking = rank(ranker, loaded.split_queries(split), out, depth=recipe.rank.depth, only=only, progress=progress)
    emit(f"{ranking.run_file}: {len(ranking):,} queries")
    data, *sets = options.same_data(dataset, overrides)
    emit(next_command("evaluate", data, out, "--split", split, *sets))


@click.command("search")
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.argument("text", required=False)
@click.option("-k", "count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many passages.")
@click.option(
    "--ranker",
    type=click.Choice(_RANKERS),
    help="What searches a run: its student and BM25 together (hybrid, the default), its student alone, θ (colbert), θ "
    "with ColBERT-PRF, or BM25. An index is searched by colbert or prf.",
)
@click.option(
    "--min-probability",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Leave out what is less likely to be relevant, with a run; so nothing may be found.",
)
@_where_option
@options.json_option
def search_command(
    folder: Path, text: str | None, count: int, ranker: str | None, min_probability: float, where: str, as_json: bool
) -> None:
    """Search with a run, or in an index, and show rank, score, id, title, text and which words matched.

    With a run, hits also have the probability of being relevant, where its dev labels were enough to fit it.

    RUN is the folder of a run or study, or one that `colabel index` wrote. Without TEXT, questions are read line by
    line until an empty one, and models stay loaded. Examples:

      colabel search runs/mine "how are glacier caves formed" -k 5

      colabel search runs/mine "how are glacier caves formed" --ranker prf --min-probability 0.5

      colabel search my-index/ "blue shirt" --where "brand = 'Acme' and price < 30"
    """
    from colabel import CollectiveSettings, Index, open_run, search
    from colabel.collective import PrfRanker

    run = open_run(folder) if options.is_run(folder) else None
    if run is None and ranker not in (None, "colbert", "prf"):
        raise UsageError(f"an index is searched by colbert or prf; --ranker {ranker} needs the folder of a run")
    if run is None and min_probability:
        raise UsageError("--min-probability needs the folder of a run, whose labels it was fitted to")
    index = Index.open(folder) if run is None else run.index
    for question in _questions() if text is None else (text,):
        if run is not None:
            how: Any = {"ranker": ranker or _RANKERS[0], "where": where, "min_probability": min_probability}
            hits = run.search(question, min(count, len(index.store)), **how).hits()
        else:
            chosen = PrfRanker(index, CollectiveSettings(), strict=True) if ranker == "prf" else None
            hits = search(index, question, count, ranker=chosen, where=where)
        matches = _matches(index, run, ranker, question, hits[:_HIGHLIGHTED])
        matches += [[] for _ in hits[_HIGHLIGHTED:]]
        shown = list(zip(hits, matches, strict=True))
        if as_json:
            print_json([{**hit.as_dict(), "matches": [dataclasses.asdict(one) for one in held]} for hit, held in shown])
            continue
        lines = []
        for hit, held in shown:
            lines += [*hit_lines(hit), *([f"     matched: {', '.join(map(str, held))}"] if held else [])]
            lines += [f"     an answer to: {hit.asked}"] if hit.asked else []
        emit("\n".join(lines) or f"nothing {'relevant ' * bool(min_probability)}was found")


def _matches(
    index: Index, run: Run | None, ranker: str | None, question: str, hits: Sequence[Hit]
) -> list[list[WordMatch]]:
    """Which words of a question matched which words of each hit: by vectors, or by words where BM25 searched."""
    from colabel.ranking.highlights import highlights, shared_words

    language = run.recipe.rank.language if run else "english"
    if ranker == "bm25":
        return shared_words(question, hits, language)
    if run is not None and ranker not in ("colbert", "prf"):
        return highlights(index, run.late.encoder, question, hits, language)
    index = run.index_of(ranker) if run is not None and ranker else index
    return highlights(index, index.encoder, question, hits, language)


def _questions() -> Iterator[str]:
    """What is typed, line by line; an empty line or the end of the input ends it."""
    click.echo("question: ", nl=False, err=True)
    while line := sys.stdin.readline().strip():
        yield line
        click.echo("question: ", nl=False, err=True)

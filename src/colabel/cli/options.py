"""Arguments and options that several commands share, and what they stand for."""

from __future__ import annotations

import functools
import itertools
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from colabel.cli.output import terminal_progress
from colabel.systems import DEFAULT_LESSON, LESSONS

if TYPE_CHECKING:
    from colabel.data import Dataset
    from colabel.labels import Labels
    from colabel.pipeline.folder import Run
    from colabel.pipeline.stages import Engine
    from colabel.progress import Progress
    from colabel.settings import Recipe

F = TypeVar("F", bound=Callable[..., Any])

DATASET_HELP = """DATASET is a BEIR or MS MARCO folder, a catalogue (.csv, .tsv, .jsonl, .parquet), a folder of \
.txt, .md or .html files, irds:ID, hf:FOLDER, pydocs (built from the documentation of installed \
libraries), pydocs:N, or a .toml recipe with a [data] table."""

LABELS_HELP = f"""RUN is the folder of a run or study; or one that `colabel label` wrote, which needs DATASET with \
the settings of labelling as well. {DATASET_HELP}"""

FOLDER = click.Path(path_type=Path)
RUN_OUT = "Output folder. Repeat the command with the same folder to continue."


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, such as data.relevant_from=2. Repeat for more.",
)
minutes_option = click.option(
    "--minutes",
    type=float,
    help="How long it may take: training steps and evaluations that are not set are chosen to fit; data are not.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
measure_option = click.option(
    "-m", "--measure", "measures", multiple=True, help="A measure of ir_measures. Repeat for more."
)
teacher_option = click.option(
    "--teacher",
    type=click.Choice(LESSONS),
    default=DEFAULT_LESSON,
    show_default=True,
    help="What the student learns: 'views' and 'hard-query' train the query side alone, in minutes and without a new "
    "index; the others, such as the paper's 'collective', train both sides. 'hard' and 'hard-query' learn the labels "
    "without a teacher; 'scores' reads the file 'labels.scores'.",
)


def dataset_argument(function: F) -> F:
    """DATASET, --set, and the options that are short for settings of [data]: --clicks, --queries, --columns …"""
    return click.argument("dataset")(data_options(function))


def data_options(function: F) -> F:
    """--set, and options that are short for a --set of [data]; the command gets all of them as ``overrides``."""

    @functools.wraps(function)
    def call(*args: Any, overrides: tuple[str, ...], **given: Any) -> Any:
        named = {name: given.pop(name) for name in ("clicks", "min_clicks", "queries", "columns", "chunk")}
        return function(*args, overrides=(*overrides, *_data_settings(**named)), **given)

    for option in reversed(_DATA_OPTIONS):
        option(call)
    return cast("F", call)


def labels_arguments(function: F) -> F:
    """RUN, or the folder of labels with DATASET and its settings."""
    dataset = click.argument("dataset", required=False)(data_options(function))
    return click.argument("labels_folder", metavar="RUN", type=FOLDER)(dataset)


_FILE = click.Path(path_type=Path, dir_okay=False)
_DATA_OPTIONS = (
    set_option,
    click.option(
        "--clicks",
        type=_FILE,
        help="A click log to learn from: a .csv, .tsv, .jsonl or .parquet file of query, passage id and, if given, "
        "clicks or grade.",
    ),
    click.option(
        "--min-clicks", type=click.IntRange(1), help="Clicks from which a pair of --clicks is a label.  [default: 1]"
    ),
    click.option(
        "--queries",
        multiple=True,
        type=_FILE,
        help="A log of queries without labels, to learn from as well: a .csv, .tsv, .jsonl or .parquet file with a "
        "column 'query' and, if given, 'count'.",
    ),
    click.option(
        "--columns",
        multiple=True,
        metavar="ROLE=NAME",
        help="Which column of the catalogue is id, title or text, where its name does not say so. Repeat for more.",
    ),
    click.option(
        "--chunk",
        type=click.IntRange(0),
        metavar="WORDS",
        help="Cut documents of more words than this into pieces; a document is ranked by its best piece.",
    ),
)


_SHORT = {"data.labels.clicks": "--clicks", "data.min_clicks": "--min-clicks", "data.chunk": "--chunk"}


def _data_settings(
    clicks: Path | None, min_clicks: int | None, queries: Collection[Path], columns: Collection[str], chunk: int | None
) -> Iterator[str]:
    """The settings that options stand for.

    >>> list(_data_settings(Path("clicks.csv"), 2, [], ["title=Product Name"], None))
    ['data.labels.clicks="clicks.csv"', 'data.min_clicks=2', 'data.columns.passage_title="Product Name"']
    """
    if chunk is not None:
        yield f"data.chunk={chunk}"
    if clicks is not None:
        yield f"data.labels.clicks={json.dumps(str(clicks), ensure_ascii=False)}"
    if min_clicks is not None:
        yield f"data.min_clicks={min_clicks}"
    if queries:
        yield f"data.queries={json.dumps([str(path) for path in queries], ensure_ascii=False)}"
    for text in columns:
        role, equals, name = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--columns {text}: expected ROLE=NAME, such as title=product_name")
        role = f"passage_{role}" if role in ("id", "title", "text") else role
        yield f"data.columns.{role}={json.dumps(name, ensure_ascii=False)}"


def split_option(default: str, help: str) -> Callable[[F], F]:
    """--split."""
    return click.option("--split", default=default, show_default=True, help=help)


def out_option(help: str) -> Callable[[F], F]:
    """--out, required."""
    return click.option("--out", required=True, type=FOLDER, help=help)


def recipe_settings(dataset: str, overrides: tuple[str, ...], used: Collection[str] | None = None) -> Recipe:
    """All settings that DATASET (a name or a recipe) and --set give together.

    A --set of a section that the command does not use is refused: it would change nothing. A recipe may hold all.
    """
    from colabel.data import load_recipe

    recipe = load_recipe(dataset, overrides)
    for override in overrides:
        section = override.partition("=")[0].strip().partition(".")[0]
        if used is not None and section not in used:
            names = ", ".join(name if name == "seed" else f"[{name}]" for name in used)
            raise click.UsageError(f"--set {override}: this command only uses {names}, so it would change nothing")
    return recipe


def is_run(folder: Path | str) -> bool:
    """Whether a path is the folder of a run, which commands take in place of what lies in it."""
    return Path(folder, "recipe.json").is_file()


def opened_labels(
    folder: Path, dataset: str | None, overrides: tuple[str, ...], used: Collection[str]
) -> tuple[Labels, Dataset, Recipe, Run | None]:
    """The labels in a folder, their dataset and its settings; or all of that of a run, and the run."""
    from colabel import load_dataset, open_labels, open_run

    if is_run(folder):
        if dataset is not None or overrides:
            given = dataset or f"--set {overrides[0]}"
            raise click.UsageError(f"{folder} is a run with data and settings of its own; leave out {given}")
        run = open_run(folder)
        return run.labels, run.dataset, run.recipe, run
    if not folder.exists():
        raise click.UsageError(f"there is no folder {folder}")
    if dataset is None:
        raise click.UsageError(f"{folder} is not a run, so name the DATASET behind it as well")
    recipe = recipe_settings(dataset, overrides, used)
    labels = open_labels(folder)
    return labels, load_dataset(recipe.data), recipe, None


@contextmanager
def loaded_dataset(recipe: Recipe, out: Path) -> Iterator[tuple[Dataset, Progress, Path]]:
    """The recipe's dataset, the progress to report to, and a folder beside ``out`` for work that is not kept."""
    from colabel import load_dataset

    scratch = out.absolute().with_name(f".{out.absolute().name}.work")
    try:
        with terminal_progress() as progress:
            yield load_dataset(recipe.data, cache=scratch / "data", progress=progress), progress, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def chosen_engine(recipe: Recipe) -> closing[Engine]:
    """The engine that runs the heavy stages while the block lasts."""
    from colabel.pipeline.stages import choose_engine

    return closing(choose_engine(recipe.compute))


def same_data(dataset: str, overrides: Iterable[str], only: str = "data.") -> list[str]:
    """DATASET with its settings for the next command: those of [data], or all.

    >>> same_data("my caves", ("data.keep_labels=1", "labels.candidates=50"))
    ['my caves', '--set', 'data.keep_labels=1']
    >>> same_data("caves.csv", ('data.labels.clicks="my clicks.csv"',))
    ['caves.csv', '--clicks', 'my clicks.csv']
    """
    found = [dataset]
    for text in overrides:
        key, _, value = text.partition("=")
        if key in _SHORT:
            found += [_SHORT[key], str(json.loads(value)) if value.startswith('"') else value]
        elif text.startswith(only):
            found += ["--set", text]
    return found


def unused_file(name: str) -> str:
    """A name for a new file in the current folder: ``review.tsv``, or ``review-2.tsv`` where that exists."""
    stem, ending = Path(name).stem, Path(name).suffix
    others = (f"{stem}-{number}{ending}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], others) if not Path(one).exists())


def next_command(*parts: object) -> str:
    """A line with a command that can be pasted as it is.

    >>> next_command("search", Path("my index"), "your question")
    "Next: colabel search 'my index' 'your question'"
    """
    return f"Next: {program()} {shlex.join(map(str, parts))}"


def program() -> str:
    """The program's name, or its path where the shell does not find it."""
    path = Path(sys.argv[0])
    return shlex.quote(str(path)) if path.name == "colabel" and shutil.which("colabel") is None else "colabel"

"""Train: ``colabel demo``, ``run``, ``train``, ``distil`` and ``plan``."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.options import DATASET_HELP, FOLDER, RUN_OUT, next_command, recipe_settings
from colabel.cli.output import emit, print_json, table, terminal_progress
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.evaluation import Evaluation
    from colabel.findings import StudyDocument
    from colabel.pipeline.capacity import Estimate
    from colabel.pipeline.demo import DemoResult

_WORKERS = (1, 2, 4, 8, 16)


@click.command("demo")
@click.option("--out", default=Path("demo"), show_default=True, type=FOLDER, help=RUN_OUT)
@click.option("--full", is_flag=True, help="Compare all systems of the paper; takes several times as long.")
@options.set_option
def demo_command(out: Path, full: bool, overrides: tuple[str, ...]) -> None:
    """Show the method on the documentation of the Python libraries that are installed. No download.

    Indexes them with MiniLM, trains the query side on the labels and on what words and vectors say of all other
    passages, compares it with BM25 and with both together, shows queries before and after, finds labels that were
    hidden, and writes a report. Examples:

      colabel demo --out demo

      colabel demo --set data.source=pydocs:500 --set query_side.steps=5 --out quick
    """
    from colabel import demo

    _narrate()
    with terminal_progress() as progress:
        result = demo(out, full=full, overrides=overrides, progress=progress)
    emit("\n".join(demo_lines(result)))


def _narrate() -> None:
    """Log what the pipeline does, but not every artefact that is up to date."""
    given = click.get_current_context().find_root().params
    if not (given["verbose"] or given["quiet"]):
        logging.getLogger("colabel").setLevel(logging.WARNING)
        logging.getLogger("colabel.pipeline").setLevel(logging.INFO)


def demo_lines(result: DemoResult) -> Iterator[str]:
    """All that the demo prints."""
    from colabel.labels.missing import reason_text

    document = result.document
    header = [f"{document.name} {document.split}", *document.measures, "ms/query"]
    rows = []
    for system in document.finished:
        taken = system.milliseconds
        values = [f"{system.means[measure]:.4f}" for measure in document.measures]
        rows.append([system.title, *values, "" if taken is None else f"{taken.median:.1f}"])
    yield table(header, rows) + "\n"
    yield from _significance(document, result.student)
    measure = document.measures[0]
    yield f"\nBefore and after: the two test queries that gain most and the one that loses most ({measure}); * relevant"
    for example in result.examples:
        before, after = example.values
        yield f"\n  {textwrap.shorten(example.query, 90, placeholder=' …')}   {before:.2f} → {after:.2f}"
        yield f"    expansion tokens  {' '.join(example.tokens)}"
        for name, answers in (("ColBERT", example.before), ("student", example.after)):
            yield f"    {name:<16}  " + ", ".join(f"{'*' if one.relevant else ''}{one.passage_id}" for one in answers)
    hidden = result.suggested[0].hidden
    yield f"\nMissing labels: {hidden:,} labels of training queries were hidden; no training read them."
    for share in result.suggested:
        precision = "none" if share.precision is None else f"{share.precision:.1%}"
        yield (
            f"  the best {share.suggestions:,} suggestions: {share.found:,} are hidden labels, precision {precision}, "
            f"recall {share.recall:.1%}"
        )
    for one, right in result.missing:
        query = textwrap.shorten(one.query, 60, placeholder=" …")
        yield f"  {'hidden' if right else '  —   '}  {query}  →  {one.passage_id}  ({reason_text(one.reasons, 3)})"
    yield f"\nThe report: {result.report}"
    yield f"The student: {result.folder / 'model'}, a sentence-transformers checkpoint"
    yield next_command("search", result.index, "smooth a noisy signal", "-k", 3)
    program = options.program()
    yield f"      and on your own data: {program} check DATASET, then {program} run DATASET --out runs/mine"


def _significance(document: StudyDocument, student: str) -> Iterator[str]:
    """A line for each measure: the student's difference to ColBERT, its interval and the paired t-test."""
    titles = f"{document.title(student)} against {document.title('colbert')}"
    yield f"{titles}, {len(document.per_query[student][document.measures[0]])} queries, paired t-test:"
    for measure in document.measures:
        pair = next(p for p in document.comparisons[measure].pairs if (p.system, p.against) == (student, "colbert"))
        found, p = pair.test.difference, pair.test.t_test
        shown = "p is not defined" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        verdict = shown if p is None else f"{shown}, {'' if p < 0.05 else 'not '}significant at 0.05"
        yield f"  {measure:<8} {found.mean:+.4f}  [{found.low:+.4f}, {found.high:+.4f}]  {verdict}"


@click.command(
    "run",
    help=f"""Train a teacher and its student end to end; finished stages are skipped.

    Trains θ from the labels, indexes the collection, collects what the feedback passages of each training query have
    in common, labels, trains the student, indexes again and evaluates where there are test labels.

    {DATASET_HELP} A recipe has a table for every stage. Examples:

      colabel run my-collection/ --out runs/mine

      colabel run products.csv --clicks clicks.csv --min-clicks 2 --out runs/shop

      colabel run recipe.toml --set collective.beta=0.5 --out runs/mine""",
)
@options.dataset_argument
@options.out_option(RUN_OUT)
@options.teacher_option
def run_command(dataset: str, out: Path, overrides: tuple[str, ...], teacher: str) -> None:
    """Thin call of :func:`colabel.run`."""
    from colabel import run
    from colabel.pipeline.folder import next_commands

    with terminal_progress() as progress:
        result = run(recipe_settings(dataset, overrides), out, teacher=teacher, progress=progress)
    emit(_run_table(result.evaluation) if result.evaluation else f"{result.dataset} has no test labels")
    emit(f"the student: {result.student}")
    emit(f"the report: {result.report}")
    for place, command in enumerate(next_commands(out, result.system)):
        line = next_command(*command)
        emit(line if place == 0 else line.replace("Next: ", "      and for missing labels: ", 1))


def _run_table(evaluation: Evaluation, baseline: str = "colbert") -> str:
    """Means of every system, and p of its difference to the baseline on the first measure (paired t-test)."""
    from colabel.evaluation.comparison import compare

    measures = list(next(iter(evaluation.means.values())))
    tests = {pair.system: pair.test.t_test for pair in compare(evaluation, measures[0], baseline=baseline).pairs}
    rows = []
    for name, values in evaluation.means.items():
        p = tests.get(name)
        rows.append([name, *(f"{values[measure]:.4f}" for measure in measures), "" if p is None else f"{p:.3f}"])
    return table([f"{evaluation.dataset} {evaluation.split}", *measures, f"p against {baseline}"], rows)


@click.command(
    "train",
    help=f"""Train the teacher θ from the labels, with negatives from BM25.

    {DATASET_HELP}

    OUT is the folder of a run: `colabel distil` and `colabel run` go on from there. Example:

      colabel train my-collection/ --set train.steps=1000 --out runs/mine

      torchrun --nproc_per_node 2 -m colabel train my-collection/ --out runs/mine""",
)
@options.dataset_argument
@options.out_option(RUN_OUT)
def train_command(dataset: str, overrides: tuple[str, ...], out: Path) -> None:
    """Thin call of :func:`colabel.pipeline.run.train`."""
    from colabel.pipeline import train
    from colabel.pipeline.stages import uses_checkpoint
    from colabel.train import is_main_process

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress:
        theta = train(recipe, out, progress=progress)
    if not is_main_process():
        return
    taken = ", the recipe's checkpoint as it is (train.theta = 'train' trains it)"
    emit(f"θ: {theta}{taken if uses_checkpoint(recipe) else ''}")
    emit(next_command("distil", dataset, "--out", out))


@click.command(
    "distil",
    help=f"""Train a student from θ with a teacher's labels, running any missing earlier stages first.

    {DATASET_HELP}

    Examples:

      colabel distil my-collection/ --out runs/mine

      colabel distil recipe.toml --teacher cross-encoder --out runs/mine

      colabel distil recipe.toml --teacher scores --set labels.scores=scores.tsv --out runs/mine""",
)
@options.dataset_argument
@options.teacher_option
@options.out_option(RUN_OUT)
def distil_command(dataset: str, overrides: tuple[str, ...], teacher: str, out: Path) -> None:
    """Thin call of :func:`colabel.pipeline.run.distil_student`."""
    from colabel.pipeline import distil_student
    from colabel.train import is_main_process

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress:
        student = distil_student(recipe, out, teacher=teacher, progress=progress)
    if not is_main_process():
        return
    counts = student.manifest.counts
    if counts["kept_value"] is not None:
        emit(f"{counts['measure']} on dev: {counts['start_value']:.4f} before, {counts['kept_value']:.4f} after")
    emit(f"the student: {student.folder}")
    emit(next_command("index", dataset, "--set", f"encoder.model={student.folder}", "--out", "INDEX"))


@click.command("plan")
@options.dataset_argument
@click.option("--passages", type=click.IntRange(1), help="Passages of a collection that is not here.")
@click.option("--queries", type=click.IntRange(0), help="Its training queries.")
@click.option("--test-queries", type=click.IntRange(0), help="Its test queries; 0: nothing is evaluated.")
@click.option("--passage-tokens", type=click.FloatRange(1), help="Stored tokens per passage; default: as measured.")
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1),
    help="Numbers of workers to plan for, with compute.engine = 'ray'. Repeat for more.  [default: 1, 2, 4, 8, 16]",
)
@options.json_option
def plan_command(
    dataset: str,
    overrides: tuple[str, ...],
    passages: int | None,
    queries: int | None,
    test_queries: int | None,
    passage_tokens: float | None,
    workers: tuple[int, ...],
    as_json: bool,
) -> None:
    """Estimate what a run takes: tokens, disk, memory per worker, and hours per stage and number of workers.

    DATASET is a dataset or a recipe, as for `colabel run`. Encodes and scores a sample on this machine to learn its
    rates; writes nothing. Where the collection is not here, --passages and --queries give its size, and rates are
    measured on pydocs. Examples:

      colabel plan recipe.toml

      colabel plan recipes/msmarco.toml --set encoder.model=minilm --set compute.engine=ray --passages 8841823
      --queries 502939 --test-queries 43 --passage-tokens 73 --workers 8 --workers 64
    """
    from colabel.pipeline.capacity import plan_capacity

    chosen = recipe_settings(dataset, overrides)
    if workers and chosen.compute.engine == "local":
        raise UsageError("--workers are those of a cluster; plan for one with --set compute.engine=ray")
    workers = workers or ((1,) if chosen.compute.engine == "local" else _WORKERS)
    plan = plan_capacity(
        chosen, passages=passages, queries=queries, test_queries=test_queries, passage_tokens=passage_tokens
    )
    if as_json:
        print_json(plan.as_dict(workers))
        return
    emit(_summary(plan))
    emit("")
    rows = [
        [stage.name + ("" if stage.shared else " (driver)"), *(_hours(stage.hours(count)) for count in workers)]
        for stage in plan.stages
    ]
    rows.append(["all", *(_hours(plan.hours(count)) for count in workers)])
    header = ["hours with workers:", *map(str, workers)]
    emit(table(["", "hours"] if chosen.compute.engine == "local" else header, rows))


def _summary(plan: Estimate) -> str:
    rates = plan.rates
    rows = [
        ["passages", f"{plan.passages:,}"],
        ["training queries", f"{plan.queries:,}"],
        ["stored tokens", f"{plan.tokens:,} ({rates.tokens:.1f} per passage)"],
        ["engine", f"{plan.engine}, {plan.shards:,} shards"],
        ["disk", _bytes(plan.disk_bytes)],
        ["memory per worker", _bytes(plan.worker_bytes)],
        ["encoded per worker", f"{rates.encoded:,.1f} passages per second"],
        ["compared per worker", f"{rates.compared / 1e6:,.0f} million pairs of tokens per second"],
        ["clustered per worker", f"{rates.clustered:,.0f} queries per second"],
    ]
    return table(["", "expected"], rows)


def _hours(value: float) -> str:
    return f"{value:,.1f}" if value >= 0.95 else f"{value:.3f}"


def _bytes(count: int) -> str:
    """A size in the unit that suits it.

    >>> _bytes(1_500_000_000), _bytes(20_000_000)
    ('1.5 GB', '20.0 MB')
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"

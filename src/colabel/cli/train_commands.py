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

if TYPE_CHECKING:
    from colabel.evaluation import Evaluation
    from colabel.findings import StudyDocument
    from colabel.pipeline.demo import DemoResult


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
            yield f"    {name:<16}  " + ", ".join(f"{'*' * relevant}{one}" for one, relevant in answers)
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
    yield f"The student: {result.model}, a sentence-transformers checkpoint"
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
def run_command(dataset: str, out: Path, overrides: tuple[str, ...], teacher: str | None) -> None:
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
def distil_command(dataset: str, overrides: tuple[str, ...], teacher: str | None, out: Path) -> None:
    """Thin call of :func:`colabel.pipeline.run.distil_student`."""
    from colabel.pipeline import distil_student
    from colabel.train import is_main_process

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress:
        student = distil_student(recipe, out, teacher=teacher, progress=progress)
    if not is_main_process():
        return
    counts = student.manifest.counts
    if counts.get("kept_value") is not None:
        emit(f"{counts['measure']} on dev: {counts['start_value']:.4f} before, {counts['kept_value']:.4f} after")
    emit(f"the student: {student.folder}")
    emit(next_command("index", dataset, "--set", f"encoder.model={student.folder}", "--out", "INDEX"))


@click.command("plan")
@options.dataset_argument
@options.teacher_option
@options.json_option
def plan_command(dataset: str, overrides: tuple[str, ...], teacher: str | None, as_json: bool) -> None:
    """Estimate what a run takes: stored tokens, disk, and hours of each stage.

    DATASET is a dataset or a recipe, as for `colabel run`. Encodes a few passages to learn how fast this machine is;
    writes nothing. With compute.engine = 'ray', stages on the workers take their time divided by compute.workers.
    Examples:

      colabel plan recipe.toml

      colabel plan my-collection/ --set compute.engine=ray --set compute.workers=64
    """
    from colabel.pipeline.capacity import plan_run

    plan = plan_run(recipe_settings(dataset, overrides), teacher=teacher)
    if as_json:
        print_json(plan)
        return
    emit(
        f"{plan['passages']:,} passages, {plan['tokens']:,} stored tokens, {plan['engine']} search; "
        f"{plan['disk_bytes'] / 1e9:,.2f} GB on disk; {plan['encoded_per_second']:,.1f} passages encoded per second"
    )
    seconds = {**plan["seconds"], "all": sum(plan["seconds"].values())}
    emit(table(["stage", "hours"], [[name, f"{value / 3600:,.3f}"] for name, value in seconds.items()]))

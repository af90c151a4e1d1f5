"""Train: ``colabel run``, ``train``, ``distil`` and ``plan``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.demo_command import demo_command  # noqa: F401
from colabel.cli.options import DATASET_HELP, FOLDER, RUN_OUT, next_command, recipe_settings
from colabel.cli.output import emit, print_json, table, terminal_progress
from colabel.systems import DEFAULT_LESSON

if TYPE_CHECKING:
    from colabel.evaluation import Evaluation
    from colabel.pipeline.again import Retrained


@click.command(
    "run",
    help=f"""Train a retriever from a collection and its labels, a few or none; finished stages are skipped.

    Indexes the passages with the encoder as it is, trains its query side in minutes with the labels and what vectors
    and words say of the other candidates, keeps what dev says helps, and evaluates where there are test labels. With
    --teacher collective, the paper's method: both sides are trained, θ from the labels and then a student from θ.

    {DATASET_HELP} A recipe has a table for every stage. Examples:

      colabel run my-collection/ --out runs/mine

      colabel run products.csv --clicks clicks.csv --min-clicks 2 --out runs/shop

      colabel run recipe.toml --set collective.beta=0.5 --out runs/mine

    DATASET may also be the folder of a run: it is trained again with its own recipe and what people have judged since,
    and compared with the earlier result, which is kept in its folder versions/:

      colabel run runs/mine""",
)
@options.dataset_argument
@click.option("--out", type=FOLDER, help=f"{RUN_OUT} Left out where DATASET is a run.")
@options.teacher_option
@options.minutes_option
@click.option("--programs", is_flag=True, help="Where DATASET is a run: also learn what programs judged.")
@click.option("--force", is_flag=True, help="Take the trained student even where dev says to keep θ, with a warning.")
def run_command(
    dataset: str,
    out: Path | None,
    overrides: tuple[str, ...],
    teacher: str,
    minutes: float | None,
    programs: bool,
    force: bool,
) -> None:
    """Thin call of :func:`colabel.run`, or of :func:`colabel.pipeline.again.run_again`."""
    if options.is_run(dataset):
        from colabel.pipeline.again import run_again

        source = click.get_current_context().get_parameter_source("teacher")
        chosen = source is not None and source.name == "COMMANDLINE"
        if out is not None or overrides or chosen or minutes is not None:
            raise click.UsageError(
                f"{dataset} is a run with settings of its own; leave out all options but --programs and --force"
            )
        with terminal_progress() as progress:
            emit("\n".join(again_lines(run_again(dataset, programs=programs, force=force, progress=progress))))
        return
    if programs:
        raise click.UsageError("--programs is for training a run again; DATASET is no run")
    if out is None:
        raise click.UsageError(f"{dataset} is not the folder of a run, so name one for the result: --out runs/mine")
    from colabel.settings.recipe import given_keys

    recipe, given = recipe_settings(dataset, overrides), given_keys(dataset, overrides)
    from colabel import run  # seconds: what is wrong with the call is said before
    from colabel.pipeline.folder import next_commands

    with terminal_progress() as progress:
        result = run(recipe, out, teacher=teacher, minutes=minutes, given=given, force=force, progress=progress)
    emit(_run_table(result.evaluation) if result.evaluation else f"{result.dataset} has no test labels")
    if result.verdict:
        emit(result.verdict)
    emit(f"the student: {result.student}")
    emit(f"the report: {result.report}")
    for place, command in enumerate(next_commands(out, result.system)):
        line = next_command(*command)
        emit(line if place == 0 else line.replace("Next: ", "      and for missing labels: ", 1))
    if result.evaluation is None:
        emit(next_command("serve", out).replace("Next: ", "      and to learn how good it is, judge fifty pairs: ", 1))


def again_lines(done: Retrained) -> Iterator[str]:
    """What was learned, and the figures before and after."""
    yield (
        f"labels added: {done.added:,}, judged negatives: {done.negatives:,}, left open: {done.unsure:,}, "
        f"against a label, which stays: {done.contested:,}, not about training queries: {done.left_out:,}"
    )
    if done.before is None:
        yield "nothing was learned that an earlier result could be compared with"
    elif not done.changes:
        yield f"{done.result.dataset} has neither test nor dev labels, so before and after cannot be compared"
    else:
        rows = []
        for one in done.changes:
            bounds = "" if one.low is None or one.high is None else f"{one.low:+.4f}, {one.high:+.4f}"
            verdict = "" if one.p is None else f"{one.p:.3f}{' significant' if one.p < 0.05 else ''}"
            rows.append([one.system, one.measure, f"{one.before:.4f}", f"{one.after:.4f}"])
            rows[-1] += [f"{one.after - one.before:+.4f}", bounds, verdict]
        header = [f"{done.result.dataset} {done.split}", f"{done.queries:,} queries", "before", "after", "difference"]
        yield table([*header, "95 %", "p (paired t-test)"], rows)
        if done.split != "test":
            yield "there are no test labels; dev queries also chose the weights, so they flatter both sides"
    if done.result.verdict:
        yield done.result.verdict
    if done.before is not None:
        yield f"the earlier result: {done.before}"
    yield f"the student: {done.result.student}"
    yield next_command("search", done.folder, "your question")


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
    from colabel.pipeline.run import train
    from colabel.pipeline.stages import uses_checkpoint
    from colabel.train import is_main_process

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress:
        theta = train(recipe, out, progress=progress)
    if not is_main_process():
        return
    taken = ", the recipe's checkpoint as it is (train.theta = 'train' trains it)"
    emit(f"θ: {theta}{taken if uses_checkpoint(recipe) else ''}")
    emit(next_command("distil", *options.same_data(dataset, overrides, ""), "--out", out))


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
    from colabel.pipeline.run import distil_student
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
    emit(next_command("run", *options.same_data(dataset, overrides, ""), "--teacher", teacher, "--out", out))


@click.command(
    "curve",
    help=f"""Tell whether more labels would help: train on parts of the labels and fit what they bring.

    Trains the query side on an eighth, a quarter, half and all of the training labels, in three orders, measures each
    on dev, and foretells what more labelled queries would bring. The collection is indexed once; an interrupted curve
    continues. DATASET is the folder of a run, or: {DATASET_HELP} Examples:

      colabel curve runs/mine --minutes 10

      colabel curve my-collection/ --out runs/mine""",
)
@options.dataset_argument
@click.option("--out", type=FOLDER, help=f"{RUN_OUT} Left out where DATASET is a run.")
@click.option("--minutes", type=float, help="How long it may take: fewer orders are tried.")
@options.json_option
def curve_command(
    dataset: str, out: Path | None, overrides: tuple[str, ...], minutes: float | None, as_json: bool
) -> None:
    """Thin call of :func:`colabel.pipeline.curve.curve`."""
    from colabel.pipeline.curve import curve
    from colabel.pipeline.folder import open_run

    if options.is_run(dataset):
        if out is not None or overrides:
            raise click.UsageError(f"{dataset} is a run with settings of its own; leave out --out and --set")
        run = open_run(dataset)
        recipe, out, teacher = run.recipe, run.folder, run.system.teacher_name
    elif out is None:
        raise click.UsageError("Missing option '--out'.")
    else:
        recipe, teacher = recipe_settings(dataset, overrides), DEFAULT_LESSON
    with terminal_progress() as progress:
        found = curve(recipe, out, teacher=teacher, minutes=minutes, progress=progress)
    if as_json:
        print_json(found.as_dict())
        return
    rows = [["θ", "0", f"{found.start:.4f}", ""]]
    rows += [[f"{share:.1%}", f"{count:,}", f"{value:.4f}", f"{gain:+.4f}"]
             for share, (count, value, gain) in found.means().items()]  # fmt: skip
    emit(table(["labels", "queries", f"{found.measure} on dev", "gain"], rows))
    emit("\n".join(found.sentences()))


@click.command("plan")
@options.dataset_argument
@options.teacher_option
@options.json_option
def plan_command(dataset: str, overrides: tuple[str, ...], teacher: str, as_json: bool) -> None:
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

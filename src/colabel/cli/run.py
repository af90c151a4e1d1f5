"""``colabel run``, ``study``, ``train`` and ``distil``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import DATASET_HELP, TEACHERS, dataset_argument, out_option, recipe_settings
from colabel.cli.output import emit, table, terminal_progress

if TYPE_CHECKING:
    from colabel.pipeline import RunResult
    from colabel.reporting import ReportFiles, StudyDocument


_teacher_option = click.option(
    "--teacher",
    type=click.Choice((*TEACHERS, "hard")),
    default="collective",
    show_default=True,
    help="Whose labels the student learns; 'scores' reads the file 'labels.scores', 'hard' is hard negatives without "
    "a teacher.",
)


def _emit_result(result: RunResult) -> None:
    emit(table(result.header, result.rows))
    emit(f"the student: {result.student}")
    emit(result.next_step)


def _emit_study(document: StudyDocument, files: ReportFiles) -> None:
    header = [f"{document.name} {document.split}", *document.measures]
    rows = [[one.slug, *(f"{one.means[measure]:.4f}" for measure in document.measures)] for one in document.finished]
    emit(table(header, rows))
    for system in document.systems:
        if system.failed:
            emit(f"{system.slug} failed: {system.failed}")
    emit(f"the report: {files.html}")


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@out_option("Folder for everything that the run writes. The same folder again continues.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe.")
@_teacher_option
def run_command(recipe: Path, out: Path, overrides: tuple[str, ...], teacher: str) -> None:
    """Train a teacher and its student end to end; what is finished already is not done again.

    Trains θ from the labels, indexes the collection, collects what the feedback passages of each training query have
    in common, labels, trains the student, indexes again and evaluates where there are test labels. RECIPE is a TOML
    file with a table per stage. Example:

      colabel run recipe.toml --out runs/mine --set collective.beta=0.5
    """
    from colabel import load_recipe, run

    with terminal_progress() as progress:
        result = run(load_recipe(recipe, overrides), out, teacher=teacher, progress=progress)
    _emit_result(result)


@click.command("study")
@click.argument("recipe", type=click.Path(path_type=Path))
@out_option("Folder for everything that the study writes. The same folder again continues.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe.")
@click.option("--dry-run", is_flag=True, help="Print the rows with estimated times and train nothing.")
def study_command(recipe: Path, out: Path, overrides: tuple[str, ...], dry_run: bool) -> None:
    """Train and evaluate every system that the paper compares, and write a report.

    [study] in RECIPE chooses the rows. Interrupted at any point, the same command goes on. Examples:

      colabel study recipe.toml --dry-run --out studies/mine

      colabel study recipe.toml --set study.seeds=3 --out studies/mine
    """
    from colabel import load_recipe, study
    from colabel.pipeline import plan_study
    from colabel.pipeline.changes import ROWS
    from colabel.pipeline.comparison import trained_once
    from colabel.pipeline.planning import time_left
    from colabel.recipe import recipe_text

    settings = load_recipe(recipe, overrides)
    if dry_run:
        plan = plan_study(settings, out)
        emit("\n".join([*map(str, plan.stages), time_left(plan.stages), *plan.refused.values()]))
        if once := trained_once(settings):
            emit(f"trained with one seed, since 'study.repeated' does not name them: {', '.join(once)}")
        outdated = any(stage.outdated for stage in plan.stages)
        changed = plan.changes.keys if outdated else plan.changes.last
        results = [key for key in changed if key not in ROWS]
        if results:
            emit(f"changed since {out} was last finished: {', '.join(results)}; rows that depend on it are made again")
        if len(results) < len(changed):
            emit("other rows are wanted than in the last run: the report is made again")
        return
    with terminal_progress() as progress:
        document, files = study(settings, out, recipe_text=recipe_text(recipe, overrides), progress=progress)
    _emit_study(document, files)


@click.command(
    "transfer",
    help=f"""Evaluate the systems of a finished study on another collection, without training.

    STUDY is the output folder of `colabel study`. {DATASET_HELP} All settings but [data] are the study's,
    and so are the measures unless others are named.

    The report is like that of a study. Examples:

      colabel transfer studies/mine trec-dl19/ --set data.relevant_from=2 --out studies/mine-dl19

      colabel transfer studies/mine trec-dl19/ -m nDCG@10 -m 'RR(rel=2)@10' --out studies/mine-dl19

      colabel transfer studies/mine trec-dl19/ --system colbert --system collective-0.5 --out studies/mine-dl19""",
)
@click.argument("study", type=click.Path(path_type=Path))
@dataset_argument
@click.option("--system", "systems", multiple=True, metavar="SLUG", help="A row of the study. Default: all of them.")
@click.option("-m", "--measure", "measures", multiple=True, help="A measure. Default: those of the study.")
@out_option("Folder for everything that the transfer writes. The same folder again continues.")
def transfer_command(
    study: Path,
    dataset: str,
    overrides: tuple[str, ...],
    systems: tuple[str, ...],
    measures: tuple[str, ...],
    out: Path,
) -> None:
    """Thin call of :func:`colabel.transfer`."""
    from colabel import transfer

    data = recipe_settings(dataset, overrides, ("data",)).data
    with terminal_progress() as progress:
        document, files = transfer(study, data, out, systems=systems, measures=measures, progress=progress)
    _emit_study(document, files)


@click.command(
    "train",
    help=f"""Train the teacher θ from the labels, with negatives from BM25.

    {DATASET_HELP}

    OUT is the folder of a run: `colabel distil` and `colabel run` go on from there. Example:

      colabel train my-collection/ --set train.steps=1000 --out runs/mine

      torchrun --nproc_per_node 2 -m colabel train my-collection/ --out runs/mine""",
)
@dataset_argument
@out_option("Folder of the run.")
def train_command(dataset: str, overrides: tuple[str, ...], out: Path) -> None:
    """Thin call of the chain's first stage."""
    from colabel.pipeline import Chain, Workbench
    from colabel.train import is_main_process

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress, Workbench(recipe, out, progress) as bench:
        theta = Chain(bench, out, recipe.seed).train_together()
    if not is_main_process():
        return
    emit(
        f"θ: {theta}"
        + (", the recipe's checkpoint as it is (train.teacher = 'train' trains it)" if bench.takes_teacher else "")
    )
    emit(f"Next: colabel distil {dataset} --out {out}")


@click.command(
    "distil",
    help=f"""Train a student from θ and a teacher's labels; what is missing before it is made first.

    {DATASET_HELP}

    Examples:

      colabel distil my-collection/ --out runs/mine

      colabel distil recipe.toml --teacher cross-encoder --out runs/mine

      colabel distil recipe.toml --teacher scores --set labels.scores=scores.tsv --out runs/mine""",
)
@dataset_argument
@_teacher_option
@out_option("Folder of the run.")
def distil_command(dataset: str, overrides: tuple[str, ...], teacher: str, out: Path) -> None:
    """Thin call of the chain's student."""
    from colabel.pipeline import Chain, Workbench
    from colabel.pipeline.method import student_system
    from colabel.train import is_main_process, open_model

    recipe = recipe_settings(dataset, overrides)
    with terminal_progress() as progress, Workbench(recipe, out, progress) as bench:
        chain = Chain(bench, out, recipe.seed)
        student = open_model(chain.train_together(student_system(teacher, recipe)))
    if not is_main_process():
        return
    counts = student.manifest.counts
    if counts["kept_value"] is not None:
        emit(f"{counts['measure']} on dev: {counts['start_value']:.4f} before, {counts['kept_value']:.4f} after")
    emit(f"the student: {student.folder}")
    emit(f"Next: colabel index {dataset} --set encoder.model={student.folder} --out INDEX")

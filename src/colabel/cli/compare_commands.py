"""Compare: ``colabel evaluate``, ``study`` and ``transfer``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.options import DATASET_HELP, FOLDER, RUN_OUT, recipe_settings
from colabel.cli.output import difference_cells, emit, interval_bounds, print_json, table, terminal_progress
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.evaluation import Comparison, Evaluation
    from colabel.findings import StudyDocument
    from colabel.reporting import ReportFiles


@click.command(
    "evaluate",
    help=f"""Measure runs against a dataset's labels.

    {DATASET_HELP} Here it may also be a label file alone (TREC or BEIR qrels, plain or gzipped).

    Or DATASET is the folder of a run or study: its own rankings are measured on its data, beside RUNS if there are any.

    RUNS are run files of any program, plain or gzipped (TREC; `query passage rank score`; `query passage rank` or
    `query passage score`; JSON, query → passage → score), or folders that `colabel rank` wrote.

    With --compare, every run is tested against the first: paired t-test and randomisation test, two-sided, raw and
    with Holm's correction, and bootstrap intervals. Examples:

      colabel evaluate runs/mine

      colabel evaluate my-collection/ runs/bm25 other.trec -m nDCG@10 -m RR@10 -m R@1000

      colabel evaluate qrels.dl19.txt mine.trec other.trec --set data.relevant_from=2 --compare

      colabel evaluate my-collection/ runs/bm25 runs/colbert runs/student --compare --baseline runs/colbert""",
)
@options.dataset_argument
@click.argument("runs", nargs=-1, type=FOLDER)
@options.split_option("test", "Whose labels count; a label file has no splits.")
@options.measure_option
@click.option("--compare", "compared", is_flag=True, help="Test every run against the first.")
@click.option("--baseline", metavar="RUN", help="Test every run against this one of RUNS; includes --compare.")
@click.option("--all-pairs", is_flag=True, help="Test every pair of runs; includes --compare.")
@click.option("--judged-only", is_flag=True, help="Take unjudged passages out of the runs first.")
@options.json_option
def evaluate_command(
    dataset: str,
    overrides: tuple[str, ...],
    runs: tuple[Path, ...],
    split: str,
    measures: tuple[str, ...],
    compared: bool,
    baseline: str | None,
    all_pairs: bool,
    judged_only: bool,
    as_json: bool,
) -> None:
    """Thin call of :func:`colabel.evaluate` and :func:`colabel.compare`."""
    from colabel import compare, evaluate, load_dataset, open_run
    from colabel.evaluation import evaluate_qrels
    from colabel.settings.tables import DEFAULT_MEASURES

    whole = open_run(dataset) if options.is_run(dataset) else None
    named = {**(whole.rankings if whole else {}), **{str(run): run for run in runs}}
    if not named:
        missing = f"{dataset} has no ranking of test queries" if whole else "no run is named"
        raise UsageError(f"{missing}; name run files, or the folder of a run or study in place of DATASET")
    against = _baseline(list(named), compared, baseline, all_pairs)
    chosen = measures or DEFAULT_MEASURES
    _check_call(runs, chosen)
    if whole and overrides:
        raise UsageError(f"{dataset} is a run with settings of its own; leave out --set {overrides[0]}")
    recipe = whole.recipe if whole else recipe_settings(dataset, overrides, ("data", "seed"))
    if Path(dataset).is_file() and not dataset.endswith(".toml"):
        _check_qrels_call(overrides)
        evaluation = evaluate_qrels(
            Path(dataset), named, relevant_from=recipe.data.relevant_from, measures=chosen, judged_only=judged_only
        )
    else:
        loaded = whole.dataset if whole else load_dataset(recipe.data)
        evaluation = evaluate(loaded, named, split=split, measures=chosen, judged_only=judged_only)
    tested = dict.fromkeys(chosen) if against is not None or all_pairs else ()
    comparisons = [compare(evaluation, one, baseline=against, seed=recipe.seed) for one in tested]
    if not as_json:
        emit("\n".join(evaluation_lines(evaluation)))
        for comparison in comparisons:
            emit("\n".join(["", *comparison_lines(comparison)]))
        return
    found: dict[str, object] = evaluation.as_dict()
    if comparisons:
        found["comparisons"] = [one.as_dict() for one in comparisons]
    print_json(found)


def _check_call(runs: tuple[Path, ...], measures: Sequence[str]) -> None:
    """Refuse what cannot be evaluated before a collection is read, which may take minutes."""
    from colabel.evaluation.evaluations import run_file
    from colabel.measures import parse_measure

    for measure in measures:
        parse_measure(measure)
    for place, run in enumerate(runs):
        if run in runs[:place]:
            raise UsageError(f"{run} is named twice")
        run_file(run)


def _check_qrels_call(overrides: tuple[str, ...]) -> None:
    """Refuse settings that do not apply to a label file."""
    source = click.get_current_context().get_parameter_source("split")
    if source is not None and source.name == "COMMANDLINE":
        raise UsageError("a label file has no splits; leave out --split, or name the folder of the collection")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key not in ("data.relevant_from", "seed"):
            raise UsageError(f"--set {key} would change nothing: with a label file, only data.relevant_from does")


def _baseline(systems: list[str], compared: bool, baseline: str | None, all_pairs: bool) -> str | None:
    """The run that the others are tested against, None for none; refuses a wrong one before anything is read."""
    if not (compared or baseline is not None or all_pairs):
        return None
    if all_pairs and baseline is not None:
        raise UsageError("choose one: --baseline RUN or --all-pairs")
    if len(systems) < 2:
        raise UsageError("a comparison needs at least two different runs; name another one")
    baseline = None if baseline is None else str(Path(baseline))
    if baseline is not None and baseline not in systems:
        raise UsageError(f"--baseline {baseline} is none of the runs: {', '.join(systems)}")
    return None if all_pairs else baseline or systems[0]


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """Means as a table, and what they count."""
    means = evaluation.means
    names = list(next(iter(means.values())))
    shares = evaluation.unjudged_share
    unjudged = ", ".join(f"{name} {100 * shares[name]:.0f} %" if name in shares else f"{name} –" for name in means)
    before = ", before they were taken out" if evaluation.judged_only else ""
    lines = [
        table(
            [f"{evaluation.dataset} {evaluation.split}", *names],
            [[system, *(f"{held[name]:.4f}" for name in names)] for system, held in means.items()],
        ),
        f"{evaluation.queries:,} labelled queries; relevant means grade {evaluation.relevant_from} or higher",
        f"unjudged passages in the top 10{before}: {unjudged}",
    ]
    if evaluation.without_relevant:
        lines.append(
            f"{evaluation.without_relevant:,} of the queries have no relevant passage: 0 for every run in binary "
            "measures (nDCG goes by the grades)"
        )
    unanswered = [f"{system} {count:,}" for system, count in evaluation.unanswered.items() if count]
    if unanswered:
        lines.append(f"unanswered queries, which count 0: {', '.join(unanswered)}")
    lines += evaluation.unreachable
    return [*lines, "measured on judged passages only"] if evaluation.judged_only else lines


def comparison_lines(found: Comparison) -> list[str]:
    """Lettered systems with what they beat, and the tests of every pair."""
    from colabel.measures import p_text

    first = found.lines[0].mean
    bounds = f"{first.confidence:.0%} interval"
    letters = {line.system: line.letter for line in found.lines}
    rows = [
        [
            f"{line.letter}  {line.system}",
            f"{line.mean.mean:.4f}",
            interval_bounds(line.mean),
            " ".join(line.beats) or "-",
            " ".join(line.beats_holm) or "-",
        ]
        for line in found.lines
    ]
    tests = []
    for pair in found.pairs:
        test = pair.test
        p_values = (test.t_test, pair.t_test_holm, test.randomisation, pair.randomisation_holm)
        cells = [f"{letters[pair.system]} - {letters[pair.against]}", *difference_cells(test)]
        cells += [*(p_text(p, "none") for p in p_values), f"{test.better}/{test.equal}/{test.worse}"]
        tests.append(cells)
    titles = ["pair", "difference", bounds, "t-test p", "Holm", "random. p", "Holm", "better/equal/worse"]
    return [
        table([found.measure, "mean", bounds, "beats", "beats (Holm)"], rows),
        "",
        table(titles, tests),
        f"beats: t-test, p < {found.alpha:g}, two-sided, {first.queries:,} queries; "
        f"randomisation tests draw {found.samples:,} sign assignments (all, where there are at most 10,000)",
    ]


@click.command(
    "study",
    help=f"""Train and evaluate every system that the paper compares, and write a report.

    {DATASET_HELP} Its [study] chooses the systems.

    Repeat the command to continue an interrupted study. Examples:

      colabel study recipe.toml --dry-run --out studies/mine

      colabel study my-collection/ --set study.seeds=3 --out studies/mine""",
)
@options.dataset_argument
@options.out_option(RUN_OUT)
@options.minutes_option
@click.option("--dry-run", is_flag=True, help="Print the stages with estimated times and train nothing.")
def study_command(dataset: str, out: Path, overrides: tuple[str, ...], minutes: float | None, dry_run: bool) -> None:
    """Thin call of :func:`colabel.study`."""
    from colabel import study
    from colabel.pipeline.study import plan_study
    from colabel.settings.recipe import given_keys, recipe_text

    settings, given = recipe_settings(dataset, overrides), given_keys(dataset, overrides)
    text = recipe_text(Path(dataset), overrides)
    if dry_run:
        emit("\n".join(plan_study(settings, out, recipe_text=text, minutes=minutes, given=given).lines))
        return
    with terminal_progress() as progress:
        document, files = study(settings, out, recipe_text=text, minutes=minutes, given=given, progress=progress)
    _emit_study(document, files)


@click.command(
    "transfer",
    help=f"""Evaluate the systems of a finished study on another collection, without training.

    STUDY is the output folder of `colabel study`. {DATASET_HELP} All settings except [data] are the study's,
    and so are the measures unless others are named.

    The report is like that of a study. Examples:

      colabel transfer studies/mine trec-dl19/ --set data.relevant_from=2 --out studies/mine-dl19

      colabel transfer studies/mine trec-dl19/ -m nDCG@10 -m 'RR(rel=2)@10' --out studies/mine-dl19

      colabel transfer studies/mine trec-dl19/ --system colbert --system collective-0.5 --out studies/mine-dl19""",
)
@click.argument("study", type=FOLDER)
@options.dataset_argument
@click.option("--system", "systems", multiple=True, metavar="SLUG", help="A system of the study. Default: all of them.")
@click.option("-m", "--measure", "measures", multiple=True, help="A measure. Default: those of the study.")
@options.out_option(RUN_OUT)
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


def _emit_study(document: StudyDocument, files: ReportFiles) -> None:
    header = [f"{document.name} {document.split}", *document.measures]
    rows = [[one.slug, *(f"{one.means[measure]:.4f}" for measure in document.measures)] for one in document.finished]
    emit(table(header, rows))
    for system in document.systems:
        if system.failed:
            emit(f"{system.slug} failed: {system.failed}")
    emit(f"the report: {files.html}")

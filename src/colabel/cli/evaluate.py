"""``colabel evaluate`` and ``colabel label-quality``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import DATASET_HELP, dataset_argument, json_option, recipe_settings
from colabel.cli.output import emit, print_json, table
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.evaluation import Comparison, Evaluation, Interval, LabelQuality, PairedTest, Quality, Spread


@click.command(
    "evaluate",
    help=f"""Measure runs against a dataset's labels.

    {DATASET_HELP} Here it may also be a file of labels alone (TREC or BEIR qrels, plain or gzipped).

    RUNS are run files of any program, plain or gzipped (TREC; `query passage rank score`; `query passage rank` or
    `query passage score`; JSON, query → passage → score), or folders that `colabel rank` wrote.

    With --compare, every run is tested against the first: paired t-test and randomisation test, two-sided, raw and
    with Holm's correction, and bootstrap intervals. Examples:

      colabel evaluate my-collection/ runs/bm25 other.trec -m nDCG@10 -m RR@10 -m R@1000

      colabel evaluate qrels.dl19.txt mine.trec other.trec --set data.relevant_from=2 --compare

      colabel evaluate my-collection/ runs/bm25 runs/colbert runs/student --compare --baseline runs/colbert

      colabel evaluate my-collection/ studies/mine/runs/* --seeds --all-pairs -m nDCG@10""",
)
@dataset_argument
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--split", default="test", show_default=True, help="Whose labels count; a file of labels has no splits.")
@click.option(
    "-m", "--measure", "measures", multiple=True, help="A measure of ir_measures; may be given several times."
)
@click.option("--compare", "compared", is_flag=True, help="Test every run against the first.")
@click.option("--baseline", metavar="RUN", help="Test every run against this one of RUNS; includes --compare.")
@click.option("--all-pairs", is_flag=True, help="Test every two runs; includes --compare.")
@click.option(
    "--seeds", is_flag=True, help="Runs NAME, NAME-seed-1, NAME-seed-2 … are seeds of one system: mean and spread."
)
@click.option("--judged-only", is_flag=True, help="Take passages without a judgement out of the runs first.")
@click.option(
    "--per-query", type=click.Path(path_type=Path, dir_okay=False), help="Write the values of every query here, as TSV."
)
@json_option
def evaluate_command(
    dataset: str,
    overrides: tuple[str, ...],
    runs: tuple[Path, ...],
    split: str,
    measures: tuple[str, ...],
    compared: bool,
    baseline: str | None,
    all_pairs: bool,
    seeds: bool,
    judged_only: bool,
    per_query: Path | None,
    as_json: bool,
) -> None:
    """Thin call of :func:`colabel.evaluate` and :func:`colabel.compare`."""
    from colabel import compare, evaluate, load_dataset
    from colabel.evaluation import evaluate_qrels, is_run_of, merge_seeds, seed_groups, write_per_query
    from colabel.measures import DEFAULT_MEASURES
    from colabel.reporting.records import SEEDLESS

    named = {str(run): run for run in runs}
    groups = seed_groups(named) if seeds else {}
    against = _baseline(list(groups or named), compared, baseline, all_pairs)
    chosen = measures or DEFAULT_MEASURES
    _check_call(dataset, runs, chosen, per_query)
    recipe = recipe_settings(dataset, overrides, ("data", "seed"))
    if _is_qrels(dataset):
        _check_qrels_call(overrides)
        evaluation = evaluate_qrels(
            Path(dataset), named, relevant_from=recipe.data.relevant_from, measures=chosen, judged_only=judged_only
        )
    else:
        evaluation = evaluate(load_dataset(recipe.data), named, split=split, measures=chosen, judged_only=judged_only)
    everywhere = sorted({seed for held in groups.values() for seed in held})
    apart = {
        name: {
            seed: evaluation.per_query[held.get(seed, next(iter(held.values())))]
            for seed in (everywhere if is_run_of(name, SEEDLESS) else held)
        }
        for name, held in groups.items()
    }
    spreads: dict[str, dict[str, Spread]] = {}
    if seeds:
        evaluation, spreads = merge_seeds(evaluation, {name: list(held.values()) for name, held in groups.items()})
    comparisons = []
    if against is not None or all_pairs:
        for measure in dict.fromkeys(chosen):
            comparisons.append(compare(evaluation, measure, baseline=against, seeds=apart, seed=recipe.seed))
    if per_query is not None:
        write_per_query(evaluation, per_query.resolve())  # a link stays one
    if as_json:
        more: dict[str, object] = {"comparisons": [found.as_dict() for found in comparisons]} if comparisons else {}
        if seeds:
            more["seeds"] = {
                name: {measure: one.as_dict() for measure, one in found.items()} for name, found in spreads.items()
            }
        print_json({**evaluation.as_dict(), **more})
        return
    emit("\n".join(evaluation_lines(evaluation, spreads)))
    for found in comparisons:
        emit("\n".join(["", *comparison_lines(found)]))


def _is_qrels(dataset: str) -> bool:
    return Path(dataset).is_file() and not dataset.endswith(".toml")


def _check_call(dataset: str, runs: tuple[Path, ...], measures: Sequence[str], per_query: Path | None) -> None:
    """Refuse what cannot be evaluated before a collection is read, which may take minutes."""
    from colabel.evaluation.runs import run_file
    from colabel.measures import parse_measure

    for measure in measures:
        parse_measure(measure)
    twice = next((run for place, run in enumerate(runs) if run in runs[:place]), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice")
    files = [run_file(run) for run in runs]
    if per_query is None:
        return
    if per_query.suffix == ".gz":
        raise UsageError(f"--per-query {per_query}: the file is not compressed; name one that does not end in .gz")
    if per_query.exists() and not per_query.is_file():
        raise UsageError(f"--per-query {per_query} is no ordinary file; name one, which is written as a whole")
    if not per_query.absolute().parent.is_dir():
        raise UsageError(f"--per-query {per_query}: the folder {per_query.parent} does not exist")
    if per_query.exists() and any(path.exists() and path.samefile(per_query) for path in (Path(dataset), *files)):
        raise UsageError(f"--per-query {per_query} is one of the files that are read; choose another name")


def _check_qrels_call(overrides: tuple[str, ...]) -> None:
    """Refuse settings that say nothing of a file of labels."""
    source = click.get_current_context().get_parameter_source("split")
    if source is not None and source.name == "COMMANDLINE":
        raise UsageError("a file of labels has no splits; leave out --split, or name the folder of the collection")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key not in ("data.relevant_from", "seed"):
            raise UsageError(f"--set {key} would change nothing: with a file of labels, only data.relevant_from does")


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


def evaluation_lines(evaluation: Evaluation, spreads: Mapping[str, Mapping[str, Spread]] | None = None) -> list[str]:
    """Means as a table, with their spread over seeds where systems have several, and what they count."""
    means, spreads = evaluation.means, spreads or {}
    names = list(next(iter(means.values())))
    rows = [
        [system, *(f"{values[name]:.4f}{_over_seeds(spreads.get(system, {}).get(name))}" for name in names)]
        for system, values in means.items()
    ]
    shares = evaluation.unjudged_share
    unjudged = ", ".join(f"{name} {100 * shares[name]:.0f} %" if name in shares else f"{name} –" for name in means)
    before = ", before they were taken out" if evaluation.judged_only else ""
    lines = [
        table([f"{evaluation.dataset} {evaluation.split}", *names], rows),
        f"{evaluation.queries:,} labelled queries; relevant means grade {evaluation.relevant_from} or higher",
        f"without a judgement, of all passages in the top 10{before}: {unjudged}",
    ]
    if spreads:
        counts = ", ".join(f"{name} {len(next(iter(found.values())).values)}" for name, found in spreads.items())
        lines.append(f"±: standard deviation over seeds; seeds: {counts}")
    if evaluation.without_relevant:
        lines.append(
            f"{evaluation.without_relevant:,} of the queries have no relevant passage: 0 for every run in binary "
            "measures (nDCG goes by the grades)"
        )
    unanswered = [f"{system} {count:,}" for system, count in evaluation.unanswered.items() if count]
    if unanswered:
        lines.append(f"queries without an answer, which count 0: {', '.join(unanswered)}")
    lines += evaluation.unreachable
    return [*lines, "measured on judged passages only"] if evaluation.judged_only else lines


def _over_seeds(spread: Spread | None) -> str:
    return "" if spread is None or spread.std is None else f" ± {spread.std:.4f}"


def comparison_lines(found: Comparison) -> list[str]:
    """Lettered systems with what they beat, and the tests of every pair."""
    from colabel.paired import p_text

    share = f"{found.lines[0].mean.confidence:.0%}"
    header = [found.measure, "mean", f"{share} interval", "beats", "beats (Holm)"]
    rows = [
        [
            f"{line.letter}  {line.system}",
            f"{line.mean.mean:.4f}",
            _bounds(line.mean),
            " ".join(line.beats) or "-",
            " ".join(line.beats_holm) or "-",
        ]
        for line in found.lines
    ]
    letters = {line.system: line.letter for line in found.lines}
    tests = [
        [
            f"{letters[pair.system]} - {letters[pair.against]}",
            *_test_cells(pair.test),
            *(
                p_text(p, "none")
                for p in (pair.test.t_test, pair.t_test_holm, pair.test.randomisation, pair.randomisation_holm)
            ),
            f"{pair.test.better}/{pair.test.equal}/{pair.test.worse}",
            *([" ".join(map(str, pair.seeds))] if any(one.seeds for one in found.pairs) else []),
        ]
        for pair in found.pairs
    ]
    titles = ["pair", "difference", f"{share} interval", "t-test p", "Holm", "random. p", "Holm", "better/equal/worse"]
    titles += ["seeds"] if any(pair.seeds for pair in found.pairs) else []
    return [
        table(header, rows),
        "",
        table(titles, tests),
        f"beats: {found.test}, p < {found.alpha:g}, two-sided, {found.lines[0].mean.queries:,} queries; "
        f"randomisation tests draw {found.samples:,} sign assignments (all, where there are at most 10,000)",
    ]


@click.command(
    "label-quality",
    help=f"""Show how well labels find the positives that were hidden before labelling.

    LABELS is a folder that `colabel label` wrote. {DATASET_HELP} Give the same settings as for labelling.

    The teacher's scores and the base scores φ rank each query's candidates, the labelled ones taken out; hidden
    positives should come first. Example:

      colabel label-quality labels/collective my-collection/ --set data.keep_labels=1""",
)
@click.argument("labels", type=click.Path(path_type=Path))
@dataset_argument
@click.option(
    "--order",
    type=click.Choice(("standout", "deviation", "margin", "probability", "rank")),
    default="standout",
    show_default=True,
    help="Order of the suggestions, as in `colabel missing`.",
)
@json_option
def label_quality_command(labels: Path, dataset: str, overrides: tuple[str, ...], order: str, as_json: bool) -> None:
    """Thin call of :func:`colabel.label_quality`."""
    from colabel import label_quality, load_dataset
    from colabel.evaluation import suggestion_precision
    from colabel.labels import find_suspects, open_labels

    opened = open_labels(labels)
    recipe = recipe_settings(dataset, overrides, ("data", "seed"))
    loaded = load_dataset(recipe.data)
    found = label_quality(opened, loaded, seed=recipe.seed)
    suspects = find_suspects(opened, loaded, limit=5 * len(opened), order=order)
    shares = suggestion_precision([(one.query_id, one.row) for one in suspects], loaded, queries=len(opened))
    if as_json:
        print_json({**found.as_dict(), "order": order, "suggestions": [one.as_dict() for one in shares]})
        return
    emit("\n\n".join("\n".join(quality_lines(found, grade)) for grade in found.grades))
    emit("\nof the first suggestions of `colabel missing`, these shares are hidden positives:")
    for one in shares:
        share = "none" if one.precision is None else f"{one.precision:.3f}"
        emit(f"  {one.suggestions:,} suggestions ({one.multiple:g} × queries): {share}")


def quality_lines(found: LabelQuality, grade: int) -> list[str]:
    """Teacher against base at one grade from which passages count as relevant."""
    from colabel.evaluation.label_quality import BASE, TEACHER

    quality = found.grades[grade]
    base, teacher = quality.systems[BASE], quality.systems[TEACHER]
    tests = quality.differences[TEACHER]
    rows = [["average precision", _mean(base.average_precision), _mean(teacher.average_precision), *_test(tests["AP"])]]
    if base.auc and teacher.auc:
        rows.append(["AUC per query", _mean(base.auc), _mean(teacher.auc), *_test(tests["AUC"])])
    pooled = (base.pooled_auc, teacher.pooled_auc)
    if pooled[0] is not None and pooled[1] is not None:
        rows.append(["AUC pooled", f"{pooled[0]:.4f}", f"{pooled[1]:.4f}", f"{pooled[1] - pooled[0]:+.4f}", "", ""])
    for place, (one, other) in enumerate(zip(base.precision_at_recall, teacher.precision_at_recall, strict=True)):
        title = f"precision at recall {place / 10:.1f}"
        rows.append([title, _mean(one), _mean(other), f"{other.mean - one.mean:+.4f}", "", ""])
    titles = ["base φ", found.teacher, "difference", "t-test p", "random. p"]
    header = [f"{found.dataset}, hidden, grade >= {grade}", *titles]
    return [*_count_lines(quality), table(header, rows), f"in brackets: {quality.recall.confidence:.0%} intervals"]


def _count_lines(quality: Quality) -> list[str]:
    lines = [
        f"{quality.found:,} of {quality.relevant:,} hidden positives are among the candidates, "
        f"{quality.recall.mean:.1%} of a query's on average",
        f"{quality.queries:,} queries measured, {quality.left_out:,} without a hidden positive among their candidates",
    ]
    if quality.absent:
        lines.append(f"{quality.absent:,} queries with hidden positives have no labels")
    if quality.unscored:
        lines.append(f"{quality.unscored:,} candidates without a teacher score are left out")
    return lines


def _mean(interval: Interval) -> str:
    return f"{interval.mean:.4f} [{_bounds(interval)}]"


def _test(test: PairedTest) -> list[str]:
    from colabel.paired import p_text

    mean, bounds = _test_cells(test)
    return [f"{mean} [{bounds}]", p_text(test.t_test, "none"), p_text(test.randomisation, "none")]


def _test_cells(test: PairedTest) -> list[str]:
    return [f"{test.difference.mean:+.4f}", _bounds(test.difference, "+")]


def _bounds(interval: Interval, sign: str = "") -> str:
    if interval.low is None or interval.high is None:
        return "one query"
    return f"{interval.low:{sign}.4f}, {interval.high:{sign}.4f}"

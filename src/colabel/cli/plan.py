"""``colabel plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli.arguments import json_option, set_option
from colabel.cli.output import emit, print_json, table
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.pipeline.capacity import CapacityPlan

_WORKERS = (1, 2, 4, 8, 16)


@click.command("plan")
@click.argument("recipe", type=click.Path(path_type=Path))
@set_option
@click.option("--passages", type=click.IntRange(1), help="Passages of a collection that is not here.")
@click.option("--queries", type=click.IntRange(0), help="Its training queries.")
@click.option("--test-queries", type=click.IntRange(0), help="Its test queries; 0: nothing is evaluated.")
@click.option("--passage-tokens", type=click.FloatRange(1), help="Stored tokens of a passage; default: as measured.")
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1),
    help="Numbers of workers to plan for, with compute.engine = 'ray'. May be given several times.  "
    "[default: 1, 2, 4, 8, 16]",
)
@json_option
def plan_command(
    recipe: Path,
    overrides: tuple[str, ...],
    passages: int | None,
    queries: int | None,
    test_queries: int | None,
    passage_tokens: float | None,
    workers: tuple[int, ...],
    as_json: bool,
) -> None:
    """Say what a run will take: tokens, disk, memory of a worker, hours by stage and number of workers.

    Encodes and scores a sample on this machine to learn its rates; writes nothing. Where the recipe's collection is not
    here, --passages and --queries give its size, and rates are measured on pydocs. Examples:

      colabel plan recipe.toml

      colabel plan recipes/msmarco.toml --set encoder.model=minilm --set compute.engine=ray --passages 8841823
      --queries 502939 --test-queries 43 --passage-tokens 73 --workers 8 --workers 64
    """
    from colabel import load_recipe
    from colabel.pipeline.capacity import plan_capacity

    chosen = load_recipe(recipe, overrides)
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


def _summary(plan: CapacityPlan) -> str:
    rates = plan.rates
    rows = [
        ["passages", f"{plan.passages:,}"],
        ["training queries", f"{plan.queries:,}"],
        ["stored tokens", f"{plan.tokens:,} ({rates.tokens:.1f} a passage)"],
        ["engine", f"{plan.engine}, {plan.shards:,} shards"],
        ["disk", _bytes(plan.disk_bytes)],
        ["memory of a worker", _bytes(plan.worker_bytes)],
        ["a worker encodes", f"{rates.encoded:,.1f} passages a second"],
        ["a worker compares", f"{rates.compared / 1e6:,.0f} million pairs of tokens a second"],
        ["a worker clusters", f"{rates.clustered:,.0f} queries a second"],
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

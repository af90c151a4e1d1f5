"""A system trained with several seeds: mean and spread, and one value a query for paired tests."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from colabel.errors import UsageError
from colabel.evaluation.runs import Evaluation
from colabel.measures import PerQuery, mean_values

_FILE = r"(?:\.\w+)*(?:/run\.trec(?:\.gz)?)?"
_NAMED = re.compile(r"(?P<system>.+)-seed-(?P<seed>\d+)(?P<ending>(?:\.\w+)*(?:/[^/]+)?)")


@dataclasses.dataclass(frozen=True)
class Spread:
    """Values of several seeds: their mean and sample standard deviation (n − 1), which one seed does not have."""

    mean: float
    std: float | None
    values: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"mean": self.mean, "std": self.std, "values": list(self.values)}


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation over seeds.

    >>> spread([0.25, 0.5, 0.75])
    Spread(mean=0.5, std=0.25, values=(0.25, 0.5, 0.75))
    """
    if not values:
        raise UsageError("there is no seed to take a mean over")
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, tuple(values))


def seed_spread(seeds: Sequence[PerQuery]) -> dict[str, Spread]:
    """Measure → mean and spread over seeds of the mean over queries."""
    means = [mean_values(values) for values in seeds]
    return {measure: spread([mean[measure] for mean in means]) for measure in means[0]} if means else {}


def average_seeds(seeds: Sequence[PerQuery]) -> PerQuery:
    """Measure → query id → mean over seeds: the values with which a system of several seeds enters a paired test."""
    if not seeds:
        raise UsageError("there is no seed to take a mean over")
    averaged: PerQuery = {}
    for measure, first in seeds[0].items():
        for values in seeds[1:]:
            if values.get(measure, {}).keys() != first.keys():
                raise UsageError(f"the seeds of a system were not measured by '{measure}' on the same queries")
        averaged[measure] = {query: statistics.fmean(values[measure][query] for values in seeds) for query in first}
    return averaged


def seed_groups(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """System → seed → name, of runs called as those of a study: NAME is the first seed of NAME-seed-1, NAME-seed-2 …

    >>> seed_groups(["runs/a.trec", "runs/a-seed-1.trec", "runs/b"])
    {'runs/a.trec': {0: 'runs/a.trec', 1: 'runs/a-seed-1.trec'}, 'runs/b': {0: 'runs/b'}}
    """
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        found = _NAMED.fullmatch(name)
        system, seed = (found["system"] + found["ending"], int(found["seed"])) if found else (name, 0)
        known = groups.setdefault(system, {})
        if seed in known:
            raise UsageError(f"'{known[seed]}' and '{name}' are both seed {seed} of '{system}'; leave one out")
        known[seed] = name
    return groups


def is_run_of(name: str, systems: Iterable[str]) -> bool:
    """Whether a run has the name of one of some systems, in whatever folder and file format.

    >>> [is_run_of(name, ["bm25"]) for name in ("runs/bm25", "bm25.trec.gz", "bm25/run.trec", "bm25/other.trec")]
    [True, True, True, False]
    """
    return any(re.fullmatch(rf"(?:.*/)?{re.escape(system)}{_FILE}", name) for system in systems)


def merge_seeds(
    evaluation: Evaluation, groups: Mapping[str, Sequence[str]]
) -> tuple[Evaluation, dict[str, dict[str, Spread]]]:
    """An evaluation with one system a group, and each group's spread: group → measure → spread.

    Args:
        evaluation: holds every seed as a system of its own.
        groups: name of a system → names of its seeds in ``evaluation``; systems in no group are left out.
    """
    unknown = [seed for seeds in groups.values() for seed in seeds if seed not in evaluation.per_query]
    if unknown:
        raise UsageError(f"'{unknown[0]}' is none of the systems: {', '.join(evaluation.per_query)}")
    values = {name: [evaluation.per_query[seed] for seed in seeds] for name, seeds in groups.items()}
    merged = dataclasses.replace(
        evaluation,
        per_query={name: average_seeds(seeds) for name, seeds in values.items()},
        unjudged=_average_counts(evaluation.unjudged, groups),
        retrieved=_average_counts(evaluation.retrieved, groups),
        unanswered_queries={
            name: frozenset[str]().union(*(evaluation.unanswered_queries.get(seed, ()) for seed in seeds))
            for name, seeds in groups.items()
        },
        identities={
            name: tuple(evaluation.identities[seed] for seed in seeds)
            for name, seeds in groups.items()
            if all(seed in evaluation.identities for seed in seeds)
        },
    )
    return merged, {name: seed_spread(seeds) for name, seeds in values.items()}


def _average_counts(
    counts: Mapping[str, Mapping[str, float]], groups: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    return {
        name: average_seeds([{"count": dict(counts[seed])} for seed in seeds])["count"]
        for name, seeds in groups.items()
    }

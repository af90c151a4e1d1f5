"""A table of systems, lettered, with the letters of those that each significantly beats, as in the paper.

A system trained with several seeds has a mean and a spread, and enters paired tests with one value per query.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from colabel.errors import UsageError
from colabel.evaluation.evaluations import Evaluation
from colabel.evaluation.significance import Interval, PairedTest, Plain, bootstrap_mean, holm, paired_tests, samples_for
from colabel.measures import PerQuery, mean_values

Seeds = Mapping[str, Mapping[int, PerQuery]]
"""System → seed → values."""


@dataclasses.dataclass(frozen=True)
class Pair(Plain):
    """A system against another, with the p-values after Holm's correction over all pairs of the table.

    ``seeds`` are those that the values of both are means over; empty where seeds were not distinguished.
    """

    system: str
    against: str
    test: PairedTest
    t_test_holm: float | None
    randomisation_holm: float | None
    seeds: tuple[int, ...] = ()

    def difference_of(self, system: str) -> Interval:
        """The mean difference to the other of the two, whichever was taken from which."""
        found = self.test.difference
        if system == self.system:
            return found
        low, high = (None if bound is None else -bound for bound in (found.high, found.low))
        return dataclasses.replace(found, mean=-found.mean, low=low, high=high)


@dataclasses.dataclass(frozen=True)
class Line:
    """A system of the table: its letter, its mean, and the letters of the systems that it significantly beats."""

    letter: str
    system: str
    mean: Interval
    beats: tuple[str, ...]
    beats_holm: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Comparison(Plain):
    """Systems compared on one measure; the t-test at the level ``alpha`` decides on the letters.

    ``family`` is how many tests Holm's correction is over; ``samples`` is how many sign assignments a randomisation
    test drew, whose p-values are 1 / (1 + samples) or more.
    """

    measure: str
    alpha: float
    baseline: str | None
    lines: tuple[Line, ...]
    pairs: tuple[Pair, ...]
    family: int
    samples: int


def compare(
    evaluation: Evaluation,
    measure: str,
    *,
    baseline: str | None = None,
    seeds: Seeds | None = None,
    alpha: float = 0.05,
    samples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare the systems of an evaluation on one of its measures: every two, or each with ``baseline``.

    The pairs of the table are one family for Holm's correction; a system whose runs are those of another (a β that
    tuning found again) is that system, and its pairs count once. Systems that only have the same values are not: by
    few measures, different rankings often do. Differences are the later system − the earlier one, or system − baseline.

    Args:
        seeds: system → seed → values. Two systems are then compared on the seeds that both have, so that a mean over
            seeds never meets the value of a single one. A system that draws nothing at random has every seed.
        samples: of the randomisation test; default: enough for the smallest p-value to survive Holm's correction.
    """
    systems, seeds = list(evaluation.per_query), seeds or {}
    _check(systems, evaluation, measure, baseline, alpha)
    values = {system: evaluation.per_query[system][measure] for system in systems}
    if baseline is None:
        wanted = [(later, earlier) for place, later in enumerate(systems) for earlier in systems[:place]]
    else:
        wanted = [(system, baseline) for system in systems if system != baseline]
    first: dict[Hashable, str] = {}
    same = {system: first.setdefault(evaluation.identities.get(system, system), system) for system in systems}
    constant = {
        system for system, held in seeds.items() if all(one == next(iter(held.values())) for one in held.values())
    }
    common = [_common_seeds(*names, seeds) for names in wanted]
    sides, keys = [], []
    for names, both in zip(wanted, common, strict=True):
        one, other = (
            average_seeds([{measure: seeds[name][number][measure]} for number in both])[measure]
            if both
            else values[name]
            for name in names
        )
        sides.append((one, other))
        # Of what is one system a test says nothing; x − y is the test of y − x; and on other seeds it is another
        # test, unless neither side depends on them.
        compared = frozenset(same[name] for name in names)
        keys.append((compared, () if constant.issuperset(names) else both) if len(compared) > 1 else None)
    samples = samples or samples_for(len({*keys} - {None}), alpha)
    tests = paired_tests(sides, samples=samples, seed=seed)
    family = {key: found for key, found in zip(keys, tests, strict=True) if key is not None}
    by_t = dict(zip(family, holm([found.t_test for found in family.values()]), strict=True))
    by_signs = dict(zip(family, holm([found.randomisation for found in family.values()]), strict=True))
    pairs = tuple(
        Pair(*names, found, *((by_t[key], by_signs[key]) if key else (found.t_test, found.randomisation)), both)
        for names, key, found, both in zip(wanted, keys, tests, common, strict=True)
    )
    letters = {system: letter(place) for place, system in enumerate(systems)}
    beaten = [_beaten(pairs, alpha, corrected=corrected) for corrected in (False, True)]
    lines = tuple(
        Line(
            letters[system],
            system,
            bootstrap_mean(list(values[system].values()), seed=seed),
            *(tuple(letters[other] for other in systems if (system, other) in found) for found in beaten),
        )
        for system in systems
    )
    return Comparison(measure, alpha, baseline, lines, pairs, len(family), samples)


def _common_seeds(one: str, other: str, seeds: Seeds) -> tuple[int, ...]:
    if one not in seeds or other not in seeds:
        return ()
    common = tuple(sorted(seeds[one].keys() & seeds[other].keys()))
    if not common:
        raise UsageError(f"'{one}' and '{other}' have no seed in common; train one of them with a seed of the other")
    return common


def _beaten(pairs: Iterable[Pair], alpha: float, *, corrected: bool) -> set[tuple[str, str]]:
    """(winner, loser) of every pair whose t-test is significant."""
    found = set()
    for pair in pairs:
        p = pair.t_test_holm if corrected else pair.test.t_test
        if p is not None and p < alpha:
            better = pair.test.difference.mean > 0
            found.add((pair.system, pair.against) if better else (pair.against, pair.system))
    return found


def letter(place: int) -> str:
    """The letter of the system at a place: a, b … z, aa, ab …

    >>> letter(0), letter(25), letter(26), letter(52)
    ('a', 'z', 'aa', 'ba')
    """
    more, last = divmod(place, 26)
    return (letter(more - 1) if more else "") + chr(ord("a") + last)


def _check(systems: Sequence[str], evaluation: Evaluation, measure: str, baseline: str | None, alpha: float) -> None:
    if len(systems) < 2:
        raise UsageError("a comparison needs at least two systems; name another run")
    if baseline is not None and baseline not in systems:
        raise UsageError(f"the baseline '{baseline}' is none of the runs: {', '.join(systems)}")
    if not 0 < alpha < 1:
        raise UsageError(f"'alpha' is {alpha:g}; expected a level between 0 and 1, such as 0.05")
    for system, known in evaluation.per_query.items():
        if measure not in known:
            raise UsageError(f"'{system}' was not measured by '{measure}'; it was by {', '.join(known)}")


def average_seeds(seeds: Sequence[PerQuery]) -> PerQuery:
    """Measure → query id → mean over seeds: the values with which a system of several seeds enters a paired test."""
    return {
        measure: {query: statistics.fmean(values[measure][query] for values in seeds) for query in first}
        for measure, first in seeds[0].items()
    }


def values_by_seed(
    evaluation: Evaluation, groups: Mapping[str, Mapping[int, str]], seedless: Collection[str] = ()
) -> dict[str, dict[int, PerQuery]]:
    """System → seed → values, from system → seed → name; a run of a ``seedless`` system stands for every seed."""
    everywhere = sorted({seed for held in groups.values() for seed in held})
    return {
        name: {
            seed: evaluation.per_query[held.get(seed, next(iter(held.values())))]
            for seed in (everywhere if name in seedless else held)
        }
        for name, held in groups.items()
    }


def merge_seeds(
    evaluation: Evaluation, groups: Mapping[str, Sequence[str]]
) -> tuple[Evaluation, dict[str, dict[str, float]]]:
    """An evaluation with one system per group, and group → measure → standard deviation (n − 1) over several seeds.

    Args:
        groups: name of a system → names of its seeds in ``evaluation``; systems in no group are left out.
    """

    def counts(held: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        return {
            name: average_seeds([{"count": dict(held[seed])} for seed in seeds])["count"]
            for name, seeds in groups.items()
        }

    values = {name: [evaluation.per_query[seed] for seed in seeds] for name, seeds in groups.items()}
    merged = dataclasses.replace(
        evaluation,
        per_query={name: average_seeds(seeds) for name, seeds in values.items()},
        unjudged=counts(evaluation.unjudged),
        retrieved=counts(evaluation.retrieved),
        unanswered_queries={
            name: frozenset[str]().union(*(evaluation.unanswered_queries.get(seed, ()) for seed in seeds))
            for name, seeds in groups.items()
        },
        identities={
            name: tuple(evaluation.identities.get(seed, seed) for seed in seeds) for name, seeds in groups.items()
        },
    )
    means = {name: [mean_values(seed) for seed in seeds] for name, seeds in values.items() if len(seeds) > 1}
    return merged, {
        name: {measure: statistics.stdev(mean[measure] for mean in held) for measure in held[0]}
        for name, held in means.items()
    }

"""A table of systems, lettered, with the letters of those that each significantly beats, as in the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from colabel.errors import UsageError
from colabel.evaluation.intervals import CONFIDENCE, Interval, bootstrap_mean
from colabel.evaluation.runs import Evaluation
from colabel.evaluation.seeds import average_seeds
from colabel.evaluation.significance import PairedTest, holm, paired_tests, samples_for
from colabel.measures import PerQuery

T_TEST = "t-test"
RANDOMISATION = "randomisation"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A system against another, with the p-values after Holm's correction over all pairs of the table.

    ``seeds`` are those that the values of both are means over; empty where seeds were not told apart.
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

    def p_value(self, test: str, *, corrected: bool) -> float | None:
        """The p-value of the test called "t-test" or "randomisation"."""
        if test == T_TEST:
            return self.t_test_holm if corrected else self.test.t_test
        return self.randomisation_holm if corrected else self.test.randomisation

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Line:
    """A system of the table: its letter, its mean, and the letters of the systems that it significantly beats."""

    letter: str
    system: str
    mean: Interval
    beats: tuple[str, ...]
    beats_holm: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Systems compared on one measure; ``test`` at the level ``alpha`` decides on the letters.

    ``family`` is how many tests Holm's correction is over, and ``significant`` how many of these are after it;
    ``samples`` is how many sign assignments a randomisation test drew, whose p-values are 1 / (1 + samples) or more.
    """

    measure: str
    test: str
    alpha: float
    baseline: str | None
    lines: tuple[Line, ...]
    pairs: tuple[Pair, ...]
    family: int = 0
    significant: int | None = None
    samples: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


def compare(
    evaluation: Evaluation,
    measure: str,
    *,
    baseline: str | None = None,
    seeds: Mapping[str, Mapping[int, PerQuery]] | None = None,
    test: str = T_TEST,
    alpha: float = 0.05,
    confidence: float = CONFIDENCE,
    samples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare the systems of an evaluation on one of its measures: every two, or each with ``baseline``.

    The pairs of the table are one family for Holm's correction; a system whose runs are those of another (a β that
    tuning found again) is that system, and its pairs count once. Systems that only have the same values are not: by
    few measures, different rankings often do. Both tests are made of every pair; ``test`` names the one that the
    letters follow. Differences are the later system − the earlier one, or system − baseline.

    Args:
        seeds: system → seed → values. Two systems are then compared on the seeds that both have, so that a mean over
            seeds never meets the value of a single one. A system that draws nothing at random has every seed.
        samples: of the randomisation test; default: enough for the smallest p-value to survive Holm's correction.
    """
    systems = list(evaluation.per_query)
    _check(systems, evaluation, measure, baseline, test, alpha)
    values = {system: evaluation.per_query[system][measure] for system in systems}
    if baseline is None:
        wanted = [(later, earlier) for place, later in enumerate(systems) for earlier in systems[:place]]
    else:
        wanted = [(system, baseline) for system in systems if system != baseline]
    double = _doubles(systems, evaluation.identities)
    same = [(double[one], double[other]) for one, other in wanted]
    common = [_common_seeds(*names, seeds or {}) for names in wanted]
    sides = [
        tuple(_values(name, measure, both, seeds or {}, values) for name in names)
        for names, both in zip(wanted, common, strict=True)
    ]
    constant = {system for system, held in (seeds or {}).items() if _is_constant(held)}
    # Of what is one system a test says nothing; x − y is the test of y − x; and on other seeds it is another test,
    # unless neither side depends on them.
    keys = [
        None if one == other else (frozenset((one, other)), () if constant.issuperset(names) else both)
        for names, (one, other), both in zip(wanted, same, common, strict=True)
    ]
    samples = samples or samples_for(len({*keys} - {None}), alpha)
    tests = paired_tests([(one, other) for one, other in sides], confidence=confidence, samples=samples, seed=seed)
    family = {key: found for key, found in zip(keys, tests, strict=True) if key is not None}
    corrected = dict(
        zip(
            family,
            zip(
                holm([found.t_test for found in family.values()]),
                holm([found.randomisation for found in family.values()]),
                strict=True,
            ),
            strict=True,
        )
    )
    decisive = [pair[0 if test == T_TEST else 1] for pair in corrected.values()]
    pairs = tuple(
        Pair(*names, found, *(corrected[key] if key is not None else (found.t_test, found.randomisation)), both)
        for names, key, found, both in zip(wanted, keys, tests, common, strict=True)
    )
    letters = {system: letter(place) for place, system in enumerate(systems)}
    lines = tuple(
        Line(
            letters[system],
            system,
            bootstrap_mean(list(values[system].values()), confidence=confidence, seed=seed),
            _beaten(system, pairs, letters, test, alpha, corrected=False),
            _beaten(system, pairs, letters, test, alpha, corrected=True),
        )
        for system in systems
    )
    significant = sum(p is not None and p < alpha for p in decisive)
    return Comparison(measure, test, alpha, baseline, lines, pairs, len(family), significant, samples)


def _doubles(systems: Sequence[str], identities: Mapping[str, Hashable]) -> dict[str, str]:
    """System → the first with the same runs: most often itself, and always where its runs are not known."""
    first: dict[Hashable, str] = {}
    return {system: first.setdefault(identities.get(system, system), system) for system in systems}


def _is_constant(held: Mapping[int, PerQuery]) -> bool:
    """Whether a system has the same values with every seed, or one alone."""
    first, *others = held.values()
    return all(other == first for other in others)


def _common_seeds(one: str, other: str, seeds: Mapping[str, Mapping[int, PerQuery]]) -> tuple[int, ...]:
    if one not in seeds or other not in seeds:
        return ()
    common = tuple(sorted(seeds[one].keys() & seeds[other].keys()))
    if not common:
        raise UsageError(f"'{one}' and '{other}' have no seed in common; train one of them with a seed of the other")
    return common


def _values(
    system: str,
    measure: str,
    common: Sequence[int],
    seeds: Mapping[str, Mapping[int, PerQuery]],
    merged: Mapping[str, Mapping[str, float]],
) -> Mapping[str, float]:
    """Query id → mean over some seeds; over all that the evaluation holds where there are none to choose."""
    if not common:
        return merged[system]
    return average_seeds([{measure: seeds[system][seed][measure]} for seed in common])[measure]


def letter(place: int) -> str:
    """The letter of the system at a place: a, b … z, aa, ab …

    >>> letter(0), letter(25), letter(26), letter(52)
    ('a', 'z', 'aa', 'ba')
    """
    name, place = "", place + 1
    while place:
        place, rest = divmod(place - 1, 26)
        name = chr(ord("a") + rest) + name
    return name


def _check(
    systems: Sequence[str], evaluation: Evaluation, measure: str, baseline: str | None, test: str, alpha: float
) -> None:
    if len(systems) < 2:
        raise UsageError("a comparison needs at least two systems; name another run")
    if baseline is not None and baseline not in systems:
        raise UsageError(f"the baseline '{baseline}' is none of the runs: {', '.join(systems)}")
    if not 0 < alpha < 1:
        raise UsageError(f"'alpha' is {alpha:g}; expected a level between 0 and 1, such as 0.05")
    if test not in (T_TEST, RANDOMISATION):
        raise UsageError(f"unknown test '{test}'; expected '{T_TEST}' or '{RANDOMISATION}'")
    for system in systems:
        known = evaluation.per_query[system]
        if measure not in known:
            raise UsageError(f"'{system}' was not measured by '{measure}'; it was by {', '.join(known)}")


def _beaten(
    system: str, pairs: Sequence[Pair], letters: dict[str, str], test: str, alpha: float, *, corrected: bool
) -> tuple[str, ...]:
    beaten = set()
    for pair in pairs:
        p = pair.p_value(test, corrected=corrected)
        if system in (pair.system, pair.against) and p is not None and p < alpha:
            higher, lower = (pair.system, pair.against)[:: 1 if pair.test.difference.mean > 0 else -1]
            if higher == system:
                beaten.add(lower)
    return tuple(found for name, found in letters.items() if name in beaten)

"""How far judges agree: Cohen's κ of two, Krippendorff's α of all, and what a program's verdicts are worth."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from colabel.labels.verdicts import Verdict, decide, of_people

Pair = tuple[str, str]
PEOPLE = "people"
"""Who a program is compared with: what people decided together."""


class Agreement(msgspec.Struct, frozen=True):
    """How far two judges agree on the pairs that both decided.

    Attributes:
        same: pairs on which both say the same.
        kappa: Cohen's κ, None where chance would say the same.
        yes, yes_right: pairs that the first judge found relevant, and those of them that the second did.
    """

    judges: tuple[str, str]
    pairs: int
    same: int
    kappa: float | None
    yes: int
    yes_right: int


def agreements(verdicts: Sequence[Verdict]) -> list[Agreement]:
    """Every two people who decided a pair both, and every program with what people decided; most pairs first."""
    people = of_people(verdicts)
    said = _by_judge(people)
    names = sorted(said)
    together = {pair: one.relevant for pair, one in decide(people).items() if one.relevant is not None}
    found = [
        _agreement((first, second), said[first], said[second])
        for place, first in enumerate(names)
        for second in names[place + 1 :]
    ]
    programs = _by_judge([one for one in verdicts if one.by_program])
    found += [_agreement((name, PEOPLE), programs[name], together) for name in sorted(programs)]
    return sorted((one for one in found if one.pairs), key=lambda one: -one.pairs)


def _by_judge(verdicts: Sequence[Verdict]) -> dict[str, dict[Pair, bool]]:
    said: dict[str, dict[Pair, bool]] = {}
    for one in verdicts:
        if one.answer != "unsure":
            said.setdefault(one.judge, {})[one.query_id, one.passage_id] = one.answer == "yes"
    return said


def _agreement(judges: tuple[str, str], first: Mapping[Pair, bool], second: Mapping[Pair, bool]) -> Agreement:
    from sklearn.metrics import cohen_kappa_score

    both = sorted(first.keys() & second.keys())
    mine, theirs = [first[pair] for pair in both], [second[pair] for pair in both]
    same = sum(one == other for one, other in zip(mine, theirs, strict=True))
    kappa = float(cohen_kappa_score(mine, theirs)) if len({*mine, *theirs}) > 1 else None
    right = sum(one and other for one, other in zip(mine, theirs, strict=True))
    return Agreement(judges, len(both), same, kappa, sum(mine), right)


def alpha(verdicts: Sequence[Verdict]) -> float | None:
    """Krippendorff's α of all people, yes or no, over the pairs that two or more decided; None: no value."""
    from krippendorff import alpha as measured

    said = _by_judge(of_people(verdicts))
    pairs = sorted({pair for held in said.values() for pair in held})
    table = np.array([[float(held[pair]) if pair in held else np.nan for pair in pairs] for held in said.values()])
    twice = table[:, np.isfinite(table).sum(axis=0) > 1] if len(said) > 1 else np.empty((0, 0))
    if twice.size == 0 or len(np.unique(twice[np.isfinite(twice)])) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(measured(reliability_data=twice, level_of_measurement="nominal"))

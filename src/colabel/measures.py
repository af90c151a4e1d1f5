"""Measures of rankings, computed by ir_measures, and the paired difference between two systems."""

from __future__ import annotations

import functools
import math
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.errors import DataError, UsageError
from colabel.settings.tables import DEFAULT_MEASURES
from colabel.types import Qrels

Run = Mapping[str, Mapping[str, float]]
"""Query id → passage id → score."""

PerQuery = dict[str, dict[str, float]]
"""Measure name → query id → value."""

FloatArray = npt.NDArray[np.float64]

_ASK_JUDGED = ("Bpref", "infAP")
_RELEVANT_RETRIEVED = "NumRelRet"
_UNCOMPUTABLE = (
    *(OSError, ValueError, TypeError, RuntimeError, ArithmeticError, LookupError, AssertionError),
    subprocess.SubprocessError,
)
"""What the programs behind ir_measures end with."""
_TRIED: tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]] = (
    {"1": {"a": 1, "b": 0}, "2": {"a": 1}, "3": {"a": 0}, "4": {"a": 1, "b": 0}},
    {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0}, "3": {"a": 1.0}, "4": {"b": 2.0, "a": 1.0}},
)
"""Labels and a run that a measure must be able to take: with relevant passages alone, first, last, and without any."""
SAME = 1e-9
"""Differences that vary less than this, relative to their size, are equal up to rounding."""
ROUNDING = 1e-12
"""Values closer than this, relative to their size (or to 1, if they are smaller), are the same: means over seeds of
equal values differ in the last digit."""
_EXPECTED = "expected one of ir_measures', such as nDCG@10, RR@10, R@1000, AP or P@5"


def measure_run(
    labels: Qrels, run: Run, measures: Iterable[str] = DEFAULT_MEASURES, *, relevant_from: int = 1
) -> PerQuery:
    """Value of every measure for every labelled query.

    A query that the run does not answer counts 0. Binary measures (RR, AP, R, P …) count grades from
    ``relevant_from`` up as relevant unless the measure says otherwise (``R(rel=2)@1000``); nDCG uses the grades.

    >>> measure_run({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}}, ["RR@10"])
    {'RR@10': {'q': 0.5}}
    """
    import ir_measures

    parsed = {name: measure_from(name, relevant_from) for name in measures}
    names: dict[Any, list[str]] = {}
    for name, measure in parsed.items():
        names.setdefault(measure, []).append(name)  # MRR@10 and RR@10 are one measure
    values: PerQuery = {name: dict.fromkeys(labels, 0.0) for name in parsed}
    queries = {str(number): query for number, query in enumerate(labels)}  # gdeval takes no other ids than numbers
    qrels = {number: dict(labels[query]) for number, query in queries.items()}
    answers = {number: _untied(run[query]) for number, query in queries.items() if run.get(query)}
    try:
        for metric in ir_measures.iter_calc(list(names), qrels, answers):
            for name in names[metric.measure]:
                values[name][queries[metric.query_id]] = float(metric.value)
    except _UNCOMPUTABLE as error:
        raise UsageError(f"{', '.join(parsed)} cannot all be computed of this run ({error}); leave some out") from None
    return values


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Passages in trec_eval's order: the higher score first, of equal ones the larger id first.

    trec_eval holds scores in single precision, so those that differ only beyond it are equal.

    >>> ranked({"a": 1.0, "b": 1.0, "c": 2.0})
    ['c', 'b', 'a']
    >>> ranked({"a": 40.0000010, "b": 40.0000005})
    ['b', 'a']
    """
    with np.errstate(over="ignore"):
        single = np.fromiter(scores.values(), dtype=np.float64, count=len(scores)).astype(np.float32).tolist()
    if any(map(math.isnan, single)):
        odd = next(passage for passage, score in zip(scores, single, strict=True) if math.isnan(score))
        raise DataError(f"passage '{odd}' has the score nan, which has no place in a ranking")
    value = dict(zip(scores, single, strict=True))
    return sorted(scores, key=lambda one: (value[one], one.encode("utf-8", "surrogatepass")), reverse=True)


def _untied(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores that fall strictly in the order of :func:`ranked`, so that all measures agree."""
    return {passage: float(place) for place, passage in enumerate(reversed(ranked(scores)), start=1)}


def mean_values(values: PerQuery) -> dict[str, float]:
    """Mean over queries of every measure.

    >>> mean_values({"RR@10": {"q1": 1.0, "q2": 0.5}})
    {'RR@10': 0.75}
    """
    return {name: sum(per_query.values()) / max(1, len(per_query)) for name, per_query in values.items()}


@functools.cache
def parse_measure(name: str) -> Any:
    """An ir_measures measure from its name, as ``nDCG@10`` or ``R(rel=2)@1000``, that can be computed here."""
    import ir_measures

    try:
        measure: Any = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError, AttributeError):
        raise UsageError(f"'{name}' is not a measure; {_EXPECTED}") from None
    known = measure.SUPPORTED_PARAMS.items()
    missing = [part for part, about in known if about.required and part not in measure.params]
    low = [part for part in ("cutoff", "rel") if measure.params.get(part, 1) < 1]  # of which trec_eval dies
    pipeline: Any = ir_measures.DefaultPipeline
    problem = f"lacks '{missing[0]}'" if missing else ""
    if low:
        problem = f"cannot be: '{low[0]}' is {measure.params[low[0]]}; expected 1 or more"
    elif measure.NAME == "NumQ":
        problem = "counts queries and says nothing of a ranking"
    elif not missing and measure.params.get("judged_only") and not pipeline.supports(measure):
        problem = (
            "cannot be computed with 'judged_only'; write it without. `colabel evaluate --judged-only` takes such "
            "passages out of the runs first, and studies show both"
        )
    if not problem:
        try:
            measure.validate_params()
            list(ir_measures.iter_calc([measure], *_TRIED))
        except _UNCOMPUTABLE as error:
            problem = f"cannot be computed here ({' '.join(str(error).split())})"
    if problem:
        raise UsageError(f"'{name}' {problem}; {_EXPECTED}")
    return measure


def unreachable(names: Iterable[str], labels: Qrels) -> list[str]:
    """A sentence for every measure that asks for a grade which no label has.

    >>> unreachable(["AP", "R(rel=3)@10"], {"q": {"a": 2}})
    ['R(rel=3)@10 is 0 for every system: it counts grades from 3 up, and no label is higher than 2.']
    """
    highest = max((grade for held in labels.values() for grade in held.values()), default=0)
    asked = {name: parse_measure(name).params.get("rel", 1) for name in names}
    return [
        f"{name} is 0 for every system: it counts grades from {grade} up, and no label is higher than {highest}."
        for name, grade in asked.items()
        if grade > highest
    ]


def asks_judged(name: str) -> bool:
    """Whether a measure tells passages that were judged from those that were not; to trec_eval a grade of −1 is not.

    >>> asks_judged("Bpref"), asks_judged("AP")
    (True, False)
    """
    return parse_measure(name).NAME in _ASK_JUDGED


@functools.cache
def measure_from(name: str, relevant_from: int) -> Any:
    """The measure with the grade from which passages count as relevant, where it is binary and names none itself.

    A measure whose cut-off has no default of 1 means something else without one: NumRet counts all that was retrieved,
    RBP takes the grades. NumRelRet is ir_measures' short name of ``NumRet(rel=1)`` and names no grade itself.
    """
    measure = parse_measure(name)
    known = measure.SUPPORTED_PARAMS.get("rel")
    named = "rel" in measure.params and name != _RELEVANT_RETRIEVED
    if relevant_from == 1 or known is None or (known.default != 1 and name != _RELEVANT_RETRIEVED) or named:
        return measure
    found = measure(rel=relevant_from)
    import ir_measures

    pipeline: Any = ir_measures.DefaultPipeline
    if not pipeline.supports(found):
        raise UsageError(
            f"'{name}' cannot be computed with relevant passages from grade {relevant_from} on (data.relevant_from); "
            f"{_EXPECTED}"
        )
    return found


def query_differences(first: Mapping[str, float], second: Mapping[str, float]) -> FloatArray:
    """first − second of every query, in the order of the first; 0 where they differ by rounding alone.

    >>> mean = (1 + 1 / 3 + 1 / 3) / 3, (1 + 1 / 2 + 1 / 6) / 3  # both are 5/9
    >>> mean[0] == mean[1], query_differences({"q": mean[0]}, {"q": mean[1]}).tolist()
    (False, [0.0])
    """
    odd = sorted(first.keys() ^ second.keys())
    if odd:
        raise UsageError(
            f"a paired test needs two systems measured on the same queries; query '{odd[0]}' and {len(odd) - 1} more "
            "have a value of one of them only"
        )
    if not first:
        raise UsageError("a paired test needs values of at least one query")
    left = np.array(list(first.values()), dtype=np.float64)
    right = np.array([second[query] for query in first], dtype=np.float64)
    size = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    return np.where(np.abs(left - right) <= ROUNDING * size, 0.0, left - right)


def p_text(p: float | None, none: str) -> str:
    """A p-value in four digits, wherever one is written; ``none`` where there is none.

    >>> p_text(0.25, "–"), p_text(0.00001, "–"), p_text(None, "–")
    ('0.2500', '<0.0001', '–')
    """
    return none if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def t_test(differences: npt.ArrayLike) -> float | None:
    """Two-sided p-value of the paired t-test, from the differences [queries].

    1 where all differences are 0. None where t is not defined: for a single query, and where all differ by the same
    amount (the spread is 0; the randomisation test still answers).

    >>> round(t_test([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    if not values.any():
        return 1.0
    if np.ptp(values) <= SAME * np.abs(values).max():
        return None
    from scipy import stats

    return float(stats.ttest_1samp(values, 0.0).pvalue)

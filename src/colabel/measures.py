"""Measures of rankings, computed by ir_measures."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from colabel.errors import UsageError
from colabel.types import Qrels

Run = Mapping[str, Mapping[str, float]]
"""Query id → passage id → score."""

PerQuery = dict[str, dict[str, float]]
"""Measure name → query id → value."""

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "R@1000")
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

    parsed = {name: _with_cutoff(parse_measure(name), relevant_from) for name in measures}
    names: dict[Any, list[str]] = {}
    for name, measure in parsed.items():
        names.setdefault(measure, []).append(name)  # MRR@10 and RR@10 are one measure
    values: PerQuery = {name: dict.fromkeys(labels, 0.0) for name in parsed}
    queries = {str(number): query for number, query in enumerate(labels)}  # gdeval takes no other ids than numbers
    qrels = {number: dict(labels[query]) for number, query in queries.items()}
    answers = {number: _untied(run[query]) for number, query in queries.items() if run.get(query)}
    for metric in ir_measures.iter_calc(list(names), qrels, answers):
        for name in names[metric.measure]:
            values[name][queries[metric.query_id]] = float(metric.value)
    return values


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Passages in trec_eval's order: the higher score first, of equal ones the larger id first.

    >>> ranked({"a": 1.0, "b": 1.0, "c": 2.0})
    ['c', 'b', 'a']
    """
    return sorted(scores, key=lambda passage: (scores[passage], passage.encode("utf-8", "surrogatepass")), reverse=True)


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
    if missing:
        raise UsageError(f"'{name}' lacks '{missing[0]}'; {_EXPECTED}")
    try:
        measure.validate_params()
    except AssertionError as error:
        raise UsageError(f"'{name}': {error}; {_EXPECTED}") from None
    for part in ("cutoff", "rel"):
        if measure.params.get(part, 1) < 1:  # trec_eval ends the process
            raise UsageError(f"'{name}': '{part}' is {measure.params[part]}; expected 1 or more")
    pipeline: Any = ir_measures.DefaultPipeline
    if not pipeline.supports(measure):
        raise UsageError(
            f"'{name}' needs a package that is not installed; ir_measures' documentation says which, or take another "
            f"measure: {_EXPECTED}"
        )
    try:
        list(ir_measures.iter_calc([measure], {"1": {"a": 1, "b": 0}}, {"1": {"a": 2.0, "b": 1.0}}))
    except (OSError, ValueError, TypeError, RuntimeError, subprocess.SubprocessError) as error:
        raise UsageError(f"'{name}' cannot be computed here ({error}); {_EXPECTED}") from None
    return measure


def _with_cutoff(measure: Any, relevant_from: int) -> Any:
    takes_cutoff = "rel" in measure.SUPPORTED_PARAMS and "rel" not in measure.params
    return measure(rel=relevant_from) if takes_cutoff and relevant_from != 1 else measure

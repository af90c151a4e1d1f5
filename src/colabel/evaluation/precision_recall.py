"""How well scores rank relevant passages among given candidates: any scores against any labels.

Equal scores are treated in two ways, each where it is right. A *list* (one query's candidates) is a ranking: its
candidates stand in the order in which our rankings put equal scores (the larger id first), and sorting keeps that
order, so its average precision is trec_eval's. A *threshold* cannot part equal scores, so curves that are pooled over
queries have one point for each distinct score, and AUC counts an equal pair as half: both as scikit-learn has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.errors import DataError, UsageError
from colabel.evaluation.significance import Interval, PairedTest, bootstrap_mean, bootstrap_means, paired_test
from colabel.measures import FloatArray, Run, ranked
from colabel.types import Qrels

BoolArray = npt.NDArray[np.bool_]

RECALL_LEVELS = tuple(level / 10 for level in range(11))
_FINE_LEVELS = tuple(level / 100 for level in range(101))


@dataclasses.dataclass(frozen=True, eq=False)  # arrays do not compare as a whole
class Curve:
    """Recall (rising, ends at 1) and precision float64 [points], from the highest score to the lowest."""

    recall: FloatArray
    precision: FloatArray

    @property
    def average_precision(self) -> float:
        """Σ (R_n − R_n−1) · P_n: of a list, the mean precision at the places of its relevant passages."""
        return float(np.sum(np.diff(self.recall, prepend=0.0) * self.precision))

    def at_recall(self, levels: tuple[float, ...] = RECALL_LEVELS) -> FloatArray:
        """Interpolated precision: the highest at each recall level or beyond it, float64 [levels]."""
        best = np.maximum.accumulate(self.precision[::-1])[::-1]
        return best[np.searchsorted(self.recall, levels)]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types: interpolated precision at 101 recall levels."""
        return {"recall": list(_FINE_LEVELS), "precision": self.at_recall(_FINE_LEVELS).tolist()}


def list_curve(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> Curve:
    """The curve of one ranked list, a point for each place; candidates of equal score keep their order.

    >>> list_curve([3.0, 2.0, 1.0], [True, False, True]).precision.round(2).tolist()
    [1.0, 0.5, 0.67]
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    order = np.argsort(-values, kind="stable")
    return _curve(positive[order], np.arange(len(values)))


def pooled_curve(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> Curve:
    """The curve of a threshold over pairs of any queries, a point for each distinct score.

    >>> pooled_curve([3.0, 2.0, 2.0, 1.0], [True, False, True, False]).recall.tolist()
    [0.5, 1.0, 1.0]
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(values[order][1:] != values[order][:-1], True))
    return _curve(positive[order], ends)


def _curve(relevant: BoolArray, places: npt.NDArray[np.int64]) -> Curve:
    """Recall and precision at some places of a ranked list that has at least one relevant passage."""
    found = np.cumsum(relevant)[places]
    return Curve(found / relevant.sum(), found / (places + 1.0))


def roc_auc(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> float | None:
    """How often a relevant passage scores above one that is not, an equal pair counting half.

    None where either kind is missing. From the ranks r of the relevant ones: (Σ r − n (n + 1) / 2) / (n · m).

    >>> roc_auc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    from scipy import stats

    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return None
    ranks = stats.rankdata(values)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))


@dataclasses.dataclass(frozen=True, eq=False)  # arrays do not compare as a whole
class CandidateList:
    """One query's candidates.

    Attributes:
        grades: int64 [candidates], 0 where there is no label.
        scores: system → float64 [candidates], NaN where the system has no score. Where two candidates have the same
            score, they stand in the order in which rankings put them (the larger id first).
        labelled: int64 [labels], the grades of all labels of the query, of candidates or not.
    """

    query_id: str
    grades: npt.NDArray[np.int64]
    scores: Mapping[str, FloatArray]
    labelled: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class ScoreQuality:
    """How one system's scores rank the relevant passages.

    Attributes:
        average_precision: mean over queries.
        auc: mean over the queries with a candidate that is not relevant, or None without any.
        precision_at_recall: mean over queries of the interpolated precision at recall 0, 0.1 … 1.
        pooled: the curve of one threshold over the pairs of all queries; ``pooled_auc`` likewise.
        per_query: "AP" and "AUC" → query id → value.
    """

    average_precision: Interval
    auc: Interval | None
    precision_at_recall: tuple[Interval, ...]
    pooled: Curve
    pooled_auc: float | None
    per_query: Mapping[str, Mapping[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "average_precision": self.average_precision.as_dict(),
            "auc": self.auc and self.auc.as_dict(),
            "precision_at_recall": [
                {"recall": level, **interval.as_dict()}
                for level, interval in zip(RECALL_LEVELS, self.precision_at_recall, strict=True)
            ],
            "pooled_average_precision": self.pooled.average_precision,
            "pooled_auc": self.pooled_auc,
            "pooled_curve": self.pooled.as_dict(),
            "per_query": {name: dict(values) for name, values in self.per_query.items()},
        }


@dataclasses.dataclass(frozen=True)
class Quality:
    """Systems on the same candidates, with one grade from which passages count as relevant.

    Attributes:
        relevant_from: that grade.
        queries: queries with a relevant passage among the scored candidates; the systems are measured on these.
        left_out: queries whose relevant passages are all beyond the scored candidates.
        absent: queries with a relevant label of which there are no candidates at all.
        relevant: relevant labels of ``queries`` and ``left_out``; ``found`` of them are candidates.
        recall: mean over those queries of the share of their relevant labels that are candidates.
        unscored: candidates that some system has no score for; no system is measured on them.
        systems: name → how it does.
        differences: name of every system but the first → "AP" and "AUC" → it against the first.
    """

    relevant_from: int
    queries: int
    left_out: int
    absent: int
    relevant: int
    found: int
    recall: Interval
    unscored: int
    systems: Mapping[str, ScoreQuality]
    differences: Mapping[str, Mapping[str, PairedTest]]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        counts = ("relevant_from", "queries", "left_out", "absent", "relevant", "found", "unscored")
        return {
            **{name: getattr(self, name) for name in counts},
            "recall": self.recall.as_dict(),
            "systems": {name: system.as_dict() for name, system in self.systems.items()},
            "differences": {
                name: {measure: test.as_dict() for measure, test in tests.items()}
                for name, tests in self.differences.items()
            },
        }


def quality(lists: Sequence[CandidateList], relevant_from: int, *, absent: int = 0, seed: int = 0) -> Quality | None:
    """Measure the systems of candidate lists; None where no query has a relevant passage among its candidates."""
    labelled = [one for one in lists if (one.labelled >= relevant_from).any()]
    scored = {one.query_id: scored_candidates(one) for one in labelled}
    measured = [one for one in scored.values() if (one.grades >= relevant_from).any()]
    if not measured:
        return None
    names = list(measured[0].scores)
    systems = {name: _score_quality(measured, name, relevant_from, seed) for name in names}
    first = systems[names[0]].per_query
    differences = {
        name: {
            measure: paired_test(values, first[measure], seed=seed)
            for measure, values in systems[name].per_query.items()
            if values
        }
        for name in names[1:]
    }
    wanted = np.array([(one.labelled >= relevant_from).sum() for one in labelled])
    found = np.array([(one.grades >= relevant_from).sum() for one in labelled])
    return Quality(
        relevant_from=relevant_from,
        queries=len(measured),
        left_out=len(labelled) - len(measured),
        absent=absent,
        relevant=int(wanted.sum()),
        found=int(found.sum()),
        recall=bootstrap_mean(found / wanted, seed=seed),
        unscored=sum(len(one.grades) - len(scored[one.query_id].grades) for one in labelled),
        systems=systems,
        differences=differences,
    )


def scored_candidates(candidates: CandidateList) -> CandidateList:
    """The candidates for which every system has a score."""
    kept = ~np.any([np.isnan(scores) for scores in candidates.scores.values()], axis=0)
    return dataclasses.replace(
        candidates,
        grades=candidates.grades[kept],
        scores={name: scores[kept] for name, scores in candidates.scores.items()},
    )


def _score_quality(lists: Sequence[CandidateList], name: str, relevant_from: int, seed: int) -> ScoreQuality:
    relevant = [one.grades >= relevant_from for one in lists]
    curves = [list_curve(one.scores[name], positive) for one, positive in zip(lists, relevant, strict=True)]
    aucs = {one.query_id: roc_auc(one.scores[name], positive) for one, positive in zip(lists, relevant, strict=True)}
    precisions = {one.query_id: curve.average_precision for one, curve in zip(lists, curves, strict=True)}
    defined = {query_id: value for query_id, value in aucs.items() if value is not None}
    columns = np.column_stack([list(precisions.values()), np.stack([curve.at_recall() for curve in curves])])
    average, *levels = bootstrap_means(columns, seed=seed)
    together, all_relevant = np.concatenate([one.scores[name] for one in lists]), np.concatenate(relevant)
    return ScoreQuality(
        average_precision=average,
        auc=bootstrap_mean(list(defined.values()), seed=seed) if defined else None,
        precision_at_recall=tuple(levels),
        pooled=pooled_curve(together, all_relevant),
        pooled_auc=roc_auc(together, all_relevant),
        per_query={"AP": precisions, "AUC": defined},
    )


def precision_recall(
    runs: Mapping[str, Run],
    labels: Qrels,
    *,
    relevant_from: Iterable[int] | None = None,
    judged_only: bool = False,
    seed: int = 0,
) -> dict[int, Quality]:
    """Precision–recall of any scores against any labels, for each grade from which passages count as relevant.

    The passages that the runs hold for a query are its candidates, and must be the same in all runs. Recall is that
    of the relevant candidates, so every curve ends at 1.

    Args:
        runs: system → query id → passage id → score.
        relevant_from: grades; default: all grades above 0 that occur in the labels. Grades at which no query has a
            relevant candidate are left out of the result.
        judged_only: leave out candidates without a judgement instead of counting them as not relevant.
    """
    if not runs:
        raise UsageError("precision–recall needs the scores of at least one system")
    lists = list(_run_lists(runs, labels, judged_only))
    answered = {one.query_id for one in lists}
    if not lists:
        raise DataError("none of the queries of the runs has labels; are they of another split or collection?")
    found = {}
    for grade in grades_of(labels) if relevant_from is None else relevant_from:
        wanting = (query_id for query_id, judged in labels.items() if any(held >= grade for held in judged.values()))
        measured = quality(lists, grade, absent=len(set(wanting) - answered), seed=seed)
        if measured is not None:
            found[grade] = measured
    return found


def grades_of(labels: Qrels, lowest: int = 1) -> list[int]:
    """All grades from ``lowest`` up that occur in labels, rising."""
    return sorted({grade for judged in labels.values() for grade in judged.values() if grade >= lowest})


def _run_lists(runs: Mapping[str, Run], labels: Qrels, judged_only: bool) -> Iterator[CandidateList]:
    first, *others = runs
    for query_id in dict.fromkeys(query for run in runs.values() for query in run):
        judged = labels.get(query_id)
        if judged is None:
            continue
        answers = runs[first].get(query_id, {})
        for other in others:
            odd = sorted(answers.keys() ^ runs[other].get(query_id, {}).keys())
            if odd:
                raise UsageError(
                    f"'{first}' and '{other}' have different candidates for query '{query_id}' (passage '{odd[0]}' is "
                    "in one of them only); score the same candidates or measure them one by one"
                )
        passages = ranked({passage: 0.0 for passage in answers if passage in judged or not judged_only})
        grades = np.array([judged.get(passage, 0) for passage in passages], dtype=np.int64)
        scores = {name: _single([run[query_id][passage] for passage in passages]) for name, run in runs.items()}
        yield CandidateList(query_id, grades, scores, np.array(list(judged.values()), dtype=np.int64))


def _single(scores: list[float]) -> npt.NDArray[np.float64]:
    """Scores rounded to single precision, in which trec_eval holds them: what differs only beyond it is equal."""
    with np.errstate(over="ignore"):
        return np.array(scores, dtype=np.float32).astype(np.float64)

"""How well scores rank relevant passages among given candidates: any scores against any labels.

One query's candidates are a ranking: those of equal score stand in the order in which our rankings put them (the larger
id first), and sorting keeps that order, so average precision is trec_eval's. AUC counts an equal pair as half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from colabel.errors import DataError, UsageError
from colabel.evaluation.significance import Interval, PairedTest, Plain, bootstrap_mean, bootstrap_means, paired_test
from colabel.measures import FloatArray, Run, ranked
from colabel.types import Qrels

RECALL_LEVELS = tuple(level / 10 for level in range(11))


def average_precision(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """The mean precision at the places of the relevant passages, of which there is one or more.

    >>> round(average_precision([3.0, 2.0, 1.0], [True, False, True]), 3)
    0.833
    """
    places, found = _places(scores, relevant)
    return float(np.mean(found / places))


def precision_at_recall(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> FloatArray:
    """Interpolated precision at recall 0, 0.1 … 1: the highest at that recall or beyond it.

    >>> precision_at_recall([3.0, 2.0, 1.0], [True, False, True])[[0, 5, 10]].round(2).tolist()
    [1.0, 1.0, 0.67]
    """
    places, found = _places(scores, relevant)
    highest = np.maximum.accumulate((found / places)[::-1])[::-1]
    return highest[np.searchsorted(found / len(found), RECALL_LEVELS)]


def _places(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Places 1, 2, … of the relevant passages by falling score, and how many are found there."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    places = np.flatnonzero(np.asarray(relevant, dtype=bool)[order]).astype(np.float64) + 1
    return places, np.arange(1, len(places) + 1, dtype=np.float64)


def roc_auc(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> float | None:
    """How often a relevant passage scores above one that is not, an equal pair counting half.

    None where either kind is missing. From the ranks r of the relevant ones: (Σ r − n (n + 1) / 2) / (n · m).

    >>> roc_auc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    from scipy import stats

    positive = np.asarray(relevant, dtype=bool)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return None
    ranks = stats.rankdata(np.asarray(scores, dtype=np.float64))
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
    """How one system's scores rank the relevant passages: means over queries, and "AP" and "AUC" → query id → value.

    ``auc`` is over the queries with a candidate that is not relevant, None without any; ``precision_at_recall`` is
    interpolated, at recall 0, 0.1 … 1.
    """

    average_precision: Interval
    auc: Interval | None
    precision_at_recall: tuple[Interval, ...]
    per_query: Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Quality(Plain):
    """Systems on the same candidates, with one grade from which passages count as relevant.

    Attributes:
        queries: queries with a relevant passage among the scored candidates; the systems are measured on these.
        left_out: queries whose relevant passages are all beyond the scored candidates.
        relevant: relevant labels of ``queries`` and ``left_out``; ``found`` of them are candidates.
        recall: mean over those queries of the share of their relevant labels that are candidates.
        unscored: candidates that some system has no score for; no system is measured on them.
        differences: name of every system but the first → "AP" and "AUC" → it against the first.
    """

    relevant_from: int
    queries: int
    left_out: int
    relevant: int
    found: int
    recall: Interval
    unscored: int
    systems: Mapping[str, ScoreQuality]
    differences: Mapping[str, Mapping[str, PairedTest]]


def quality(lists: Sequence[CandidateList], relevant_from: int, *, seed: int = 0) -> Quality | None:
    """Measure the systems of candidate lists; None where no query has a relevant passage among its candidates."""
    labelled = [one for one in lists if (one.labelled >= relevant_from).any()]
    scored = [_scored(one) for one in labelled]
    measured = [one for one in scored if (one.grades >= relevant_from).any()]
    if not measured:
        return None
    first, *others = measured[0].scores
    systems = {name: _score_quality(measured, name, relevant_from, seed) for name in (first, *others)}
    differences = {
        name: {
            measure: paired_test(values, systems[first].per_query[measure], seed=seed)
            for measure, values in systems[name].per_query.items()
            if values
        }
        for name in others
    }
    wanted = np.array([(one.labelled >= relevant_from).sum() for one in labelled])
    found = np.array([(one.grades >= relevant_from).sum() for one in labelled])
    return Quality(
        relevant_from=relevant_from,
        queries=len(measured),
        left_out=len(labelled) - len(measured),
        relevant=int(wanted.sum()),
        found=int(found.sum()),
        recall=bootstrap_mean(found / wanted, seed=seed),
        unscored=sum(len(one.grades) - len(kept.grades) for one, kept in zip(labelled, scored, strict=True)),
        systems=systems,
        differences=differences,
    )


def _scored(candidates: CandidateList) -> CandidateList:
    """The candidates for which every system has a score."""
    kept = ~np.any([np.isnan(scores) for scores in candidates.scores.values()], axis=0)
    scores = {name: scores[kept] for name, scores in candidates.scores.items()}
    return dataclasses.replace(candidates, grades=candidates.grades[kept], scores=scores)


def _score_quality(lists: Sequence[CandidateList], name: str, relevant_from: int, seed: int) -> ScoreQuality:
    pairs = {one.query_id: (one.scores[name], one.grades >= relevant_from) for one in lists}
    precisions = {query_id: average_precision(*pair) for query_id, pair in pairs.items()}
    aucs = {query_id: auc for query_id, pair in pairs.items() if (auc := roc_auc(*pair)) is not None}
    levels = np.stack([precision_at_recall(*pair) for pair in pairs.values()])
    average, *at_levels = bootstrap_means(np.column_stack([list(precisions.values()), levels]), seed=seed)
    mean_auc = bootstrap_mean(list(aucs.values()), seed=seed) if aucs else None
    return ScoreQuality(average, mean_auc, tuple(at_levels), {"AP": precisions, "AUC": aucs})


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
        relevant_from: grades; default: all grades above 0 that occur in the labels. Grades at which no query has a
            relevant candidate are left out of the result.
        judged_only: leave out candidates without a judgement instead of counting them as not relevant.
    """
    lists = list(run_lists(runs, labels, judged_only=judged_only))
    if not lists:
        raise DataError("none of the queries of the runs has labels; are they of another split or collection?")
    return measured_grades(lists, grades_of(labels) if relevant_from is None else relevant_from, seed)


def measured_grades(lists: Sequence[CandidateList], grades: Iterable[int], seed: int) -> dict[int, Quality]:
    """Grade → quality, of the grades at which some query has a relevant candidate."""
    found = {grade: quality(lists, grade, seed=seed) for grade in grades}
    return {grade: one for grade, one in found.items() if one is not None}


def grades_of(labels: Qrels, lowest: int = 1) -> list[int]:
    """All grades from ``lowest`` up that occur in labels, rising."""
    return sorted({grade for judged in labels.values() for grade in judged.values() if grade >= lowest})


def run_lists(runs: Mapping[str, Run], labels: Qrels, *, judged_only: bool = False) -> Iterator[CandidateList]:
    """The candidates of every query that has labels, in the order in which rankings put equal scores."""
    first, *others = runs
    for query_id in dict.fromkeys(query for run in runs.values() for query in run if query in labels):
        judged, answers = labels[query_id], runs[first].get(query_id, {})
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


def _single(scores: list[float]) -> FloatArray:
    """Scores rounded to single precision, in which trec_eval holds them: what differs only beyond it is equal."""
    with np.errstate(over="ignore"):
        return np.array(scores, dtype=np.float32).astype(np.float64)

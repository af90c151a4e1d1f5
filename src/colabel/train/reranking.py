"""Whether a teacher is better than the ranking that it re-ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colabel.errors import DataError
from colabel.measures import mean_values, measure_run
from colabel.paired import FloatArray, p_text, query_differences, t_test
from colabel.ranking import Ranking
from colabel.teachers.base import Teacher
from colabel.types import Qrels

ALPHA = 0.05
"""Level of the paired test below which one of the two is called better."""


@dataclass(frozen=True, eq=False)  # arrays do not compare as a whole
class RerankQuality:
    """The top of a ranking as it is, and re-ranked by a teacher.

    Attributes:
        ranked, reranked: measure → mean over labelled queries.
        differences: measure → re-ranked less ranked of each query, float64 [queries].
    """

    queries: int
    depth: int
    ranked: Mapping[str, float]
    reranked: Mapping[str, float]
    differences: Mapping[str, FloatArray]

    def verdict(self, ranker: str) -> str:
        """What the first measure says by the paired t-test, as the rest of a sentence."""
        measure = next(iter(self.ranked))
        before, after = self.ranked[measure], self.reranked[measure]
        p = t_test(self.differences[measure])
        if p is None or p >= ALPHA:
            found = "cannot be told from"
        else:
            found = "beats" if after > before else "is worse than"
        values = f"{measure} {after:.4f}, {ranker} {before:.4f}; paired t-test: {_written(p)}"
        return f"{found} {ranker} at ranking the top {self.depth} of {self.queries} dev queries again: {values}."


def rerank_quality(
    teacher: Teacher,
    ranking: Ranking,
    labels: Qrels,
    *,
    depth: int = 100,
    measures: Sequence[str] = ("nDCG@10",),
    relevant_from: int = 1,
) -> RerankQuality:
    """Re-rank the top ``depth`` of every labelled query by the teacher's scores and measure both.

    Passages that the teacher does not score come behind those that it does, in their old order.
    """
    before: dict[str, dict[str, float]] = {}
    after: dict[str, dict[str, float]] = {}
    for query_ids, rows, scores in ranking.blocks():
        places = [place for place, query_id in enumerate(query_ids) if query_id in labels]
        if not places:
            continue
        chosen = [query_ids[place] for place in places]
        top = np.asarray(rows[places, :depth], dtype=np.int64)
        given = teacher.score(chosen, top)
        for query_id, line, old, new in zip(chosen, top, scores[places, :depth], given, strict=True):
            kept = line >= 0
            names = [ranking.passage_ids[int(row)] for row in line[kept]]
            before[query_id] = dict(zip(names, old[kept].tolist(), strict=True))
            after[query_id] = dict(zip(names, _complete(new[kept]).tolist(), strict=True))
    if not before:
        raise DataError(f"none of the {len(ranking)} queries of {ranking.folder} has labels; is it of another split?")
    judged = {query_id: labels[query_id] for query_id in before}
    ranked, reranked = (measure_run(judged, run, measures, relevant_from=relevant_from) for run in (before, after))
    differences = {measure: query_differences(reranked[measure], ranked[measure]) for measure in ranked}
    deepest = max(map(len, before.values()))
    return RerankQuality(len(before), deepest, mean_values(ranked), mean_values(reranked), differences)


def _written(p: float | None) -> str:
    written = p_text(p, "not defined")
    return f"p = {written}" if written[0].isdigit() else written.replace("<", "p < ")


def _complete(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Scores with every gap below the lowest score, falling."""
    missing = ~np.isfinite(scores)
    lowest = scores[~missing].min(initial=0.0).astype(np.float64)
    return np.where(missing, lowest - 1.0 - np.arange(len(scores)), scores)

"""Evaluation on dev: a fixed set of passages ranked again, by a model while it is trained or by a teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.data import Dataset
from colabel.data.splits import DEV, stable_fraction
from colabel.data.string_table import StringTable
from colabel.encode import Encoder
from colabel.errors import DataError
from colabel.maxsim import score_candidates
from colabel.measures import FloatArray, PerQuery, mean_values, measure_run, p_text, query_differences, t_test
from colabel.ranking import Ranking
from colabel.teachers.protocol import Teacher
from colabel.train.groups import check_collection
from colabel.types import Qrels

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

ALPHA = 0.05
"""Level of the paired test below which one of the two is called better."""
EVALUATE_DEPTH = 100
"""Passages of each dev query that an evaluation ranks again."""


@dataclass(frozen=True)
class DevSet:
    """Dev queries with the passages to rank for each.

    Attributes:
        query_ids: the queries, by place.
        rows: int32 [queries, depth], passage rows, −1 where there are fewer.
        labels: the queries' labels.
        fingerprint: names everything beside the weights that an evaluation depends on.
    """

    query_ids: Sequence[str]
    rows: npt.NDArray[np.int32]
    labels: Qrels
    dataset: Dataset
    fingerprint: str

    def evaluate(self, model: MultiVectorEncoder, measures: Sequence[str]) -> PerQuery:
        """Each measure of every query, ranked by φ of the model.

        Passages are encoded once each and kept in float16, as in an index.
        """
        encoder = Encoder(model)
        wanted = np.unique(self.rows[self.rows >= 0])
        passages = encoder.encode_passages([self.dataset.passages[row].full_text for row in wanted.tolist()])
        queries = encoder.encode_queries([self.dataset.queries[query_id] for query_id in self.query_ids])
        places = np.where(self.rows >= 0, np.searchsorted(wanted, self.rows), -1).astype(np.int64)
        scores = score_candidates(queries.vectors, passages.vectors, passages.offsets, places).numpy()
        run = _run(self.query_ids, self.dataset.passages.ids, self.rows, scores)
        return measure_run(self.labels, run, measures, relevant_from=self.dataset.relevant_from)


def dev_set(dataset: Dataset, ranking: Ranking, *, queries: int, depth: int, split: str = DEV) -> DevSet:
    """The top ``depth`` of a ranking of dev queries, for at most ``queries`` of them.

    Which queries are taken depends on their ids alone, so that all systems are compared on the same.
    """
    check_collection(dataset, ranking.passage_ids, str(ranking.folder))
    positives = dataset.positives(split)
    chosen = sorted(sorted(positives, key=lambda query_id: (stable_fraction(query_id, "evaluate"), query_id))[:queries])
    if not chosen:
        raise DataError(f"no query of the split '{split}' of {dataset.name} has a relevant passage to evaluate with")
    rows = np.full((len(chosen), depth), -1, dtype=np.int32)
    for place, query_id in enumerate(chosen):
        found, _ = ranking.query(query_id)
        rows[place, : min(depth, len(found))] = found[:depth]
    labels: Mapping[str, Mapping[str, int]] = {query_id: dataset.labels(split)[query_id] for query_id in chosen}
    names = {
        "ranking": ranking.manifest.fingerprint,
        "labels": dataset.labels_fingerprint(split),
        "passages": dataset.passages.fingerprint,
        "queries": queries,
        "depth": depth,
    }
    return DevSet(chosen, rows, labels, dataset, fingerprint(names))


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
            found = "does not differ significantly from"
        else:
            found = "beats" if after > before else "is worse than"
        written = p_text(p, "not defined")
        written = f"p = {written}" if written[0].isdigit() else written.replace("<", "p < ")
        values = f"{measure} {after:.4f}, {ranker} {before:.4f}; paired t-test: {written}"
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
        before |= _run(chosen, ranking.passage_ids, top, scores[places, :depth])
        after |= _run(chosen, ranking.passage_ids, top, _complete(teacher.scores(chosen, top)))
    if not before:
        raise DataError(f"none of the {len(ranking)} queries of {ranking.folder} has labels; is it of another split?")
    judged = {query_id: labels[query_id] for query_id in before}
    ranked, reranked = (measure_run(judged, run, measures, relevant_from=relevant_from) for run in (before, after))
    differences = {measure: query_differences(reranked[measure], ranked[measure]) for measure in ranked}
    deepest = max(map(len, before.values()))
    return RerankQuality(len(before), deepest, mean_values(ranked), mean_values(reranked), differences)


def _complete(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Scores [queries, n] with every gap below the lowest score of its line, falling."""
    missing = ~np.isfinite(scores)
    lowest = np.where(missing, 0.0, scores.astype(np.float64)).min(axis=1, keepdims=True, initial=0.0)
    return np.where(missing, lowest - 1.0 - np.arange(scores.shape[1]), scores)


def _run(
    query_ids: Sequence[str], ids: StringTable, rows: npt.NDArray[np.integer], scores: npt.NDArray[np.floating]
) -> dict[str, dict[str, float]]:
    """Query id → passage id → score, for measuring."""
    return {
        query_id: {ids[row]: score for row, score in zip(line, values, strict=True) if row >= 0}
        for query_id, line, values in zip(query_ids, rows.tolist(), scores.tolist(), strict=True)
    }

"""Dev evaluation while training: rank a fixed pool of passages again with the weights of the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.data import Dataset
from colabel.data.splits import DEV, stable_fraction
from colabel.encode import Encoder
from colabel.errors import DataError
from colabel.maxsim import score_candidates
from colabel.measures import mean_values, measure_run
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.train.pool import check_collection
from colabel.types import Qrels

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder


@dataclass(frozen=True)
class DevPool:
    """Dev queries with the passages to rank for each.

    Attributes:
        query_ids: the queries, by place.
        rows: int32 [queries, depth], passage rows, −1 where there are fewer.
        labels: the queries' labels.
        fingerprint: names all that an evaluation depends on beside the weights.
    """

    query_ids: Sequence[str]
    rows: npt.NDArray[np.int32]
    labels: Qrels
    dataset: Dataset
    fingerprint: str

    def evaluate(
        self, model: MultiVectorEncoder, measures: Sequence[str], batch_tokens: int = 4096, progress: Progress = SILENT
    ) -> dict[str, float]:
        """Mean of each measure over the queries, ranked by φ of the model.

        Passages are encoded once each and kept in float16, as in an index.
        """
        encoder = Encoder(model, batch_tokens)
        wanted = np.unique(self.rows[self.rows >= 0])
        passages = encoder.encode_passages([self.dataset.passages[row].full_text for row in wanted.tolist()], progress)
        queries = encoder.encode_queries([self.dataset.queries[query_id] for query_id in self.query_ids])
        places = np.where(self.rows >= 0, np.searchsorted(wanted, self.rows), -1).astype(np.int64)
        scores = score_candidates(queries.vectors, passages.vectors, passages.offsets, places).numpy()
        run = {
            query_id: {
                self.dataset.passages.ids[row]: float(score)
                for row, score in zip(line.tolist(), values.tolist(), strict=True)
                if row >= 0
            }
            for query_id, line, values in zip(self.query_ids, self.rows, scores, strict=True)
        }
        return mean_values(measure_run(self.labels, run, measures, relevant_from=self.dataset.relevant_from))


def dev_pool(dataset: Dataset, ranking: Ranking, *, queries: int, depth: int, split: str = DEV) -> DevPool:
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
    return DevPool(chosen, rows, labels, dataset, fingerprint(names))

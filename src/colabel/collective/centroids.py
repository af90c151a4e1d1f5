"""Feedback passages → collective centroids: cluster their tokens, name each cluster, weight it by σ (Eq. 6).

No pass of the model is needed: vectors come from the index. The artefact is written block by block:

block-00000.vectors.npy    float32 [queries, f_e, dimension], zeros where a query has fewer
block-00000.sigma.npy      float32 [queries, f_e], σ, the IDF of each centroid's token
block-00000.tokens.npy     int32 [queries, f_e], token ids, −1 where a query has fewer
block-00000.feedback.npy   int32 [queries, f_p], rows of the feedback passages, −1 where there are fewer
queries.*.npy              query ids
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.collective.kmeans import cluster, plus_plus_start, spread_start
from colabel.data.string_table import StringTable
from colabel.errors import UsageError
from colabel.index import Index, TokenStore
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.ranking.rankings import BLOCK, block_name
from colabel.settings import CollectiveSettings
from colabel.types import IntArray
from colabel.workers import Workers

STAGE = "centroids"
NEIGHBOURS = 10
"""Stored tokens among which the most frequent names a centroid."""
_BATCH = 16  # queries clustered together by a thread: 16 × 540 points of 128 dimensions are 4 MB
_GROUP = 256  # queries whose vectors are read at once: whole batches, 20 to 40 MB


@dataclass(frozen=True)
class Centroids:
    """Collective centroids of some queries, by falling σ.

    vectors: float32 [queries, centroids, dimension]; sigma: float32 [queries, centroids], the IDF of each one's
    token, 0 where a query has fewer; token_ids: int32 [queries, centroids], −1 where it has fewer.
    """

    vectors: Tensor
    sigma: Tensor
    token_ids: npt.NDArray[np.int32]

    def first(self, count: int) -> Centroids:
        """The ``count`` of highest σ (f_e)."""
        return Centroids(self.vectors[:, :count], self.sigma[:, :count], self.token_ids[:, :count])


def choose_feedback(
    ranked: npt.NDArray[np.integer], settings: CollectiveSettings, labelled: Sequence[Sequence[int]] | None = None
) -> IntArray:
    """Feedback passages of queries from their ranking and, for training queries, their labelled positives.

    Args:
        ranked: [queries, depth], rows of passages, best first, −1 where there are fewer.
        labelled: rows of each query's positives. None: the top f_p is used whatever the settings say. That is the
            rule for every query outside the training split, since its labels are what is to be predicted.

    Returns:
        Rows int64 [queries, f_p], −1 where there are fewer. A query without positives gets its top f_p. Positives come
        in the order of the ranking, unranked ones last.

    >>> settings = CollectiveSettings(feedback="labelled-first", feedback_passages=3)
    >>> choose_feedback(np.array([[5, 6, 7]]), settings, [[7, 9]]).tolist()
    [[7, 9, 5]]
    """
    feedback = np.full((len(ranked), settings.feedback_passages), -1, dtype=np.int64)
    width = min(settings.feedback_passages, ranked.shape[1])
    feedback[:, :width] = ranked[:, :width]
    if labelled is None or settings.feedback == "top":
        return feedback
    if len(labelled) != len(ranked):
        raise UsageError(f"{len(labelled)} lists of positives do not fit {len(ranked)} queries")
    for query, positives in enumerate(labelled):
        if not positives:
            continue
        places = {int(row): place for place, row in enumerate(ranked[query])}
        chosen = sorted(map(int, positives), key=lambda row: (places.get(row, len(places)), row))
        if settings.feedback == "labelled-first":
            chosen += [int(row) for row in feedback[query] if row >= 0 and row not in chosen]
        chosen = chosen[: settings.feedback_passages]
        feedback[query] = -1
        feedback[query, : len(chosen)] = chosen
    return feedback


def extract(
    index: Index, feedback: IntArray, settings: CollectiveSettings, *, seed: int = 0, threads: int | None = None
) -> Centroids:
    """All clusters of each query with their tokens and σ, by falling σ: ``.first(f_e)`` are the collective centroids.

    Equal σ are ordered by the cluster's number. A centroid without a token (all of its neighbours are special) comes
    last with σ = 0.

    Args:
        feedback: rows of each query's feedback passages [queries, f_p], −1 where there are fewer.
        seed: of the k-means++ start.
    """
    means, counts = cluster_feedback(index.store, feedback, settings, seed, threads)
    present = torch.arange(means.shape[1]) < counts[:, None]
    token_ids = np.full(present.shape, -1, dtype=np.int32)
    if bool(present.any()):
        neighbours, _ = index.nearest_tokens(means[present], 1 if settings.token == "nearest" else NEIGHBOURS)
        token_ids[present.numpy()] = most_frequent(neighbours)
    sigma = np.maximum(index.idf(token_ids), 0.0).astype(np.float32)
    by_sigma = np.argsort(-np.where(token_ids >= 0, sigma, -1.0), axis=1, kind="stable")
    vectors = means.gather(1, torch.from_numpy(by_sigma)[..., None].expand(-1, -1, means.shape[2]))
    sigma = np.take_along_axis(sigma, by_sigma, 1)
    return Centroids(vectors, torch.from_numpy(sigma), np.take_along_axis(token_ids, by_sigma, 1))


def most_frequent(neighbours: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The most frequent token id of each row [n, k] of neighbours, nearest first; ties go to the nearest; −1 is none.

    >>> most_frequent(np.array([[7, 5, 5], [7, 5, 9], [-1, -1, -1]], dtype=np.int32)).tolist()
    [5, 7, -1]
    """
    same = (neighbours[:, :, None] == neighbours[:, None, :]).sum(axis=2)
    best = np.where(neighbours >= 0, same, 0).argmax(axis=1)
    return np.asarray(neighbours[np.arange(len(neighbours)), best])


def cluster_feedback(
    store: TokenStore, feedback: IntArray, settings: CollectiveSettings, seed: int = 0, threads: int | None = None
) -> tuple[Tensor, Tensor]:
    """Centroids float32 [queries, clusters, dimension] of each query's feedback and their number, int64 [queries]."""
    centroids = torch.zeros(len(feedback), settings.clusters, store.dimension)
    counts = torch.zeros(len(feedback), dtype=torch.int64)
    sizes = store.lengths(feedback)
    totals = sizes.sum(
        axis=1
    )  # queries of similar size together need little padding, those without tokens are left out
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]

    def work(batches: Iterator[tuple[IntArray, Sequence[Tensor]]]) -> None:
        for batch, vectors in batches:
            points = torch.nn.utils.rnn.pad_sequence(list(vectors), batch_first=True)
            starts, used = _starts(points, sizes[batch], settings, seed)
            centroids[batch] = cluster(points, torch.tensor([len(one) for one in vectors]), starts, used)
            counts[batch] = used

    with Workers(threads) as workers:
        for first in range(0, len(order), _GROUP):
            group = order[first : first + _GROUP]
            rows = feedback[group]
            stored = torch.from_numpy(store.vectors(rows[rows >= 0])[0])
            vectors = torch.split(stored, totals[group].tolist())
            starts = range(0, len(group), _BATCH)
            workers.share([(group[at : at + _BATCH], vectors[at : at + _BATCH]) for at in starts], work)
    return centroids, counts


def _starts(points: Tensor, sizes: IntArray, settings: CollectiveSettings, seed: int) -> tuple[Tensor, Tensor]:
    """Where each query's clusters start, [queries, clusters, dimension], and how many it has."""
    starts = torch.zeros(len(points), settings.clusters, points.shape[2])
    counts = torch.zeros(len(points), dtype=torch.int64)
    for place, lengths in enumerate(sizes.tolist()):
        if settings.start == "k-means++":
            begin = plus_plus_start(points[place, : sum(lengths)], settings.clusters, seed)
        else:
            begin = points[place, spread_start(lengths, settings.clusters)]
        starts[place, : len(begin)] = begin
        counts[place] = len(begin)
    return starts, counts


def build_centroids(
    index: Index,
    ranking: Ranking,
    settings: CollectiveSettings,
    out: Path,
    *,
    labelled: Mapping[str, IntArray] | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> None:
    """Extract the collective centroids of every ranked query; an interrupted run continues with the next block.

    Args:
        labelled: query id → rows of labelled positives, of training queries only; None: none are used.
    """
    inputs = {"index": index.fingerprint, "ranking": ranking.manifest.fingerprint}
    if labelled is not None:
        names = {query: [ranking.passage_ids[row] for row in rows.tolist()] for query, rows in labelled.items()}
        inputs["labelled"] = labels_used(names)
    kept = {key: value for key, value in settings.as_dict().items() if key not in ("beta", "expansion_scale")}
    kept["labelled_weight"] = 3.0  # a former setting: with it, centroids of earlier versions stay up to date

    def write(space: Workspace) -> Mapping[str, Any]:
        task = progress.start("collecting centroids", len(ranking), "queries")
        blocks = few = none = 0
        for number, (query_ids, ranked, _) in enumerate(ranking.blocks()):
            if not space.done(f"{block_name(number)}.vectors.npy"):
                positives = None
                if labelled is not None:  # one that is empty is left out
                    found_rows = (labelled.get(query_id, np.zeros(0, np.int64)) for query_id in query_ids)
                    positives = [rows[index.store.lengths(rows) > 0].tolist() for rows in found_rows]
                feedback = choose_feedback(np.asarray(ranked), settings, positives)
                found = extract(index, feedback, settings, seed=seed).first(settings.centroids)
                arrays = {
                    "feedback": feedback.astype(np.int32),
                    "sigma": found.sigma.numpy(),
                    "tokens": found.token_ids,
                    "vectors": found.vectors.numpy(),  # last: its presence says that the block is whole
                }
                for part, values in arrays.items():
                    space.save(f"{block_name(number)}.{part}.npy", values)
            survivors = (read_part(space.folder, number, "tokens") >= 0).sum(axis=1)
            few += int((survivors < settings.centroids).sum())
            none += int((survivors == 0).sum())
            blocks += 1
            task.advance(len(query_ids))
        task.close()
        StringTable.of(ranking.query_ids).save(space, "queries")
        counts = {"queries": len(ranking), "blocks": blocks, "block": BLOCK}
        return {**counts, "with_fewer_centroids": few, "without_centroids": none}

    build(out, Spec(STAGE, kept, inputs, seed=seed), write)


def labels_used(labelled: Mapping[str, Sequence[str]]) -> str:
    """Names the labelled positives that may be feedback, so that labels can be checked against them later."""
    return fingerprint({query: sorted(passages) for query, passages in labelled.items()})


def read_part(folder: Path, number: int, part: str) -> npt.NDArray[Any]:
    """One of the arrays of a block, mapped from disk."""
    values = np.load(folder / f"{block_name(number)}.{part}.npy", mmap_mode="r", allow_pickle=False)
    return values.view(np.ndarray) if values.size else np.asarray(values)

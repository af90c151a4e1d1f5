"""The artefact of collective centroids, block by block.

block-00000.vectors.npy    float32 [queries, f_e, dimension], zeros where a query has fewer
block-00000.sigma.npy      float32 [queries, f_e], σ, the IDF of each centroid's token
block-00000.tokens.npy     int32 [queries, f_e], token ids, −1 where a query has fewer
block-00000.feedback.npy   int32 [queries, f_p], rows of the feedback passages, −1 where there are fewer
queries.*.npy              query ids
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Plan, Workspace, build, fingerprint, read_manifest
from colabel.collective.expansion import Centroids
from colabel.collective.extraction import extract
from colabel.collective.feedback import choose_feedback
from colabel.data.strings import StringTable
from colabel.errors import ArtefactError, DataError
from colabel.index import Index
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.ranking.rankings import BLOCK, block_name
from colabel.settings import CollectiveSettings

STAGE = "centroids"


def build_centroids(
    index: Index,
    ranking: Ranking,
    settings: CollectiveSettings,
    out: Path,
    *,
    labelled: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> CentroidStore:
    """Extract the collective centroids of every ranked query; an interrupted run continues with the next block.

    Args:
        labelled: query id → passage ids of labelled positives, of training queries only; None: none are used.
    """
    inputs = {"index": index.fingerprint, "ranking": ranking.manifest.fingerprint}
    if labelled is not None:
        inputs["labelled"] = labels_used(labelled)
    kept = {key: value for key, value in settings.as_dict().items() if key not in ("beta", "expansion_scale")}

    def write(space: Workspace) -> Mapping[str, Any]:
        return _write(space, index, ranking, settings, labelled, seed, progress)

    build(out, Plan(STAGE, kept, inputs, seed=seed), write)
    return CentroidStore(out)


def labels_used(labelled: Mapping[str, Sequence[str]]) -> str:
    """Names the labelled positives that may be feedback, so that labels can be checked against them later."""
    return fingerprint({query: sorted(passages) for query, passages in labelled.items()})


class CentroidStore:
    """Reads finished centroids; nothing is loaded until it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, STAGE)
        if self.manifest.counts.get("block") != BLOCK:
            raise ArtefactError(f"{folder} was written by another version of colabel; collect again")
        self.query_ids = StringTable.open(folder, "queries")

    def centroids(self, query_ids: Sequence[str]) -> Centroids:
        """Centroids of some queries in their order."""
        vectors, sigma, tokens = (self._gather(query_ids, part) for part in ("vectors", "sigma", "tokens"))
        return Centroids(torch.from_numpy(vectors), torch.from_numpy(sigma), tokens)

    def feedback(self, query_ids: Sequence[str]) -> npt.NDArray[np.int32]:
        """Rows of the feedback passages of some queries."""
        return self._gather(query_ids, "feedback")

    def _gather(self, query_ids: Sequence[str], part: str) -> npt.NDArray[Any]:
        rows = self.query_ids.rows(query_ids)
        if (rows < 0).any():
            unknown = query_ids[int(np.flatnonzero(rows < 0)[0])]
            raise DataError(f"{self.folder} has no query '{unknown}'; collect again with the queries that are needed")
        first = self._block(0, part)
        values = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
        for number in np.unique(rows // BLOCK):
            here = rows // BLOCK == number
            values[here] = self._block(int(number), part)[rows[here] % BLOCK]
        return values

    def _block(self, number: int, part: str) -> npt.NDArray[Any]:
        """Mapped when it is needed: half a million queries have a thousand files, and each map keeps one open."""
        return _map(self.folder / f"{block_name(number)}.{part}.npy")


def _write(
    space: Workspace,
    index: Index,
    ranking: Ranking,
    settings: CollectiveSettings,
    labelled: Mapping[str, Sequence[str]] | None,
    seed: int,
    progress: Progress,
) -> Mapping[str, Any]:
    task = progress.start("collecting centroids", len(ranking), "queries")
    blocks = few = none = 0
    for number, (query_ids, rows, _) in enumerate(ranking.blocks()):
        if not space.done(f"{block_name(number)}.vectors.npy"):
            positives = None if labelled is None else _rows(query_ids, labelled, ranking.passage_ids, index)
            feedback = choose_feedback(np.asarray(rows), settings, positives)
            found = extract(index, feedback, settings, seed=seed).first(settings.centroids)
            arrays = {
                "feedback": feedback.rows.astype(np.int32),
                "sigma": found.sigma.numpy(),
                "tokens": found.token_ids,
                "vectors": found.vectors.numpy(),  # last: its presence says that the block is whole
            }
            for part, values in arrays.items():
                with space.file(f"{block_name(number)}.{part}.npy") as path, path.open("wb") as file:
                    np.save(file, values, allow_pickle=False)
        tokens = _map(space.folder / f"{block_name(number)}.tokens.npy")
        survivors = (tokens >= 0).sum(axis=1)
        few += int((survivors < settings.centroids).sum())
        none += int((survivors == 0).sum())
        blocks += 1
        task.advance(len(query_ids))
    task.close()
    StringTable.of(ranking.query_ids).save(space, "queries")
    counts = {"queries": len(ranking), "blocks": blocks, "block": BLOCK}
    return {**counts, "with_fewer_centroids": few, "without_centroids": none}


def _rows(
    query_ids: Sequence[str], labelled: Mapping[str, Sequence[str]], passages: StringTable, index: Index
) -> list[list[int]]:
    """Rows of each query's positives; one that is empty or that the collection does not hold is left out."""
    found = (passages.rows(labelled.get(query_id, ())) for query_id in query_ids)
    return [rows[index.store.lengths(rows) > 0].tolist() for rows in found]


def _map(path: Path) -> npt.NDArray[Any]:
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    return values.view(np.ndarray) if values.size else np.asarray(values)

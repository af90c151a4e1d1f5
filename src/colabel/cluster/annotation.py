"""Cross-encoder scores from the workers of a cluster, each with the model in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.cluster.pool import Task, WorkerPool
from colabel.cluster.serving import ServedModel, serve_model
from colabel.encode.prepare import choose_device
from colabel.encode.weights import weights_fingerprint
from colabel.index.desk import Desk
from colabel.teachers.pairs import PairBatch, PairModel, load_cross_encoder


@dataclass(frozen=True)
class AnnotatorModel:
    """A cross-encoder as workers get it: a hub id, or the files of a folder."""

    name: str
    key: str
    files: ServedModel | None
    max_length: int
    device: str


class ClusterPredictor:
    """Scores batches of pairs on all workers; the batches are those that one process would make."""

    def __init__(self, pool: WorkerPool, model: str, max_length: int, device: str) -> None:
        self._pool = pool
        folder = Path(model)
        files = serve_model(pool.ray, folder) if folder.is_dir() else None
        key = fingerprint([weights_fingerprint(model), max_length, device])
        self._model = AnnotatorModel(model, key, files, max_length, device)

    def predict(self, batches: Iterable[PairBatch]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The number of each batch and its scores, in any order."""
        tasks = (Task(score_batch, batch.pairs, f"annotating {batch.name}") for batch in batches)
        for number, _, scores in self._pool.map(tasks, (self._model,), window=4 * len(self._pool)):
            yield number, np.array(scores)


def score_batch(desk: Desk, pairs: list[tuple[str, str]], model: AnnotatorModel) -> npt.NDArray[np.float32]:
    """A worker's part of :meth:`ClusterPredictor.predict`."""
    return desk.keep("cross-encoder", model.key, lambda: _load(desk, model)).predict(pairs)


def _load(desk: Desk, model: AnnotatorModel) -> PairModel:
    place = model.name
    if model.files is not None:
        folder = desk.scratch / "models" / model.key
        desk.unpack(model.files, folder)
        place = str(folder)
    return PairModel(load_cross_encoder(place, choose_device(model.device)), model.max_length)

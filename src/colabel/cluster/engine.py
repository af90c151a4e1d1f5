"""The stages that a cluster takes over; all else of a run stays with the driver."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from colabel.cluster.annotation import ClusterPredictor
from colabel.cluster.pool import WorkerPool
from colabel.cluster.serving import serve_model, serve_texts
from colabel.cluster.shards import ClusterShards
from colabel.data import Dataset, PassageTable
from colabel.index import Index
from colabel.index.index import read_settings
from colabel.index.sharded import ShardedIndex, build_sharded, plan_shards, read_source
from colabel.index.shards import ShardSource
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, DataSettings, EncoderSettings, IndexSettings
from colabel.teachers.pairs import PairPredictor


class Cluster:
    """The workers of a cluster, for as many indexes and teachers as a run needs."""

    def __init__(self, settings: ComputeSettings, pool: WorkerPool | None = None) -> None:
        self.settings = settings
        self.pool = pool or WorkerPool(settings)

    def build_index(
        self,
        dataset: Dataset,
        out: Path,
        *,
        data: DataSettings | None = None,
        encoder: EncoderSettings | None = None,
        index: IndexSettings | None = None,
        progress: Progress = SILENT,
    ) -> Index:
        """As :func:`colabel.build_index`, in shards that the workers make; finished ones are kept."""
        encoder, index = encoder or EncoderSettings(), index or IndexSettings()
        source = plan_shards(dataset, out, encoder, index, self.settings)
        shards = ClusterShards(self.pool, self._serve(source, dataset.passages, out / "encoder"))
        return build_sharded(dataset, out, shards, data=data, index=index, progress=progress)

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open an index, one in shards with the workers; with its ``passages`` a lost shard can be made again."""
        settings = read_settings(folder)
        if settings["shards"] is None:
            return Index.open(folder)
        source = read_source(folder, settings)
        if passages is not None and passages.fingerprint == source.plan.collection:
            source = self._serve(source, passages, folder / "encoder")
        return ShardedIndex(folder, ClusterShards(self.pool, source), passages=passages)

    def predictor(self, model: str, max_length: int, device: str) -> PairPredictor:
        """Scores pairs with a cross-encoder."""
        return ClusterPredictor(self.pool, model, max_length, device)

    def close(self) -> None:
        """End the workers; what they wrote stays."""
        self.pool.close()

    def _serve(self, source: ShardSource, passages: PassageTable, encoder: Path) -> ShardSource:
        """The same source for processes that see neither the collection nor the index's folder."""
        model = None if source.shared else serve_model(self.pool.ray, encoder)
        return dataclasses.replace(source, texts=serve_texts(self.pool.ray, passages), model=model)

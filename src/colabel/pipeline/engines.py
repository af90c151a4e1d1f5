"""Who does the heavy stages: this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from colabel.data import Dataset, PassageTable
from colabel.index import Index, build_index
from colabel.progress import SILENT, Progress
from colabel.settings import ComputeSettings, DataSettings, EncoderSettings, IndexSettings
from colabel.teachers.pairs import PairPredictor


class Engine(Protocol):
    """Builds and opens indexes and scores pairs; rankings, knowledge and labels follow from the index."""

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
        """As :func:`colabel.build_index`."""

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open a finished index; ``passages`` is its collection."""

    @property
    def predictor(self) -> Callable[[str, int, str], PairPredictor] | None:
        """Makes a scorer of pairs from a cross-encoder, its length and its device; None: the teacher's own."""

    def close(self) -> None:
        """Let go of whatever it holds."""


class LocalEngine:
    """This process."""

    predictor = None
    build_index = staticmethod(build_index)

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open a finished index."""
        return Index.open(folder)

    def close(self) -> None:
        """Nothing is held."""


def choose_engine(settings: ComputeSettings) -> Engine:
    """The engine that the settings name."""
    if settings.engine == "local":
        return LocalEngine()
    from colabel.cluster import Cluster

    return Cluster(settings)

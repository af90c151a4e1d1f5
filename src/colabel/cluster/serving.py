"""What workers read from the driver's machine, so that nothing but Ray need connect the nodes: texts and models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colabel.cluster.session import load_ray
from colabel.data import PassageTable
from colabel.errors import DataError
from colabel.types import Passage

_AT_ONCE = 4096  # passages of one answer: a few megabytes


class TextServer:
    """An actor on the driver's node that reads passages for workers."""

    def __init__(self, passages: PassageTable) -> None:
        self._passages = passages

    def texts(self, start: int, stop: int) -> list[Passage] | str:
        """Passages ``start`` to ``stop`` − 1, or what is wrong with them."""
        try:
            return list(self._passages.range(start, stop))
        except DataError as error:
            return str(error)


@dataclass(frozen=True)
class ServedTexts:
    """A collection as workers see it."""

    server: Any

    def range(self, start: int, stop: int) -> Iterator[Passage]:
        """Passages ``start`` to ``stop`` − 1, some thousands at a time."""
        ray = load_ray()
        for first in range(start, stop, _AT_ONCE):
            answer: list[Passage] | str = ray.get(self.server.texts.remote(first, min(first + _AT_ONCE, stop)))
            if isinstance(answer, str):
                raise DataError(answer)
            yield from answer


@dataclass(frozen=True)
class ServedModel:
    """A checkpoint as workers see it: an object that holds its files."""

    files: Any

    def unpack(self, folder: Path) -> None:
        """Write its files into ``folder``."""
        for name, content in load_ray().get(self.files).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def serve_texts(ray: Any, passages: PassageTable) -> ServedTexts:
    """Start reading passages for workers; ends with the last reference to it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    return ServedTexts(ray.remote(TextServer).options(**options).remote(passages.without_ids()))


def serve_model(ray: Any, folder: Path) -> ServedModel:
    """Put a checkpoint's files where workers can get them."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return ServedModel(ray.put({name: path.read_bytes() for name, path in files.items()}))

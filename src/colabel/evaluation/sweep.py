"""How good the teacher is for other values of (f_p, f_c, f_e, β): the paper's appendix table, on judged queries.

The teacher's ranking of a query is ColBERT-PRF's: feedback from its own top f_p, never from labels. Queries are encoded
and first ranked once, clusters are found once for each (f_p, f_c) and serve every f_e and β.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.collective import Centroids, choose_feedback, expand, extract
from colabel.data import Dataset
from colabel.data.splits import DEV
from colabel.encode import encode_queries_checked
from colabel.errors import DataError, SettingsError
from colabel.evaluation.significance import Plain
from colabel.index import Index
from colabel.index.exact import rescore
from colabel.measures import PerQuery, mean_values, measure_run
from colabel.progress import SILENT, Progress
from colabel.ranking.rankings import BLOCK, as_run
from colabel.settings import CollectiveSettings
from colabel.settings.tables import DEFAULT_MEASURES

log = logging.getLogger(__name__)

STAGE = "sweep"
Block = tuple[list[str], torch.Tensor, npt.NDArray[np.int64]]
"""Some queries: ids, vectors and the first ranking int64 [queries, depth]."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values to try. The defaults are the paper's, and smaller β, which the normalised scale wants."""

    feedback_passages: tuple[int, ...] = (1, 3, 5)
    clusters: tuple[int, ...] = (12, 24)
    centroids: tuple[int, ...] = (5, 10)
    beta: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)

    def points(self, base: CollectiveSettings, *, full: bool) -> list[CollectiveSettings]:
        """All combinations, or those that differ from ``base`` in one value at most.

        Those with more centroids than clusters are left out.
        """
        tried = dataclasses.asdict(self)
        for name, values in tried.items():
            if not values:
                raise SettingsError(f"the sweep has no value for {name}; give at least one")
        if full:
            changes = [dict(zip(tried, values, strict=True)) for values in itertools.product(*tried.values())]
        else:
            changes = [{name: value} for name, values in tried.items() for value in values]
        tables = [base.as_dict() | change for change in changes]
        possible = [CollectiveSettings(**one) for one in tables if one["centroids"] <= one["clusters"]]
        if len(possible) < len(tables):
            log.info("left out: %d settings of more centroids than clusters", len(tables) - len(possible))
        return sorted({base, *possible}, key=lambda point: (*_shape(point), point.beta))


def tuned_beta(points: Iterable[SweepPoint], base: CollectiveSettings, measure: str) -> float:
    """The β above 0 that is best by a measure, with f_p, f_c and f_e of ``base``; the smaller of equals."""
    found = {point.beta: point.measures[measure] for point in points if point.beta and _shape(point) == _shape(base)}
    return max(sorted(found), key=lambda beta: found[beta])


@dataclasses.dataclass(frozen=True)
class SweepPoint(Plain):
    """One setting and its measures."""

    feedback_passages: int
    clusters: int
    centroids: int
    beta: float
    measures: Mapping[str, float]


def sweep(
    dataset: Dataset,
    index: Index,
    out: Path | str,
    *,
    settings: CollectiveSettings | None = None,
    grid: Grid | None = None,
    full: bool = False,
    rerank: bool = False,
    split: str = DEV,
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 1000,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[SweepPoint]:
    """Measure the teacher at every point of a grid; an interrupted sweep continues.

    Args:
        settings: the point from which one value at a time differs.
        full: every combination instead.
        rerank: rescore the first ranking's candidates instead of searching again.
    """
    out = Path(out)
    base = (settings or CollectiveSettings()).with_feedback("top")
    index.check_collection(dataset.passages)
    if not dataset.labels(split):
        raise DataError(f"the split '{split}' of {dataset.name} has no labels to measure with")
    points = (grid or Grid()).points(base, full=full)
    kept = {
        "points": [point.as_dict() for point in points],
        "rerank": rerank,
        "split": split,
        "depth": depth,
        "measures": list(measures),
    }
    inputs = {"index": index.fingerprint, "labels": dataset.labels_fingerprint(split)}
    work = _Sweep(dataset, index, split, tuple(measures), min(depth, len(index.store)), rerank, seed)
    build(out, Spec(STAGE, kept, inputs, seed=seed), lambda space: work.write(space, points, progress))
    return [SweepPoint(**point) for point in json.loads((out / "sweep.json").read_text(encoding="utf-8"))]


@dataclasses.dataclass(frozen=True)
class _Sweep:
    dataset: Dataset
    index: Index
    split: str
    measures: tuple[str, ...]
    depth: int
    rerank: bool
    seed: int

    def write(self, space: Workspace, points: Sequence[CollectiveSettings], progress: Progress) -> Mapping[str, Any]:
        names = {point: f"point-{fingerprint(point.as_dict())[:16]}.json" for point in points}
        missing = [point for point in points if not space.done(names[point])]
        task = progress.start("sweeping", len(points), "settings")
        task.advance(len(points) - len(missing))
        blocks = list(self._blocks(max(point.feedback_passages for point in missing))) if missing else []
        for _, group in itertools.groupby(missing, key=lambda point: (point.feedback_passages, point.clusters)):
            members = list(group)
            found: dict[CollectiveSettings, PerQuery] = {point: {} for point in members}
            for block in blocks:
                centroids = extract(self.index, choose_feedback(block[2], members[0]), members[0], seed=self.seed)
                for point in members:
                    for measure, values in self._measure(block, centroids, point).items():
                        found[point].setdefault(measure, {}).update(values)
            for point in members:
                with space.file(names[point]) as path:
                    path.write_text(json.dumps(mean_values(found[point])), encoding="utf-8")
                task.advance()
        task.close()
        found_points = [
            SweepPoint(*_shape(point), point.beta, json.loads((space.folder / names[point]).read_text()))
            for point in points
        ]
        with space.file("sweep.json") as path:
            path.write_text(json.dumps([point.as_dict() for point in found_points], indent=2), encoding="utf-8")
        return {"points": len(points), "queries": len(self.dataset.labels(self.split))}

    def _blocks(self, wanted: int) -> Iterator[Block]:
        """Queries, encoded and ranked once, in blocks that bound the memory of centroids and rankings."""
        queries = list(self.dataset.split_queries(self.split).items())
        for start in range(0, len(queries), BLOCK):
            part = queries[start : start + BLOCK]
            encoded = encode_queries_checked(self.index.encoder, [text for _, text in part], strict=False).vectors
            first, _ = self.index.search(encoded, max(self.depth, wanted) if self.rerank else wanted)
            yield [query_id for query_id, _ in part], encoded, first

    def _measure(self, block: Block, centroids: Centroids, point: CollectiveSettings) -> PerQuery:
        query_ids, queries, first = block
        expanded = expand(queries, centroids.first(point.centroids), point.beta, point.expansion_scale)
        if self.rerank:
            rows, scores = rescore(expanded, first[:, : self.depth], self.index.store, self.depth)
        else:
            rows, scores = self.index.search(expanded, self.depth)
        run = as_run(query_ids, rows, scores, self.index.store.ids)
        labels = {query_id: self.dataset.labels(self.split)[query_id] for query_id in query_ids}
        return measure_run(labels, run, self.measures, relevant_from=self.dataset.relevant_from)


def _shape(point: CollectiveSettings | SweepPoint) -> tuple[int, int, int]:
    """f_p, f_c and f_e."""
    return (point.feedback_passages, point.clusters, point.centroids)

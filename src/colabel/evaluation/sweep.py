"""How good the teacher is for other values of (f_p, f_c, f_e, β): the paper's appendix table, on judged queries.

The teacher's ranking of a query is ColBERT-PRF's: feedback from its own top f_p, never from labels.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.collective import PrfRanker
from colabel.data import Dataset
from colabel.data.splits import DEV
from colabel.errors import DataError, SettingsError
from colabel.evaluation.significance import Plain
from colabel.index import Index
from colabel.measures import PerQuery, mean_values, measure_run
from colabel.progress import SILENT, Progress, track
from colabel.ranking.rankings import BLOCK
from colabel.settings import CollectiveSettings
from colabel.settings.tables import DEFAULT_MEASURES

log = logging.getLogger(__name__)

STAGE = "sweep"


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
    queries = list(dataset.split_queries(split).items())

    def measured(point: CollectiveSettings) -> PerQuery:
        ranker, found = PrfRanker(index, point, rerank=rerank, seed=seed), dict[str, dict[str, float]]()
        for start in range(0, len(queries), BLOCK):  # which bounds the memory of rankings
            part = dict(queries[start : start + BLOCK])
            rows, scores = ranker.rank(list(part.values()), min(depth, len(index.store)))
            run = {
                query: {index.store.ids[row]: score for row, score in zip(*line, strict=True) if row >= 0}
                for query, line in zip(part, zip(rows.tolist(), scores.tolist(), strict=True), strict=True)
            }
            labels = {query: dataset.labels(split)[query] for query in part}
            for name, values in measure_run(labels, run, measures, relevant_from=dataset.relevant_from).items():
                found.setdefault(name, {}).update(values)
        return found

    def write(space: Workspace) -> Mapping[str, Any]:
        table = []
        for point in track(points, progress, "sweeping", len(points), "settings"):
            name = f"point-{fingerprint(point.as_dict())[:16]}.json"
            if not space.done(name):
                with space.file(name) as path:
                    path.write_text(json.dumps(mean_values(measured(point))), encoding="utf-8")
            means = json.loads((space.folder / name).read_text(encoding="utf-8"))
            table.append(SweepPoint(*_shape(point), point.beta, means).as_dict())
        with space.file("sweep.json") as path:
            path.write_text(json.dumps(table, indent=2), encoding="utf-8")
        return {"points": len(points), "queries": len(queries)}

    build(out, Spec(STAGE, kept, inputs, seed=seed), write)
    return [SweepPoint(**point) for point in json.loads((out / "sweep.json").read_text(encoding="utf-8"))]


def _shape(point: CollectiveSettings | SweepPoint) -> tuple[int, int, int]:
    """f_p, f_c and f_e."""
    return (point.feedback_passages, point.clusters, point.centroids)

"""Will more labels help? The query side trained on an eighth, a quarter, half and all of the labels, and a curve.

    gain(n) = g · n^b,  0 < b ≤ 1

is what n labelled queries add to θ on dev: nothing without labels, then more and more slowly. The curve that is fitted
to all but the whole is compared with the whole, so each curve says how far off it would have been.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Builder, Spec, Workspace, write_json
from colabel.data import Dataset
from colabel.data.splits import DEV, TRAIN, with_fewer_labels
from colabel.errors import DataError, UsageError
from colabel.evaluation.significance import Plain
from colabel.pipeline.budget import Budget
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import check_labels, check_run, check_same_settings, hold_folder, learned
from colabel.pipeline.run import theta_index
from colabel.pipeline.stages import Stages, settle
from colabel.progress import SILENT, Progress
from colabel.settings import Recipe
from colabel.systems import DEFAULT_LESSON, System, for_student, student_of

log = logging.getLogger(__name__)

FOLDER = "curve"
SHARES = (0.125, 0.25, 0.5, 1.0)
DRAWS = 3
"""Orders in which queries are added; each share of an order holds the smaller ones."""
MORE = 200
"""Labelled queries that somebody might add; no more than there are."""
SEVERAL = 2.0
"""Labels per query from which on fewer labels of every query are tried as well."""
_SIMULATED = 400


@dataclasses.dataclass(frozen=True)
class Point:
    """One training: the share of the labels, the order that they were drawn in, and what came of it on dev.

    ``kind`` is what the share was taken of: "queries" with all their labels, or "labels" of all queries. ``gain`` is
    the difference to θ with the 95 % interval over queries.
    """

    kind: str
    share: float
    draw: int
    queries: int
    labels: int
    value: float
    gain: tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class LearningCurve(Plain):
    """What labels brought, and what more of them may bring.

    Attributes:
        measure, dev_queries, start: the measure on dev, over how many queries, and θ's value.
        scale, power: g and b.
        more: how many labelled queries might be added, and the gain that is to be expected, with the interval.
        foretold: the gain of all labels as the curve through the smaller shares says, with the interval, and as it
            was; None where the whole was not trained.
        unfinished: trainings that the minutes did not suffice for.
    """

    measure: str
    dev_queries: int
    start: float
    points: tuple[Point, ...]
    scale: float
    power: float
    more: tuple[int, float, float, float]
    foretold: tuple[float, float, float, float] | None
    unfinished: int

    def means(self, kind: str = "queries") -> dict[float, tuple[int, float, float]]:
        """Share → queries or labels, mean value and mean gain over draws."""
        found = {}
        for share in sorted({one.share for one in self.points if one.kind == kind}):
            held = [one for one in self.points if one.kind == kind and one.share == share]
            count = held[0].queries if kind == "queries" else held[0].labels
            found[share] = count, float(np.mean([one.value for one in held])), _mean_gain(held)
        return found

    def sentences(self) -> list[str]:
        """What to do with it."""
        count, gain, low, high = self.more
        said = [
            f"Another {count:,} labelled queries: about {gain:+.3f} [{low:+.3f}, {high:+.3f}] {self.measure} on dev."
        ]
        if self.foretold is not None:
            expected, below, above, was = self.foretold
            said.append(
                f"From half of the labels, the curve foretold a gain of {expected:+.3f} [{below:+.3f}, {above:+.3f}] "
                f"for all of them; it was {was:+.3f}."
            )
        fewer, half = self.means("labels").get(0.5), self.means().get(0.5)
        if fewer and half:
            said.append(
                f"Half of the labels of every query gain {fewer[2]:+.3f}, all labels of half of the queries "
                f"{half[2]:+.3f}: label {'more queries' if fewer[2] >= half[2] else 'queries more fully'} first."
            )
        if self.unfinished:
            said.append(f"{self.unfinished} trainings were left out for lack of time; the same call goes on.")
        return said


def curve(
    recipe: Recipe,
    out: Path | str,
    *,
    teacher: str = DEFAULT_LESSON,
    minutes: float | None = None,
    progress: Progress = SILENT,
) -> LearningCurve:
    """Train the query side on parts of the labels, and fit what labels bring; the index of θ is made once.

    Args:
        out: the folder of a run, finished or new; trainings are kept in its folder ``curve``, without their weights.
        minutes: begin no training that would end later, but at least one of every share.
    """
    recipe, _ = settle(recipe)
    system, out, budget = student_of(teacher, recipe), Path(out), None if minutes is None else Budget(minutes)
    if not system.query_side:
        raise UsageError(
            f"'{teacher}' trains both sides, which takes too long for a curve; choose 'views' or 'hard-query'"
        )
    recipe = for_student(recipe, system)
    check_run(system, recipe)
    check_same_settings(out, recipe)
    known = learned(out)
    with (
        hold_folder(out, "run"),
        Stages(recipe, Layout.of(out), progress=progress, builder=Builder(), verdicts=known, pseudo=True) as do,
    ):
        data = do.dataset()
        check_labels(data, recipe)
        if DEV not in data.splits or not data.positives(DEV):
            raise DataError(f"{data.name} has no labelled dev queries, on which a curve is measured")
        done, left, longest = list[tuple[Point, Mapping[str, Any]]](), 0, 0.0
        for place, (kind, share, draw) in enumerate(plan(data)):
            begun = time.monotonic()
            if budget is not None and place >= len(SHARES) and budget.left < longest:
                left += 1
                continue
            done.append(_train(do, system, data, kind, share, draw))
            longest = max(longest, time.monotonic() - begun) if place else 0.0  # the first also made the index
        found = fitted([point for point, _ in done], done[0][1], left)
        write_json(out / FOLDER / "curve.json", found.as_dict())
        return found


def plan(data: Dataset) -> list[tuple[str, float, int]]:
    """Kind, share and draw of every training, those first that say most."""
    held = data.positives(TRAIN)
    wanted = [("queries", share, draw) for draw in range(DRAWS) for share in SHARES]
    if sum(map(len, held.values())) >= SEVERAL * len(held):
        wanted[len(SHARES) : len(SHARES)] = [("labels", 0.5, 0)]
    return wanted


def _train(
    do: Stages, system: System, data: Dataset, kind: str, share: float, draw: int
) -> tuple[Point, Mapping[str, Any]]:
    """One training, or what it came to when it was made; its weights are not kept."""
    index, bm25 = theta_index(do), do.bm25(data)
    theta, known = do.train_theta(data, do.encoder(data), bm25), do.collect(data, index)
    do.bm25_ranking(data, bm25)  # of all training queries, once
    part = data if share == 1 else with_fewer_labels(data, share, f"curve {draw}", whole_queries=kind == "queries")
    settings, seed = do.recipe.query_side, do.seed + draw
    inputs = {"index": index.fingerprint, "knowledge": known.fingerprint}
    inputs |= {split: part.labels_fingerprint(split) for split in (TRAIN, DEV)}
    how = {**settings.as_dict(), "measure": do.recipe.fit.measure, "system": system.slug}

    def write(_: Workspace) -> Mapping[str, Any]:
        log.info("training on %g of the %s, draw %d of %d", share, kind, draw + 1, DRAWS)
        with tempfile.TemporaryDirectory(prefix=".curve-", dir=do.at.own) as scratch:
            other = do.with_seed(seed, Layout(do.at.out, Path(scratch)))
            teacher = do.teacher(system, part, known)
            student = other.train_query_side(system, part, bm25, theta, known, teacher, passages=False)
            return student.manifest.counts

    folder = do.at.own / FOLDER / f"{kind}-{share:g}-{draw}"
    counts = do.builder.build(folder, Spec("curve", how, inputs, seed=seed), write).counts
    held = part.positives(TRAIN)
    value = float(counts["dev"][str(counts["alpha"])])
    labels, gain = sum(map(len, held.values())), counts["gain"]
    return Point(kind, share, draw, len(held), labels, value, (gain[0], gain[1], gain[2])), counts


def fitted(points: Sequence[Point], counts: Mapping[str, Any], unfinished: int = 0) -> LearningCurve:
    """The curve through trainings; ``counts`` is what one of them noted of dev."""
    queries = [one for one in points if one.kind == "queries"]
    whole, fewer = ([one for one in queries if (one.share == 1) == full] for full in (True, False))
    count = max(one.queries for one in queries)
    more = min(MORE, count)
    scale, power = _power_law([one.queries for one in queries], [one.gain[0] for one in queries])
    rise = _simulated(queries, lambda g, b: _law(g, b, count + more) - _law(g, b, count))
    foretold = None
    if whole and fewer:
        expected = _simulated(fewer, lambda g, b: _law(g, b, count))
        foretold = (*expected, _mean_gain(whole))
    start = float(counts["dev"]["0.0"])
    head = (str(counts["measure"]), int(counts["dev_queries"]), start)
    return LearningCurve(*head, tuple(points), scale, power, (more, *rise), foretold, unfinished)


def _mean_gain(points: Sequence[Point]) -> float:
    return float(np.mean([one.gain[0] for one in points]))


def _law(scale: float, power: float, count: float) -> float:
    return float(scale * count**power)


def _power_law(counts: npt.ArrayLike, gains: npt.ArrayLike) -> tuple[float, float]:
    """g and b of least squares; for a given b, g has a closed form.

    >>> g, b = _power_law([100, 200, 400], [0.1, 0.1 * 2**0.5, 0.2])
    >>> round(g, 3), round(b, 2)
    (0.01, 0.5)
    """
    from scipy.optimize import minimize_scalar

    n, y = np.asarray(counts, dtype=np.float64), np.asarray(gains, dtype=np.float64)

    def best(power: float) -> tuple[float, float]:
        x = n**power
        scale = float((x @ y) / (x @ x))
        return scale, float(((scale * x - y) ** 2).sum())

    power = float(minimize_scalar(lambda b: best(b)[1], bounds=(0.02, 1.0), method="bounded").x)
    return best(power)[0], power


def _simulated(points: Sequence[Point], wanted: Any) -> tuple[float, float, float]:
    """A figure of the curve through points, with the 95 % interval.

    What varies are the draws, whose spread around their means is the noise of one training, and the dev queries, which
    all points share: their part is that of the whole gain.
    """
    counts = np.array([one.queries for one in points], dtype=np.float64)
    gains = np.array([one.gain[0] for one in points])
    scale, power = _power_law(counts, gains)
    found, smooth = wanted(scale, power), scale * counts**power
    spread = float(np.sqrt(((gains - smooth) ** 2).sum() / max(1, len(points) - 2)))
    last = max(points, key=lambda one: one.queries)
    error = (last.gain[2] - last.gain[1]) / (2 * 1.96)
    draw = np.random.default_rng(0)
    drawn = []
    for _ in range(_SIMULATED):
        moved = smooth + draw.normal(0, spread, len(points)) + draw.normal(0, error) * counts / counts.max()
        drawn.append(wanted(*_power_law(counts, moved)))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(found), float(min(found, low)), float(max(found, high))

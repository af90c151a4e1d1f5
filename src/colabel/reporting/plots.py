"""Plots of systems: means and differences with intervals, time bars, query by query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from colabel.reporting.canvas import INK, MUTED, SERIES, figure, finished, look, shortened, wrapped
from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import decimal, signed
from colabel.reporting.figures import figure as written
from colabel.reporting.parts import Plot
from colabel.reporting.records import CROSS_ENCODER_STAGE, Figures, Mean, System

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = 5  # more would run into each other where numbers have three decimals and a sign
_ROW = 0.36  # inches of height for a system
_COLLAPSED = 0.4  # where all but one system take less of the axis than that, the one is left beyond it
_FEWEST = 3  # systems that must be left
_LEAST_SPAN = 0.001  # that they must take: of less, there is nothing to see
_MOST_POINTS = 1000  # a scatter plot of more queries rounds them to a grid, so that the page stays small
_READERS = "cross-encoder training"
_ONE_READER = ("ce-kd", "ce-kd-paper", "mixed")
_ALL_READERS = ("ce3-kd", "ce3-kd-paper")


def group_looks(document: StudyDocument) -> dict[str, int]:
    """Group → number of its series, in the order of the systems."""
    names = dict.fromkeys(system.group for system in document.systems)
    return {name: place for place, name in enumerate(names)}


def effect(document: StudyDocument, place: int, measure: str) -> Plot | None:
    """The mean of every system with its interval; a line at the reference."""
    found = [
        (system, Mean(mean, *system.intervals.get(measure, (None, None))))
        for system in document.finished
        if (mean := system.means.get(measure)) is not None
    ]
    reference = document.system(document.reference)
    line = reference.means.get(measure) if reference else None
    caption = f"{measure} of every system, with bootstrap intervals"
    caption += f"; the line is {reference.title}" if reference and line is not None else ""
    return _dots(document, f"effect-{place}", measure, found, line, caption, written)


def difference(document: StudyDocument, place: int, measure: str) -> Plot | None:
    """Every system less the reference, query by query, with its interval; the reference itself stands at 0."""
    comparison, reference = document.comparisons.get(measure), document.system(document.reference)
    if comparison is None or reference is None:
        return None
    against: dict[str, Mean] = {}
    for pair in comparison.pairs:
        if reference.slug in (pair.system, pair.against):
            other = pair.against if pair.system == reference.slug else pair.system
            value = pair.difference_of(other)
            against[other] = Mean(value.mean, value.low, value.high)
    if against:
        against[reference.slug] = Mean(0.0)
    found = [(system, against[system.slug]) for system in document.finished if system.slug in against]
    caption = f"{measure} less that of {reference.title}, paired by query, with bootstrap intervals"
    title = f"{measure} − {shortened(reference.title, 24)}"
    return _dots(document, f"difference-{place}", title, found, 0.0, caption, signed)


def _dots(
    document: StudyDocument,
    key: str,
    title: str,
    found: Sequence[tuple[System, Mean]],
    line: float | None,
    caption: str,
    write: Callable[[float], str],
) -> Plot | None:
    if not found:
        return None
    drawn, axes = figure(height=0.75 + _ROW * len(found))
    groups = group_looks(document)
    if line is not None:
        axes.axvline(line, color=MUTED, linewidth=1, dashes=(4, 3))
    for place, (system, value) in enumerate(found):
        colour, marker, _ = look(groups[system.group])
        if value.low is not None and value.high is not None:
            axes.plot([value.low, value.high], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([value.mean], [place], marker=marker, markersize=6, color=colour, linestyle="none")
    _name_rows(axes, [system.title for system, _ in found])
    kept = () if line is None else (line,)
    beyond = outlier([value for _, value in found], kept)
    if beyond is not None:
        system, value = found[beyond]
        bounds = _extent([other for place, (_, other) in enumerate(found) if place != beyond], kept)
        _point_beyond(axes, beyond, value, bounds, write(value.mean), look(groups[system.group])[0])
        caption += f"; {system.title} is beyond the axis, at {write(value.mean)}"
    axes.locator_params(axis="x", nbins=_TICKS)
    axes.set_title(title)
    return finished(drawn, key, caption)


def outlier(values: Sequence[Mean], kept: Sequence[float] = ()) -> int | None:
    """The place of the one value that leaves the others, and some points, little of a common axis; None without any.

    >>> outlier([Mean(0.1), Mean(0.8), Mean(0.85, 0.7, 1.0), Mean(0.9)])
    0
    """
    low, high = _extent(values, kept) if values else (0.0, 0.0)
    for place, value in enumerate(values):
        others = [*values[:place], *values[place + 1 :]]
        if len(others) >= _FEWEST:
            start, end = _extent(others, kept)
            if not start <= value.mean <= end and _LEAST_SPAN < end - start < _COLLAPSED * (high - low):
                return place
    return None


def _extent(values: Sequence[Mean], kept: Sequence[float]) -> tuple[float, float]:
    bounds = [bound for value in values for bound in (value.mean, value.low, value.high) if bound is not None]
    return min([*bounds, *kept]), max([*bounds, *kept])


def _point_beyond(axes: Axes, place: int, value: Mean, bounds: tuple[float, float], name: str, colour: str) -> None:
    """End the axis at some bounds; an arrow along the interval, with a name, stands for the value beyond them."""
    low, high = bounds
    room, right = 0.05 * (high - low), value.mean > high
    border = high + room if right else low - room
    near = [border - 2 * room, value.low] if right else [border + 2 * room, value.high]
    start = (min if right else max)(end for end in near if end is not None)
    axes.set_xlim(low - room, high + room)
    head = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (border, place), (start, place), arrowprops=head)
    side = "right" if right else "left"
    offset = (-5 if right else 5, 0)
    axes.annotate(name, (start, place), offset, textcoords="offset points", ha=side, va="center", fontsize=8)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [wrapped(name) for name in names], linespacing=1.2)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def response_bars(document: StudyDocument) -> Plot | None:
    """Median response time of every system, with a line to the 95th percentile."""
    found = [(system, system.milliseconds) for system in document.finished if system.milliseconds]
    if not found:
        return None
    drawn, axes = figure(height=0.9 + _ROW * len(found))
    groups = group_looks(document)
    for place, (system, time) in enumerate(found):
        colour = look(groups[system.group])[0]
        axes.barh(place, time.median, height=0.6, color=colour, alpha=0.75)
        axes.plot([time.median, time.p95], [place, place], color=INK, linewidth=1)
        axes.plot([time.p95], [place], color=INK, marker="|", markersize=6)
        axes.annotate(
            f"{decimal(time.median)} (p95 {decimal(time.p95)})",
            (max(time.median, time.p95), place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    _name_rows(axes, [system.title for system, _ in found])
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds")
    axes.set_title("Median, with a line to the 95th percentile")
    return finished(drawn, "response-bars", "Response time of every system: median and 95th percentile")


def cost_bars(document: StudyDocument) -> Plot | None:
    """Seconds of annotation, training and any other part, one bar a system; last, of training what taught it."""
    work = {
        system.slug: {**system.seconds, _READERS: cross_encoder_seconds(document, system.slug)}
        for system in document.finished
        if any(system.seconds.values())
    }
    if not work:
        return None
    parts = [part for part in (*document.work, _READERS) if any(found.get(part) for found in work.values())]
    hours = max(sum(value or 0.0 for value in found.values()) for found in work.values()) > 7200
    unit = 3600.0 if hours else 60.0
    drawn, axes = figure(height=1.1 + _ROW * len(work))
    ends = [0.0] * len(work)
    for number, part in enumerate(parts):
        widths = [(found.get(part) or 0.0) / unit for found in work.values()]
        axes.barh(
            range(len(work)),
            widths,
            left=ends,
            height=0.6,
            color=SERIES[number % len(SERIES)],
            alpha=0.75,
            label=shortened(part, 24),
        )
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    _name_rows(axes, [document.title(slug) for slug in work])
    axes.set_xlabel("hours" if hours else "minutes")
    axes.set_title("Time to label and train")
    drawn.legend(loc="outside lower center", ncols=2 if len(parts) == 4 else min(3, len(parts)))
    caption = f"Time of every system: {', '.join(parts)}"
    caption += " (once for all rows that a cross-encoder teaches)" if _READERS in parts else ""
    caption += "; of the first seed"
    return finished(drawn, "cost-bars", caption)


def cross_encoder_seconds(document: StudyDocument, slug: str) -> float | None:
    """Seconds of training the cross-encoders that teach a system; None where it has none, or they came trained."""
    stages = [seconds for stage, seconds in document.seconds.items() if stage.startswith(CROSS_ENCODER_STAGE)]
    needed = stages[:1] if slug in _ONE_READER else stages if slug in _ALL_READERS else []
    return sum(seconds or 0.0 for seconds in needed) or None


def scatter(document: StudyDocument, place: int, system: System, measure: str) -> Plot | None:
    """A system against the reference, a point a query; points above the diagonal are better."""
    reference = document.system(document.reference)
    ours, theirs = paired_values(document, (system.slug, reference.slug if reference else ""), measure)
    pairs = [(theirs.get(query), value) for query, value in ours.items()]
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    if reference is None or reference.slug == system.slug or not both:
        return None
    points = _counted(both, 1000)
    if len(points) > _MOST_POINTS:
        points = _counted(both, 25)
    drawn, axes = figure(3.1, 3.2)
    low, high = min(map(min, points)), max(map(max, points))
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1)
    places = sorted(points)
    for side in (1, 0, -1):
        chosen = [point for point in places if (point[1] > point[0]) - (point[1] < point[0]) == side]
        colour, marker = ((SERIES[1], "v"), (MUTED, "o"), (SERIES[0], "^"))[side + 1]
        sizes = [min(400.0, 12 * points[point] ** 0.5) for point in chosen]
        if chosen:
            x, y = zip(*chosen, strict=True)
            axes.scatter(x, y, s=sizes, color=colour, marker=marker, alpha=0.6, linewidths=0)
    axes.set_aspect("equal")
    axes.set_xlabel(shortened(reference.title, 30))
    axes.set_ylabel(shortened(system.title, 30))
    caption = f"{measure} of {system.title} against {reference.title}, query by query"
    return finished(drawn, f"scatter-{place}", caption)


def paired_values(document: StudyDocument, slugs: tuple[str, str], measure: str) -> tuple[Figures, Figures]:
    """Query id → value of two systems, over the seeds that both have, as they were tested."""
    comparison = document.comparisons.get(measure)
    pairs = comparison.pairs if comparison else ()
    common = next((pair.seeds for pair in pairs if {pair.system, pair.against} == set(slugs)), ())
    one, other = (_seed_mean(document, slug, measure, common) for slug in slugs)
    return one, other


def _seed_mean(document: StudyDocument, slug: str, measure: str, common: Sequence[int]) -> Figures:
    merged = document.per_query.get(slug, {}).get(measure, {})
    held = document.per_seed.get(slug, {})
    chosen = [held[str(seed)][measure] for seed in common if str(seed) in held]
    if not chosen or len(chosen) == len(held):
        return merged
    values = {query: [value for one in chosen if (value := one.get(query)) is not None] for query in merged}
    return {query: fmean(found) if len(found) == len(chosen) else None for query, found in values.items()}


def _counted(pairs: Sequence[tuple[float, float]], steps: int) -> Counter[tuple[float, float]]:
    """How many pairs fall on each point of a grid with so many steps to 1."""
    return Counter((round(x * steps) / steps, round(y * steps) / steps) for x, y in pairs)

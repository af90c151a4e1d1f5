"""Plots: means and differences with intervals, time bars, query by query, precision and recall, sweep, training.

A student, and a teacher, has one look in all plots of a report, also where others have nothing to draw.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from colabel.findings.records import (
    CROSS_ENCODER_STAGE,
    Efficiency,
    Mean,
    QualitySet,
    StudyDocument,
    SweepSetting,
    SystemResult,
    TeacherQuality,
)
from colabel.reporting.numbers import Plot, count, decimal, signed
from colabel.reporting.numbers import figure as written
from colabel.reporting.svg import INK, MUTED, SERIES, figure, finished, look, shortened, wrapped
from colabel.reporting.tables_labels import covered, teachers_at
from colabel.reporting.tables_results import paired_values
from colabel.reporting.tables_setup import SHAPE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = 5  # more would run into each other where numbers have three decimals and a sign
_ROW = 0.36  # inches of height for a system
_COLLAPSED = 0.4  # where all but one system take less of the axis than that, the one is left beyond it
_FEWEST = 3  # systems that must be left
_LEAST_SPAN = 0.001  # that they must take: of less, there is nothing to see
_MOST_POINTS = 1000  # a scatter plot of more queries rounds them to a grid, so that the page stays small
_LEAST_SWEEP = 0.02  # of the sweep's axis: less than that between settings is mostly chance
_READERS = "cross-encoder training"

Points = Sequence[tuple[float, float]]
SETTINGS = {**SHAPE, "beta": "β"}


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
    found: Sequence[tuple[SystemResult, Mean]],
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
        system.slug: {**system.seconds, _READERS: cross_encoder_seconds(document, system)}
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


def cross_encoder_seconds(document: StudyDocument, system: SystemResult) -> float | None:
    """Seconds of training the cross-encoders that teach a system; None where it has none, or they came trained."""
    stages = [seconds for stage, seconds in document.seconds.items() if stage.startswith(CROSS_ENCODER_STAGE)]
    return sum(seconds or 0.0 for seconds in stages[: system.cross_encoders]) or None


def scatter(document: StudyDocument, place: int, system: SystemResult, measure: str) -> Plot | None:
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


def _counted(pairs: Sequence[tuple[float, float]], steps: int) -> Counter[tuple[float, float]]:
    """How many pairs fall on each point of a grid with so many steps to 1."""
    return Counter((round(x * steps) / steps, round(y * steps) / steps) for x, y in pairs)


def precision_recall(document: StudyDocument, found: QualitySet, key: str, grade: str, *, pooled: bool) -> Plot | None:
    """Precision over recall of every teacher: averaged over queries, or of one threshold for all pairs."""
    teachers, looks = teachers_at(found, grade), teacher_looks(document)
    curves = {name: one.pooled_curve if pooled else _averaged(one) for name, one in teachers.items()}
    series = [(looks[name], name, [(x, y) for x, y in curve if y is not None]) for name, curve in curves.items()]
    rate = next((one.base_rate for one in teachers.values() if one.base_rate is not None), None)
    line = (rate, f"share of relevant pairs, {written(rate)}") if pooled and rate is not None else None
    how = "one threshold for all queries" if pooled else "averaged over queries"
    caption = f"{found.title}: interpolated precision over recall of the relevant candidates, relevant from grade "
    caption += f"{grade}, {how}{covered(found, grade)}"
    caption += f"; the dashed line is the {line[1]}" if line else ""
    lines = [*found.title.split(", ", 1), f"relevant from grade {grade}, {how}"]
    title = "\n".join(wrapped(line, 56) for line in lines)
    key = f"precision-recall-{key}-{'pooled' if pooled else 'averaged'}"
    return _curves(
        series,
        key,
        caption,
        title,
        ("recall of the relevant candidates", "interpolated precision"),
        line=line,
        share=True,
    )


def _averaged(quality: TeacherQuality) -> Sequence[tuple[float, float | None]]:
    last = max(1, len(quality.precision_at_recall) - 1)
    return [(level / last, value) for level, value in enumerate(quality.precision_at_recall)]


def teacher_looks(document: StudyDocument) -> dict[str, int]:
    """Teacher → number of its series."""
    return _numbered(name for found in document.label_quality for name in found.teachers)


def student_looks(document: StudyDocument) -> dict[str, int]:
    """Slug of every system that was trained → number of its series, in the order of the systems."""
    rows = [system.slug for system in document.systems if system.slug in document.training]
    return _numbered([*rows, *document.training])


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def loss_curves(document: StudyDocument) -> Plot | None:
    """Training loss of every student."""
    series = [
        (
            number,
            document.title(slug),
            [(float(step), loss) for step, loss in document.training[slug].loss if loss is not None],
        )
        for slug, number in student_looks(document).items()
    ]
    caption = "Training loss over steps"
    hard = {system.slug for system in document.systems if system.group == "hard labels"}
    if hard & document.training.keys() and document.training.keys() - hard:
        caption += (
            ": cross-entropy with the labels for ColBERT, ColBERT-HN and smoothing, divergence from a teacher for the "
            "others (both, where their settings mix them), so that only curves of one kind compare"
        )
    return _curves(series, "loss", caption, "Training loss", ("steps", "loss"))


def dev_curves(document: StudyDocument, *, over_seconds: bool) -> Plot | None:
    """Dev values of every student over steps or seconds; a line at the target."""
    series = []
    for slug, number in student_looks(document).items():
        places = [(seconds if over_seconds else step, value) for step, seconds, value in document.training[slug].dev]
        points = [(x, value) for x, value in places if x is not None and value is not None]
        series.append((number, document.title(slug), points))
    efficiency = document.efficiency or Efficiency(document.measures[0])
    measure, target = efficiency.measure, efficiency.target
    line = None if target is None else (target, f"target, {written(target)}")
    dev = "dev" if efficiency.queries is None else f"{count(efficiency.queries)} dev queries"
    unit = "seconds of training" if over_seconds else "steps"
    key = f"dev-{'seconds' if over_seconds else 'steps'}"
    caption = f"{measure} on {dev} over {unit}{', as measured' if over_seconds else ''}"
    if line:
        caption += f"; the dashed line is the {line[1]}" + (f" ({efficiency.origin})" if efficiency.origin else "")
    return _curves(series, key, caption, f"{measure} on {dev}, over {unit}", (unit, measure), line=line)


def _curves(
    found: Sequence[tuple[int, str, Points]],
    key: str,
    caption: str,
    title: str,
    labels: tuple[str, str],
    *,
    line: tuple[float, str] | None = None,
    share: bool = False,
) -> Plot | None:
    """Named series, each by its number, and a level with what it is called."""
    drawable = [one for one in found if one[2]]
    if not drawable:
        return None
    names = len(drawable) + (line is not None)
    drawn, axes = figure(height=2.9 + 0.17 * (-(-names // 2) + title.count("\n")))
    for number, name, points in drawable:
        _line(axes, number, name, points)
    if line is not None:
        axes.axhline(line[0], color=MUTED, linewidth=0.8, dashes=(4, 3), zorder=1, label=line[1])
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    if share:
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    _legend(drawn, names)
    return finished(drawn, key, caption)


def _line(axes: Axes, number: int, name: str, points: Points) -> None:
    colour, marker, dashes = look(number)
    x, y = zip(*points, strict=True)
    every = max(1, len(points) // 8)
    axes.plot(
        x,
        y,
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=3.5,
        markevery=(number % every, every),
        label=shortened(name, 34),
    )


def _legend(drawn: Figure, names: int) -> None:
    drawn.legend(loc="outside lower center", ncols=min(2, names), handlelength=2.6, columnspacing=1.2)


def sweep_plot(document: StudyDocument, setting: str) -> Plot | None:
    """The first measure over one setting; a line joins the points that agree in all other settings.

    The plots of all settings have one scale.
    """
    measure = next((name for name in document.measures if any(name in row.measures for row in document.sweep)), None)
    if measure is None:
        return None
    lines = _sweep_lines(document.sweep, setting, measure)
    if not lines:
        return None
    drawn, axes = figure(3.1, 2.6)
    best = max(value for line in lines for _, value in line)
    for line in sorted(lines, key=lambda line: max(value for _, value in line) == best):
        chief = len(lines) == 1 or max(value for _, value in line) == best
        colour = SERIES[0] if chief else MUTED
        width, size, alpha = (2.0, 5.0, 1.0) if chief else (0.9, 3.0, 0.6)
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=width, marker="o", markersize=size, alpha=alpha)
    axes.set_xticks(sorted({x for line in lines for x, _ in line}))
    axes.margins(x=0.1)
    axes.set_ylim(_sweep_range(document.sweep, measure))
    axes.locator_params(axis="y", nbins=5)
    axes.yaxis.set_major_formatter("{x:.3f}")
    name = "β" if setting == "beta" else setting.replace("_", " ")
    axes.set_xlabel("β" if setting == "beta" else f"{SETTINGS[setting]} ({name})")
    axes.set_ylabel(measure)
    dev = document.dataset.queries.get("dev") if document.dataset else None
    queries = "dev queries" if dev is None else f"{count(dev)} dev queries"
    caption = f"{measure} of ColBERT-PRF as ranker on {queries} over {name}"
    return finished(drawn, f"sweep-{setting.replace('_', '-')}", caption)


def _sweep_range(rows: Sequence[SweepSetting], measure: str) -> tuple[float, float]:
    """Bounds of the axis that the plots of all settings share."""
    lines = [line for setting in SETTINGS for line in _sweep_lines(rows, setting, measure)]
    low, high = (choose(value for line in lines for _, value in line) for choose in (min, max))
    middle, span = (low + high) / 2, max(high - low, _LEAST_SWEEP)
    return middle - 0.55 * span, middle + 0.55 * span


def _sweep_lines(rows: Sequence[SweepSetting], setting: str, measure: str) -> list[list[tuple[float, float]]]:
    """For every combination of the other settings with several points (setting, value), these, rising."""
    others = [name for name in SETTINGS if name != setting]

    def fixed(row: SweepSetting) -> tuple[float, ...]:
        return tuple(getattr(row, name) for name in others)

    lines = []
    for _, group in itertools.groupby(sorted(rows, key=fixed), key=fixed):
        values = [(float(getattr(row, setting)), row.measures.get(measure)) for row in group]
        lines.append(sorted((x, value) for x, value in values if value is not None))
    return [line for line in lines if len(line) > 1]

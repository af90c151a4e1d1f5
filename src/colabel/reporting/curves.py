"""Plots of curves: precision and recall of teachers, the sweep, loss and dev values of students.

A student, and a teacher, has one look in all plots of a report, also where others have nothing to draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from colabel.reporting.canvas import MUTED, SERIES, figure, finished, look, shortened, wrapped
from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import count
from colabel.reporting.figures import figure as written
from colabel.reporting.parts import Plot
from colabel.reporting.records import Efficiency, QualitySet, SweepRow, TeacherQuality
from colabel.reporting.teaching import covered, teachers_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

_LEAST_SPAN = 0.02  # of the sweep's axis: less than that between settings is mostly chance

SETTINGS = {"feedback_passages": "f_p", "clusters": "f_c", "centroids": "f_e", "beta": "β"}


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
    if len({_loss_kind(slug) for slug in document.training}) > 1:
        caption += (
            ": cross-entropy with the labels for ColBERT, ColBERT-HN and smoothing, divergence from a teacher for the "
            "others (both, where their settings mix them), so that only curves of one kind compare"
        )
    return _curves(series, "loss", caption, "Training loss", ("steps", "loss"))


def _loss_kind(slug: str) -> str:
    return "labels" if slug in ("colbert", "colbert-hn", "smoothing") else "teacher"


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


def _sweep_range(rows: Sequence[SweepRow], measure: str) -> tuple[float, float]:
    """Bounds of the axis that the plots of all settings share."""
    lines = [line for setting in SETTINGS for line in _sweep_lines(rows, setting, measure)]
    low, high = (choose(value for line in lines for _, value in line) for choose in (min, max))
    middle, span = (low + high) / 2, max(high - low, _LEAST_SPAN)
    return middle - 0.55 * span, middle + 0.55 * span


def _sweep_lines(rows: Sequence[SweepRow], setting: str, measure: str) -> list[list[tuple[float, float]]]:
    """For every combination of the other settings with several points (setting, value), these, rising."""
    others = [name for name in SETTINGS if name != setting]

    def fixed(row: SweepRow) -> tuple[float, ...]:
        return tuple(getattr(row, name) for name in others)

    lines = []
    for _, group in itertools.groupby(sorted(rows, key=fixed), key=fixed):
        values = [(float(getattr(row, setting)), row.measures.get(measure)) for row in group]
        lines.append(sorted((x, value) for x, value in values if value is not None))
    return [line for line in lines if len(line) > 1]

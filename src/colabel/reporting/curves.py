"""Plots of curves: precision and recall of teachers, the sweep, loss and dev values of students."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from colabel.reporting.canvas import MUTED, SERIES, figure, finished, look, shortened
from colabel.reporting.document import StudyDocument
from colabel.reporting.parts import Plot
from colabel.reporting.records import QualitySet, SweepRow, TeacherQuality
from colabel.reporting.teaching import teachers_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

SETTINGS = {"feedback_passages": "f_p", "clusters": "f_c", "centroids": "f_e", "beta": "β"}


def precision_recall(found: QualitySet, key: str, grade: str, *, pooled: bool) -> Plot | None:
    """Precision over recall of every teacher: averaged over queries, or of one threshold for all pairs."""
    curves = {name: one.pooled_curve if pooled else _averaged(one) for name, one in teachers_at(found, grade).items()}
    points = {name: [(x, y) for x, y in curve if y is not None] for name, curve in curves.items()}
    how = "one threshold for all queries" if pooled else "averaged over queries"
    caption = f"{found.title}: precision over recall, relevant from grade {grade}, {how}"
    key = f"precision-recall-{key}-{'pooled' if pooled else 'averaged'}"
    return _curves(points, key, caption, f"Grade ≥ {grade}, {how}", ("recall", "precision"), share=True)


def _averaged(quality: TeacherQuality) -> Sequence[tuple[float, float | None]]:
    last = max(1, len(quality.precision_at_recall) - 1)
    return quality.curve or [(level / last, value) for level, value in enumerate(quality.precision_at_recall)]


def loss_curves(document: StudyDocument) -> Plot | None:
    """Training loss of every student."""
    found = {
        document.title(slug): [(float(step), loss) for step, loss in curve.loss if loss is not None]
        for slug, curve in document.training.items()
    }
    return _curves(found, "loss", "Training loss over steps", "Training loss", ("steps", "loss"))


def dev_curves(document: StudyDocument, *, over_seconds: bool) -> Plot | None:
    """Dev values of every student over steps or seconds; a line at the target."""
    found: dict[str, list[tuple[float, float]]] = {}
    for slug, curve in document.training.items():
        places = [(seconds if over_seconds else step, value) for step, seconds, value in curve.dev]
        found[document.title(slug)] = [(x, value) for x, value in places if x is not None and value is not None]
    efficiency = document.efficiency
    measure = efficiency.measure if efficiency else document.measures[0]
    line = efficiency.target if efficiency else None
    unit = "seconds of training" if over_seconds else "steps"
    key = f"dev-{'seconds' if over_seconds else 'steps'}"
    caption = f"{measure} on dev over {unit}{', as measured' if over_seconds else ''}"
    return _curves(found, key, caption, f"{measure} on dev", (unit, measure), line=line)


def _curves(
    found: Mapping[str, Points],
    key: str,
    caption: str,
    title: str,
    labels: tuple[str, str],
    *,
    line: float | None = None,
    share: bool = False,
) -> Plot | None:
    drawable = {name: points for name, points in found.items() if points}
    if not drawable:
        return None
    drawn, axes = figure(height=2.9 + 0.17 * -(-len(drawable) // 2))
    if line is not None:
        axes.axhline(line, color=MUTED, linewidth=1, dashes=(4, 3))
    for place, (name, points) in enumerate(drawable.items()):
        _line(axes, place, name, points)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    if share:
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    _legend(drawn, len(drawable))
    return finished(drawn, key, caption)


def _line(axes: Axes, place: int, name: str, points: Points) -> None:
    colour, marker, dashes = look(place)
    x, y = zip(*points, strict=True)
    every = max(1, len(points) // 8)
    axes.plot(
        x,
        y,
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=3.5,
        markevery=(place % every, every),
        label=shortened(name, 28),
    )


def _legend(drawn: Figure, names: int) -> None:
    drawn.legend(loc="outside lower center", ncols=min(2, names), handlelength=2.6, columnspacing=1.2)


def sweep_plot(document: StudyDocument, setting: str) -> Plot | None:
    """The first measure over one setting; a line joins the points that agree in all other settings."""
    measure = next((name for name in document.measures if any(name in row.measures for row in document.sweep)), None)
    if measure is None:
        return None
    lines = [line for line in _sweep_lines(document.sweep, setting, measure) if len(line) > 1]
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
    name = "β" if setting == "beta" else setting.replace("_", " ")
    axes.set_xlabel("β" if setting == "beta" else f"{SETTINGS[setting]} ({name})")
    axes.set_ylabel(measure)
    caption = f"{measure} of ColBERT-PRF as ranker on dev queries over {name}"
    return finished(drawn, f"sweep-{setting.replace('_', '-')}", caption)


def _sweep_lines(rows: Sequence[SweepRow], setting: str, measure: str) -> list[list[tuple[float, float]]]:
    """For every combination of the other settings, the points (setting, value), rising."""
    others = [name for name in SETTINGS if name != setting]

    def fixed(row: SweepRow) -> tuple[float, ...]:
        return tuple(getattr(row, name) for name in others)

    lines = []
    for _, group in itertools.groupby(sorted(rows, key=fixed), key=fixed):
        values = [(float(getattr(row, setting)), row.measures.get(measure)) for row in group]
        lines.append(sorted((x, value) for x, value in values if value is not None))
    return lines

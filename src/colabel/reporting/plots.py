"""Plots: differences with intervals, how precise teachers are at each recall, and how reliable probabilities are.

Matplotlib draws them as SVG that lives in a page. Figures are drawn in colours that stand for a role; in the SVG, these
become ``currentColor`` and CSS variables, so that one drawing serves the light page, the dark one and paper.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from colabel.evaluation.significance import Interval
from colabel.findings.records import QualitySet, StudyDocument
from colabel.ranking.probability import Reliability
from colabel.reporting.numbers import Plot
from colabel.reporting.tables_results import covered, teachers_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010101"
MUTED = "#020202"
GRID = "#030303"
SERIES = tuple(f"#0400{number:02x}" for number in range(1, 8))
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")

_TICKS = 5  # more would run into each other where numbers have three decimals and a sign
_ROW = 0.36  # inches of height for a system
_ROLES = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it takes the page's font and can be searched
    "svg.hashsalt": "colabel",
    "text.parse_math": False,  # names of systems come from outside
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "path.simplify": False,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our way of drawing, for the plots that are made in the block."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # whatever the reader has set for plots of their own
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the page's font will have it
        yield


def figure(width: float = 4.7, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; 4.7 inches are 338 CSS pixels: readable on a phone as it is."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    return drawn, drawn.add_subplot()


def look(place: int) -> tuple[str, str, str]:
    """Colour, marker and dashes of the series at a place; colour is never the only difference."""
    colour = place % len(SERIES)
    return SERIES[colour], MARKERS[colour], DASHES[(place // len(SERIES)) % len(DASHES)]


def shortened(name: str, limit: int) -> str:
    """A name that fits beside an axis.

    >>> shortened("a very long name", 8)
    'a very …'
    """
    flat = " ".join(name.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def wrapped(name: str, width: int = 25) -> str:
    """A name in at most two lines.

    >>> wrapped("one cross-encoder, of three", 18)
    'one cross-encoder,\\nof three'
    """
    kept = name.replace(" = ", "\u00a0=\u00a0")  # β = 1 stays in one line
    return "\n".join(textwrap.wrap(kept, width, max_lines=2, placeholder=" …"))


def finished(drawn: Figure, key: str, caption: str) -> Plot:
    """The figure as a plot for the page."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(buffer, format="svg", metadata=nothing)
    return Plot(key, caption, _embedded(buffer.getvalue(), key, caption))


def _embedded(svg: str, key: str, caption: str) -> Markup:
    """An SVG file as an element of a page: no prologue, no style sheet, no fixed colour or font, ids of its own."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"#[0-9a-f]{6}", lambda found: _ROLES.get(found.group(), found.group()), svg)
    svg = re.sub(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r'(?<= id=")|(?<=href="#)|(?<=url\(#)', f"{key}-", svg)
    role = f'<svg role="img" aria-label="{escape(caption)}"'
    return Markup(re.sub(r'<svg [^>]*( viewBox="[^"]*")[^>]*', lambda found: role + found[1], svg, count=1).strip())


def group_looks(document: StudyDocument) -> dict[str, int]:
    """Group → number of its series, in the order of the systems."""
    names = dict.fromkeys(system.group for system in document.systems)
    return {name: place for place, name in enumerate(names)}


def difference(document: StudyDocument, place: int, measure: str) -> Plot | None:
    """Every system less the reference, query by query, with its interval; the reference itself stands at 0."""
    reference = document.system(document.reference)
    if measure not in document.comparisons or reference is None:
        return None
    pairs = {one.slug: document.pair(measure, one.slug, reference.slug) for one in document.finished}
    shown = [system for system in document.finished if pairs[system.slug] or system is reference]
    drawn, axes = figure(height=0.75 + _ROW * len(shown))
    groups = group_looks(document)
    axes.axvline(0.0, color=MUTED, linewidth=1, dashes=(4, 3))
    for row, system in enumerate(shown):
        colour, marker, _ = look(groups[system.group])
        pair = pairs[system.slug]
        value = pair.difference_of(system.slug) if pair else Interval(0.0, None, None, 0)
        if value.low is not None and value.high is not None:
            axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([value.mean], [row], marker=marker, markersize=6, color=colour, linestyle="none")
    axes.set_yticks(range(len(shown)), [wrapped(system.title) for system in shown], linespacing=1.2)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=_TICKS)
    axes.set_title(f"{measure} − {shortened(reference.title, 24)}")
    caption = f"{measure} less that of {reference.title}, paired by query, with bootstrap intervals"
    return finished(drawn, f"difference-{place}", caption)


def precision_recall(document: StudyDocument, found: QualitySet, key: str, grade: str) -> Plot | None:
    """Precision over recall of every teacher, averaged over queries; a teacher has one look in all of these plots."""
    names = dict.fromkeys(name for one in document.label_quality for name in one.teachers)
    looks = {name: number for number, name in enumerate(names)}
    curves = {name: one.precision_at_recall for name, one in teachers_at(found, grade).items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    lines = [*found.title.split(", ", 1), f"relevant from grade {grade}, averaged over queries"]
    drawn, axes = figure(height=2.9 + 0.17 * (-(-len(curves) // 2) + len(lines) - 1))
    for name, curve in curves.items():
        number = looks[name]
        colour, marker, dashes = look(number)
        recall = [level / (len(curve) - 1) for level in range(len(curve))]
        axes.plot(
            recall, curve, color=colour, linestyle=dashes, marker=marker, markersize=3.5, label=shortened(name, 34)
        )
    axes.set(xlabel="recall of the relevant candidates", ylabel="interpolated precision")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    axes.set_title("\n".join(wrapped(line, 56) for line in lines))
    drawn.legend(loc="outside lower center", ncols=min(2, len(curves)), handlelength=2.6, columnspacing=1.2)
    caption = f"{found.title}: interpolated precision over recall of the relevant candidates, relevant from grade "
    caption += f"{grade}, averaged over queries{covered(found, grade)}"
    return finished(drawn, f"precision-recall-{key}", caption)


def reliability(found: Reliability) -> Plot:
    """The share of passages that are relevant over their probability; on the diagonal, the two agree."""
    drawn, axes = figure(height=3.2)
    colour, marker, _ = look(0)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, dashes=(4, 3))
    likely, observed = [one[0] for one in found.bins], [min(1.0, one[1]) for one in found.bins]
    axes.plot(likely, observed, color=colour, marker=marker, markersize=4)
    axes.set(xlabel="probability", ylabel="share that is relevant", xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    axes.set_title(f"ECE {found.ece:.3f}, Brier score {found.brier:.3f}")
    return finished(
        drawn, "reliability", f"how often passages are relevant, by probability, over {found.pairs:,} pairs"
    )

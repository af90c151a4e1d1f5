"""Matplotlib figures as SVG that lives in a page: colours from the page's style sheet, ids of its own, same bytes.

Figures are drawn in colours that stand for a role. In the SVG, these become ``currentColor`` and CSS variables, so that
one drawing serves the light page, the dark one and paper.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from colabel.reporting.numbers import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010101"
MUTED = "#020202"
GRID = "#030303"
SERIES = tuple(f"#0400{number:02x}" for number in range(1, 8))
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")

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
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(buffer, format="svg", metadata=nothing)
    return Plot(key, caption, embedded(buffer.getvalue(), key, caption))


def embedded(svg: bytes, key: str, caption: str) -> Markup:
    """An SVG file as an element of a page: no prologue, no style sheet, no id that another plot could have."""
    root = ET.fromstring(svg)
    used = set(re.findall(rb'(?:url\(#|href="#)([^)"]+)', svg))
    for parent in root.iter():
        for child in list(parent):
            if _name(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _name(element.tag)
        attributes = dict(element.attrib)
        element.attrib.clear()
        for name, value in attributes.items():
            if name == "id" and value.encode() not in used:
                continue
            element.set(_name(name), _rewritten(_name(name), value, key))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", caption)
    return Markup(_written(root))


def _rewritten(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href":
        return value.replace("#", f"#{key}-", 1)
    if name == "style":
        value = re.sub(r"#[0-9a-f]{6}", lambda found: _ROLES.get(found.group(), found.group()), value)
        value = re.sub(r"font: (?:\w+ )*?([\d.]+px) [^;]*", r"font-size: \1", value)
    return " ".join(value.split()).replace("url(#", f"url(#{key}-")


def _written(element: ET.Element) -> str:
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items())
    inner = str(escape((element.text or "").strip())) + "".join(map(_written, element))
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"


def _name(qualified: object) -> str:
    return str(qualified).rpartition("}")[2]

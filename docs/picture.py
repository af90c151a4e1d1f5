"""The picture of the README: what collective labels find, and what a retriever gains, from committed figures alone."""

from __future__ import annotations

import io
import json
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from docs.results import COLLECTIONS, read

LABELS = Path(__file__).parents[1] / "benchmarks" / "results" / "label_effect.json"
TEACHERS = {
    "phi": ("the model's own score", "#9aa5b1"),
    "top paper 1": ("collective (paper)", "#e0a458"),
    "labelled normalised 0.5": ("collective (default)", "#2f6db3"),
}
SYSTEMS = {
    "bm25": ("BM25", "#d5dae0"),
    "zero-shot": ("untrained encoder", "#b8c1cb"),
    "colbert": ("ColBERT", "#8592a0"),
    "collective-0.5": ("collective student", "#2f6db3"),
}
STYLE = {
    "svg.hashsalt": "colabel",  # the same ids in every run
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def picture() -> str:
    """The SVG; the same figures give the same bytes."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 3.6))
        FigureCanvasSVG(figure)
        left = figure.add_axes((0.06, 0.12, 0.40, 0.60))
        right = figure.add_axes((0.54, 0.12, 0.45, 0.60))
        found = json.loads(LABELS.read_text(encoding="utf-8"))["collections"]
        names = [name.split(",", maxsplit=1)[0] for name in found]
        precision = {key: [one["teachers"][key]["AP"] for one in found.values()] for key in TEACHERS}
        bars = {key: [one["mean"] for one in values] for key, values in precision.items()}
        errors = {
            key: [[one["mean"] - one["low"] for one in values], [one["high"] - one["mean"] for one in values]]
            for key, values in precision.items()
        }
        _bars(left, names, bars, TEACHERS, errors)
        left.set_title(
            "Find missing labels\naverage precision of hidden labels, 95 % interval", loc="left", fontsize=9, pad=34
        )
        studies = {name: read(name)["study"]["systems"] for name in COLLECTIONS}
        values = {slug: [systems[slug]["means"]["nDCG@10"] for systems in studies.values()] for slug in SYSTEMS}
        _bars(right, list(studies), values, SYSTEMS, {})
        right.set_title("Train a retriever despite them\nnDCG@10 on test queries", loc="left", fontsize=9, pad=34)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _bars(axes, names, values, titles, errors) -> None:  # type: ignore[no-untyped-def]
    width = 0.8 / len(values)
    for place, (key, heights) in enumerate(values.items()):
        title, colour = titles[key]
        at = [number + (place - (len(values) - 1) / 2) * width for number in range(len(names))]
        axes.bar(at, heights, 0.92 * width, color=colour, label=title, yerr=errors.get(key), error_kw={"linewidth": 1})
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=4,
        frameon=False,
        fontsize=7.5,
        handlelength=1,
        columnspacing=1,
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")

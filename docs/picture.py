"""The picture of the README: how well labels find hidden positives, drawn from the committed figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "benchmarks" / "results" / "label_effect.json"
TEACHERS = {
    "phi": ("φ, the model itself (self-KD)", "#9aa5b1"),
    "top paper 1": ("collective, the paper's setting", "#e0a458"),
    "labelled normalised 0.5": ("collective, our default", "#2f6db3"),
}
_WIDTH, _TOP, _BAR, _GAP, _LEFT, _SCALE = 760, 64, 18, 26, 130, 820  # pixels; _SCALE for an average precision of 1


def picture() -> str:
    """The SVG."""
    collections = json.loads(FIGURES.read_text(encoding="utf-8"))["collections"]
    height = _TOP + len(collections) * (len(TEACHERS) * _BAR + _GAP) + 56
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#1f2933">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="26" font-size="16" font-weight="600">Which unlabelled passages are relevant?</text>',
        '<text x="16" y="46">One label of each training query kept, the others hidden: average precision of the hidden '
        "ones, 95 % interval</text>",
    ]
    place = _TOP
    for name, found in collections.items():
        middle = place + len(TEACHERS) * _BAR / 2
        queries = found["teachers"]["phi"]["quality"]["queries"]
        lines.append(f'<text x="16" y="{middle:g}" font-weight="600">{escape(name.split(",")[0])}</text>')
        lines.append(f'<text x="16" y="{middle + 16:g}" fill="#616e7c" font-size="11">{queries:,} queries</text>')
        for key, (_, colour) in TEACHERS.items():
            value = found["teachers"][key]["quality"]["systems"]["teacher"]["average_precision"]
            lines += _bar(value, place, colour)
            place += _BAR
        place += _GAP
    return "\n".join([*lines, *_legend(place + 8), "</svg>"]) + "\n"


def _bar(value: dict[str, Any], top: int, colour: str) -> Iterator[str]:
    mean, low, high = (value[key] * _SCALE for key in ("mean", "low", "high"))
    middle = top + _BAR / 2
    yield f'<rect x="{_LEFT}" y="{top + 1}" width="{mean:.1f}" height="{_BAR - 3}" rx="2" fill="{colour}"/>'
    yield (
        f'<path d="M{_LEFT + low:.1f} {middle:g}H{_LEFT + high:.1f}" stroke="#1f2933" stroke-width="1.5" '
        'stroke-opacity="0.7"/>'
    )
    yield f'<text x="{_LEFT + high + 8:.1f}" y="{middle + 4:g}" font-size="12">{value["mean"]:.3f}</text>'


def _legend(top: int) -> Iterator[str]:
    place = 16
    for title, colour in TEACHERS.values():
        yield f'<rect x="{place}" y="{top}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield f'<text x="{place + 18}" y="{top + 11}">{escape(title)}</text>'
        place += 40 + 7 * len(title)

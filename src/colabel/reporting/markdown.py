"""The report as Markdown: the same sections, with plots where they are files of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from colabel.reporting.parts import Cell, Code, Custom, Folded, Part, Plots, Row, Section, Table, Text

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")


def markdown(
    title: str,
    about: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    *,
    images: Mapping[str, str] | None = None,
    reading: Sequence[str] = (),
) -> str:
    """The whole file.

    Args:
        images: key of a plot → its file, for the plots that have one.
        reading: lines that stand above all figures, as they are.
    """
    lines = [f"# {escaped(title)}", "", *reading]
    lines += [f"- {escaped(name)}: {escaped(value)}" for name, value in about]
    for section in sections:
        if _shows(section, images or {}):
            lines += ["", f"## {escaped(section.title)}"]
            for part in section.parts:
                lines += _images(part, images or {}) if isinstance(part, Plots) else _part(part)
    return "\n".join(lines).rstrip() + "\n"


def _shows(section: Section, images: Mapping[str, str]) -> bool:
    """Whether a section is more than words about plots that have no file."""
    plots = [part for part in section.parts if isinstance(part, Plots)]
    drawn = any(plot.key in images for part in plots for plot in part.plots)
    return drawn or not plots or any(not isinstance(part, Text | Plots) for part in section.parts)


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> escaped("a|b *c* <script>")
    'a\\|b \\*c\\* &lt;script&gt;'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", flat)


def _part(part: Part) -> list[str]:
    if isinstance(part, Text):
        return ["", escaped(part.text)]
    if isinstance(part, Table):
        return ["", *_table(part)]
    if isinstance(part, Code):
        return ["", *_code(part)]
    if isinstance(part, Custom):
        return ["", part.markdown]
    if isinstance(part, Folded):
        inside = [line for inner in part.parts for line in _part(inner)]
        return ["", f"<details><summary>{escaped(part.summary)}</summary>", *inside, "", "</details>"]
    return []


def _images(plots: Plots, files: Mapping[str, str]) -> list[str]:
    found = [plot for plot in plots.plots if plot.key in files]
    return [line for plot in found for line in ("", f"![{escaped(plot.caption)}]({files[plot.key]})")]


def _code(code: Code) -> list[str]:
    longest = max((len(run) for run in re.findall("`+", code.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{code.language}", code.text.rstrip("\n"), fence]


def _table(table: Table) -> list[str]:
    header = "| " + " | ".join(escaped(column.title) for column in table.columns) + " |"
    rule = "|" + "|".join("---:" if column.number else "---" for column in table.columns) + "|"
    rows = [_row(row, len(table.columns)) for row in table.rows]
    notes = [f"- {escaped(f'{name}: {text}' if name else text)}" for name, text in table.explained]
    return [f"**{escaped(table.caption)}**", "", header, rule, *rows, *([""] if notes else []), *notes]


def _row(row: Row, columns: int) -> str:
    if row.failed is not None:
        cells = [_cell(row.cells[0]), f"failed: {escaped(row.failed)}", *[""] * (columns - 2)][:columns]
    else:
        cells = [_cell(cell) for cell in row.cells]
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    text = f"**{escaped(cell.text)}**" if cell.best and not cell.compared else escaped(cell.text)
    letter = f"{cell.letter} " if cell.letter else ""
    beats = f"<sup>{letters(cell.beats_holm)}</sup>" if cell.beats_holm else ""
    compared = f"**{escaped(cell.compared)}**" if cell.best else escaped(cell.compared)
    detail = " ".join(one for one in (escaped(cell.detail), compared if cell.compared else "") if one)
    around = "{}" if cell.detail.startswith("[") or not detail else "({})"
    return f"{letter}{text}{beats} {around.format(detail)}".rstrip()


def letters(found: Sequence[str]) -> str:
    """Letters one after the other, apart where one has two of them.

    >>> letters(["a", "c"]), letters(["z", "aa"])
    ('ac', 'z aa')
    """
    return (" " if any(len(one) > 1 for one in found) else "").join(found)

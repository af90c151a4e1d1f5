"""How numbers are written, and the parts of a report that they stand in before they are a page or a Markdown file."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from colabel.evaluation.significance import Interval
from colabel.measures import p_text

NONE = "–"


def figure(value: float | None) -> str:
    """A measure, to three places.

    >>> figure(0.38251), figure(None), figure(-1e-17)
    ('0.383', '–', '0.000')
    """
    return NONE if value is None else f"{round(value, 3) + 0.0:.3f}"


def signed(value: float | None) -> str:
    """A difference, to three places, with its sign.

    >>> signed(0.012), signed(-0.0401), signed(-0.0001)
    ('+0.012', '−0.040', '0.000')
    """
    if value is None:
        return NONE
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def bounds(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """An interval, which is not broken at the end of a line.

    >>> bounds(0.25, 0.5), bounds(-0.25, 0.5, sign=True), bounds(None, 0.5)
    ('[0.250,\xa00.500]', '[−0.250,\xa0+0.500]', '')
    """
    write = signed if sign else figure
    return "" if low is None or high is None else f"[{write(low)},\u00a0{write(high)}]"


def count(value: int | None) -> str:
    """A whole number in groups of three digits."""
    return NONE if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """A share, as 12.3 %."""
    return NONE if value is None else f"{100 * value:.1f} %"


def times(value: float | None) -> str:
    """A ratio, as ×2.67."""
    return NONE if value is None else f"×{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them.

    >>> duration(0.25), duration(59.4), duration(61), duration(3700)
    ('0.25 s', '59.4 s', '1 min 01 s', '1 h 02 min')
    """
    if seconds is None:
        return NONE
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def p_value(p: float | None) -> str:
    """A p-value in four digits."""
    return p_text(p, NONE)


def letters(found: Sequence[str]) -> str:
    """Letters one after the other, apart where one has two of them.

    >>> letters(["a", "c"]), letters(["z", "aa"])
    ('ac', 'z aa')
    """
    return (" " if any(len(one) > 1 for one in found) else "").join(found)


def prose(name: str, *values: object) -> str:
    """Sentences of ``templates/prose.j2`` with some values, in one line."""
    return re.sub("[ \n]+", " ", str(getattr(_prose(), name)(*values))).strip()


@functools.cache
def _prose() -> Any:
    found = Environment(loader=PackageLoader("colabel.reporting"), undefined=StrictUndefined)
    found.filters["count"] = count
    return found.get_template("prose.j2").module


class Part(msgspec.Struct, frozen=True):
    """A part of a section."""

    @property
    def kind(self) -> str:
        """What templates know it by."""
        return type(self).__name__.lower()


class Text(Part, frozen=True):
    """A paragraph of plain text."""

    text: str
    warning: bool = False


class Code(Part, frozen=True):
    """Text that keeps its lines."""

    text: str
    language: str = ""


class Column(msgspec.Struct, frozen=True):
    """A column of a table; numbers stand to the right and sort by their value, the largest first.

    ``lettered`` numbers have superscripts, which would push them out of line, and stand to the left.
    """

    title: str
    number: bool = True
    hint: str = ""
    lettered: bool = False


class Cell(msgspec.Struct, frozen=True):
    """One entry of a table.

    Attributes:
        value: what a column of numbers sorts by; None: last.
        compared: the end of that line, where a column is decided by it and not by ``text``.
        letter: the letter of the system that the line is about.
        beats, beats_holm: letters of the systems that it significantly beats, without and with Holm's correction.
        best: the best of its column, which marks ``compared``, or ``text`` where there is none.
    """

    text: str
    value: float | None = None
    detail: str = ""
    compared: str = ""
    letter: str = ""
    beats: tuple[str, ...] = ()
    beats_holm: tuple[str, ...] = ()
    best: bool = False


class TableLine(msgspec.Struct, frozen=True):
    """A line of a table; that of a system which failed has its first cell and the reason."""

    cells: tuple[Cell, ...]
    group: str = ""
    failed: str | None = None


class Table(Part, frozen=True):
    """A table that can be sorted. ``key`` is its id on the page; ``notes`` are sentences that stand below it."""

    key: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[TableLine, ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, list[TableLine]]:
        """Group → its lines; one group without a name where lines have none."""
        found: dict[str, list[TableLine]] = {}
        for line in self.lines:
            found.setdefault(line.group, []).append(line)
        return found

    @property
    def explained(self) -> list[tuple[str, str]]:
        """Columns, those of one meaning together, with what they mean; then the notes, of no column."""
        meanings: dict[str, list[str]] = {}
        for column in self.columns:
            if column.hint:
                meanings.setdefault(column.hint, []).append(column.title)
        columns = ((", ".join(titles), hint) for hint, titles in meanings.items())
        return [*columns, *(("", note) for note in self.notes)]


class Plot(msgspec.Struct, frozen=True):
    """A drawn plot. ``key`` is unique on the page; ``caption`` says what it shows to those who cannot see it."""

    key: str
    caption: str
    svg: Markup


class Plots(Part, frozen=True):
    """Plots side by side. The legend has names and the numbers of their series."""

    plots: tuple[Plot, ...]
    legend: tuple[tuple[str, int], ...] = ()


class Folded(Part, frozen=True):
    """Parts that are shown when asked for."""

    summary: str
    parts: tuple[Part, ...]


class Section(msgspec.Struct, frozen=True):
    """A chapter of the report; ``switch``: with the choice between corrected and raw significance."""

    key: str
    title: str
    parts: tuple[Part, ...]
    switch: bool = False

    @property
    def has_more_than_plots(self) -> bool:
        """Whether there is something to read without its plots."""
        kinds = {part.kind for part in self.parts}
        return "plots" not in kinds or bool(kinds - {"text", "plots"})


def table(
    key: str, caption: str, columns: Sequence[Column], lines: Sequence[TableLine], notes: Sequence[str] = ()
) -> tuple[Table, ...]:
    """A table in a tuple, or nothing where it has no line: ready to be put among other parts."""
    return (Table(key, caption, tuple(columns), tuple(lines), tuple(notes)),) if lines else ()


def named_table(
    key: str, caption: str, heads: Sequence[str], pairs: Sequence[tuple[str, str]], notes: Sequence[str] = ()
) -> tuple[Table, ...]:
    """A table of two columns of text."""
    columns = [Column(head, number=False) for head in heads]
    return table(key, caption, columns, [TableLine((Cell(name), Cell(text))) for name, text in pairs], notes)


def value_cell(value: float | None) -> Cell:
    """A measure."""
    return Cell(figure(value), value)


def mean_cell(found: Interval | None, *, sign: bool = False) -> Cell:
    """A mean with its interval."""
    if found is None:
        return Cell(NONE)
    return Cell((signed if sign else figure)(found.mean), found.mean, bounds(found.low, found.high, sign=sign))


def marked_best(lines: Sequence[TableLine], columns: Sequence[int]) -> list[TableLine]:
    """The lines with the highest value of each of some columns marked, with those that are written the same."""
    highest = {}
    for place in columns:
        known = [(cell.value, cell.text) for line in lines if (cell := line.cells[place]).value is not None]
        highest[place] = max(known, default=(0.0, None))[1]

    def marked(line: TableLine) -> TableLine:
        best = (cell.value is not None and cell.text == highest.get(place) for place, cell in enumerate(line.cells))
        cells = (msgspec.structs.replace(cell, best=one) for cell, one in zip(line.cells, best, strict=True))
        return msgspec.structs.replace(line, cells=tuple(cells))

    return [marked(line) for line in lines]

"""What a report is made of, before it is a page or a Markdown file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from colabel.reporting.markup import Markup


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph of plain text."""

    text: str
    warning: bool = False


@dataclasses.dataclass(frozen=True)
class Code:
    """Text that keeps its lines."""

    text: str
    language: str = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; numbers stand to the right and sort by their value, the largest first.

    ``lettered`` numbers have superscripts, which would push them out of line, and stand to the left.
    """

    title: str
    number: bool = True
    hint: str = ""
    lettered: bool = False


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: what is shown.
        value: what a column of numbers sorts by; None: last.
        detail: a second, smaller line.
        compared: the end of that line, where a column is decided by it and not by ``text``.
        letter: the letter of the system that the row is about.
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


@dataclasses.dataclass(frozen=True)
class Row:
    """A row; one that failed has its first cell and the reason."""

    cells: tuple[Cell, ...]
    group: str = ""
    failed: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that can be sorted. ``key`` is its id on the page; ``notes`` are sentences that stand below it."""

    key: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def explained(self) -> list[tuple[str, str]]:
        """Columns, those of one meaning together, with what they mean; then the notes, of no column."""
        meanings: dict[str, list[str]] = {}
        for column in self.columns:
            if column.hint:
                meanings.setdefault(column.hint, []).append(column.title)
        columns = ((", ".join(titles), hint) for hint, titles in meanings.items())
        return [*columns, *(("", note) for note in self.notes)]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A drawn plot. ``key`` is unique on the page; ``caption`` says what it shows to those who cannot see it."""

    key: str
    caption: str
    svg: Markup


@dataclasses.dataclass(frozen=True)
class Plots:
    """Plots side by side; ``small`` ones fit four in a row."""

    plots: tuple[Plot, ...]
    legend: tuple[tuple[str, int], ...] = ()
    small: bool = False


@dataclasses.dataclass(frozen=True)
class Custom:
    """Something that a page and a Markdown file show each in its own way."""

    html: Markup
    markdown: str


@dataclasses.dataclass(frozen=True)
class Folded:
    """Parts that are shown when asked for."""

    summary: str
    parts: tuple[Text | Table | Code, ...]


Part = Text | Code | Table | Plots | Custom | Folded


@dataclasses.dataclass(frozen=True)
class Section:
    """A chapter of the report; ``switch``: with the choice between corrected and raw significance."""

    key: str
    title: str
    parts: tuple[Part, ...]
    switch: bool = False


def table(
    key: str, caption: str, columns: Sequence[Column], rows: Sequence[Row], notes: Sequence[str] = ()
) -> tuple[Table, ...]:
    """A table in a tuple, or nothing where it has no row: ready to be put among other parts."""
    return (Table(key, caption, tuple(columns), tuple(rows), tuple(notes)),) if rows else ()


def plots(
    drawn: Sequence[Plot | None], *, legend: Sequence[tuple[str, int]] = (), small: bool = False
) -> tuple[Plots, ...]:
    """Plots in a tuple, or nothing where none could be drawn."""
    found = tuple(plot for plot in drawn if plot is not None)
    return (Plots(found, tuple(legend), small),) if found else ()


def marked_best(rows: Sequence[Row], columns: Sequence[int]) -> list[Row]:
    """The rows with the highest value of each of some columns marked, with those that are written the same."""
    highest: dict[int, str] = {}
    for place in columns:
        cells = [row.cells[place] for row in rows if row.failed is None]
        known = [(cell.value, cell.text) for cell in cells if cell.value is not None]
        if known:
            highest[place] = max(known)[1]
    return [
        row
        if row.failed is not None
        else dataclasses.replace(
            row,
            cells=tuple(
                dataclasses.replace(cell, best=cell.value is not None and cell.text == highest.get(place))
                for place, cell in enumerate(row.cells)
            ),
        )
        for row in rows
    ]

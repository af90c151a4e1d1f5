"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from colabel.reporting.markdown import letters
from colabel.reporting.markup import Markup, join, tag
from colabel.reporting.parts import Cell, Code, Column, Custom, Folded, Part, Plot, Plots, Row, Section, Table, Text

_MARKS = "●■◆▲▼✚✖"  # as the markers of the plots


def page(title: str, about: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    """The whole file."""
    style, script = _resource("style.css"), _resource("script.js")
    links = [tag("li", tag("a", section.title, href=f"#{section.key}")) for section in sections]
    facts = [join([tag("dt", name), tag("dd", value)]) for name, value in about]
    body = tag(
        "body",
        tag(
            "header",
            tag("p", "colabel study", class_="kind"),
            tag("h1", title),
            tag("dl", *(tag("div", fact) for fact in facts)),
        ),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *(_section(section) for section in sections)),
        tag("p", id="told", class_="unseen", aria_live="polite"),
        tag("script", Markup(script)),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title}: colabel study"),
        tag("style", Markup(style)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en', data_significance='holm')}\n"


def standalone_svg(plot: Plot) -> str:
    """A plot as a file of its own, in the colours of the page, light and dark."""
    colours, _, _ = _resource("style.css").partition("* {")
    look = "svg { color: var(--ink); background: var(--paper); font-family: sans-serif; }"
    start, _, rest = plot.svg.partition(">")
    return f'{start} xmlns="http://www.w3.org/2000/svg"><style>{colours}{look}</style>{rest}\n'


def _resource(name: str) -> str:
    return resources.files("colabel.reporting").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, and no script runs but ours, whatever the texts of a collection hold."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _section(section: Section) -> Markup:
    switch = _switch() if section.switch else None
    parts = [_part(part) for part in section.parts]
    heading = tag("h2", section.title, id=f"{section.key}-title")
    return tag("section", heading, switch, *parts, id=section.key, aria_labelledby=f"{section.key}-title")


def _switch() -> Markup:
    choices = (("holm", "Holm's correction"), ("raw", "uncorrected"))
    labels = [
        tag("label", tag("input", type="radio", name="significance", value=value, checked=value == "holm"), name)
        for value, name in choices
    ]
    printed = [tag("p", f"Superscripts: {name}.", class_=f"printed {value}") for value, name in choices]
    return join([tag("fieldset", tag("legend", "Significance"), *labels, class_="switch"), *printed])


def _part(part: Part) -> Markup:
    if isinstance(part, Text):
        return tag("p", part.text, class_="warning" if part.warning else None)
    if isinstance(part, Code):
        return tag("pre", tag("code", part.text), tabindex="0")
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Plots):
        return _plots(part)
    if isinstance(part, Folded):
        return tag("details", tag("summary", part.summary), *(_part(inner) for inner in part.parts))
    return part.html if isinstance(part, Custom) else Markup()


def _plots(plots: Plots) -> Markup:
    entries = [
        tag("li", tag("span", _MARKS[number % len(_MARKS)], class_=f"series-{number % len(_MARKS) + 1}"), name)
        for name, number in plots.legend
    ]
    legend = tag("ul", *entries, class_="legend") if entries else None
    grid = tag("div", *(_plot(plot) for plot in plots.plots), class_="plots small" if plots.small else "plots")
    return join([legend, grid])


def _plot(plot: Plot) -> Markup:
    return tag("figure", plot.svg, tag("figcaption", plot.caption), id=f"plot-{plot.key}")


def _table(table: Table) -> Markup:
    heads = [_head(table, place) for place in range(len(table.columns))]
    groups = list(dict.fromkeys(row.group for row in table.rows))
    bodies = [_group(table, group, named=groups != [""]) for group in groups]
    named = {"aria_labelledby": f"caption-{table.key}"}
    body = tag("table", tag("thead", tag("tr", *heads)), *bodies, id=f"table-{table.key}", **named)
    region = tag("div", body, class_="scroll", role="region", tabindex="0", **named)
    size = "table" if len(table.columns) > 4 or groups != [""] else "table small"
    caption = tag("figcaption", table.caption, id=f"caption-{table.key}")
    notes = [tag("li", tag("b", f"{name}: ") if name else None, text) for name, text in table.explained]
    below = tag("ul", *notes, class_="explained") if notes else None
    return tag("figure", caption, region, below, class_=size)


def _group(table: Table, group: str, *, named: bool) -> Markup:
    """A group's rows under one heading."""
    rows = [_row(row, table) for row in table.rows if row.group == group]
    if named:
        name = tag("th", tag("span", group or "other"), scope="rowgroup", colspan=str(len(table.columns)))
        rows.insert(0, tag("tr", name, class_="group"))
    return tag("tbody", *rows)


def _head(table: Table, place: int) -> Markup:
    column = table.columns[place]
    button = tag("button", column.title, type="button", title=column.hint or None)
    kind = "number" if column.number else "text"
    return tag("th", button, scope="col", aria_sort="none", class_=_class(column), data_kind=kind)


def _class(column: Column) -> str:
    return "lettered" if column.lettered else "number" if column.number else "text"


def _row(row: Row, table: Table) -> Markup:
    first = _cell(row.cells[0], "th", table.columns[0])
    if row.failed is not None:
        reason = tag("td", f"failed: {row.failed}", colspan=str(len(table.columns) - 1), class_="failed")
        return tag("tr", first, reason)
    others = zip(row.cells[1:], table.columns[1:], strict=True)
    return tag("tr", first, *(_cell(cell, "td", column) for cell, column in others))


def _cell(cell: Cell, name: str, column: Column) -> Markup:
    shown = cell.text.replace(" = ", "\u00a0=\u00a0")  # β = 1 stays in one line
    deciding = tag("strong", cell.compared) if cell.best else cell.compared
    detail = join([one for one in (cell.detail, deciding) if one], " ")
    parts = [
        tag("span", cell.letter, class_="letter") if cell.letter else None,
        tag("strong", shown) if cell.best and not cell.compared else shown,
        tag("sup", letters(cell.beats_holm), class_="holm") if cell.beats_holm else None,
        tag("sup", letters(cell.beats), class_="raw") if cell.beats else None,
        tag("span", detail, class_="detail") if detail else None,
    ]
    value = None if cell.value is None else repr(float(cell.value))
    scope = "row" if name == "th" else None
    return tag(
        name,
        *parts,
        class_=f"{_class(column)} named" if cell.letter else _class(column),
        data_value=value,
        data_name=cell.text if cell.letter else None,
        scope=scope,
    )

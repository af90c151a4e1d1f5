"""The main table for a paper: LaTeX for the package booktabs, lettered and with superscripts as in the paper."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE
from colabel.reporting.markdown import letters
from colabel.reporting.parts import Cell, Row, Table
from colabel.reporting.records import SEEDLESS
from colabel.reporting.results import explained, results, system_letters
from colabel.reporting.seeds import unequal

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\u00a0": "~",
    "β": r"$\beta$",
    "θ": r"$\theta$",
    "φ": r"$\phi$",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "→": r"$\rightarrow$",
    "σ": r"$\sigma$",
    "×": r"$\times$",
    **{one: f"${one}$" for one in "<>|"},
    **{one: f"\\{one}" for one in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _WRITTEN)))


def latex(document: StudyDocument) -> str:
    """A floating table of all systems; the comment on top names what it needs. Intervals are left to the report."""
    lines = [f"% {document.name}: needs \\usepackage{{booktabs}}"]
    for table in results(document):
        kept = [place for place, column in enumerate(table.columns) if not column.title.startswith("unjudged")]
        seeds = _seeds(document)
        titles = [table.columns[place].title for place in kept]
        lines += [
            r"\begin{table*}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * (len(kept) - 1 + bool(seeds))}}}",
            r"\toprule",
            _line([escaped(title) for title in (titles[0], *(["seeds"] if seeds else []), *titles[1:])]),
            *_body(table, kept, seeds),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escaped(_caption(document, table))}}}",
            rf"\label{{tab:colabel-{re.sub('[^a-z0-9]+', '-', document.name.lower()).strip('-')}}}",
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    r"""Text that LaTeX shows as it is, on one line.

    >>> escaped("50 % of f_p (β = 0.5)")
    '50 \\% of f\\_p ($\\beta$ = 0.5)'
    """
    flat = " ".join(text.replace("\u00a0", "\0").split()).replace("\0", "\u00a0")
    return _SPECIAL.sub(lambda found: _WRITTEN[found.group()], flat)


def _caption(document: StudyDocument, table: Table) -> str:
    """What the table shows; bold on a seed that all have need not be the highest of the means that are shown."""
    bold = "" if document.compared_seed is None else ", and need not be the highest of the figures shown"
    hints = "".join(f" {one.title}: {one.hint}." for one in table.columns if one.title.startswith("ms"))
    return f"{document.name}. {table.caption}{bold}. {explained(document, intervals=False)}{hints}"


def _seeds(document: StudyDocument) -> dict[str, str]:
    """Letter → how many seeds a mean is over, where rows differ in it; a dash for what draws nothing at random."""
    counts = document.seed_counts
    if not unequal(counts):
        return {}
    return {name: NONE if slug in SEEDLESS else str(counts[slug]) for slug, name in system_letters(document).items()}


def _body(table: Table, kept: Sequence[int], seeds: Mapping[str, str]) -> list[str]:
    """A rule before each group; systems that failed are left out."""
    lines = []
    for _, group in itertools.groupby((row for row in table.rows if row.failed is None), key=lambda row: row.group):
        lines += [r"\midrule", *(_row(row, kept, seeds) for row in group)]
    return lines


def _row(row: Row, kept: Sequence[int], seeds: Mapping[str, str]) -> str:
    name = row.cells[0]
    first = f"{escaped(name.text)} ({name.letter})" if name.letter else escaped(name.text)
    trained = [escaped(seeds[name.letter])] if seeds else []
    return _line([first, *trained, *(_figure(row.cells[place]) for place in kept[1:])])


def _figure(cell: Cell) -> str:
    text = rf"\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text)
    return f"{text}$^{{{letters(cell.beats_holm).replace(' ', ',')}}}$" if cell.beats_holm else text


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"

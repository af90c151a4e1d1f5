"""What commands print: tables and JSON on stdout; progress, log lines and errors on stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from colabel.errors import DataError
from colabel.progress import SILENT, Progress, Task

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar
    from rich.progress import TaskID

    from colabel.evaluation import Interval, PairedTest
    from colabel.ranking.late_interaction import Hit

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and those that turn the direction of a text around."""
_SHOWN_BARS: list[RichBar] = []  # taken away while something is printed
_LINE_SECONDS = 15.0  # at least, between two lines of progress where there is no terminal
_AT_ONCE = 0.1  # seconds: what is reported so early was done by an earlier call
_LINE_SHARE = 0.1  # of the time since the work began, so that a log of hours stays short
_EVEN = 20  # units from which on their times are taken to be alike


def configure_logging(*, verbose: bool, quiet: bool) -> None:
    """Log to stderr: information and warnings of ours; with --verbose also details, and warnings of the libraries."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "warning" if verbose else "error")  # it resets its logger
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_CleanFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("colabel").setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO)
    for library in ("sentence_transformers", "transformers", "bm25s"):
        logging.getLogger(library).setLevel(logging.WARNING if verbose else logging.ERROR)


class _CleanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


def clean(text: str) -> str:
    r"""A text with all characters that could control a terminal written as escapes, which are JSON's, too.

    >>> print(clean("title\x1b]0;gone\x07"))
    title\u001b]0;gone\u0007
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def fail(message: str, code: int) -> NoReturn:
    """Print the sentence and leave."""
    click.echo(clean(f"colabel: {message}"), err=True)
    sys.exit(code)


def emit(text: str) -> None:
    """Data on stdout. A reader that has seen enough (``| head``) ends the program without an error."""
    for bar in _SHOWN_BARS:
        bar.stop()
    try:
        click.echo(clean(text))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be written at exit
        sys.exit(0)
    for bar in _SHOWN_BARS:
        bar.start()


def print_json(value: Any) -> None:
    """JSON on stdout; a number that is not finite has no place in it."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise DataError("a figure is not finite (nan or inf); is a model or an index damaged?") from None
    emit(text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned text table: the first column to the left, the others to the right.

    >>> print(table(["split", "queries"], [["train", "809"], ["test", "300"]]))
    split  queries
    train      809
    test       300
    """
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def hit_lines(hit: Hit) -> list[str]:
    """A hit for people: a head line, and its text in at most three lines."""
    likely = "" if hit.probability is None else f"  p {hit.probability:.2f}"
    head = f"{hit.rank:>3}  {hit.score:.3f}{likely}  {hit.passage_id}"
    title = f"  {hit.title}" if hit.title and hit.title != hit.passage_id else ""
    body = textwrap.wrap(hit.text, width=96, max_lines=3, placeholder=" …")
    return [head + title, *(f"     {line}" for line in body)]


def difference_cells(test: PairedTest) -> list[str]:
    """The mean difference and its interval."""
    return [f"{test.difference.mean:+.4f}", interval_bounds(test.difference, "+")]


def interval_text(interval: Interval) -> str:
    """A mean with its interval."""
    return f"{interval.mean:.4f} [{interval_bounds(interval)}]"


def interval_bounds(interval: Interval, sign: str = "") -> str:
    """The two bounds of an interval, or why there are none."""
    if interval.low is None or interval.high is None:
        return "one query"
    return f"{interval.low:{sign}.4f}, {interval.high:{sign}.4f}"


def rate(speed: float) -> str:
    """Units a second, or a minute where that says more.

    >>> rate(1234.5), rate(0.05)
    ('1,234/s', '3.0/min')
    """
    return f"{speed:,.0f}/s" if speed >= 1 else f"{60 * speed:,.1f}/min"


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """Bars on stderr while the block runs, lines now and then where it is a log file; silent with --quiet."""
    if logging.getLogger("colabel").level >= logging.ERROR:
        yield SILENT
        return
    if not sys.stderr.isatty():
        yield _Tasks(_Line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichBar

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TextColumn("{task.fields[unit]}  {task.fields[rate]}"), TimeElapsedColumn()),
        *(TextColumn("left"), TimeRemainingColumn()),
    )
    with RichBar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        _SHOWN_BARS.append(bar)
        try:
            yield _Tasks(lambda what, total, unit: _Bar(bar, bar.add_task(what, total=total, unit=unit, rate="")))
        finally:
            _SHOWN_BARS.remove(bar)


class _Tasks:
    """Progress of which every task is shown by what ``show`` makes."""

    def __init__(self, show: Callable[[str, int | None, str], Task]) -> None:
        self.start = show


class _Bar:
    def __init__(self, bar: RichBar, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def advance(self, steps: int = 1) -> None:
        self._bar.advance(self._task, steps)
        speed = self._bar.tasks[self._bar.task_ids.index(self._task)].speed
        self._bar.update(self._task, rate=rate(speed) if speed else "")

    def close(self) -> None:
        self._bar.remove_task(self._task)


class _Line:
    """A line for work that takes longer than a few seconds, with the time left."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = self._before = 0
        self._begun = self._told = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._begun < _AT_ONCE:
            self._before += steps
        made = self._done - self._before
        if now - self._told < max(_LINE_SECONDS, _LINE_SHARE * (now - self._begun)) or not made:
            return
        self._told = now
        of = "" if self._total is None else f" of {self._total:,}"
        where = f"{self._done:,}{of} {self._unit}, {rate(made / (now - self._begun))}"
        if self._total is not None and self._total >= _EVEN:
            left = (now - self._begun) / made * (self._total - self._done)
            where += f", about {left / 60:.1f} min left"
        click.echo(f"{self._what}: {where}", err=True)

    def close(self) -> None:
        pass

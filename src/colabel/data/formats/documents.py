"""A folder of ``.txt``, ``.md`` and ``.html`` files, at any depth, cut into passages on paragraph bounds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.data.formats.base import Source
from colabel.data.pieces import pack
from colabel.data.text_lines import Located, Problems, read_lines
from colabel.settings import DataSettings
from colabel.types import Passage

WORDS = 150
"""Words of a passage, at most, unless one paragraph has more: what an encoder of 180 to 256 tokens reads whole."""
OVERLAP = 30
"""A last paragraph of at most so many words also begins the next passage, so that no thought is cut in two."""

_ENDINGS = {".txt", ".text", ".md", ".markdown", ".html", ".htm"}
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form"),
        *("header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
    )
)
_SKIPPED = frozenset(("script", "style", "template", "noscript"))


class Paragraph(NamedTuple):
    """A paragraph, the heading above it and its first line."""

    heading: str
    text: str
    line: int


def holds_documents(path: Path) -> bool:
    """Whether it is a folder with a document somewhere."""
    return path.is_dir() and next(_documents(path), None) is not None


def open_documents(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """A folder of documents, in the order of their paths, each cut into passages ``PATH#1``, ``PATH#2``, …

    Its queries and labels, if any, are named in ``[data]``.
    """
    folder = Path(name)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(_documents(folder))}

    def passages(problems: Problems) -> Iterator[Located[Passage]]:
        for relative, path in files.items():
            for number, (heading, text, line) in enumerate(cut(_paragraphs(path, problems)), start=1):
                title = f"{relative}: {heading}" if heading else relative
                passage = Passage(f"{quote(relative)}#{number}", title, text, {"file": relative})
                yield Located(passage, str(path), line)

    own_name = folder.resolve().name
    return Source(
        name=own_name,
        passages=passages,
        fingerprint=lambda: fingerprint([[relative, file_fingerprint(path)] for relative, path in files.items()]),
        provenance={"format": "documents", "folder": own_name, "words": str(WORDS), "overlap": str(OVERLAP)},
    )


def cut(paragraphs: Iterator[Paragraph]) -> Iterator[Paragraph]:
    """Join paragraphs below one heading to passages of at most ``WORDS`` words.

    >>> [part.text for part in cut(iter([Paragraph("", "one two", 1), Paragraph("", "three", 3)]))]
    ['one two three']
    """
    for _, below in itertools.groupby(paragraphs, key=lambda paragraph: paragraph.heading):
        for held in pack(below, lambda one: len(one.text.split()), WORDS, OVERLAP):
            yield held[0]._replace(text=" ".join(one.text for one in held))


def _documents(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in _ENDINGS and not hidden and path.is_file():
            yield path


def _paragraphs(path: Path, problems: Problems) -> Iterator[Paragraph]:
    """Paragraphs of one file; blank lines (in HTML: blocks) separate them."""
    lines = ((line.line, line.value) for line in read_lines(path, problems))
    if path.suffix.lower() in (".html", ".htm"):
        page = _Page()
        page.feed("\n".join(text for _, text in lines))
        page.close()
        page.flush()
        yield from page.found
        return
    markdown = path.suffix.lower() in (".md", ".markdown")
    heading, held, start, last = "", list[str](), 0, 0
    for number, text in lines:
        title = _HEADING.match(text) if markdown else None
        if held and (title or number > last + 1):  # blank lines are not among the lines
            yield Paragraph(heading, " ".join(held), start)
            held = []
        last = number
        if title:
            heading = title[1]
            continue
        start = start if held else number
        held.append(" ".join(text.split()))
    if held:
        yield Paragraph(heading, " ".join(held), start)


class _Page(HTMLParser):
    """Collects the paragraphs of a page with the heading above each."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Paragraph] = []
        self._heading, self._held, self._skipped, self._line = "", list[str](), 0, 1

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a block, or a part that is not shown."""
        self._skipped += tag in _SKIPPED
        if tag in _BLOCKS or re.fullmatch(r"h[1-6]|title", tag):
            self.flush()

    def handle_endtag(self, tag: str) -> None:
        """End a block; a heading counts for what follows it."""
        self._skipped = max(0, self._skipped - (tag in _SKIPPED))
        if re.fullmatch(r"h[1-6]|title", tag):
            self._heading, self._held = " ".join("".join(self._held).split()), []
        elif tag in _BLOCKS:
            self.flush()

    def handle_data(self, data: str) -> None:
        """Keep text that is shown."""
        if not self._skipped and (self._held or data.strip()):
            self._line = self._line if self._held else self.getpos()[0]
            self._held.append(data)

    def flush(self) -> None:
        """End the paragraph."""
        text = " ".join("".join(self._held).split())
        if text:
            self.found.append(Paragraph(self._heading, text, self._line))
        self._held = []

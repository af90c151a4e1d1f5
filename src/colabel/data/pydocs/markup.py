"""Blocks of reStructuredText to plain paragraphs: markup goes, words stay."""

from __future__ import annotations

import re
from textwrap import dedent

from colabel.data.pydocs.inline import plain

_DIRECTIVE = re.compile(r"\s*\.\.\s+([\w-]+)::\s*(.*)")
_COMMENT = re.compile(r"\s*\.\.(\s|$)")
_FIELD = re.compile(r"\s*:(?:param (?:\w+ )?(\w+)|[^:`]+):\s+(.*)")
_RULE = re.compile(r"(?=.*([-=+~^#*_])\1)[-=+|~^#*_.:\s]+")
_PROSE_DIRECTIVES = frozenset(["note", "warning", "hint", "attention", "important", "tip", "caution", "danger"])


def paragraphs(lines: list[str]) -> list[str]:
    """The prose of some lines, one string a paragraph; code, formulas, tables and most directives are left out.

    >>> paragraphs(["See :func:`~numpy.roll` for", "``n`` points::", "", "    roll(x, n)", "", ".. versionadded:: 1"])
    ['See roll for n points:']
    """
    return _Reader(lines).read()


def block_end(lines: list[str], start: int, indent: int) -> int:
    """Where the lines from ``start`` on stop being blank or indented deeper than ``indent``."""
    end = start
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    return end


def unindented(lines: list[str]) -> list[str]:
    """The lines without their common indentation."""
    return dedent("\n".join(lines)).split("\n")


class _Reader:
    """Goes through lines once; each kind of block is told by its first line."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.next = 0
        self.current: list[str] = []
        self.found: list[str] = []

    def read(self) -> list[str]:
        while self.next < len(self.lines):
            line = self.lines[self.next]
            self.next += 1
            if not line.strip():
                self._flush()
            elif match := _DIRECTIVE.match(line):
                self._directive(line, match[1].lower(), match[2])
            elif match := _FIELD.match(line):
                self._field(line, match[1], match[2])
            elif _COMMENT.match(line):
                self._flush()
                self._take_block(line)
            elif line.lstrip().startswith(">>>"):
                self._session()
            elif line.rstrip().endswith("::"):
                self._literal(line)
            else:
                self.current.append(line)
        self._flush()
        return [text for text in self.found if any(char.isalpha() for char in text)]

    def _flush(self) -> None:
        if self.current and not any(_RULE.fullmatch(line) for line in self.current):  # such lines make a table
            self.found.append(plain(" ".join(self.current)))
        self.current.clear()

    def _take_block(self, head: str) -> list[str]:
        start, self.next = self.next, block_end(self.lines, self.next, _indent(head))
        return unindented(self.lines[start : self.next])

    def _directive(self, line: str, name: str, argument: str) -> None:
        self._flush()
        block = self._take_block(line)
        if name in _PROSE_DIRECTIVES:
            self.found.extend(paragraphs([argument, *block]))

    def _field(self, line: str, parameter: str | None, description: str) -> None:
        self._flush()
        if parameter:
            self.current.append(f"{parameter}: {description}")
        else:  # ":Character code: 'L'" and the like, which also differ between machines
            self._take_block(line)

    def _session(self) -> None:
        self._flush()
        while self.next < len(self.lines) and self.lines[self.next].strip():
            self.next += 1

    def _literal(self, line: str) -> None:
        self.current.append(line.rstrip()[:-1])
        self._take_block(line)
        if len(" ".join(self.current).split()) < 5:  # "Call signature:" says nothing without its block
            self.current.clear()
        self._flush()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

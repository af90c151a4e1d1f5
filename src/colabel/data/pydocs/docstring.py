"""Split a documentation string of the numpydoc or Google kind into summary, body and cross-references."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from colabel.data.pydocs.inline import plain
from colabel.data.pydocs.markup import block_end, paragraphs, unindented
from colabel.data.pydocs.see_also import names_in_prose, names_in_section

_UNDERLINE = re.compile(r"\s*([-=~])\1{2,}\s*")
_GOOGLE = re.compile(
    r"(Args|Arguments|Keyword [Aa]rgs|Keyword [Aa]rguments|Parameters|Returns?|Yields|Raises|Attributes|Shape|Notes?|"
    r"Warning|Examples?|Properties|References|See [Aa]lso|Inputs|Outputs)(?: \([^)]*\))?(::?)(?:\s+(.*))?"
)
_SIGNATURE = re.compile(r"(?:\.\. (?:function|method|class)::\s*)?[A-Za-z_][\w.]*\(")
_AFTER_SIGNATURE = re.compile(r"\s*(?:->.*|:)?\s*", re.DOTALL)
_SENTENCE_END = re.compile(
    r"(?<![.\s][A-Z])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)[.!?][)\"']?\s+(?=[A-Z\"'(\[`*])"
)
_REFERS = re.compile(r"see\s?also", re.IGNORECASE)
_ENTRY = re.compile(r"(?P<names>[^:]*?)\s*:(?:\s+(?P<rest>.*)|$)")

_PROSE = ""
_LABELS = {
    "parameters": "Parameters", "other parameters": "Parameters", "args": "Parameters", "arguments": "Parameters",
    "keyword args": "Parameters", "keyword arguments": "Parameters", "inputs": "Parameters",
    "returns": "Returns", "return": "Returns", "outputs": "Returns", "yields": "Yields", "raises": "Raises",
    "raise": "Raises", "warns": "Warns", "attributes": "Attributes", "shape": _PROSE,
    "notes": _PROSE, "note": _PROSE, "warnings": _PROSE, "warning": _PROSE,
}  # fmt: skip
_ENOUGH = 3000
"""Characters after which no more of a body is read: a passage is much shorter, even if half of it is boilerplate."""
_DROPPED = frozenset(("examples", "example", "references", "methods", "properties"))
_SEE_ALSO = "see also"


class Block(NamedTuple):
    """A paragraph, or one parameter with its description; ``label`` names its section ("" is running text)."""

    label: str
    text: str


class Docstring(NamedTuple):
    """A documentation string in parts: ``see_also`` holds names as written, in order, without repeats."""

    summary: str
    body: tuple[Block, ...]
    see_also: tuple[str, ...]


class _Section(NamedTuple):
    title: str
    lines: list[str]
    google: bool = False


def split_docstring(doc: str) -> Docstring:
    """Split a raw ``__doc__``.

    >>> split_docstring('''Add two numbers. Both are whole.
    ...
    ... Parameters
    ... ----------
    ... a : int
    ...     The first number.
    ...
    ... See Also
    ... --------
    ... subtract : The inverse.
    ... ''')
    Docstring(summary='Add two numbers.', body=(Block(label='', text='Both are whole.'), \
Block(label='Parameters', text='a (int): The first number.')), see_also=('subtract',))
    """
    summary = ""
    blocks: list[Block] = []
    references: list[str] = []
    length = 0
    refers = _REFERS.search(doc)  # most do not, and need not be searched line by line
    for section in _sections(_without_signature(inspect.cleandoc(doc).split("\n"))):
        if section.title == _SEE_ALSO:
            references.extend(names_in_section(section.lines))
        elif section.title not in _DROPPED:
            if refers:
                references.extend(names_in_prose(section.lines))
            for block in _blocks(section) if length < _ENOUGH else ():
                blocks.append(block)
                length += len(block.text)
                if length >= _ENOUGH:
                    break
    if blocks and blocks[0].label == _PROSE:
        summary, rest = first_sentence(blocks[0].text)
        blocks[:1] = [Block(_PROSE, rest)] if rest else []
    body = dict.fromkeys(block for block in blocks if not block.text.lower().startswith("see also"))
    return Docstring(summary, tuple(body), tuple(dict.fromkeys(references)))


def first_sentence(text: str) -> tuple[str, str]:
    """A paragraph's first sentence and the rest.

    >>> first_sentence("Compute norms, e.g. the 2-norm. Slow.")
    ('Compute norms, e.g. the 2-norm.', 'Slow.')
    """
    match = _SENTENCE_END.search(text)
    return (text[: match.end()].rstrip(), text[match.end() :]) if match else (text, "")


def _without_signature(lines: list[str]) -> list[str]:
    """Drop leading signatures, one or more, each possibly over several lines: ``sin(x, /, out=None)``."""
    while lines:
        start = next((i for i, line in enumerate(lines) if line.strip(" -")), len(lines))  # "--" ends a C signature
        end = _signature_end(lines, start)
        if end == start:
            return lines[start:]
        lines = lines[end:]
    return lines


def _signature_end(lines: list[str], start: int) -> int:
    """The line after the signature that starts at ``start``; ``start`` itself if there is none."""
    if start == len(lines) or not _SIGNATURE.match(lines[start]):
        return start
    text = ""
    for end in range(start, min(start + 12, len(lines))):
        text += lines[end] + "\n"
        if text.count("(") == text.count(")"):
            return end + 1 if _AFTER_SIGNATURE.fullmatch(text[text.rindex(")") + 1 :]) else start
    return start


def _sections(lines: list[str]) -> list[_Section]:
    """Sections with lower-case titles; the text before, between and after them has an empty title."""
    sections = [_Section("", [])]
    i = 0
    while i < len(lines):
        line = lines[i]
        if i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1]) and _known(title := line.strip().lower()):
            sections.append(_Section(title, []))
            i += 2
        elif sections[-1].title == "" and line[:1].isupper() and (match := _GOOGLE.fullmatch(line)):
            end = block_end(lines, i + 1, 0)
            first = [match[3]] if match[3] else []
            sections.append(_Section(match[1].lower(), first + unindented(lines[i + 1 : end]), google=True))
            sections.append(_Section("", []))
            i = end
        else:
            sections[-1].lines.append(line)
            i += 1
    return sections


def _known(title: str) -> bool:
    return title in _LABELS or title in _DROPPED or title == _SEE_ALSO


def _blocks(section: _Section) -> Iterator[Block]:
    label = _LABELS.get(section.title, _PROSE)
    if label == _PROSE:
        return (Block(label, text) for text in paragraphs(section.lines))
    texts = (_entry_text(entry, section.google) for entry in _entries(section.lines))
    return (Block(label, text) for text in texts if text)


def _entries(lines: list[str]) -> list[list[str]]:
    """Cut a section where an unindented line follows: each entry is its head and its indented lines."""
    entries: list[list[str]] = []
    for line in unindented(lines):
        if line[:1].strip() or not entries:
            entries.append([])
        entries[-1].append(line)
    return entries


def _entry_text(entry: list[str], google: bool) -> str:
    """``x : int`` and its description as ``x (int): description``; a head without a description is noise.

    In the Google form the description starts in the head: ``x (int): description``.
    """
    head, description = entry[0].strip(), " ".join(paragraphs(unindented(entry[1:])))
    match = _ENTRY.fullmatch(head)
    if match and len(match["names"].split()) < 6:
        names, rest = plain(match["names"]), plain(match["rest"] or "")
        if not description:
            return f"{names}: {rest}" if len(rest.split()) > 3 else ""
        if google or not rest:
            return f"{names}: {rest} {description}".replace("  ", " ")
        return f"{names} ({rest}): {description}"
    head = " ".join(paragraphs([head]))
    if description:
        return f"{head}: {description}" if len(head.split()) < 6 else f"{head} {description}"
    return head if len(head.split()) > 3 else ""

"""Documentation strings to plain words: summary, body and cross-references of a numpydoc or Google docstring.

docstring_parser finds the sections and their entries; what is here turns reStructuredText into words and names in
"See Also" texts into references.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any, NamedTuple

from colabel.errors import MissingExtraError

_SIGNATURE = re.compile(r"(?:\.\. (?:function|method|class)::\s*)?[A-Za-z_][\w.]*\(")
_AFTER_SIGNATURE = re.compile(r"\s*(?:->.*|:)?\s*", re.DOTALL)
_SENTENCE_END = re.compile(
    r"(?<![.\s][A-Z])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)[.!?][)\"']?\s+(?=[A-Z\"'(\[`*])"
)
_UNDERLINED = re.compile(r"^[ \t]*([A-Za-z]+(?: [A-Za-z]+)?)[ \t]*\n[ \t]*([-=~])\2{2,}[ \t]*$", re.MULTILINE)
_ROLE_NAME = re.compile(r":(?!math)[a-zA-Z][\w:+-]*:(?=`)")
_PROSE = ""
_LABELS = {
    "param": "Parameters", "other_param": "Parameters", "receives": "Parameters", "attribute": "Attributes",
    "returns": "Returns", "yields": "Yields", "raises": "Raises", "warns": "Warns",
    "notes": _PROSE, "warnings": _PROSE, "shape": _PROSE,
}  # fmt: skip
"""Key of a section in docstring_parser → its label in a passage. Other sections (examples, references) are left out."""
_ENTRIES = {key for key, label in _LABELS.items() if label}
_GOOGLE_TITLES = {
    "param": ("Keyword args", "Keyword Args", "Keyword arguments", "Keyword Arguments", "Inputs"),
    "notes": ("Note", "Notes"), "warnings": ("Warning", "Warnings"), "shape": ("Shape",),
    "see_also": ("See also", "See Also"), "methods": ("Properties", "References"),
}  # fmt: skip
"""Titles that libraries use beyond those that docstring_parser knows."""


class Block(NamedTuple):
    """A paragraph, or one parameter with its description; ``label`` names its section ("" is running text)."""

    label: str
    text: str


class Docstring(NamedTuple):
    """A documentation string in parts: ``see_also`` holds names as written, in order, without repeats."""

    summary: str
    body: tuple[Block, ...]
    see_also: tuple[str, ...]


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
    parsed = _parse("\n".join(_without_signature(inspect.cleandoc(doc).split("\n"))))
    prose = (parsed.description or "").split("\n")
    blocks = [Block(_PROSE, text) for text in paragraphs(prose)]
    references = names_in_prose(prose)
    for part in parsed.meta:
        lines = (part.description or "").split("\n")
        if part.args[0] == "see_also":
            references.extend(names_in_section(lines))
        elif part.args[0] in _LABELS:
            references.extend(names_in_prose(lines))
            blocks.extend(_entry(_LABELS[part.args[0]], part, lines))
    summary = ""
    if blocks and blocks[0].label == _PROSE:
        summary, rest = first_sentence(blocks[0].text)
        blocks[:1] = [Block(_PROSE, rest)] if rest else []
    body = dict.fromkeys(block for block in blocks if not block.text.lower().startswith("see also"))
    return Docstring(summary, tuple(body), tuple(dict.fromkeys(references)))


@functools.cache
def _parsers() -> tuple[Any, Any]:
    """Parsers of numpydoc and of Google docstrings."""
    try:
        from docstring_parser import google, numpydoc
    except ImportError:
        raise MissingExtraError("docstring_parser", "demo", "the collection 'pydocs'") from None
    # Entries are parsed as those of Raises, which keep the line "x : int, default 0" as it is. A directive
    # ".. deprecated::" does not end the description, which goes on below it.
    sections = [
        numpydoc.RaisesSection(section.title, section.key) if section.key in _ENTRIES else section
        for section in (*numpydoc.DEFAULT_SECTIONS, numpydoc.Section("Methods", "methods"))
        if section.key != "deprecation"
    ]
    titles = [
        google.Section(title, key, google.SectionType.MULTIPLE if key == "param" else google.SectionType.SINGULAR)
        for key, titles in _GOOGLE_TITLES.items()
        for title in titles
    ]
    return (
        numpydoc.NumpydocParser(sections),  # type: ignore[arg-type]  # declared as a dict, used as a list
        google.GoogleParser([*google.DEFAULT_SECTIONS, *titles]),
    )


def _parse(text: str) -> Any:
    """docstring_parser's view of a docstring; one that is of neither kind is all description."""
    from docstring_parser import Docstring as Parsed
    from docstring_parser import ParseError

    numpydoc, google = _parsers()
    text = _ROLE_NAME.sub("", text)  # a colon ends a name, also that of a role such as :class:`x`
    # People write "See also" and underline it as they please.
    even = _UNDERLINED.sub(lambda match: f"{match[1].title()}\n{'-' * len(match[1])}", text)
    if numpydoc.titles_re.search(even):
        return numpydoc.parse(even)
    # What follows a section without indentation is no part of it, and the parser drops it: move it to the front.
    blocks = re.split(r"\n(?=\S)", text)
    blocks.sort(key=lambda block: google.titles_re.match(block) is not None)
    try:
        return google.parse("\n".join(blocks))
    except ParseError:
        parsed = Parsed()
        parsed.long_description = text
        return parsed


def _entry(label: str, part: Any, lines: list[str]) -> Iterator[Block]:
    """One parameter, result or exception as ``x (int): description``; a name without a description is noise."""
    written = part.args[1] if len(part.args) > 1 else ""
    if written.startswith((".. ", ">>>")):  # a directive or a session among the entries
        label, lines = _PROSE, [written, *(f"    {line}" for line in lines)]
    if label == _PROSE:
        yield from (Block(label, text) for text in paragraphs(lines))
        return
    names, kind = (*re.split(r"\s*:\s*", written, maxsplit=1), "")[:2]
    head, description = plain(f"{names} ({kind})" if kind else names), " ".join(paragraphs(lines))
    if description:
        yield Block(label, f"{head}: {description}" if head else description)
    elif len((kind or names).split()) > 3:  # a sentence where a name or type is expected
        yield Block(label, plain(f"{names}: {kind}" if kind else names))


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


_QUOTED_NAME = re.compile(r"(?::[a-zA-Z][\w:]*:)?`{1,2}([^`]+)`{1,2}")
_NAME = re.compile(r"[~.!]*([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
_TARGET = re.compile(r".*<(.+)>")
_DESCRIPTION = re.compile(r"\s+:|:\s+|:$|\s+--?\s+")
_SEE_DIRECTIVE = re.compile(r"\s*\.\. seealso::\s*(.*)", re.IGNORECASE)
_SEE_SENTENCE = re.compile(r"\s*See also\b[:,]?\s*(.*)", re.IGNORECASE)


def names_in_section(lines: list[str]) -> list[str]:
    """Names at the head of each entry: ``a``, ``a, b``, ``a : text``, ``:func:`a` : text``, ``See `a` for more``.

    >>> names_in_section(["fft2, :func:`ifft` : Other transforms.", "    With more", "numpy.roll"])
    ['fft2', 'ifft', 'numpy.roll']
    """
    names: list[str] = []
    open_list = False
    for line in unindented(lines):
        # Indented lines describe the entry above, unless that one ends in a comma: then the list goes on.
        if line[:1].strip() or open_list:
            names.extend(_names_of_entry(line.strip()))
            open_list = line.rstrip().endswith(",")
    return names


def names_in_prose(lines: list[str]) -> list[str]:
    """Names that a ``.. seealso::`` directive or a sentence "See also …" refers to."""
    names: list[str] = []
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if match := _SEE_DIRECTIVE.match(line):
            block = [match[1], *lines[i + 1 : block_end(lines, i + 1, indent)]]
            names.extend(_quoted_names("\n".join(block)) or names_in_section(block))
        elif match := _SEE_SENTENCE.match(line):
            end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
            names.extend(_quoted_names("\n".join([match[1], *lines[i + 1 : end]])))
    return names


def _names_of_entry(line: str) -> list[str]:
    unquoted = _QUOTED_NAME.sub(lambda match: _target(match[1]), line.lstrip("-*• "))
    head = _DESCRIPTION.split(unquoted, maxsplit=1)[0]
    matches = [_NAME.fullmatch(part.strip(" .`*")) for part in re.split(r",|\band\b", head) if part.strip(" .`*")]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(matches) else _quoted_names(line)


def _quoted_names(text: str) -> list[str]:
    matches = (_NAME.fullmatch(_target(match[1])) for match in _QUOTED_NAME.finditer(text))
    return [match[1] for match in matches if match]


def _target(reference: str) -> str:
    match = _TARGET.fullmatch(reference)
    return (match[1] if match else reference).strip()


_BLOCK_DIRECTIVE = re.compile(r"\s*\.\.\s+([\w-]+)::\s*(.*)")
_COMMENT = re.compile(r"\s*\.\.(\s|$)")
_FIELD = re.compile(r"\s*:(?:param (?:\w+ )?(\w+)|[^:`]+):\s+(.*)")
_RULE = re.compile(r"(?=.*([-=+~^#*_])\1)[-=+|~^#*_.:\s]+")
_PROSE_BLOCK_DIRECTIVES = frozenset(["note", "warning", "hint", "attention", "important", "tip", "caution", "danger"])


def paragraphs(lines: list[str]) -> list[str]:
    """The prose of some lines, one string a paragraph; code, formulas, tables and most directives are left out.

    >>> paragraphs(["See :func:`~numpy.roll` for", "``n`` points::", "", "    roll(x, n)", "", ".. versionadded:: 1"])
    ['See roll for n points:']
    """
    return _Paragraphs(lines).read()


def block_end(lines: list[str], start: int, indent: int) -> int:
    """Where the lines from ``start`` on stop being blank or indented deeper than ``indent``."""
    end = start
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    return end


def unindented(lines: list[str]) -> list[str]:
    """The lines without their common indentation."""
    return dedent("\n".join(lines)).split("\n")


class _Paragraphs:
    """Goes through lines once; the first line of a block shows its kind."""

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
            elif match := _BLOCK_DIRECTIVE.match(line):
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
        if name in _PROSE_BLOCK_DIRECTIVES:
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


_ESCAPE = r"(?:\\(?=\w))?"  # `Tick`\s is how the plural of a name is written
_ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`([^`]*)`" + _ESCAPE)
_MATH = re.compile(r":math:`([^`]*)`|\$([^$\n]{1,200})\$")
_CODE = re.compile(r"``(.+?)``" + _ESCAPE)
_QUOTED = re.compile(r"`([^`]*)`(?:__?(?!\w))?" + _ESCAPE)
_STRONG = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])")
_FOOTNOTE = re.compile(r"(\[[\w#*-]+\])_(?!\w)")
_URL = re.compile(r"<?\b(?:https?|ftp)://[^\s<>]+>?")
_ADDRESS = re.compile(r"\s+at 0x[0-9A-Fa-f]+")
_BEFORE_STOP = re.compile(r"\s+([,.;](?:\s|$))")

_LATEX_FONT = re.compile(
    r"\\(?:text|textrm|textbf|mathrm|mathbf|mathcal|mathbb|mathtt|mathop|operatorname|boldsymbol)\s*\{([^{}]*)\}"
)
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_LATEX_LAYOUT = re.compile(r"\\(?:left|right|limits|displaystyle|q?quad|[bB]igg?)(?![a-zA-Z])|\\[,;:! ]")
_LATEX_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_LATEX_SYMBOLS = {
    **{"le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "ne": "!=", "neq": "!=", "times": "x", "cdot": "*"},
    **{"dots": "...", "ldots": "...", "cdots": "...", "to": "->", "rightarrow": "->", "infty": "inf"},
}


def plain(text: str) -> str:
    r"""One line of text without inline markup.

    >>> plain(r"The **same** as :class:`Ridge <sklearn.Ridge>` [1]_, with :math:`\alpha \leq 1` and ``tol``.")
    'The same as Ridge [1], with alpha <= 1 and tol.'
    """
    if "`" in text or "$" in text:
        text = _MATH.sub(lambda match: _formula(match[1] or match[2] or ""), text)
        text = _ROLE.sub(lambda match: _label(match[1]), text)
        text = _CODE.sub(r"\1", text)
        text = _QUOTED.sub(lambda match: _label(match[1]), text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\1", _STRONG.sub(r"\1", text))
    if "]_" in text:
        text = _FOOTNOTE.sub(r"\1", text)
    if "://" in text or " 0x" in text:
        text = _ADDRESS.sub("", _URL.sub("", text))
    if "\\" in text:
        text = text.replace("\\ ", "").replace("\\*", "*").replace("\\_", "_")
    text = " ".join(text.split())
    return _BEFORE_STOP.sub(r"\1", text) if " ." in text or " ," in text or " ;" in text else text


def _label(target: str) -> str:
    """What a reader sees of a reference: ``~a.b.c`` is c, ``text <target>`` is text."""
    if "\\" in target:  # a formula in single quotes, as in networkx
        return _formula(target)
    if target.endswith(">") and "<" in target:
        return target[: target.rindex("<")].strip() or target.strip("<>")
    if target.startswith("~"):
        return target.rpartition(".")[2].lstrip("~")
    return target.lstrip("!.") if target[:1] in "!." and target[1:2].isalpha() else target


def _formula(latex: str) -> str:
    if "\\" in latex:
        latex = _LATEX_FRACTION.sub(r"(\1)/(\2)", _LATEX_FONT.sub(r"\1", latex))
        latex = _LATEX_LAYOUT.sub(" ", latex)
        latex = _LATEX_COMMAND.sub(lambda match: f" {_LATEX_SYMBOLS.get(match[1], match[1])} ", latex)
        latex = latex.replace("\\", "")
    return " ".join(latex.replace("{", "").replace("}", "").split())

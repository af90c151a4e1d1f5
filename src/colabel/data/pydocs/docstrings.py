"""Documentation strings to plain words: summary, body and cross-references of a numpydoc or Google docstring.

docstring_parser finds the sections and their entries; what is here turns reStructuredText into words and names in
"See Also" texts into references.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
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
        numpydoc.RaisesSection(section.title, section.key) if _LABELS.get(section.key) else section
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
    while True:
        start = next((i for i, line in enumerate(lines) if line.strip(" -")), len(lines))  # "--" ends a C signature
        lines, text, end = lines[start:], "", 0
        if not lines or not _SIGNATURE.match(lines[0]):
            return lines
        while end < min(12, len(lines)) and (not end or text.count("(") != text.count(")")):
            text, end = f"{text}{lines[end]}\n", end + 1
        if text.count("(") != text.count(")") or not _AFTER_SIGNATURE.fullmatch(text[text.rindex(")") + 1 :]):
            return lines
        lines = lines[end:]


_QUOTED_NAME = re.compile(r"(?::[a-zA-Z][\w:]*:)?`{1,2}([^`]+)`{1,2}")
_NAME = re.compile(r"[~.!]*([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
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
    for line in dedent("\n".join(lines)).split("\n"):
        # Indented lines describe the entry above, unless that one ends in a comma: then the list goes on.
        if line[:1].strip() or open_list:
            names.extend(_names_of_entry(line.strip()))
            open_list = line.rstrip().endswith(",")
    return names


def names_in_prose(lines: list[str]) -> list[str]:
    """Names that a ``.. seealso::`` directive or a sentence "See also …" refers to."""
    names: list[str] = []
    for i, line in enumerate(lines):
        if match := _SEE_DIRECTIVE.match(line):
            block = [match[1], *lines[i + 1 : _block_end(lines, i + 1)]]
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
    """What ``text <target>`` refers to."""
    return re.sub(r".*<(.+)>", r"\1", reference).strip()


_DIRECTIVE = re.compile(r"\s*\.\.\s+([\w-]+)::\s*(.*)")
_COMMENT = re.compile(r"\s*\.\.(\s|$)")
_FIELD = re.compile(r"\s*:(?:param (?:\w+ )?(\w+)|[^:`]+):\s+(.*)")
_RULE = re.compile(r"(?=.*([-=+~^#*_])\1)[-=+|~^#*_.:\s]+")
_PROSE_DIRECTIVES = ("note", "warning", "hint", "attention", "important", "tip", "caution", "danger")


def paragraphs(lines: list[str]) -> list[str]:
    """The prose of some lines, one string a paragraph; code, formulas, tables and most directives are left out.

    >>> paragraphs(["See :func:`~numpy.roll` for", "``n`` points::", "", "    roll(x, n)", "", ".. versionadded:: 1"])
    ['See roll for n points:']
    """
    found: list[str] = []
    current: list[str] = []

    def flush() -> None:
        if current and not any(_RULE.fullmatch(line) for line in current):  # such lines make a table
            found.append(plain(" ".join(current)))
        current.clear()

    place = 0
    while place < len(lines):
        line, place = lines[place], place + 1
        if not line.strip():
            flush()
        elif match := _DIRECTIVE.match(line):
            flush()
            start, place = place, _block_end(lines, place)
            if match[1].lower() in _PROSE_DIRECTIVES:
                found.extend(paragraphs([match[2], *dedent("\n".join(lines[start:place])).split("\n")]))
        elif (match := _FIELD.match(line)) and match[1]:
            flush()
            current.append(f"{match[1]}: {match[2]}")
        elif match or _COMMENT.match(line):  # also ":Character code: 'L'", which differs between machines
            flush()
            place = _block_end(lines, place)
        elif line.lstrip().startswith(">>>"):
            flush()
            place = next((i for i in range(place, len(lines)) if not lines[i].strip()), len(lines))
        elif line.rstrip().endswith("::"):
            current.append(line.rstrip()[:-1])
            place = _block_end(lines, place)
            if len(" ".join(current).split()) < 5:  # "Call signature:" says nothing without its block
                current.clear()
            flush()
        else:
            current.append(line)
    flush()
    return [text for text in found if any(char.isalpha() for char in text)]


def _block_end(lines: list[str], start: int) -> int:
    """Where the lines from ``start`` on stop being blank or indented deeper than the one before them."""
    head = lines[start - 1]
    indent = len(head) - len(head.lstrip())
    deeper = (not line.strip() or len(line) - len(line.lstrip()) > indent for line in lines[start:])
    return next((start + i for i, inside in enumerate(deeper) if not inside), len(lines))


_ESCAPE = r"(?:\\(?=\w))?"  # `Tick`\s is how the plural of a name is written
_INLINE: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("`", re.compile(r":math:`([^`]*)`"), lambda match: _formula(match[1])),
    ("$", re.compile(r"\$([^$\n]{1,200})\$"), lambda match: _formula(match[1])),
    ("`", re.compile(r":[a-zA-Z][\w:+-]*:`([^`]*)`" + _ESCAPE), lambda match: _label(match[1])),
    ("`", re.compile(r"``(.+?)``" + _ESCAPE), r"\1"),
    ("`", re.compile(r"`([^`]*)`(?:__?(?!\w))?" + _ESCAPE), lambda match: _label(match[1])),
    ("*", re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*"), r"\1"),
    ("*", re.compile(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])"), r"\1"),
    ("]_", re.compile(r"(\[[\w#*-]+\])_(?!\w)"), r"\1"),
    ("://", re.compile(r"<?\b(?:https?|ftp)://[^\s<>]+>?"), ""),
    (" 0x", re.compile(r"\s+at 0x[0-9A-Fa-f]+"), ""),
    ("\\", re.compile(r"\\ |\\(?=[*_])"), ""),
    ("", re.compile(r"\s+"), " "),
    (" ", re.compile(r"\s+([,.;](?:\s|$))"), r"\1"),
)
"""What is seen of inline markup: the characters that announce it, a pattern and what replaces it."""
_SYMBOLS = {
    **{"le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "ne": "!=", "neq": "!=", "times": "x", "cdot": "*"},
    **{"dots": "...", "ldots": "...", "cdots": "...", "to": "->", "rightarrow": "->", "infty": "inf"},
}
_LATEX: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\\(?:text(?:rm|bf)?|math(?:rm|bf|cal|bb|tt|op)|operatorname|boldsymbol)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}"), r"(\1)/(\2)"),
    (re.compile(r"\\(?:left|right|limits|displaystyle|q?quad|[bB]igg?)(?![a-zA-Z])|\\[,;:! ]"), " "),
    (re.compile(r"\\([a-zA-Z]+)"), lambda match: f" {_SYMBOLS.get(match[1], match[1])} "),
    (re.compile(r"[\\{}]"), ""),
)


def plain(text: str) -> str:
    r"""One line of text without inline markup.

    >>> plain(r"The **same** as :class:`Ridge <sklearn.Ridge>` [1]_, with :math:`\alpha \leq 1` and ``tol``.")
    'The same as Ridge [1], with alpha <= 1 and tol.'
    """
    for sign, pattern, replacement in _INLINE:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text.strip()


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
    for pattern, replacement in _LATEX:
        latex = pattern.sub(replacement, latex)
    return " ".join(latex.split())

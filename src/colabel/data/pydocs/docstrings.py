"""Documentation strings to plain words: summary, body and cross-references of a numpydoc or Google docstring.

docstring_parser finds the sections and their entries; what is here turns reStructuredText into words and names in
"See Also" texts into references.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from textwrap import dedent, indent
from typing import Any, NamedTuple

from colabel.errors import MissingExtraError

_SIGNATURES = re.compile(
    r"\A(?:[-\s]*(?:\.\. (?:function|method|class)::\s*)?[A-Za-z_][\w.]*"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)[ \t]*(?:->.*|:)?[ \t]*(?:\n|\Z))+[-\s]*"
)
"""One or more, each perhaps over several lines: ``sin(x, /, out=None)``; "--" ends one of C."""
_SENTENCE_END = re.compile(
    r"(?<![.\s][A-Z])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)[.!?][)\"']?\s+(?=[A-Z\"'(\[`*])"
)
_UNDERLINED = re.compile(r"^[ \t]*([A-Za-z]+(?: [A-Za-z]+)?)[ \t]*\n[ \t]*([-=~])\2{2,}[ \t]*$", re.MULTILINE)
_ROLE_NAME = re.compile(r":(?!math)[a-zA-Z][\w:+-]*:(?=`)")
_LABELS = {
    **{"param": "Parameters", "other_param": "Parameters", "receives": "Parameters", "attribute": "Attributes"},
    **{"returns": "Returns", "yields": "Yields", "raises": "Raises", "warns": "Warns"},
    **{"notes": "", "warnings": "", "shape": ""},
}
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
    parsed = _parse(_SIGNATURES.sub("", inspect.cleandoc(doc)))
    prose = parsed.description or ""
    blocks, references = [Block("", text) for text in paragraphs(prose)], names_in_prose(prose)
    for part in parsed.meta:
        kind, text = part.args[0], part.description or ""
        if kind == "see_also":
            references += names_in_section(text)
        elif kind in _LABELS:
            references += names_in_prose(text)
            blocks += _entry(_LABELS[kind], part.args[1] if len(part.args) > 1 else "", text)
    summary = ""
    if blocks and not blocks[0].label:
        summary, rest = first_sentence(blocks[0].text)
        blocks[:1] = [Block("", rest)] if rest else []
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


def _entry(label: str, head: str, text: str) -> list[Block]:
    """One parameter, result or exception as ``x (int): description``; a name without a description is noise."""
    if head.startswith((".. ", ">>>")):  # a directive or a session among the entries
        label, text = "", f"{head}\n{indent(text, '    ')}"
    found = paragraphs(text)
    if not label or not found:
        return [Block(label, one) for one in found]
    head = plain(re.sub(r"^(.+?)\s*:\s*(.+)$", r"\1 (\2)", head))
    return [Block(label, f"{head}: {' '.join(found)}" if head else " ".join(found))]


def first_sentence(text: str) -> tuple[str, str]:
    """A paragraph's first sentence and the rest.

    >>> first_sentence("Compute norms, e.g. the 2-norm. Slow.")
    ('Compute norms, e.g. the 2-norm.', 'Slow.')
    """
    match = _SENTENCE_END.search(text)
    return (text[: match.end()].rstrip(), text[match.end() :]) if match else (text, "")


_BODY = r"(?:\n(?:\1[ \t]+\S.*|[ \t]*(?=\n|\Z)))*"  # lines that are blank or indented deeper than the first group
_QUOTED_NAME = re.compile(r"`{1,2}([^`]+)`{1,2}")
_NAME = re.compile(r"[~.!]*([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
_DESCRIPTION = re.compile(r"\s+:|:\s+|:$|\s+--?\s+")
_SEE_DIRECTIVE = re.compile(rf"^([ \t]*)\.\. seealso::((?:.*){_BODY})", re.IGNORECASE | re.MULTILINE)
_SEE_SENTENCE = re.compile(r"^[ \t]*See also\b(.*(?:\n[ \t]*\S.*)*)", re.IGNORECASE | re.MULTILINE)


def names_in_section(text: str) -> list[str]:
    """Names at the head of each entry: ``a``, ``a, b``, ``a : text``, ```a` : text``, ``See `a` for more``.

    >>> names_in_section("fft2, `ifft` : Other transforms.\\n    With more\\nnumpy.roll")
    ['fft2', 'ifft', 'numpy.roll']
    """
    names: list[str] = []
    for line in dedent(re.sub(r",[ \t]*\n\s*", ", ", text)).split("\n"):
        if line[:1].strip():  # indented lines describe the entry above
            head = _DESCRIPTION.split(line.replace("`", ""), maxsplit=1)[0].lstrip("-*• ")
            listed = [_NAME.fullmatch(part.strip(" .*")) for part in re.split(r",|\band\b", head) if part.strip(" .*")]
            names += [match[1] for match in listed if match] if all(listed) else _quoted_names(line)
    return names


def names_in_prose(text: str) -> list[str]:
    """Names that a ``.. seealso::`` directive or a sentence "See also …" refers to."""
    directives = [match[2] for match in _SEE_DIRECTIVE.finditer(text)]
    names = [name for block in directives for name in _quoted_names(block) or names_in_section(block)]
    return names + [name for match in _SEE_SENTENCE.finditer(text) for name in _quoted_names(match[1])]


def _quoted_names(text: str) -> list[str]:
    """Names in back quotes, those of ``text <target>`` its target."""
    quoted = (re.sub(r".*<(.+)>", r"\1", match[1]).strip() for match in _QUOTED_NAME.finditer(text))
    return [match[1] for match in map(_NAME.fullmatch, quoted) if match]


_PROSE = r"\.\. (?:note|warning|hint|attention|important|tip|caution|danger)::"
_NOT_PROSE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^[ \t]*>>>.*(?:\n[ \t]*\S.*)*", re.MULTILINE), "\n"),  # sessions
    (re.compile(rf"^([ \t]*)(?!{_PROSE})\.\.(?:[ \t].*)?{_BODY}", re.M | re.I), "\n"),  # directives, and comments
    (re.compile(r"^[ \t]*:param (?:\w+ )?(\w+):", re.MULTILINE), r"\n\1:"),
    (re.compile(rf"^([ \t]*):[^:`\n]+:[ \t]+.*{_BODY}", re.MULTILINE), "\n"),  # ":Character code: 'L'", of this machine
    (re.compile(rf"^([ \t]*)(?!\.\. )((?:\S.*)?)::[ \t]*{_BODY}", re.MULTILINE), r"\1\2:\n\n"),  # code behind "::"
    (re.compile(rf"^[ \t]*{_PROSE}", re.M | re.I), "\n"),
)
"""Patterns of what is left out of running text, or changed in it, in this order."""
_RULE = re.compile(r"(?=.*([-=+~^#*_])\1)[-=+|~^#*_.:\s]+")


def paragraphs(text: str) -> list[str]:
    """The prose of a text, one string a paragraph; code, formulas, tables and most directives are left out.

    >>> paragraphs("See :func:`~numpy.roll` for\\n``n`` points::\\n\\n    roll(x, n)\\n\\n.. versionadded:: 1")
    ['See roll for n points:']
    """
    for pattern, replacement in _NOT_PROSE:
        text = pattern.sub(replacement, text)
    blocks = [block for block in re.split(r"\n[ \t]*\n", text) if not any(map(_RULE.fullmatch, block.split("\n")))]
    found = [plain(block) for block in blocks]
    # "Call signature:" says nothing without the code behind it
    return [one for one in found if re.search(r"[^\W\d_]", one) and not (one.endswith(":") and len(one.split()) < 5)]


_INLINE: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r":math:`([^`]*)`|\$([^$\n]{1,200})\$"), lambda match: _formula(match[1] or match[2] or "")),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"(?::[a-zA-Z][\w:+-]*:)?`([^`]*)`(?:__?(?!\w))?"), lambda match: _label(match[1])),
    (re.compile(r"(?<![\w*])(\*{1,2})([^\s*](?:[^*]*[^\s*])?)\1(?![\w*])"), r"\2"),
    (re.compile(r"(?<=\])_(?!\w)|<?\b(?:https?|ftp)://[^\s<>]+>?|\s+at 0x[0-9A-Fa-f]+|\\ ?"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\s+([,.;](?:\s|$))"), r"\1"),
)
"""What is seen of inline markup: a pattern and what replaces it."""


def plain(text: str) -> str:
    r"""One line of text without inline markup.

    >>> plain(r"The **same** as :class:`Ridge <sklearn.Ridge>` [1]_, with :math:`\alpha = 1` and ``tol``.")
    'The same as Ridge [1], with alpha = 1 and tol.'
    """
    for pattern, replacement in _INLINE:
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
    return " ".join(re.sub(r"\\([a-zA-Z]+)|[\\{}]", r" \1 ", latex).split())

"""Names in See Also sections, in the many ways people write them."""

from __future__ import annotations

import re

from colabel.data.pydocs.markup import block_end, unindented

_ROLE = re.compile(r"(?::[a-zA-Z][\w:]*:)?`{1,2}([^`]+)`{1,2}")
_NAME = re.compile(r"[~.!]*([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
_TARGET = re.compile(r".*<(.+)>")
_DESCRIPTION = re.compile(r"\s+:|:\s+|:$|\s+--?\s+")
_DIRECTIVE = re.compile(r"\s*\.\. seealso::\s*(.*)", re.IGNORECASE)
_SENTENCE = re.compile(r"\s*See also\b[:,]?\s*(.*)", re.IGNORECASE)


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
        if match := _DIRECTIVE.match(line):
            block = [match[1], *lines[i + 1 : block_end(lines, i + 1, indent)]]
            names.extend(_quoted_names("\n".join(block)) or names_in_section(block))
        elif match := _SENTENCE.match(line):
            end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
            names.extend(_quoted_names("\n".join([match[1], *lines[i + 1 : end]])))
    return names


def _names_of_entry(line: str) -> list[str]:
    unquoted = _ROLE.sub(lambda match: _target(match[1]), line.lstrip("-*• "))
    head = _DESCRIPTION.split(unquoted, maxsplit=1)[0]
    matches = [_NAME.fullmatch(part.strip(" .`*")) for part in re.split(r",|\band\b", head) if part.strip(" .`*")]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(matches) else _quoted_names(line)


def _quoted_names(text: str) -> list[str]:
    matches = (_NAME.fullmatch(_target(match[1])) for match in _ROLE.finditer(text))
    return [match[1] for match in matches if match]


def _target(reference: str) -> str:
    match = _TARGET.fullmatch(reference)
    return (match[1] if match else reference).strip()

"""Mark in a passage's text the tokens that matched; the text itself is kept as it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from colabel.reporting.markup import Markup, join, tag

_PIECE = "##"


def highlighted(text: str, tokens: Iterable[str]) -> Markup:
    """The text as HTML with matched tokens in ``<mark>``.

    >>> highlighted("Icebergs & ice", ["ice", "##berg"])
    'Ice<mark>berg</mark>s &amp; <mark>ice</mark>'
    """
    return join(tag("mark", part) if marked else part for part, marked in marked_parts(text, tokens))


def marked_parts(text: str, tokens: Iterable[str]) -> list[tuple[str, bool]]:
    """The text cut into parts, each with whether it is a matched token.

    A token is looked for as BERT sees the text: without case and accents. One that begins a word is marked where it
    is the whole word, and only where it never is, at the beginning of words; ``##berg`` inside and at the end of words.
    """
    folded = fold(text)
    marks = bytearray(len(text))
    for token in tokens:
        for start, end in _places(folded, fold(token)):
            marks[start:end] = b"\1" * (end - start)
    parts: list[tuple[str, bool]] = []
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or marks[place] != marks[start]:
            parts.append((text[start:place], bool(marks[start])))
            start = place
    return parts


def fold(text: str) -> str:
    """Lower case without accents, character by character, so that places stay the same.

    >>> fold("Été İ")
    'ete i'
    """
    return "".join(unicodedata.normalize("NFD", letter)[0].lower()[0] for letter in text)


def _places(folded: str, token: str) -> list[tuple[int, int]]:
    if token.startswith(_PIECE) and len(token) > len(_PIECE):
        patterns = [rf"(?<=\w){re.escape(token.removeprefix(_PIECE))}"]
    elif not token.isalnum() or _ideographic(token):  # punctuation and such letters are tokens wherever they stand
        patterns = [re.escape(token)]
    else:
        patterns = [rf"\b{re.escape(token)}\b", rf"\b{re.escape(token)}"]
    for pattern in patterns:
        found = [match.span() for match in re.finditer(pattern, folded) if match.group()]
        if found:
            return found
    return []


def _ideographic(token: str) -> bool:
    return len(token) == 1 and unicodedata.name(token, "").startswith("CJK")

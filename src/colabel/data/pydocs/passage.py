"""From the body of a documentation string to the text of a passage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from colabel.data.pydocs.docstring import Block
from colabel.data.pydocs.duplicates import words

MAX_WORDS = 130
MIN_WORDS = 8
COMMON = 10
"""A block in more documentation strings than this is boilerplate."""

_SENTENCE_END = re.compile(r"[.!?][)\"']?(?=\s)")


def passage_text(summary: str, body: Iterable[Block]) -> str:
    """The body as running text without the summary's words, at most ``MAX_WORDS`` words long.

    >>> passage_text("Add numbers.", [Block("", "Fast."), Block("Returns", "int: The sum.")])
    'Fast. Returns: int: The sum.'
    """
    parts: list[str] = []
    label = ""
    for block in body:
        parts.append(block.text if block.label in ("", label) else f"{block.label}: {block.text}")
        label = block.label
    return cut(without(" ".join(parts), summary))


def without(text: str, summary: str) -> str:
    """Take every repetition of the summary out of a text, whatever its case and punctuation.

    >>> without("Adds numbers. Note: add two numbers, slowly.", "Add two numbers.")
    'Adds numbers. Note: slowly.'
    """
    sought = words(summary)
    if not sought or f" {' '.join(sought)} " not in f" {' '.join(words(text))} ":
        return text
    pattern = r"(?<!\w)" + r"\W+".join(map(re.escape, sought)) + r"(?!\w)[.,;:]?\s*"
    return re.sub(pattern, "", text, flags=re.IGNORECASE).strip()


def cut(text: str, limit: int = MAX_WORDS) -> str:
    """The first ``limit`` words, back to the last end of a sentence unless that costs more than half of them.

    >>> cut("One two three. Four five.", limit=4)
    'One two three.'
    """
    found = text.split()
    if len(found) <= limit:
        return " ".join(found)
    short = " ".join(found[:limit])
    ends = [match.end() for match in _SENTENCE_END.finditer(short + " ")]
    return short[: ends[-1]] if ends and ends[-1] * 2 >= len(short) else short


def without_boilerplate(named: Sequence[tuple[str, Sequence[Block]]], common: int = COMMON) -> list[list[Block]]:
    """Bodies (each with its object's name) without blocks that stand in more than ``common`` of them.

    What everybody says of ``out`` or ``random_state`` tells nothing of the object, and would make all
    element-wise functions near-duplicates. The object's own name is blotted out for the count, since
    boilerplate likes to mention it.
    """
    keyed = [[(block, block.text.replace(name.rpartition(".")[2], "_")) for block in body] for name, body in named]
    counts = Counter(key for blocks in keyed for key in dict.fromkeys(key for _, key in blocks))
    return [[block for block, key in blocks if counts[key] <= common] for blocks in keyed]

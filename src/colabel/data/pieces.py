"""Long documents in pieces: how a text is cut, and a document's rank by its best piece (MaxP).

The pieces of a document are neighbouring rows of the collection and share its id (:attr:`StringTable.first_rows`), so
that whatever names a row names the document.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from colabel.data.string_table import StringTable
from colabel.types import FloatArray, IntArray, Passage

T = TypeVar("T")

OVERLAP = 6
"""A sixth of a piece, at most, is the end of the piece before it."""

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff"  # Chinese and Japanese have no spaces: each character counts as a word
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]|\n\s*\n")


def readable_words(tokens: int) -> int:
    """About how many words of English a model reads that takes so many tokens.

    >>> readable_words(180), chunk_for(180)
    (150, 120)
    """
    return tokens * 5 // 6


def chunk_for(tokens: int) -> int:
    """Words of a piece that nearly always fits a model, with a title before it."""
    return max(1, tokens * 2 // 3)


class _Span(NamedTuple):
    start: int
    end: int
    words: int


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(_WORD.findall(text))


def cut_passage(passage: Passage, words: int) -> list[Passage]:
    """A passage of at most ``words`` words as it is; a longer one as pieces ``ID#1``, ``ID#2``, … with its title."""
    texts = cut_text(passage.text, words)
    if len(texts) == 1:
        return [passage]
    return [
        dataclasses.replace(passage, id=f"{passage.id}#{number}", text=text)
        for number, text in enumerate(texts, start=1)
    ]


def cut_text(text: str, words: int) -> list[str]:
    """Pieces of at most ``words`` words that end with a sentence; only a sentence too long for one is cut itself.

    The last sentence of a piece begins the next one as well if it has at most a sixth of the words.

    >>> cut_text("Ice melts. Water flows below the glacier. A cave is formed.", 9)
    ['Ice melts. Water flows below the glacier.', 'A cave is formed.']
    """
    if count_words(text) <= words:
        return [text]
    packed = pack(_sentences(text, words), lambda span: span.words, words, words // OVERLAP)
    return [text[held[0].start : held[-1].end] for held in packed]


def _sentences(text: str, words: int) -> Iterator[_Span]:
    """The sentences of a text without the space around them; of one that is too long, short runs of words."""
    ends = [*(match.end() for match in _END.finditer(text)), len(text)]
    for start, end in zip([0, *ends], ends, strict=False):
        found = [match.span() for match in _WORD.finditer(text, start, end)]
        run = len(found) if len(found) <= words - words // OVERLAP else max(1, words // OVERLAP)
        for first in range(0, len(found), max(1, run)):
            held = found[first : first + run]
            yield _Span(held[0][0], held[-1][1], len(held))


def pack(units: Iterable[T], size: Callable[[T], int], words: int, overlap: int) -> Iterator[list[T]]:
    """Join units to pieces of at most ``words`` words; a last unit of at most ``overlap`` also begins the next piece.

    >>> list(pack(["a a", "b", "c c"], lambda unit: len(unit.split()), words=3, overlap=1))
    [['a a', 'b'], ['b', 'c c']]
    """
    held: list[T] = []
    for unit in units:
        if held and sum(map(size, held)) + size(unit) > words:
            yield held
            held = held[-1:] if size(held[-1]) <= overlap else []
        held.append(unit)
    if held:
        yield held


def best_documents(
    search: Callable[[int], tuple[IntArray, FloatArray]], depth: int, ids: StringTable
) -> tuple[IntArray, FloatArray]:
    """The ``depth`` best documents, each as the row and score of its best piece, from a search of the best pieces.

    Args:
        search: depth → rows and scores [queries, depth], best first. It is asked again, deeper, where the pieces that
            it found are of too few documents.
    """
    if ids.first_rows is None:
        return search(depth)
    documents = 1 + np.count_nonzero(np.diff(ids.first_rows))
    wanted = depth * math.ceil(len(ids) / documents)
    while True:
        wanted = min(wanted, len(ids))
        rows, scores = search(wanted)
        best, values = one_per_document(rows, scores, depth, ids)
        short = (best[:, -1:] < 0) & (rows[:, -1:] >= 0)
        if wanted == len(ids) or not short.any():
            return best, values
        wanted *= 4


def one_per_document(rows: IntArray, scores: FloatArray, depth: int, ids: StringTable) -> tuple[IntArray, FloatArray]:
    """The first ``depth`` documents of rankings [queries, n], best first, each by its best piece; −1 and −∞ behind."""
    best = np.full((len(rows), depth), -1, dtype=np.int64)
    values = np.full((len(rows), depth), -np.inf, dtype=np.float32)
    for place, line in enumerate(rows):
        found = np.flatnonzero(line >= 0)
        _, first = np.unique(ids.first_of(line[found]), return_index=True)
        kept = found[np.sort(first)][:depth]
        best[place, : len(kept)], values[place, : len(kept)] = line[kept], scores[place][kept]
    return best, values


def with_labelled_pieces(rows: npt.ArrayLike, labelled: Iterable[int], ids: StringTable) -> IntArray:
    """Rows of one query in which every piece of a labelled document is the one that its label stands for."""
    found = np.array(rows, dtype=np.int64)
    if ids.first_rows is not None:
        for row in labelled:
            found[(found >= 0) & (ids.first_of(found) == ids.first_of(np.array(row)))] = row
    return found

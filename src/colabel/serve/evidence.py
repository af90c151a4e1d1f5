"""Why a passage may be relevant, for people: which words matched, marked in the text and told in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from colabel.ranking.highlights import Word

FloatArray = npt.NDArray[np.float32]

LEVELS = (0.45, 0.6, 0.75)
"""Similarities from which on a match is marked, marked well, and marked strongly."""
_TOLD = 4  # words that a sentence names


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a text; ``mark`` says what it matched, "query" or "labelled", and ``strength`` how well, 1 to 3."""

    text: str
    mark: str = ""
    strength: int = 0


class Sentence(msgspec.Struct, frozen=True):
    """A reason: words between two halves of a sentence."""

    before: str
    words: list[str]
    after: str


def best_matches(queries: FloatArray, passage: FloatArray) -> FloatArray:
    """For each vector of a passage [tokens, d], how well it serves the query vectors [n, d] that chose it; else 0.

    >>> best_matches(np.eye(2, dtype=np.float32), np.array([[1, 0], [0.6, 0.8], [0, 0.5]], np.float32)).tolist()
    [1.0, 0.800000011920929, 0.0]
    """
    served = np.zeros(len(passage), dtype=np.float32)
    if not len(passage) or not len(queries):
        return served
    similarity = queries @ passage.T
    chosen = similarity.argmax(axis=1)
    np.maximum.at(served, chosen, similarity[np.arange(len(queries)), chosen])
    return served


@dataclass(frozen=True)
class Match:
    """What a passage is held against: stems, and how well its own tokens serve some vectors."""

    mark: str
    stems: Collection[str]
    spans: Sequence[tuple[int, int] | None] = ()
    served: Sequence[float] = ()


def marked(text: str, words: Sequence[Word], matches: Sequence[Match]) -> list[Segment]:
    """A text with its matching words marked; where two matches claim a word, the stronger wins, then the first."""
    best: dict[int, tuple[int, str]] = {}
    for match in matches:
        for number, strength in _strengths(words, match).items():
            if strength > best.get(number, (0, ""))[0]:
                best[number] = strength, match.mark
    segments: list[Segment] = []
    here = 0
    for number in sorted(best):
        word, (strength, mark) = words[number], best[number]
        if word.start > here:
            segments.append(Segment(text[here : word.start]))
        segments.append(Segment(text[word.start : word.end], mark, strength))
        here = word.end
    if here < len(text):
        segments.append(Segment(text[here:]))
    return segments


def _strengths(words: Sequence[Word], match: Match) -> dict[int, int]:
    """Number of a word → strength of its match; stop words match nothing."""
    found = {number: 3 for number, word in enumerate(words) if word.stem and word.stem in match.stems}
    starts = np.array([word.start for word in words])
    for span, value in zip(match.spans, match.served, strict=True):
        level = sum(value >= bound for bound in LEVELS)
        if span is None or not level or not len(starts):
            continue
        number = int(np.searchsorted(starts, span[0], side="right")) - 1
        if number >= 0 and span[0] < words[number].end and words[number].stem:
            found[number] = max(found.get(number, 0), level)
    return found


def sentences(
    words: Sequence[Word],
    own: Sequence[str],
    query_stems: Collection[str],
    telling: Sequence[str],
    close: Mapping[str, str],
    labelled: int,
) -> list[Sentence]:
    """What speaks for a passage, the most telling first.

    Args:
        own: the passage's own telling stems, most telling first.
        telling: stems that tell the labelled passages from others, most telling first.
        close: word of the passage → a token of the labelled passages that is near in meaning.
    """
    surface = {word.stem: word.text.lower() for word in reversed(words) if word.stem}
    shared = [surface[stem] for stem in telling if stem in surface and stem not in query_stems]
    asked = [surface[stem] for stem in own if stem in query_stems and stem in surface]
    passages = "the labelled passage" if labelled == 1 else "the labelled passages"
    found = []
    if shared:
        found.append(Sentence("Shares", shared[:_TOLD], f"with {passages}."))
    if asked:
        found.append(Sentence("Has", asked[:_TOLD], "of the query."))
    for word, token in list(close.items())[:2]:
        found.append(Sentence("Its", [word], f"is close in meaning to “{token}” of {passages}."))
    return found or [Sentence("No word in common; only the vectors speak for it.", [], "")]

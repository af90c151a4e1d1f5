"""Near-duplicate texts: same words in nearly the same order, by the overlap of their word triples."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable

SIMILARITY = 0.8

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text without case and punctuation."""
    return _WORD.findall(text.casefold())


def shingles(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row (all words where there are fewer)."""
    found = words(text)
    triples: set[tuple[str, ...]] = set(zip(found, found[1:], found[2:], strict=False))
    return triples or {tuple(found)}


def jaccard(a: set[int], b: set[int]) -> float:
    """|a ∩ b| / |a ∪ b|.

    >>> jaccard({1, 2, 3}, {2, 3, 4})
    0.5
    """
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def representatives(texts: Iterable[str], similarity: float = SIMILARITY) -> list[int]:
    """For each text the number of the text that stands for it: itself, or an earlier one as similar as that.

    No two texts that stand for themselves reach ``similarity``. Sets that reach it share one of their rarest
    triples (at most n − ⌈similarity · n⌉ + 1 of n), so only texts that meet in those are compared. In which
    order equally rare triples are numbered does not matter to the result, as long as it is one order for all.

    >>> representatives(["one two three four five", "one two six", "One two three, four five!"])
    [0, 1, 0]
    """
    sets = _by_rarity([shingles(text) for text in texts])
    bearers: dict[int, list[int]] = {}
    result: list[int] = []
    for row, items in enumerate(sets):
        rarest = sorted(items)[: len(items) - math.ceil(similarity * len(items)) + 1]
        rivals = sorted({rival for item in rarest for rival in bearers.get(item, ())})
        scored = ((jaccard(items, sets[rival]), -rival) for rival in rivals)
        score, rival = max(scored, default=(0.0, 0))
        result.append(-rival if score >= similarity else row)
        if score < similarity:
            for item in rarest:
                bearers.setdefault(item, []).append(row)
    return result


def _by_rarity(sets: list[set[tuple[str, ...]]]) -> list[set[int]]:
    """The same sets with numbers for triples: the smaller, the rarer."""
    counts = Counter(itertools.chain.from_iterable(sets))
    numbers = {item: number for number, item in enumerate(sorted(counts, key=counts.__getitem__))}
    return [{numbers[item] for item in items} for items in sets]

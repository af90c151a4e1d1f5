from __future__ import annotations

import random

import pytest

from colabel.data.pydocs.duplicates import representatives, shingles


def naive(texts: list[str], similarity: float) -> list[int]:
    """The same by comparing every text with every one that stands."""
    sets = [shingles(text) for text in texts]
    result: list[int] = []
    for row, items in enumerate(sets):
        standing = [other for other in range(row) if result[other] == other]
        scores = [(len(items & sets[other]) / len(items | sets[other]), -other) for other in standing]
        score, other = max(scores, default=(0.0, 0))
        result.append(-other if score >= similarity else row)
    return result


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.8, 1.0])
def test_agrees_with_all_pairs(similarity: float) -> None:
    rng = random.Random(0)
    texts: list[str] = []
    for _ in range(300):
        text = (
            rng.choice(texts).split() if texts and rng.random() < 0.7 else rng.choices("abcdef", k=rng.randint(1, 30))
        )
        text = [word if rng.random() > 0.05 else rng.choice("abcdef") for word in text]
        texts.append(" ".join(text))
    result = representatives(texts, similarity)
    assert result == naive(texts, similarity)
    assert len(set(result)) < len(texts)


def test_punctuation_and_case_do_not_count() -> None:
    assert representatives(["Return the sum of a.", "return the (sum) of A", "Return the product of a."]) == [0, 0, 2]

"""Which words matched, checked by hand."""

from __future__ import annotations

import numpy as np

from colabel.ranking import Hit
from colabel.ranking.highlights import WordMatch, shared_words, token_words, word_matches


def test_a_word_has_its_best_pair_and_far_ones_none() -> None:
    asked = ["ice", "caves", "caves", "price", None]
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0.8, 0.6], [0, 0, 0.4], [1, 0, 0]], np.float32)
    found = word_matches(asked, vectors, ["glacier", "cave", None], np.eye(3, dtype=np.float32))
    assert found == [WordMatch("ice", "glacier", 1.0), WordMatch("caves", "cave", 1.0)]
    assert word_matches(asked, vectors, [None], np.ones((1, 3), np.float32)) == []


def test_pieces_belong_to_words() -> None:
    pieces = ["[CLS]", "gl", "##acier", "of", "ice", ".", "[SEP]"]
    assert token_words("Glacier of ice.", pieces, "english") == [None, "Glacier", "Glacier", None, "ice", None, None]
    assert token_words("", [], "english") == []


def test_words_of_one_stem_match_where_words_search() -> None:
    hit = Hit(1, 2.0, "d1", "Ice", "The cave in a glacier.")
    assert [str(one) for one in shared_words("caves of ice", [hit])[0]] == ["caves → cave 1.00", "ice"]

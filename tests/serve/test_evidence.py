"""Marks and reasons, checked by hand."""

from __future__ import annotations

import numpy as np

from colabel.ranking.highlights import piece_spans, words_of
from colabel.serve.evidence import Match, Segment, best_matches, marked, sentences


def text(segments: list[Segment]) -> str:
    return "".join(f"[{one.mark}{one.strength} {one.text}]" if one.mark else one.text for one in segments)


def test_words_are_marked_by_stem_and_by_vectors() -> None:
    whole = "Glaciers carve the caves, slowly."
    words = words_of(whole, "english")
    spans = piece_spans(whole, ["[CLS]", "glacier", "##s", "car", "##ve", "the", "caves", ",", "slowly", "[SEP]"])
    served = [0.9, 0.0, 0.0, 0.5, 0.0, 0.9, 0.65, 0.0, 0.2, 0.9]
    matches = [Match("query", {"glacier"}, spans, served), Match("labelled", {"cave"})]
    expected = "[query3 Glaciers] [query1 carve] the [labelled3 caves], slowly."
    assert text(marked(whole, words, matches)) == expected
    assert "".join(one.text for one in marked(whole, words, matches)) == whole
    assert marked("", [], matches[1:]) == []
    assert text(marked("of", words_of("of", "english"), [Match("query", {"of", ""})])) == "of"


def test_pieces_are_found_in_their_text() -> None:
    assert piece_spans("naïve Straße", ["▁naive", "▁strasse"]) == [(0, 5), None]
    assert piece_spans("a [x] b", ["[UNK]", "a", "[", "x", "]", "b"]) == [None, (0, 1), (2, 3), (3, 4), (4, 5), (6, 7)]
    assert piece_spans("ab" + " " * 200 + "cd", ["ab", "cd"]) == [(0, 2), None], "too far ahead to be sure"
    assert piece_spans("", ["a"]) == [None]


def test_vectors_choose_their_best_token() -> None:
    passage = np.eye(3, dtype=np.float32)
    assert best_matches(np.array([[0.9, 0.1, 0.0], [0.5, 0.4, 0.0]], np.float32), passage).tolist()[1:] == [0.0, 0.0]
    assert best_matches(np.zeros((0, 3), np.float32), passage).tolist() == [0.0, 0.0, 0.0]
    assert best_matches(passage, np.zeros((0, 3), np.float32)).tolist() == []


def test_reasons_name_words_and_never_repeat_the_query() -> None:
    words = words_of("Glacier caves of blue ice in summer", "english")
    found = sentences(words, ["glacier", "ice"], {"glacier"}, ["ice", "glacier", "fjord"], {"summer": "season"}, 2)
    told = [" ".join([one.before, ", ".join(one.words), one.after]) for one in found]
    assert told == [
        "Shares ice with the labelled passages.",
        "Has glacier of the query.",
        "Its summer is close in meaning to “season” of the labelled passages.",
    ]
    assert "only the vectors" in sentences(words, [], set(), [], {}, 1)[0].before

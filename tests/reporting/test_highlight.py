from __future__ import annotations

import pytest

from colabel.reporting.highlight import highlighted, marked_parts


@pytest.mark.parametrize(
    ("text", "tokens", "marked"),
    [
        ("Ice on the iceberg", ["ice"], ["Ice"]),  # a whole word somewhere: no beginnings
        ("Icebergs melt", ["ice"], ["Ice"]),
        ("Icebergs, bergs", ["##berg"], ["berg"]),  # inside a word only
        ("L'Été dernier", ["ete"], ["Été"]),
        ("夏休み", ["夏"], ["夏"]),
        ("休夏み", ["夏"], ["夏"]),
        ("a+b (c)", ["+", "("], ["+", "("]),
        ("glacier caves", ["glacier", "caves"], ["glacier", "caves"]),
        ("aaa", ["##"], []),
        ("anything", [], []),
        ("", ["x"], []),
        ("x", [""], []),
    ],
)
def test_places_of_tokens(text: str, tokens: list[str], marked: list[str]) -> None:
    parts = marked_parts(text, tokens)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, is_marked in parts if is_marked] == marked


def test_text_around_and_in_marks_is_escaped() -> None:
    found = highlighted("<b>ice</b> & <i", ["ice", "<"])
    assert found == "<mark>&lt;</mark>b&gt;<mark>ice&lt;</mark>/b&gt; &amp; <mark>&lt;</mark>i"

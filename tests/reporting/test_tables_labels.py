"""What the tables about labels say: teachers beside φ, the sweep, feedback and examples."""

from __future__ import annotations

from colabel.findings import StudyDocument
from colabel.findings.records import Example, ExamplePassage
from colabel.reporting import tables_labels
from colabel.reporting.numbers import Section, Text
from colabel.reporting.render import markdown
from colabel.reporting.tables_labels import direction, move


def test_teachers_are_compared_with_phi(full_study: StudyDocument) -> None:
    first, _ = full_study.label_quality
    (table,) = tables_labels.label_quality(first, "0", "1")
    phi, other, _ = table.lines
    assert (phi.cells[0].text, phi.cells[-1].text) == ("φ (base)", "–")
    assert (other.cells[-1].text, other.cells[-1].detail) == ("+0.050", "[+0.010,\u00a0+0.090] p\u00a00.0312")
    assert "840 of the 1,200" in table.caption


def test_suggestions_have_their_share_of_hidden_positives(full_study: StudyDocument) -> None:
    (table,) = tables_labels.suggestions(full_study)
    assert [column.title for column in table.columns[1:]] == ["1 × queries", "2 × queries", "5 × queries"]
    assert table.lines[0].cells[1].text == "41.0 %"


def test_a_place_beyond_the_candidates_is_not_made_up() -> None:
    beyond, risen = ExamplePassage("d1", before=None, after=1), ExamplePassage("d2", before=7, after=9)
    assert (move(beyond, 1000), direction(beyond)) == ("> 1,000 → 1", "up")
    assert (move(risen, 1000), direction(risen)) == ("7 → 9", "down")


def test_an_example_in_markdown_and_what_is_left_out_of_it() -> None:
    passages = (ExamplePassage("d_1", before=3, after=1, labelled=True, matched=("##berg",)),)
    example = Example("q", tokens=(("ice", 1.0),), passages=passages)
    document = StudyDocument("e", ("AP",), examples=(example,))
    parts = tables_labels.examples(document)
    assert isinstance(parts[0], Text)
    assert "study.texts = false" in parts[0].text
    text = markdown("e", "", (), [Section("examples", "Examples", tuple(parts))])
    assert text.endswith("- 3 → 1 **labelled** d\\_1; matches \\#\\#berg\n")
    assert "Expansion tokens (σ): ice (1.0)\n" in text

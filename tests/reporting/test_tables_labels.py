"""What the tables about labels say: teachers beside φ, and the sweep."""

from __future__ import annotations

from colabel.findings import StudyDocument
from colabel.reporting import tables_labels


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

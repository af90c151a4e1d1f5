"""What the tables of costs count: ratios beside the paper's."""

from __future__ import annotations

from colabel.findings import StudyDocument
from colabel.reporting import tables_costs


def test_ratios_name_their_pairs_and_the_papers(full_study: StudyDocument) -> None:
    (table,) = tables_costs.time_ratios(full_study)
    assert table.caption.endswith("as Collective self-KD (β = 1)")
    first, second = table.lines
    assert [cell.text for cell in first.cells] == [
        *("KD, one cross-encoder", "×1.50", "×1.02", "×1.10", "×7.50", "×2.10", "×2.67", "×2.50"),
    ]
    assert first.cells[0].detail == "labelled pairs: 16,000 against 16,000 (×5.00)"
    assert [cell.text for cell in second.cells[-2:]] == ["×16.00", "–"]


def test_training_stands_last_of_the_work(full_study: StudyDocument) -> None:
    (table,) = tables_costs.training_costs(full_study)
    titles = [column.title for column in table.columns]
    assert titles == ["System", "annotation", "training", "labelled pairs", "encoder passes"]
    line = next(line for line in table.lines if line.cells[0].text == "KD, one cross-encoder")
    assert [cell.text for cell in line.cells[-2:]] == ["16,000", "16,000"]

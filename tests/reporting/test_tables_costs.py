"""What the tables of costs count: ratios with both sides, time to a target, response times."""

from __future__ import annotations

from msgspec.structs import replace

from colabel.findings import StudyDocument
from colabel.findings.records import Efficiency, Ratio, Reached, TrainingCurve
from colabel.reporting import tables_costs
from colabel.reporting.numbers import prose


def test_ratios_say_what_is_counted_on_which_side(full_study: StudyDocument) -> None:
    (table,) = tables_costs.time_ratios(full_study)
    assert table.caption.endswith("as Collective self-KD (β = 1); labelled pairs: 16,000 against 16,000 (×5.00)")
    first, second = table.lines
    assert [cell.text for cell in first.cells] == [
        *("KD, one cross-encoder", "×1.50", "×1.02", "×1.10", "×7.50", "×2.10", "×2.67", "×2.50")
    ]
    assert first.cells[1].detail.replace("\u00a0", " ") == "4 min 00 s / 2 min 40 s"
    assert [cell.text for cell in second.cells[-2:]] == ["×16.00", "–"]


def test_ratios_of_different_systems_name_their_pairs(full_study: StudyDocument) -> None:
    ratios = (Ratio("ce-kd", "collective-1", 7.5, factor=2.0), Ratio("ce3-kd", "collective-1", 9.0, factor=3.0))
    (table,) = tables_costs.time_ratios(replace(full_study, efficiency=Efficiency(ratios=ratios)))
    assert [column.title for column in table.columns[:2]] == ["System", "labelled pairs"]
    assert [line.cells[1].text for line in table.lines] == [f"16,000 against 16,000 (×{n}.00)" for n in (2, 3)]
    assert not any(column.title.startswith("paper") for column in table.columns)


def test_time_to_a_target(full_study: StudyDocument) -> None:
    (table,) = tables_costs.time_to_target(full_study)
    for figure in ("0.550", "0.545", "90 dev queries", "every 25 steps from 0 to 200"):
        assert figure in table.caption
    assert [line.cells[4].text for line in table.lines] == ["3 min 50 s", "11 min 40 s", "not reached"]
    training = {"a": TrainingCurve(dev=((0, 0.0, 0.5), (100, 1.0, 0.5), (150, 2.0, 0.6)))}
    efficiency = Efficiency(target=0.5, reached=(Reached("a", "θ", 150),))
    (table,) = tables_costs.time_to_target(StudyDocument("e", ("AP",), training=training, efficiency=efficiency))
    assert "at steps 0, 100, 150" in table.caption
    assert "100 steps" in table.notes[0], "the widest gap"
    (table,) = tables_costs.time_to_target(StudyDocument("e", ("AP",), efficiency=efficiency))
    assert table.notes == (), "when it was evaluated is not known"


def test_how_times_were_taken(full_study: StudyDocument) -> None:
    known = prose("response_times", full_study.timing)
    assert all(figure in known for figure in ("1,000 best", "50 queries", "after 10"))
    assert "None" not in prose("response_times", None)


def test_passes_for_equal_pairs_have_a_column(full_study: StudyDocument) -> None:
    (table,) = tables_costs.training_costs(full_study)
    line = next(line for line in table.lines if line.cells[0].text == "KD, one cross-encoder")
    assert [cell.text for cell in line.cells[-3:]] == ["16,000", "16,000", "80,900"]

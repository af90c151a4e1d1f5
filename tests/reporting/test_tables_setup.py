"""The glossary has what the study has, settings and ratios stand beside the paper's."""

from __future__ import annotations

from colabel.findings import StudyDocument, SystemResult
from colabel.findings.records import Setting
from colabel.reporting.numbers import Folded, Table
from colabel.reporting.tables_results import about
from colabel.reporting.tables_setup import glossary, setup, time_ratios, training_costs
from tests.findings.studies import BAD


def tables(document: StudyDocument) -> dict[str, Table]:
    parts = [inner for part in setup(document) for inner in (part.parts if isinstance(part, Folded) else (part,))]
    return {part.key: part for part in parts if isinstance(part, Table)}


def test_the_glossary_has_a_line_for_systems_that_differ_in_beta_alone(full_study: StudyDocument) -> None:
    (folded,) = glossary(full_study)
    assert isinstance(folded, Folded)
    systems, symbols = (part for part in folded.parts if isinstance(part, Table))
    names = [line.cells[0].text for line in systems.lines]
    assert names.count("Collective self-KD") == 1
    assert len(names) == len({system.about for system in full_study.systems}) < len(full_study.systems)
    assert [line.cells[0].text for line in symbols.lines] == ["θ", "φ", "σ", "β", "f_p", "f_c", "f_e"]
    assert symbols.lines[4].cells[1].text.endswith("; here 3")
    unknown = StudyDocument("x", ("AP",), systems=(SystemResult("mine", "Mine", means={"AP": 0.5}),))
    assert glossary(unknown) == []


def test_settings_that_are_not_the_papers_are_seen_at_once(full_study: StudyDocument) -> None:
    said = dict(about(full_study))["not as in the paper"]
    assert said == "feedback = labelled, not top; expansion_scale = normalised, not paper"
    lines = {line.cells[0].text: line.cells[2].text for line in tables(full_study)["collective"].lines}
    assert (lines["feedback"], lines["clusters"], lines["start"]) == ("top, differs", "24", "–")
    same = StudyDocument("s", ("AP",), collective=(Setting("feedback", "top", "top"),))
    assert "not as in the paper" not in dict(about(same))


def test_models_and_versions_are_listed(full_study: StudyDocument) -> None:
    found = tables(full_study)
    held = {key: [tuple(cell.text for cell in line.cells) for line in one.lines] for key, one in found.items()}
    assert held["versions"][:2] == [("Python", "3.11.2"), ("colabel", "0.1.0")]
    assert held["models"] == [("encoder", "minilm"), ("cross-encoder 1", BAD)]
    assert "all-MiniLM-L6-v2" in found["models"].notes[0]


def test_ratios_name_their_pairs_and_the_papers(full_study: StudyDocument) -> None:
    (table,) = time_ratios(full_study)
    assert table.caption.endswith("as Collective self-KD (β = 1)")
    first, second = table.lines
    assert [cell.text for cell in first.cells] == [
        *("KD, one cross-encoder", "×1.50", "×1.02", "×1.10", "×7.50", "×2.10", "×2.67", "×2.50"),
    ]
    assert first.cells[0].detail == "labelled pairs: 16,000 against 16,000 (×5.00)"
    assert [cell.text for cell in second.cells[-2:]] == ["×16.00", "–"]


def test_training_stands_last_of_the_work(full_study: StudyDocument) -> None:
    (table,) = training_costs(full_study)
    titles = [column.title for column in table.columns]
    assert titles == ["System", "annotation", "training", "labelled pairs", "encoder passes"]
    line = next(line for line in table.lines if line.cells[0].text == "KD, one cross-encoder")
    assert [cell.text for cell in line.cells[-2:]] == ["16,000", "16,000"]

"""What the tables of results say: the opening sentence, letters, seeds, what is significant, teachers beside φ."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from colabel.evaluation import Evaluation, compare
from colabel.findings import StudyDocument, SystemResult
from colabel.reporting.tables_results import explained, finding, label_quality, main_table, new_queries, suggestions


def compared(student: float, *others: float, queries: int = 8, **changes: object) -> StudyDocument:
    """ColBERT at 0.5, a student, and other systems; values of queries differ a little from the means."""
    means = {"colbert": 0.5, "collective-0.5": student} | {f"s{place}": mean for place, mean in enumerate(others)}
    per_query = {
        slug: {"AP": {f"q{n}": mean + 0.001 * ((n * 7 + place) % 5 - 2) for n in range(queries)}}
        for place, (slug, mean) in enumerate(means.items())
    }
    systems = tuple(SystemResult(slug, slug.title(), means={"AP": mean}, about="x") for slug, mean in means.items())
    comparisons = {"AP": compare(Evaluation("x", "test", 1, per_query), "AP", samples=9)} if queries else {}
    document = StudyDocument(
        "x", ("AP",), systems=systems, per_query=per_query, comparisons=comparisons, student="collective-0.5"
    )
    return replace(document, **changes)


def test_a_significant_difference_opens_the_report() -> None:
    better = finding(compared(0.6))
    assert better.startswith("Collective-0.5 finds relevant passages better than Colbert: AP 0.600 against 0.500 (p <")
    assert "worse than Colbert: AP 0.400 against 0.500" in finding(compared(0.4))
    assert better.endswith("for 1 tests).")
    assert finding(compared(0.6, 0.55)).endswith("; no other of the 3 systems scores higher.")
    assert finding(compared(0.6, 0.7)).endswith("; the highest of the 3 systems is S0 with 0.700.")
    assert finding(compared(0.6, 0.7, 0.7)).endswith("the highest of the 4 systems are S0 and S1 with 0.700.")


def test_what_is_not_significant_is_not_called_better() -> None:
    same = finding(compared(0.5001))
    assert "do not differ significantly" in same
    assert "better" not in same
    document = compared(0.6)
    (pair,) = document.comparisons["AP"].pairs
    by_chance = dataclasses.replace(pair, t_test_holm=0.3, test=dataclasses.replace(pair.test, t_test=0.02))
    comparison = dataclasses.replace(document.comparisons["AP"], pairs=(by_chance,))
    said = finding(replace(document, comparisons={"AP": comparison}))
    assert "scores higher" in said
    assert "not significantly" in said
    assert "(p = 0.3; p = 0.02 without it)" in said


def test_the_opening_sentence_where_something_is_missing() -> None:
    assert "AP 0.600 against 0.500" in finding(compared(0.6, comparisons={})), "not tested"
    assert "could not be tested" in finding(compared(0.6, queries=1)), "a single query"
    document = compared(0.6, 0.7)
    theta, student, other = document.systems
    failed = replace(student, failed="no memory", means={})
    said = finding(replace(document, systems=(theta, failed, other), student=None))
    assert said.startswith("S0 finds relevant passages better than Colbert")
    assert said.endswith("1 of 3 systems failed.")
    assert finding(replace(document, systems=(student, other))).startswith("S0 has AP 0.700, the highest of 2 systems")
    assert finding(replace(document, systems=(theta,))).startswith("Colbert has AP 0.500, and there is no other")
    assert finding(replace(document, systems=(failed,))).startswith("No system has finished")
    assert finding(StudyDocument("x", ("AP",))).startswith("No system has finished")


def test_the_sentence_compares_on_the_seeds_that_both_have() -> None:
    document = compared(0.6)
    seeds = {str(n): {"AP": {f"q{q}": 0.4 + 0.4 * n for q in range(8)}} for n in range(2)}
    systems = (document.systems[0], replace(document.systems[1], seeds=2))
    (pair,) = document.comparisons["AP"].pairs
    comparison = dataclasses.replace(document.comparisons["AP"], pairs=(dataclasses.replace(pair, seeds=(0,)),))
    changed = replace(document, systems=systems, per_seed={"collective-0.5": seeds}, comparisons={"AP": comparison})
    assert "AP 0.400 against 0.500" in finding(changed)


def unequal_seeds(**changes: object) -> StudyDocument:
    """Two seeds of a, whose first is the better, and one of b and of BM25."""
    systems = (
        SystemResult("bm25", "BM25", seeded=False, means={"AP": 0.61}),
        SystemResult("a", "A", seeds=2, means={"AP": 0.5}),
        SystemResult("b", "B", means={"AP": 0.55}),
    )
    seeds = {"0": {"AP": {"q1": 0.5, "q2": 0.7}}, "1": {"AP": {"q1": 0.3, "q2": 0.5}}}
    return replace(StudyDocument("seeds", ("AP",), systems=systems, per_seed={"a": seeds}), **changes)


def cells(document: StudyDocument) -> list[tuple[str, str, bool]]:
    """Figure, what it is compared by, and whether it is the best, of the first measure."""
    (found,) = main_table(document)
    return [(line.cells[1].text, line.cells[1].compared, line.cells[1].best) for line in found.lines]


def test_a_value_of_one_seed_does_not_beat_a_mean_over_several() -> None:
    document = unequal_seeds()
    assert [best for *_, best in cells(document)] == [True, False, False], "BM25 draws nothing and has every seed"
    without = replace(document, systems=document.systems[1:])
    assert cells(without) == [("0.500", "seed\u00a00:\u00a00.600", True), ("0.550", "", False)]


def test_nothing_is_the_best_where_the_seeds_are_not_known_and_the_mean_where_all_have_as_many() -> None:
    assert not any(best for *_, best in cells(unequal_seeds(per_seed={})))
    equal = tuple(replace(system, seeds=2) for system in unequal_seeds().systems[1:])
    assert cells(unequal_seeds(systems=equal)) == [("0.500", "", False), ("0.550", "", True)]


def test_systems_that_are_written_the_same_are_best_together() -> None:
    values = (("a", 0.50041), ("b", 0.5), ("c", 0.4))
    systems = tuple(SystemResult(name, name, means={"AP": value}) for name, value in values)
    document = StudyDocument("u", ("AP",), systems=systems)
    assert [best for *_, best in cells(document)] == [True, True, False]


def test_letters_run_in_the_order_of_the_lines() -> None:
    named = (("one", "hard"), ("three", "hard"), ("two", "soft"))
    systems = tuple(SystemResult(name, name.title(), group, means={"AP": 0.5}) for name, group in named)
    (found,) = main_table(StudyDocument("order", ("AP",), systems=systems))
    assert [(line.cells[0].letter, line.cells[0].text) for line in found.lines] == [
        ("a", "One"),
        ("b", "Three"),
        ("c", "Two"),
    ]


@pytest.mark.parametrize(
    ("seeds", "spread", "alone"), [((1, 3), True, True), ((1, 1), False, True), ((3, 3), True, False)]
)
def test_intervals_say_what_they_leave_out(seeds: tuple[int, int], spread: bool, alone: bool) -> None:
    systems = tuple(SystemResult(f"s{n}", "S", seeds=n, means={"AP": 0.5}) for n in dict.fromkeys(seeds))
    bm25 = SystemResult("bm25", "BM25", seeded=False, means={"AP": 0.5})
    text = explained(StudyDocument("i", ("AP",), systems=(*systems, bm25)))
    assert ("±" in text, "one seed" in text) == (spread, alone)


def test_the_share_of_unjudged_passages_has_a_column_where_it_is_known() -> None:
    system = SystemResult("a", "A", means={"AP": 0.5}, unjudged_share=0.7312)
    document = StudyDocument("u", ("AP",), systems=(system,))
    (found,) = main_table(document)
    assert found.lines[0].cells[-1].text == "73.1 %"


def test_new_queries_stand_beside_all(full_study: StudyDocument) -> None:
    (table,) = new_queries(full_study)
    assert [column.title for column in table.columns] == ["System", "all", "unseen passages (40)"]
    assert "0.410" in {line.cells[2].text for line in table.lines}


def test_teachers_are_compared_with_phi(full_study: StudyDocument) -> None:
    first, _ = full_study.label_quality
    (table,) = label_quality(first, "0", "1")
    phi, other, _ = table.lines
    assert (phi.cells[0].text, phi.cells[-1].text) == ("φ (base)", "–")
    assert (other.cells[-1].text, other.cells[-1].detail) == ("+0.050", "[+0.010,\u00a0+0.090] p\u00a00.0312")
    assert "840 of the 1,200" in table.caption


def test_suggestions_have_their_share_of_hidden_positives(full_study: StudyDocument) -> None:
    (table,) = suggestions(full_study)
    assert [column.title for column in table.columns[1:]] == ["1 × queries", "2 × queries", "5 × queries"]
    assert table.lines[0].cells[1].text == "41.0 %"

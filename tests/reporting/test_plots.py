"""What plots show: one look for a system in all of them, axes that do not deceive, and lines that have a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from colabel.evaluation import Evaluation, Interval, compare
from colabel.findings import StudyDocument
from colabel.findings.records import QualitySet, SystemResult, TeacherQuality
from colabel.reporting import plots
from colabel.reporting.numbers import Plot
from tests.findings.studies import study


@pytest.fixture(autouse=True)
def drawing() -> Iterator[None]:
    with plots.style():
        yield


def texts(plot: Plot | None) -> list[str]:
    assert plot is not None
    return [found.strip() for found in re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)]


def colours(plot: Plot | None) -> set[int]:
    assert plot is not None
    return {int(number) for number in re.findall(r"var\(--series-(\d)\)", plot.svg)}


def quality() -> dict[str, TeacherQuality]:
    return {"1": TeacherQuality(Interval(0.5, 0.4, 0.6, 9), precision_at_recall=(0.9, 0.3))}


def test_a_teacher_has_one_look_in_all_plots() -> None:
    sets = (
        QualitySet("Training queries, hidden labels", {"φ": quality(), "collective": quality()}),
        QualitySet("Test queries", {"φ": quality(), "cross-encoder": quality(), "collective": quality()}),
    )
    document = StudyDocument("x", ("AP",), label_quality=(*sets, QualitySet("More", {"cross-encoder": quality()})))
    drawn = [
        plots.precision_recall(document, found, str(place), "1") for place, found in enumerate(document.label_quality)
    ]
    assert [colours(plot) for plot in drawn] == [{1, 2}, {1, 2, 3}, {3}]


def test_precision_and_recall_say_what_they_are_of() -> None:
    document = study()
    drawn = [
        texts(plots.precision_recall(document, found, "0", grade))
        for found in document.label_quality
        for grade in ("1", "2")[: len(next(iter(found.teachers.values())))]
    ]
    axis = "recall of the relevant candidates"
    assert all(axis in found for found in drawn)
    titles = [
        "\n".join(line for line in found if ("quer" in line or "candidates" in line) and line != axis)
        for found in drawn
    ]
    assert titles[0].splitlines() == [
        "50 training queries",
        "hidden labels among the candidates",
        "relevant from grade 1, averaged over queries",
    ]
    assert len(set(titles)) == len(titles) == 3
    assert all("interpolated precision" in found for found in drawn)


def compared(**means: float) -> StudyDocument:
    """Systems of two queries, both sides of their means by 0.01."""
    per_query = {slug: {"AP": {"q1": mean - 0.01, "q2": mean + 0.01}} for slug, mean in means.items()}
    systems = tuple(SystemResult(slug, slug.upper(), means={"AP": mean}) for slug, mean in means.items())
    comparisons = {"AP": compare(Evaluation("x", "test", 1, per_query), "AP", samples=9)}
    return StudyDocument("x", ("AP",), reference="b", systems=systems, per_query=per_query, comparisons=comparisons)


def test_the_reference_stands_among_the_differences() -> None:
    document = compared(a=0.5, b=0.51, c=0.52)
    assert [text for text in texts(plots.difference(document, 0, "AP")) if text in "ABC"] == ["A", "B", "C"]

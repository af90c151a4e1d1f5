"""What plots show: one look for a system in all of them, axes that do not deceive, and lines that have a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from colabel.evaluation import Evaluation, compare
from colabel.findings import StudyDocument
from colabel.findings.records import (
    DatasetSummary,
    Efficiency,
    Mean,
    QualitySet,
    SweepSetting,
    SystemResult,
    TeacherQuality,
    TrainingCurve,
)
from colabel.reporting import plots
from colabel.reporting.numbers import Plot
from colabel.reporting.svg import style
from tests.findings.studies import study


@pytest.fixture(autouse=True)
def drawing() -> Iterator[None]:
    with style():
        yield


def texts(plot: Plot | None) -> list[str]:
    assert plot is not None
    return [found.strip() for found in re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)]


def colours(plot: Plot | None) -> set[int]:
    assert plot is not None
    return {int(number) for number in re.findall(r"var\(--series-(\d)\)", plot.svg)}


def test_a_student_has_one_look_in_all_plots() -> None:
    systems = (SystemResult("a", "A", "hard"), SystemResult("b", "B", "soft"), SystemResult("c", "C", "hard"))
    loss, dev = ((1, 0.5), (2, 0.4)), ((0, 0.0, 0.5), (2, 1.0, 0.6))
    training = {"b": TrainingCurve(loss, dev), "a": TrainingCurve(loss), "c": TrainingCurve((), dev)}
    document = StudyDocument("x", ("AP",), systems=systems, training=training)
    assert plots.student_looks(document) == {"a": 0, "c": 1, "b": 2}
    assert colours(plots.loss_curves(document)) == {1, 3}
    for over_seconds in (False, True):
        assert colours(plots.dev_curves(document, over_seconds=over_seconds)) == {2, 3}


def test_students_without_a_row_have_a_look_too() -> None:
    curve = TrainingCurve(((1, 0.5), (2, 0.4)))
    document = StudyDocument("x", ("AP",), systems=(SystemResult("b", "B"),), training={"a": curve, "b": curve})
    assert plots.student_looks(document) == {"b": 0, "a": 1}


def quality(base_rate: float | None = None) -> dict[str, TeacherQuality]:
    points = ((0.0, 0.9), (1.0, 0.3))
    return {"1": TeacherQuality(precision_at_recall=(0.9, 0.3), pooled_curve=points, base_rate=base_rate)}


def test_a_teacher_has_one_look_in_all_plots() -> None:
    sets = (
        QualitySet("Training queries, hidden labels", {"φ": quality(), "collective": quality()}),
        QualitySet("Test queries", {"φ": quality(), "cross-encoder": quality(), "collective": quality()}),
    )
    document = StudyDocument("x", ("AP",), label_quality=(*sets, QualitySet("More", {"cross-encoder": quality()})))
    drawn = [
        plots.precision_recall(document, found, str(place), "1", pooled=pooled)
        for place, found in enumerate(document.label_quality)
        for pooled in (False, True)
    ]
    assert [colours(plot) for plot in drawn] == [{1, 2}, {1, 2}, {1, 2, 3}, {1, 2, 3}, {3}, {3}]


def test_precision_and_recall_say_what_they_are_of() -> None:
    document = study()
    drawn = [
        texts(plots.precision_recall(document, found, "0", grade, pooled=pooled))
        for found in document.label_quality
        for grade in ("1", "2")[: len(next(iter(found.teachers.values())))]
        for pooled in (False, True)
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
    assert len(set(titles)) == len(titles) == 6
    assert all("interpolated precision" in found for found in drawn)


def test_the_share_of_relevant_pairs_is_a_line_of_the_pooled_curve() -> None:
    sets = (QualitySet("Test queries", {"φ": quality(0.25)}), QualitySet("Of before", {"φ": quality()}))
    document = StudyDocument("x", ("AP",), label_quality=sets)
    line = "share of relevant pairs, 0.250"
    pooled, averaged = (plots.precision_recall(document, sets[0], "0", "1", pooled=one) for one in (True, False))
    assert pooled is not None
    assert line in texts(pooled)
    assert pooled.caption.endswith(f"; the dashed line is the {line}")
    assert line not in texts(averaged)
    assert not any("share" in text for text in texts(plots.precision_recall(document, sets[1], "1", "1", pooled=True)))


def test_the_target_on_dev_has_a_name() -> None:
    training = {"a": TrainingCurve(dev=((0, 0.0, 0.5), (2, 1.0, 0.6)))}
    efficiency = Efficiency("AP", target=0.55, origin="the best start", queries=25)
    document = StudyDocument("x", ("AP",), training=training, efficiency=efficiency)
    plot = plots.dev_curves(document, over_seconds=False)
    assert plot is not None
    assert plot.caption == "AP on 25 dev queries over steps; the dashed line is the target, 0.550 (the best start)"
    assert {"target, 0.550", "AP on 25 dev queries, over steps"} <= set(texts(plot))
    without = plots.dev_curves(StudyDocument("x", ("AP",), training=training), over_seconds=True)
    assert without is not None
    assert without.caption == "AP on dev over seconds of training, as measured"
    assert not any("target" in text for text in texts(without))


def sweep(*values: tuple[int, float, float], **changes: object) -> StudyDocument:
    """A sweep of (f_p, β, AP)."""
    rows = tuple(SweepSetting(passages, 24, 10, beta, {"AP": value}) for passages, beta, value in values)
    return StudyDocument("x", ("AP",), sweep=rows, **changes)  # type: ignore[arg-type]


def ticks(plot: Plot | None) -> list[str]:
    return [text for text in texts(plot) if re.fullmatch(r"0\.\d{3}", text)]


def test_the_axis_of_the_sweep_does_not_make_a_trend_of_a_thousandth() -> None:
    """0.500 to 0.501 is drawn on an axis of 0.02 around 0.5005, and a twentieth of it on each side."""
    document = sweep((1, 0.5, 0.5), (3, 0.5, 0.501))
    assert ticks(plots.sweep_plot(document, "feedback_passages")) == ["0.490", "0.495", "0.500", "0.505", "0.510"]


def test_the_plots_of_a_sweep_have_one_scale() -> None:
    document = sweep((1, 0.5, 0.5), (3, 0.5, 0.501), (3, 1.0, 0.6))
    drawn = [plots.sweep_plot(document, setting) for setting in ("feedback_passages", "beta")]
    assert ticks(drawn[0]) == ticks(drawn[1]) == ["0.500", "0.525", "0.550", "0.575", "0.600"]


def test_a_sweep_says_how_many_queries_it_is_of() -> None:
    known = sweep((1, 0.5, 0.5), (3, 0.5, 0.6), dataset=DatasetSummary("x", queries={"dev": 1113}))
    for document, queries in ((known, "1,113 dev queries"), (sweep((1, 0.5, 0.5), (3, 0.5, 0.6)), "dev queries")):
        plot = plots.sweep_plot(document, "feedback_passages")
        assert plot is not None
        assert plot.caption == f"AP of ColBERT-PRF as ranker on {queries} over feedback passages"


def compared(**means: float) -> StudyDocument:
    """Systems of two queries, both sides of their means by 0.01."""
    per_query = {slug: {"AP": {"q1": mean - 0.01, "q2": mean + 0.01}} for slug, mean in means.items()}
    systems = tuple(SystemResult(slug, slug.upper(), means={"AP": mean}) for slug, mean in means.items())
    comparisons = {"AP": compare(Evaluation("x", "test", 1, per_query), "AP", samples=9)}
    return StudyDocument("x", ("AP",), reference="b", systems=systems, per_query=per_query, comparisons=comparisons)


def test_the_reference_stands_among_the_differences() -> None:
    document = compared(a=0.5, b=0.51, c=0.52)
    drawn = (plots.effect(document, 0, "AP"), plots.difference(document, 0, "AP"))
    rows = [[text for text in texts(plot) if text in "ABC"] for plot in drawn]
    assert rows[0] == rows[1] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("values", "kept", "expected"),
    [
        ([Mean(0.1), Mean(0.8), Mean(0.9), Mean(0.85)], (), 0),  # 0.1 of 0.8
        ([Mean(0.8), Mean(0.85), Mean(1.5), Mean(0.9)], (), 2),  # beyond the other end
        ([Mean(0.1), Mean(0.8), Mean(0.9)], (), None),  # two are no company
        ([Mean(0.5), Mean(0.8), Mean(0.9), Mean(0.7)], (), None),  # 0.2 of 0.4
        ([Mean(0.1), Mean(0.8, 0.4, 1.0), Mean(0.9), Mean(0.85)], (), None),  # 0.6 of 0.9
        ([Mean(0.1), Mean(0.8), Mean(0.9), Mean(0.85)], (0.1,), None),  # the line must be seen
        ([Mean(0.8, 0.1, 1.5), Mean(0.7), Mean(0.9), Mean(0.85)], (), None),  # wide, but in the middle
        ([Mean(0.1), Mean(0.1), Mean(0.8), Mean(0.9), Mean(0.85)], (), None),  # not one
        ([Mean(0.1), Mean(0.8), Mean(0.8), Mean(0.8)], (), None),  # an axis of no length
        ([Mean(0.5)] * 5, (), None),
        ([Mean(0.5)], (), None),
        ([], (), None),
    ],
)
def test_one_system_far_from_all_others_is_an_outlier(
    values: list[Mean], kept: tuple[float, ...], expected: int | None
) -> None:
    assert plots.outlier(values, kept) == expected


def test_an_outlier_is_named_at_the_border() -> None:
    document = compared(a=0.3, b=0.8, c=0.81, d=0.79)
    effect, difference = plots.effect(document, 0, "AP"), plots.difference(document, 0, "AP")
    assert effect is not None
    assert difference is not None
    assert effect.caption.endswith("; the line is B; A is beyond the axis, at 0.300")
    assert "0.300" in texts(effect)
    assert difference.caption.endswith("; A is beyond the axis, at −0.500")
    assert "−0.500" in texts(difference)
    assert [text for text in texts(effect) if text in "ABCD"] == list("ABCD"), "its row stays"


def test_time_has_the_training_of_cross_encoders() -> None:
    seconds = {"annotation": 60.0, "training": 120.0}
    systems = tuple(SystemResult(f"s{n}", f"s{n}", seconds=seconds, cross_encoders=n) for n in range(3))
    stages = {"training θ": 1000.0, **{f"training cross-encoder {n}": seconds for n, seconds in ((1, 60), (2, 30))}}
    document = StudyDocument("x", ("AP",), systems=systems, seconds=stages)
    assert [plots.cross_encoder_seconds(document, one) for one in systems] == [None, 60.0, 90.0]
    bars = plots.cost_bars(document)
    assert bars is not None
    assert "cross-encoder training" in texts(bars)
    assert "4" in texts(bars), "minutes of the longest bar: 1 + 2 + 1.5"
    without = plots.cost_bars(StudyDocument("x", ("AP",), systems=systems))
    assert without is not None
    assert without.caption == "Time of every system: annotation, training; of the first seed"
    assert "cross-encoder training" not in texts(without)

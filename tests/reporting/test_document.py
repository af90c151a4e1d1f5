from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from colabel.errors import ArtefactError, UsageError
from colabel.evaluation.quality import CandidateList, quality
from colabel.reporting import StudyDocument, read_study, write_study
from colabel.reporting.records import System, TeacherQuality, TrainingCurve


def test_a_study_is_read_as_it_was_written(full_study: StudyDocument, tmp_path: Path) -> None:
    write_study(tmp_path, full_study)
    assert read_study(tmp_path) == full_study


def test_the_names_in_the_file_are_those_of_the_format(full_study: StudyDocument) -> None:
    value = full_study.to_json()
    assert value["format"] == 1
    assert value["dataset"]["hidden"] == 1532
    assert set(value["label_quality"][0]["teachers"]["cross-encoder"]["1"]) >= {
        "AP",
        "AUC",
        "precision_at_recall",
        "pooled_curve",
    }
    assert value["systems"][0]["intervals"]["nDCG@10"][0] < value["systems"][0]["means"]["nDCG@10"]
    comparison = value["comparisons"]["nDCG@10"]
    assert comparison == json.loads(json.dumps(full_study.comparisons["nDCG@10"].as_dict()))


def test_only_name_and_measures_are_needed() -> None:
    found = StudyDocument.from_json({"format": 1, "name": "x", "measures": ["AP"]})
    assert found == StudyDocument("x", ("AP",))
    nulls = dict.fromkeys(field.name for field in dataclasses.fields(StudyDocument))
    assert StudyDocument.from_json({**nulls, "format": 1, "name": "x", "measures": ["AP"]}) == found


def test_keys_of_a_later_program_are_ignored() -> None:
    systems = [{"slug": "a", "title": "A", "more": 1}]
    value = {"format": 1, "name": "x", "measures": ["AP"], "more": [1], "systems": systems}
    assert StudyDocument.from_json(value).systems == (System("a", "A"),)


def test_what_is_no_number_becomes_null_and_numbers_of_numpy_become_plain(tmp_path: Path) -> None:
    system = System("a", "A", means={"AP": float("nan"), "RR": np.float32(0.5)}, pairs=np.int64(7))  # type: ignore[arg-type]
    curve = TrainingCurve(loss=((1, 0.5), (2, float("inf"))))
    write_study(tmp_path, StudyDocument("x", ("AP", "RR"), systems=(system,), training={"a": curve}))
    found = read_study(tmp_path)
    assert found.systems[0].means == {"AP": None, "RR": 0.5}
    assert found.systems[0].pairs == 7
    assert found.training["a"].loss == ((1, 0.5), (2, None))


def test_characters_that_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    write_study(tmp_path, StudyDocument("a\x00b\ud800c\nd", ("AP",)))
    assert read_study(tmp_path).name == "a\ufffdb\ufffdc\nd"


def _changed(full_study: StudyDocument, *path: str | int, to: Any) -> dict[str, Any]:
    value: Any = json.loads(json.dumps(full_study.to_json()))
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "to", "words"),
    [
        (("format",), 2, "format: expected 1, found 2; run the study again"),
        (("name",), 3, "name: expected a text, found 3"),
        (("measures",), [], "measures: a study has at least one"),
        (("systems", 2, "means"), [1], "systems[2].means: expected an object, found a list"),
        (("systems", 2, "means", "RR@10"), "high", "systems[2].means.RR@10: expected a number, found 'high'"),
        (("systems", 2, "seeds"), True, "systems[2].seeds: expected a whole number, found True"),
        (("systems", 2, "intervals", "RR@10"), [0.1], "intervals.RR@10: expected 2 values, found 1"),
        (("systems", 2, "slug"), "bm25", "systems: two have the slug 'bm25'"),
        (("systems", 0), {"title": "x"}, "systems[0] has no 'slug'"),
        (("comparisons", "RR@10", "pairs", 0, "test"), None, "pairs[0].test: expected an object, found None"),
        (("examples", 0, "passages"), "x", "examples[0].passages: expected a list, found 'x'"),
    ],
)
def test_a_wrong_part_is_named(
    full_study: StudyDocument, tmp_path: Path, path: tuple[str | int, ...], to: Any, words: str
) -> None:
    (tmp_path / "study.json").write_text(json.dumps(_changed(full_study, *path, to=to)))
    with pytest.raises(ArtefactError) as error:
        read_study(tmp_path)
    assert words in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "study.json"))


def test_a_runner_cannot_make_a_study_that_is_not_read() -> None:
    with pytest.raises(UsageError, match="two have the slug 'a'"):
        StudyDocument("x", ("AP",), systems=(System("a", "A"), System("a", "B")))


def test_quality_of_a_teacher_is_taken_over() -> None:
    grades, scores = np.array([1, 0, 1, 0]), {"base": np.array([4.0, 3.0, 2.0, 1.0])}
    lists = [CandidateList(name, grades, scores, np.array([1, 1])) for name in ("q1", "q2")]
    measured = quality(lists, 1)
    assert measured is not None
    found = TeacherQuality.of(measured.systems["base"])
    assert found.queries == 2
    assert found.average_precision is not None
    assert found.average_precision.mean == pytest.approx((1 + 2 / 3) / 2)
    assert found.precision_at_recall[0] == 1
    assert len(found.precision_at_recall) == 11
    assert found.pooled_curve[0][0] == 0
    assert found.pooled_curve[-1] == (1, pytest.approx(2 / 3)), "interpolated: all relevant ones are in the top three"
    assert found.base_rate == 0.5, "two of four candidates"
    assert found.difference is None


def test_the_test_of_a_teacher_against_phi_is_taken_over() -> None:
    """The second ranks the relevant passage first, and φ it second, third and second."""
    scores = {"teacher": np.array([3.0, 2.0, 1.0])}
    base = {"q1": [2.0, 3.0, 1.0], "q2": [1.0, 3.0, 2.0], "q3": [2.0, 3.0, 1.0]}
    lists = [
        CandidateList(name, np.array([1, 0, 0]), {"base": np.array(values), **scores}, np.array([1]))
        for name, values in base.items()
    ]
    measured = quality(lists, 1)
    assert measured is not None
    found = TeacherQuality.of(measured.systems["teacher"], measured.differences["teacher"]["AP"])
    assert found.difference is not None
    assert found.difference.mean == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    assert found.difference.low == pytest.approx(1 / 2)
    assert found.difference.high == pytest.approx(2 / 3)
    assert found.difference.p == pytest.approx(stats.ttest_1samp([1 / 2, 2 / 3, 1 / 2], 0).pvalue)


def test_systems_of_a_group_stand_together_in_the_order_of_the_groups() -> None:
    systems = [("a", "hard"), ("b", "soft"), ("c", "hard"), ("d", ""), ("e", "soft")]
    document = StudyDocument("x", ("AP",), systems=tuple(System(slug, slug, group) for slug, group in systems))
    assert [system.slug for system in document.systems] == ["a", "c", "b", "e", "d"]
    old = {"systems": [{"slug": slug, "title": slug, "group": group} for slug, group in systems]}
    found = StudyDocument.from_json({"format": 1, "name": "x", "measures": ["AP"], **old})
    assert found == document, "a file of before that order"


def test_parts_of_the_work_stand_in_the_order_of_the_work() -> None:
    systems = (System("a", "A", seconds={"training": 1.0}), System("b", "B", seconds={"annotation": 2.0}))
    assert StudyDocument("x", ("AP",), systems=systems).work == ["annotation", "training"]

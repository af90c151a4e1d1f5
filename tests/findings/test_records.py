from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colabel.errors import ArtefactError
from colabel.findings import StudyDocument, read_study, write_study
from colabel.findings.records import SystemResult, as_json


def test_a_study_is_read_as_it_was_written(full_study: StudyDocument, tmp_path: Path) -> None:
    write_study(tmp_path, full_study)
    assert read_study(tmp_path) == full_study


def test_the_names_in_the_file_are_those_of_the_format(full_study: StudyDocument) -> None:
    value = as_json(full_study)
    assert value["format"] == 2
    assert value["dataset"]["hidden"] == 1532
    assert set(value["label_quality"][0]["teachers"]["cross-encoder"]["1"]) >= {
        "average_precision",
        "auc",
        "precision_at_recall",
    }
    assert value["systems"][0]["intervals"]["nDCG@10"][0] < value["systems"][0]["means"]["nDCG@10"]
    comparison = value["comparisons"]["nDCG@10"]
    assert comparison == json.loads(json.dumps(dataclasses.asdict(full_study.comparisons["nDCG@10"])))


def test_only_name_and_measures_are_needed_and_other_keys_are_ignored(tmp_path: Path) -> None:
    systems = [{"slug": "a", "title": "A", "more": 1}]
    value = {"format": 2, "name": "x", "measures": ["AP"], "more": [1], "systems": systems}
    (tmp_path / "study.json").write_text(json.dumps(value))
    assert read_study(tmp_path) == StudyDocument("x", ("AP",), systems=(SystemResult("a", "A"),))


def test_what_is_no_number_becomes_null_and_numbers_of_numpy_become_plain(tmp_path: Path) -> None:
    system = SystemResult("a", "A", means={"AP": float("nan"), "RR": np.float32(0.5)}, pairs=np.int64(7))  # type: ignore[arg-type]
    write_study(tmp_path, StudyDocument("x", ("AP", "RR"), systems=(system,), seconds={"BM25": float("inf")}))
    found = read_study(tmp_path)
    assert found.systems[0].means == {"AP": None, "RR": 0.5}
    assert found.systems[0].pairs == 7
    assert found.seconds == {"BM25": None}


def test_characters_that_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    write_study(tmp_path, StudyDocument("a\x00b\ud800c\nd", ("AP",)))
    assert read_study(tmp_path).name == "a\ufffdb\ufffdc\nd"


@pytest.mark.parametrize(
    ("path", "to", "place"),
    [
        (("format",), 1, "format"),
        (("name",), 3, "$.name"),
        (("systems", 2, "means"), [1], "$.systems[2].means"),
        (("systems", 2, "means", "RR@10"), "high", "$.systems[2].means"),
        (("systems", 2, "seeds"), True, "$.systems[2].seeds"),
        (("systems", 2, "intervals", "RR@10"), [0.1], "$.systems[2].intervals"),
        (("systems", 0), {"title": "x"}, "$.systems[0]"),
        (("comparisons", "RR@10", "pairs", 0, "test"), None, "pairs[0].test"),
    ],
)
def test_a_wrong_part_is_named(
    full_study: StudyDocument, tmp_path: Path, path: tuple[str | int, ...], to: Any, place: str
) -> None:
    value = as_json(full_study)
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    (tmp_path / "study.json").write_text(json.dumps(value))
    with pytest.raises(ArtefactError) as error:
        read_study(tmp_path)
    assert place in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "study.json"))


def test_values_are_compared_on_a_seed_that_all_have() -> None:
    seeds = {"0": {"AP": {"q1": 0.5, "q2": 0.7}}, "1": {"AP": {"q1": 0.3, "q2": 0.5}}}
    systems = (
        SystemResult("bm25", "BM25", means={"AP": 0.61}, seeded=False),
        SystemResult("a", "A", seeds=2, means={"AP": 0.5}),
        SystemResult("b", "B", means={"AP": 0.55}),
    )
    document = StudyDocument("x", ("AP",), systems=systems, per_seed={"a": seeds})
    assert (document.unequal_seeds, document.compared_seed) == (True, "0")
    assert document.comparable("AP") == pytest.approx({"bm25": 0.61, "a": 0.6, "b": 0.55})
    assert document.best("AP") == {"bm25"}
    alone = StudyDocument("x", ("AP",), systems=systems[:2], per_seed={"a": seeds})
    assert (alone.unequal_seeds, alone.compared_seed) == (False, None), "what draws nothing has every seed"
    unknown = StudyDocument("x", ("AP",), systems=systems)
    assert (unknown.comparable("AP"), unknown.best("AP")) == ({}, set())

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colabel.collective.knowledge import collect
from colabel.data import Dataset, load_dataset
from colabel.errors import UsageError
from colabel.index import build_index
from colabel.labels import label
from colabel.settings import CollectiveSettings, CrossEncoderSettings, EncoderSettings, LabelSettings
from colabel.teachers import TEACHERS, TeacherChoice, make_teacher

WriteBeir = Callable[..., Path]
SHORT = CrossEncoderSettings(max_length=64)
ROWS = np.array([[0, 1, 2]])


@pytest.fixture
def dataset(write_beir: WriteBeir) -> Dataset:
    return load_dataset(str(write_beir()))


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "scores.tsv"
    path.write_text("q1 d1 3\nq1 d2 1\n")
    return path


def test_uniform_takes_its_smoothing_from_the_settings(dataset: Dataset) -> None:
    teacher = make_teacher(TeacherChoice("uniform"), dataset, labels=LabelSettings(smoothing=0.3))
    assert teacher.name == "uniform"
    assert np.exp(teacher.score(["q1"], ROWS))[0].tolist() == pytest.approx([0.45, 0.45, 0.1])


def test_cross_encoder_and_ensemble(dataset: Dataset, tiny_cross_encoder: Path, tmp_path: Path) -> None:
    model = str(tiny_cross_encoder)
    shutil.copytree(model, tmp_path / "copy")
    choice = TeacherChoice("cross-encoder", models=(model,), device="cpu", cache=tmp_path / "cache")
    one = make_teacher(choice, dataset, cross_encoder=SHORT)
    both = TeacherChoice("ensemble", models=(model, str(tmp_path / "copy")), device="cpu")
    mean = make_teacher(both, dataset, cross_encoder=SHORT)
    assert (one.name, mean.name) == ("cross-encoder", "ensemble")
    assert mean.score(["q1"], ROWS) == pytest.approx(one.score(["q1"], ROWS), abs=1e-4), "two equal models"
    assert list((tmp_path / "cache" / one.fingerprint).glob("part-*.npy"))


def test_scores_and_mixed(dataset: Dataset, scores: Path) -> None:
    teacher = make_teacher(TeacherChoice("scores", scores=scores), dataset)
    assert teacher.score(["q1"], ROWS)[0, :2].tolist() == [3.0, 1.0]
    choice = TeacherChoice("mixed", scores=scores, parts=("scores", "uniform"), weight=1.0)
    mixed = make_teacher(choice, dataset)
    assert mixed.name == "mixed"
    assert mixed.score(["q1"], ROWS)[0, :2].tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"name": "cross-encoder"}, "'cross-encoder' needs one model, and none was named; add --model"),
        ({"name": "cross-encoder", "models": ("a", "b")}, r"2 were named \(their mean is 'ensemble'\)"),
        ({"name": "ensemble", "models": ("a",)}, "'ensemble' needs two models or more, and 1 were named"),
        ({"name": "ensemble", "models": ("a", "a")}, "one model twice"),
        ({"name": "scores"}, "'scores' needs a file of scores; add --scores FILE"),
        ({"name": "collective"}, "'collective' needs collective knowledge"),
        ({"name": "self"}, "'self' needs collective knowledge"),
        ({"name": "mixed"}, "'mixed' needs two other teachers, and was given none"),
        ({"name": "mixed", "parts": ("uniform",)}, "was given uniform"),
        ({"name": "mixed", "parts": ("uniform", "mixed")}, "needs two other teachers"),
        ({"name": "colective"}, "no teacher 'colective'; expected one of .*did you mean 'collective'"),
        ({"name": "mixed", "parts": ("uniform", "oracle")}, "no teacher 'oracle'"),
    ],
)
def test_what_is_missing_is_said(dataset: Dataset, choice: dict[str, object], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        make_teacher(TeacherChoice(**choice), dataset)  # type: ignore[arg-type]


def test_teachers_of_collective_knowledge(
    dataset: Dataset, tiny_model: Path, tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    """The settings' β wins over the knowledge's; β = 0 is 'self'; a mixture of both is labelled like any teacher."""
    encoder = EncoderSettings(model=str(tiny_model), dimension=16, passage_length=32, query_length=16, device="cpu")
    index = build_index(dataset, tmp_path / "index", encoder=encoder)
    small = CollectiveSettings(clusters=4, centroids=2, beta=0.5)
    knowledge = collect(dataset, index, tmp_path / "knowledge", settings=small)
    own = make_teacher(TeacherChoice("self"), dataset, knowledge=knowledge)
    remembered = make_teacher(TeacherChoice("collective"), dataset, knowledge=knowledge)
    zero = make_teacher(
        TeacherChoice("collective"), dataset, knowledge=knowledge, collective=CollectiveSettings(beta=0.0)
    )
    assert (own.name, remembered.name) == ("self", "collective")
    assert zero.score(["q1"], ROWS) == pytest.approx(own.score(["q1"], ROWS), abs=1e-5)
    assert not np.allclose(remembered.score(["q1"], ROWS), own.score(["q1"], ROWS))
    choice = TeacherChoice(
        "mixed", models=(str(tiny_cross_encoder),), parts=("collective", "cross-encoder"), weight=0.4, device="cpu"
    )
    mixed = make_teacher(choice, dataset, knowledge=knowledge, cross_encoder=SHORT)
    labels = label(knowledge, dataset, mixed, tmp_path / "labels")
    (block,) = labels.blocks()
    assert labels.teacher == "mixed"
    assert np.isfinite(block.teacher[block.rows >= 0]).all()
    rows = block.rows.astype(np.int64)
    assert block.teacher == pytest.approx(mixed.score(block.query_ids, rows), abs=1e-4)


def test_every_name_has_a_maker(dataset: Dataset) -> None:
    """Without what they need, all but 'uniform' say so; none is unknown."""
    for name in TEACHERS:
        if name == "uniform":
            assert make_teacher(TeacherChoice(name), dataset).name == name
            continue
        with pytest.raises(UsageError, match=f"the teacher '{name}' needs"):
            make_teacher(TeacherChoice(name), dataset)

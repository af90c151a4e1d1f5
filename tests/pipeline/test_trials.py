"""Settings tried on dev: the same for every student, the best kept for all seeds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import Recipe, study
from colabel.artefacts import read_manifest
from colabel.errors import SettingsError
from colabel.findings import StudyDocument
from colabel.pipeline.study import OWN_TRIAL, Trials
from colabel.reporting import ReportFiles
from colabel.settings import StudySettings

TABLES = ({"learning_rate": 0.05, "temperature": 2.0}, {"learning_rate": 1e-7}, {"teacher_temperature": 0.25})
NAMES = [OWN_TRIAL, "learning_rate = 0.05, temperature = 2.0", "learning_rate = 1e-07", "teacher_temperature = 0.25"]
FOLDERS = ("own", "learning_rate=0.05,temperature=2.0", "learning_rate=1e-07", "teacher_temperature=0.25")
Done = tuple[Path, StudyDocument, ReportFiles]


@pytest.fixture(scope="module")
def wanted(recipe: Recipe) -> Recipe:
    chosen = StudySettings(
        systems=("colbert", "colbert-hn", "collective-0.5"),
        seeds=2,
        repeated=("colbert-hn",),
        trials=TABLES,
        sweep=False,
        measures=("nDCG@10",),
    )
    return replace(recipe, study=chosen)


@pytest.fixture(scope="module")
def done(wanted: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Done:
    out = tmp_path_factory.mktemp("trials") / "study"
    return out, *study(wanted, out)


def test_every_student_has_the_same_trials_and_keeps_its_best(done: Done) -> None:
    out, document, _ = done
    assert list(document.trials) == ["colbert-hn", "collective-0.5"]
    for slug, found in document.trials.items():
        assert [trial.name for trial in found] == NAMES
        tried = [
            read_manifest(out / "trials" / slug / name)
            for name, one in zip(FOLDERS, found, strict=True)
            if one.value is not None
        ]
        values = [trial.value for trial in found if trial.value is not None]
        best = values.index(max(values))
        assert [trial.chosen for trial in found] == [number == best for number in range(4)]
        assert read_manifest(out / "seed-0" / "students" / slug / "model") == tried[best], "seconds too"
        assert [manifest.settings["learning_rate"] for manifest in tried][1:3] == [0.05, 1e-7]
        assert len({manifest.inputs["groups"] for manifest in tried}) == 1


def test_a_teachers_setting_is_no_trial_of_hard_labels(done: Done) -> None:
    """It would train the same weights again, and make it look as if they had been tuned."""
    out, document, _ = done
    assert document.trials["colbert-hn"][3].note == "no part of its loss"
    assert not (out / "trials" / "colbert-hn" / FOLDERS[3]).exists()
    assert document.trials["collective-0.5"][3].value is not None


def test_smoothing_is_a_trial_of_uniform_labels_alone(wanted: Recipe, tmp_path: Path) -> None:
    few = replace(wanted.study, systems=("colbert", "colbert-hn", "smoothing"), seeds=1, trials=({"smoothing": 0.4},))
    document, _ = study(replace(wanted, study=few), tmp_path / "study")
    assert document.trials["colbert-hn"][1].note == "no part of its loss"
    assert document.trials["smoothing"][1].value is not None
    folder = tmp_path / "study" / "trials" / "smoothing"
    targets = [read_manifest(folder / name).inputs["target"] for name in ("own", "smoothing=0.4")]
    assert targets[0] != targets[1]


def test_later_seeds_take_what_was_chosen(done: Done) -> None:
    out, *_ = done
    first, second = (
        read_manifest(out / f"seed-{seed}" / "students" / "colbert-hn" / "model").settings for seed in (0, 1)
    )
    assert first == second
    assert not (out / "seed-1" / "trials").exists()


def test_the_same_command_again_trains_nothing(wanted: Recipe, done: Done) -> None:
    out, document, _ = done
    before = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    again, _ = study(wanted, out)
    assert again == document
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == before


def test_trials_need_dev(wanted: Recipe, tmp_path: Path) -> None:
    source = tmp_path / "no-dev"
    shutil.copytree(wanted.data.source, source)
    (source / "qrels" / "dev.tsv").unlink(missing_ok=True)
    few = replace(wanted.study, systems=("colbert", "colbert-hn"), seeds=1)
    data = replace(wanted.data, source=str(source), holdout=0.0)
    document, _ = study(replace(wanted, study=few, data=data), tmp_path / "study")
    assert "'study.trials' are compared on dev" in str(document.systems[1].failed)


@pytest.mark.parametrize("trial", [{"steps": 5}, {"learning_rate": "fast"}, {"floor": "set"}])
def test_a_trial_that_cannot_be(recipe: Recipe, trial: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(trial))):
        Trials(replace(recipe, study=StudySettings(trials=(trial,))))

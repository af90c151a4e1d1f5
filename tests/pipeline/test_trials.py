"""Settings tried on dev: the same for every student, the best kept for all seeds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import Recipe, study
from colabel.artefacts import read_manifest
from colabel.encode.colbert import load_checkpoint
from colabel.errors import SettingsError, TrainingError
from colabel.pipeline import Chain, System, plan_study
from colabel.pipeline.chain import StudentSettings
from colabel.pipeline.comparison import Study
from colabel.pipeline.trials import DEFAULT, trial_settings
from colabel.reporting import ReportFiles, StudyDocument
from colabel.settings import StudySettings
from colabel.train import TrainedModel

HIGH = "learning_rate = 0.05; temperature = 2.0"
LOW = "learning_rate = 1e-7"
TEACHING = "teacher_temperature = 0.25"
FOLDERS = ("own", "learning_rate=0.05,temperature=2.0", "learning_rate=1e-7", "teacher_temperature=0.25")
Done = tuple[Path, StudyDocument, ReportFiles]


@pytest.fixture(scope="module")
def wanted(recipe: Recipe) -> Recipe:
    chosen = StudySettings(
        systems=("colbert", "colbert-hn", "collective-0.5"),
        seeds=2,
        repeated=("colbert-hn",),
        trials=(HIGH, LOW, TEACHING),
        timed_queries=0,
        sweep=False,
        examples=0,
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
        assert [trial.name for trial in found] == [DEFAULT, HIGH, LOW, TEACHING]
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
    few = replace(wanted.study, systems=("colbert", "colbert-hn", "smoothing"), seeds=1, trials=("smoothing = 0.4",))
    document, _ = study(replace(wanted, study=few), tmp_path / "study")
    assert document.trials["colbert-hn"][1].note == "no part of its loss"
    assert document.trials["smoothing"][1].value is not None
    folder = tmp_path / "study" / "trials" / "smoothing"
    targets = [read_manifest(folder / name).inputs["target"] for name in ("own", "smoothing=0.4")]
    assert targets[0] != targets[1]


def test_a_trial_that_comes_apart_leaves_the_others(
    wanted: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Chain.train_student

    def fails(chain: Chain, system: System, settings: StudentSettings, out: Path) -> TrainedModel:
        if settings.distil.learning_rate == 0.05:
            raise TrainingError("the loss of step 1 is nan")
        return train(chain, system, settings, out)

    monkeypatch.setattr(Chain, "train_student", fails)
    few = replace(wanted.study, systems=("colbert", "colbert-hn"), seeds=1, trials=(HIGH,))
    document, _ = study(replace(wanted, study=few), tmp_path / "study")
    assert [(trial.note, trial.chosen) for trial in document.trials["colbert-hn"]] == [("", True), ("failed", False)]
    assert document.systems[1].failed is None


def test_later_seeds_take_what_was_chosen(done: Done) -> None:
    out, *_ = done
    first, second = (
        read_manifest(out / f"seed-{seed}" / "students" / "colbert-hn" / "model").settings for seed in (0, 1)
    )
    assert first == second
    assert not (out / "seed-1" / "trials").exists()


def test_the_report_shows_them(done: Done) -> None:
    _, document, files = done
    page = files.markdown.read_text()
    chosen = next(trial for trial in document.trials["collective-0.5"] if trial.chosen)
    assert "Settings tried with every student of θ: nDCG@10 on 5 dev queries" in page
    assert f"{chosen.value:.3f}"[1:] in page and " *" in page


def test_the_same_command_again_trains_nothing(wanted: Recipe, done: Done) -> None:
    out, document, _ = done
    before = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    again, _ = study(wanted, out)
    assert again == document
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == before


def test_a_plan_counts_them(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    def seconds(recipe: Recipe) -> float:
        return next(
            stage.seconds for stage in plan_study(recipe, tmp_path).stages if stage.name == "colbert-hn, seed 0"
        )

    assert seconds(wanted) > 1.5 * seconds(replace(wanted, study=replace(wanted.study, trials=())))


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        ("learning_rate = ", "which cannot be read"),
        ("steps = 5", "a trial cannot change 'steps'"),
        ("learning_rat = 1e-5", "did you mean 'learning_rate'"),
        ("learning_rate = -1.0", "'distil.learning_rate' is -1.0"),
    ],
)
def test_a_trial_that_cannot_be(recipe: Recipe, trial: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told.replace("(", r"\(")):
        trial_settings(replace(recipe, study=StudySettings(trials=(trial,))))


def test_they_are_compared_on_more_dev_queries_than_training_looks_at(wanted: Recipe, done: Done) -> None:
    out, document, _ = done
    few = replace(wanted, distil=replace(wanted.distil, evaluate_queries=2))
    chain = Study(few, out).first
    assert chain.dev_pool is not None and len(chain.dev_pool.query_ids) == 2
    pool = chain.choosing_pool
    assert pool is not None and list(pool.query_ids) == sorted(chain.bench.dataset.positives("dev"))
    for slug, found in document.trials.items():
        for name, trial in zip(FOLDERS, found, strict=True):
            if trial.value is not None:
                model = load_checkpoint(str(out / "trials" / slug / name), "cpu")
                assert pool.evaluate(model, ["nDCG@10"])["nDCG@10"] == pytest.approx(trial.value)


def test_a_student_of_before_is_the_first_trial(wanted: Recipe, tmp_path: Path) -> None:
    few = replace(wanted.study, systems=("colbert", "colbert-hn"), seeds=1, trials=())
    out = tmp_path / "study"
    study(replace(wanted, study=few), out)
    before = read_manifest(out / "seed-0" / "students" / "colbert-hn" / "model")
    document, _ = study(replace(wanted, study=replace(few, trials=(LOW,))), out)
    assert read_manifest(out / "trials" / "colbert-hn" / "own") == before, "seconds too: it was not trained again"
    assert [trial.value is not None for trial in document.trials["colbert-hn"]] == [True, True]


def test_trials_need_dev(wanted: Recipe, tmp_path: Path) -> None:
    source = tmp_path / "no-dev"
    shutil.copytree(wanted.data.source, source)
    (source / "qrels" / "dev.tsv").unlink(missing_ok=True)
    few = replace(wanted.study, systems=("colbert", "colbert-hn"), seeds=1)
    data = replace(wanted.data, source=str(source), holdout=0.0)
    document, _ = study(replace(wanted, study=few, data=data), tmp_path / "study")
    assert "'study.trials' are compared on dev" in str(document.systems[1].failed)

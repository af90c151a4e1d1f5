"""A whole run on a tiny real model: every teacher, resuming, what hidden labels must not change."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colabel import DataSettings, Recipe, load_dataset, open_run, run
from colabel.artefacts import Builder, read_manifest
from colabel.errors import ColabelError, DataError, UsageError
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import check_run, check_training
from colabel.pipeline.run import forced, run_stages, theta_index, train_student, what_is_left
from colabel.pipeline.stages import Stages
from colabel.settings import LabelSettings, PseudoSettings, TrainSettings
from colabel.systems import parse_system
from colabel.train import TrainedModel
from colabel.train.pulling import by_alpha, verdict
from tests.conftest import Call, Said
from tests.encode.test_query_generator import write_causal
from tests.train.test_loop import furthest

SMALL_OF_COMMANDS = (
    *(("encoder", key, value) for key, value in {"dimension": 16, "query_length": 12}.items()),
    *(("encoder", "passage_length", 24), ("encoder", "device", "cpu"), ("labels", "candidates", 10)),
    *((section, "steps", 2) for section in ("train", "distil")),
    *((section, "batch_queries", 2) for section in ("train", "distil")),
    ("fit", "evaluate_every", 0),
    *(("distil", "passages", 3), ("collective", "clusters", 6), ("collective", "centroids", 3)),
)


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    run(recipe, out, teacher="collective")
    return out


def stages(recipe: Recipe, out: Path, **given: Any) -> Stages:
    return Stages(recipe, Layout.of(out), builder=given.get("builder") or Builder())


def student(recipe: Recipe, out: Path, slug: str) -> TrainedModel:
    with stages(recipe, out) as do:
        return train_student(do, parse_system(slug))


def left(recipe: Recipe, out: Path, slug: str = "collective-0.5") -> str:
    return what_is_left(recipe, Layout.of(out), parse_system(slug), Builder())[0]


def test_a_run_ends_with_an_evaluation_and_a_student(recipe: Recipe, finished: Path) -> None:
    result = run(recipe, finished, teacher="collective")
    assert result.evaluation is not None
    systems = ["bm25", "zero-shot", "colbert", "collective-0.5", "hybrid", "hybrid-collective-0.5"]
    assert list(result.evaluation.means) == systems
    assert list(result.evaluation.means["bm25"]) == ["nDCG@10", "RR@10", "R@100", "R@1000"]
    assert (result.labels, result.index) == (
        finished / "labels/collective-0.5",
        finished / "students/collective-0.5/index",
    )
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(result.student), device="cpu")
    assert model.encode_query(["ice"])[0].shape[-1] == 16
    assert "| β | 0.5 |" in (result.student / "README.md").read_text()
    evaluation = json.loads((finished / "evaluation.json").read_text())
    assert list(evaluation["means"]) == systems


def test_dev_decides_how_much_of_a_student_is_taken_unless_forced(
    recipe: Recipe, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    pulled = replace(recipe, fit=replace(recipe.fit, keep="pulled"))
    theta, model = (tmp_path / "run" / name / "manifest.json" for name in ("theta", "students/collective-0.5/model"))
    before = theta.read_bytes(), model.read_bytes()
    result = run(pulled, tmp_path / "run", teacher="collective")
    assert theta.read_bytes() == before[0] and model.read_bytes() != before[1], "nothing but the student changes"
    assert list(read_manifest(result.student).counts["dev"]) == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    assert result.verdict == verdict(result.student) != "" and result.report is not None
    assert by_alpha(result.student) in result.report.with_suffix(".md").read_text()
    result = run(pulled, tmp_path / "run", teacher="collective", force=True)
    assert read_manifest(result.student).counts["alpha"] > 0 and result.verdict.startswith("Take")
    assert theta.read_bytes() == before[0]
    assert forced(recipe) == recipe, "dev has no say where fit.keep is 'best'"


def test_force_takes_a_student_of_the_query_side(recipe: Recipe, tmp_path: Path) -> None:
    pulled = replace(recipe, fit=replace(recipe.fit, keep="pulled"))
    result = run(pulled, tmp_path / "run", teacher="hard-query", force=True)
    found = read_manifest(result.student)
    assert found.settings["keep"] == "forced" and found.counts["alpha"] > 0 and result.verdict.startswith("Take")


def test_a_finished_student_is_known_without_making_its_lists(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(recipe, tmp_path / "run")
    monkeypatch.setattr("colabel.pipeline.stages.candidate_rows", None)
    assert read_manifest(run(recipe, tmp_path / "run").student) == read_manifest(first.student)


def test_where_labels_are_few_the_passages_teach_as_well(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colabel.data.pseudo.COMMON", 1.0)  # the small collection has few words
    few = replace(recipe, pseudo=PseudoSettings(queries=200))
    first = read_manifest(run(few, tmp_path / "few").student)
    assert set(first.counts["target_entropy"]) == {"teacher", "labels", "passages"}
    monkeypatch.setattr("colabel.train.query_side._clearly", lambda one, other: False)
    assert read_manifest(run(replace(few, seed=1), tmp_path / "other").student).counts["lesson"].endswith("passages")
    monkeypatch.setattr("colabel.pipeline.stages.candidate_rows", None)
    assert read_manifest(run(few, tmp_path / "few").student) == first, "known without making its lists"
    monkeypatch.undo()
    many = replace(recipe, pseudo=PseudoSettings(queries=1))
    found = read_manifest(run(many, tmp_path / "many").student)
    assert set(found.counts["target_entropy"]) == {"teacher", "labels"} and "passages" not in found.counts["lesson"]


def test_a_language_model_writes_queries_once(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("colabel.data.pseudo.COMMON", 1.0)  # the small collection has few words
    model = write_causal(tmp_path / "writer")
    collection = tmp_path / "small"
    shutil.copytree(recipe.data.source, collection)
    (collection / "qrels" / "train.tsv").unlink()
    bare = replace(recipe, data=DataSettings(source=str(collection)), pseudo=PseudoSettings(generator=str(model)))
    run(bare, tmp_path / "run")
    written = json.loads((tmp_path / "run" / "generated" / "queries.json").read_text())
    assert len(written) == 40
    asked = open_run(tmp_path / "run").dataset.queries
    assert {one for one in asked if one.startswith("generated:")} <= {f"generated:{one}" for one in written}
    assert any(one.startswith("generated:") for one in asked)
    monkeypatch.setattr("colabel.encode.query_generator.open_generator", None)
    with caplog.at_level(logging.INFO, logger="colabel"):
        run(bare, tmp_path / "run")
    assert "everything is up to date" in [record.getMessage() for record in caplog.records]


def test_a_finished_run_writes_nothing_and_loads_no_model(
    recipe: Recipe, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("manifest.json")}

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("colabel.encode.colbert.load_checkpoint", load)
    monkeypatch.setattr("colabel.teachers.pair_model.load_cross_encoder", load)
    run(recipe, finished, teacher="collective")
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("manifest.json")} == before
    assert left(recipe, finished) == "everything is up to date"


def test_the_stages_of_a_run_are_called_in_the_papers_order(
    recipe: Recipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []

    class Told(Builder):
        def build(self, folder: Path, spec: Any, write: Any) -> Any:
            order.append(folder.relative_to(tmp_path).as_posix())
            return super().build(folder, spec, write)

    with stages(recipe, tmp_path, builder=Told()) as do:
        run_stages(do, parse_system("collective-0.5"))
    made = list(dict.fromkeys(order))
    wanted = ["theta", "index/tokens", "knowledge/ranking", "knowledge/centroids", "labels/collective-0.5"]
    wanted += ["students/collective-0.5/model", "students/collective-0.5/index/tokens", "runs/collective-0.5"]
    assert [name for name in made if name in wanted] == wanted


@pytest.mark.parametrize(
    ("section", "changes", "told"),
    [
        ("distil", {"learning_rate": 1e-3}, "`distil` differs in distil.learning_rate"),
        ("fit", {"schedule": "constant"}, "`train` differs in fit.schedule"),
        ("train", {"learning_rate": 1e-3}, "`train` differs in train.learning_rate"),
        ("collective", {"centroids": 2}, "`collect` differs in collective.centroids"),
        ("labels", {"candidates": 9}, "`collect` differs in labels.candidates"),
        ("query_side", {"steps": 7}, "everything is up to date"),
        ("rank", {"depth": 19}, "`rank` differs in rank.depth"),
        ("rank", {"k1": 1.2}, "`bm25` differs in rank.k1"),
        ("index", {"storage": "int8"}, "`index` differs in index.storage"),
        ("encoder", {"passage_length": 16}, "`encoder` differs in encoder.passage_length"),
    ],
)
def test_a_dry_run_names_the_setting_that_differs_and_the_run_makes_that_stage(
    recipe: Recipe, finished: Path, section: str, changes: dict[str, Any], told: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    changed = replace(recipe, **{section: replace(getattr(recipe, section), **changes)})
    assert left(changed, finished).startswith(told)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before, "nothing is written"


def test_what_a_dry_run_names_is_what_the_run_makes(recipe: Recipe, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    out, changed = tmp_path / "run", replace(recipe, distil=replace(recipe.distil, learning_rate=1e-3))
    assert left(recipe, out) == "everything is up to date", "a copy is as finished as its original"
    before = {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")}
    assert left(changed, out).startswith("`distil` differs")
    run(changed, out, teacher="collective")
    made = {path.parent.relative_to(out).as_posix() for path in out.rglob("manifest.json")}
    made = {name for name in made if not name.startswith("versions/")}
    made -= {path.parent.relative_to(out).as_posix() for path, at in before.items() if path.stat().st_mtime_ns == at}
    own = "students/collective-0.5"
    joined = {"hybrid/hybrid-collective-0.5", "runs/hybrid-collective-0.5", "probability"}
    joined |= {"hybrid/memory-collective-0.5", f"memory/{own}/index"}
    assert made == {f"{own}/model", f"{own}/index/encoder", f"{own}/index/tokens", "runs/collective-0.5", *joined}
    assert left(changed, out) == "everything is up to date"


def test_a_dry_run_of_a_new_folder_writes_nothing(recipe: Recipe, tmp_path: Path) -> None:
    assert left(recipe, tmp_path / "new").startswith("`bm25` is not made yet; about ")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("section", "changes", "told"),
    [
        ("fit", {"measure": "nDGC@10"}, "'nDGC@10'"),
        ("fit", {"precision": "bf16"}, "'fit.precision' is 'bf16'"),
        ("encoder", {"device": "cuda:7"}, "'encoder.device' is 'cuda:7'"),
        ("labels", {"scores": "typo.tsv"}, "'labels.scores' is 'typo.tsv', and there is no such file"),
        ("cross_encoder", {"checkpoints": ("nowhere/model",)}, "nowhere/model"),
        ("cross_encoder", {"max_length": 65}, "'cross_encoder.max_length' is 65"),
        ("cross_encoder", {"models": ("no/such/model:2",)}, "no/such/model"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_trained(
    recipe: Recipe, tiny_cross_encoder: Path, tmp_path: Path, section: str, changes: dict[str, Any], told: str
) -> None:
    if "max_length" in changes:
        changes = {**changes, "checkpoints": (str(tiny_cross_encoder),)}
    wrong = replace(recipe, **{section: replace(getattr(recipe, section), **changes)})
    teacher = {"labels": "scores", "cross_encoder": "cross-encoder"}.get(section, "collective")
    with pytest.raises(ColabelError, match=re.escape(told)):
        run(wrong, tmp_path / "run", teacher=teacher)
    assert not (tmp_path / "run" / "theta").exists()


def test_a_section_that_trains_nothing_is_not_asked(recipe: Recipe, finished: Path) -> None:
    taken = replace(recipe, encoder=replace(recipe.encoder, model=str(finished / "theta")))
    check_training(replace(taken, fit=replace(taken.fit, precision="bf16")), student=False)
    folder = replace(recipe, labels=replace(recipe.labels, scores=str(finished / "runs" / "colbert")))
    check_run(parse_system("scores-kd"), folder)


def test_a_card_names_the_cross_encoders_that_taught(recipe: Recipe, finished: Path) -> None:
    run(recipe, finished, teacher="mixed")
    card = (finished / "students" / "mixed" / "model" / "README.md").read_text()
    first, second, *_ = recipe.cross_encoder.models
    named = next(line for line in card.splitlines() if line.startswith("| cross-encoders |"))
    assert first in named and second not in named.replace(first, "")


@pytest.mark.parametrize("teacher", ["hard", "uniform", "self", "cross-encoder", "ensemble", "mixed"])
def test_every_teacher_trains_a_student_from_the_same_theta_and_groups(
    recipe: Recipe, finished: Path, teacher: str
) -> None:
    result = run(recipe, finished, teacher=teacher)
    student, theta = read_manifest(result.student), read_manifest(finished / "theta")
    collective = read_manifest(finished / "students" / "collective-0.5" / "model")
    assert student.inputs["start"] == collective.inputs["start"]
    assert student.inputs["groups"] == collective.inputs["groups"]
    assert student.inputs["target"] != collective.inputs["target"]
    assert theta.fingerprint != student.fingerprint


def test_cross_encoders_score_only_what_training_draws(recipe: Recipe, finished: Path) -> None:
    run(recipe, finished, teacher="cross-encoder")
    counts = read_manifest(finished / "labels" / "ce-kd").counts
    drawn = recipe.distil.steps * recipe.distil.batch_queries * recipe.distil.passages
    assert 0 < counts["scored"] <= drawn < counts["pairs"]
    assert read_manifest(finished / "labels" / "collective-0.5").counts["scored"] == counts["pairs"]


def test_hidden_labels_change_no_training_artefact(recipe: Recipe, tmp_path: Path) -> None:
    """The same visible labels with and without others behind them: every fingerprint and weight is the same."""
    source = Path(recipe.data.source)
    rich, poor = tmp_path / "rich", tmp_path / "poor"
    for folder in (rich, poor):
        (folder / "qrels").mkdir(parents=True)
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv", "qrels/test.tsv"):
            (folder / name).write_bytes((source / name).read_bytes())
    header, *lines = (source / "qrels" / "train.tsv").read_text().splitlines()
    more = [f"{line.split(chr(9))[0]}\td{number}\t1" for number, line in enumerate(lines)]
    ids = {json.loads(line)["_id"] for line in (source / "corpus.jsonl").read_text().splitlines()}
    more = [line for line in more if line.split("\t")[1] in ids and line not in lines]
    assert more, "there is something to hide"
    (rich / "qrels" / "train.tsv").write_text("\n".join([header, *lines, *more]) + "\n")

    def fingerprints(folder: Path, visible: Path) -> dict[str, str]:
        out = tmp_path / f"run-{folder.name}"
        data = DataSettings(source=str(folder), keep_labels=1)
        with stages(replace(recipe, data=data), out) as do:
            kept = do.dataset().positives("train")
            if not visible.exists():
                visible.write_text("\n".join([header, *(f"{q}\t{p}\t1" for q, (p,) in kept.items())]) + "\n")
            train_student(do, parse_system("collective-0.5"))
        names = ("theta", "knowledge/centroids", "labels/collective-0.5", "students/collective-0.5/model")
        return {name: read_manifest(out / name).fingerprint for name in names}

    train = poor / "qrels" / "train.tsv"
    first = fingerprints(rich, train)
    assert fingerprints(poor, train) == first
    weights = [tmp_path / f"run-{name}" / "students/collective-0.5/model" for name in ("rich", "poor")]
    files = [sorted(folder.rglob("*.safetensors")) for folder in weights]
    assert files[0]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]


def test_commands(recipe: Recipe, finished: Path, tmp_path: Path, said: Said) -> None:
    """collect → inspect → label → search --prf, as a user types them."""
    data, index, knowledge = recipe.data.source, finished / "index", tmp_path / "k"
    options = ("--set", "collective.clusters=6", "--set", "collective.centroids=3")
    out = said("collect", data, "--index", index, *options, "--out", knowledge)
    query_id = out.split(f"colabel inspect {knowledge} ")[1].split()[0]
    out = said("inspect", knowledge, query_id)
    assert "expansion tokens (σ, weight at β = 0.5)" in out
    assert json.loads(said("inspect", knowledge, query_id, "--json"))["query_id"] == query_id
    out = said("label", data, "--knowledge", knowledge, "--set", "labels.candidates=10", "--out", tmp_path / "labels")
    assert "Next:" in out
    assert said("search", index, "glacier ice", "--ranker", "prf", "-k", 2).startswith("  1  ")
    said("rank", data, "--index", index, "--prf", "reranker", "--out", tmp_path / "run")
    assert (tmp_path / "run" / "run.trec").read_text().splitlines()[0].endswith("colbert-prf-rerank")


@pytest.mark.slow
def test_several_processes_from_the_command_line(recipe: Recipe, tmp_path: Path) -> None:
    """The first process makes what comes before; both train; the teacher is looked up by each for its own queries."""
    text = f"""
    [data]
    source = "{recipe.data.source}"
    [encoder]
    model = "{recipe.encoder.model}"
    dimension = 16
    query_length = 12
    passage_length = 24
    device = "cpu"
    [collective]
    clusters = 6
    centroids = 3
    [labels]
    candidates = 10
    [train]
    steps = 3
    batch_queries = 4
    learning_rate = 1e-3
    [distil]
    steps = 3
    learning_rate = 1e-3
    batch_queries = 4
    passages = 3
    scope = "batch"
    [fit]
    evaluate_every = 3
    """
    (tmp_path / "recipe.toml").write_text(text)
    call = ["-m", "colabel", "distil", str(tmp_path / "recipe.toml"), "--out"]
    how: dict[str, Any] = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    both = subprocess.run([*torchrun, *call, tmp_path / "both"], check=False, **how)
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("the student:") == 1
    one = subprocess.run([sys.executable, *call, tmp_path / "one"], check=False, **how)
    assert one.returncode == 0, one.stderr
    student = Path("students") / "collective-0.5" / "model"
    # Reached: 2e-5 after both stages. Where one process looks its queries up in the wrong order, it is 4e-3.
    assert furthest(tmp_path / "one" / student, tmp_path / "both" / student, leave_out="key.bias") <= 1e-4
    assert furthest(tmp_path / "one" / student, tmp_path / "one" / "theta", leave_out="key.bias") > 1e-3
    torchrun[-1] = "4"
    call[-1:] = ["--teacher", "uniform", "--out"]
    four = subprocess.run([*torchrun, *call, tmp_path / "four"], check=False, **how)
    assert four.returncode == 0, four.stderr
    assert (tmp_path / "four" / "students" / "smoothing" / "model" / "manifest.json").exists()


def test_train_and_distil_from_the_command_line(
    recipe: Recipe, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {f"{section}.{key}": value for section, key, value in SMALL_OF_COMMANDS}
    given = [
        *("--set", f'encoder.model="{recipe.encoder.model}"'),
        *(part for key, value in values.items() for part in ("--set", f"{key}={value}")),
        *("--out", "out"),
    ]
    code, _, err = call("distil", recipe.data.source, "--teacher", "scores", *given)
    assert (code, "labels.scores" in err) == (2, True)
    assert not (tmp_path / "out" / "theta").exists(), "a teacher that cannot be is told before θ is trained"
    assert call("train", recipe.data.source, *given)[0] == 0
    assert (tmp_path / "out" / "theta" / "modules.json").exists()
    trained = (tmp_path / "out" / "theta" / "manifest.json").stat().st_mtime_ns
    code, out, _ = call("distil", recipe.data.source, "--teacher", "uniform", *given)
    assert (code, "the student:" in out) == (0, True)
    assert (tmp_path / "out" / "students" / "smoothing" / "model" / "modules.json").exists()
    assert (tmp_path / "out" / "theta" / "manifest.json").stat().st_mtime_ns == trained


def test_export_of_a_model(finished: Path, tmp_path: Path, call: Call) -> None:
    code, _, err = call("export", finished / "theta", "--format", "pylate", "--out", tmp_path / "pylate")
    assert code == 0, err
    from sentence_transformers import MultiVectorEncoder

    texts = ["ice of the glacier"]
    ours, theirs = (
        MultiVectorEncoder(str(folder), device="cpu").encode_document(texts)[0]
        for folder in (finished / "theta", tmp_path / "pylate")
    )
    assert np.allclose(np.asarray(ours), np.asarray(theirs), atol=1e-5)
    for folder, form, message in (
        (tmp_path, "pylate", "is not a trained model; to export labels, name the DATASET"),
        (finished / "theta", "hf", "a model is exported with --format pylate, not hf"),
    ):
        code, _, err = call("export", folder, "--format", form, "--out", tmp_path / "other")
        assert (code, message in err) == (2, True)


def test_the_whole_batch_asks_the_teacher_while_training(recipe: Recipe, finished: Path) -> None:
    assert recipe.distil.scope == "batch"
    asked, read = student(recipe, finished, "self-kd"), student(recipe, finished, "ce-kd")
    assert asked.manifest.settings["scope"] == read.manifest.settings["scope"] == "batch"
    assert (finished / "labels" / "self-kd" / "manifest.json").exists(), "labels are for people, too"
    scored = read_manifest(finished / "labels" / "ce-kd").counts["scored"]
    drawn = recipe.distil.steps * recipe.distil.batch_queries * recipe.distil.passages
    assert scored <= drawn, "no pair more than in the scope of a group"
    losses = [line["loss"] for line in read.log if "loss" in line]
    assert losses and all(math.isfinite(loss) for loss in losses)


def test_a_querys_own_passages_are_looked_up_in_the_labels(recipe: Recipe, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    group = replace(recipe, distil=replace(recipe.distil, scope="group"))
    found = student(group, tmp_path / "run", "collective-0.5")
    assert found.manifest.settings["scope"] == "group"
    assert all(line["taught"] == 1.0 for line in found.log if "loss" in line)
    asked = read_manifest(finished / "students" / "collective-0.5" / "model")
    assert found.manifest.inputs["groups"] == asked.inputs["groups"]
    assert found.manifest.inputs["target"] != asked.inputs["target"]


def test_a_late_interaction_checkpoint_is_taken_as_theta(recipe: Recipe, finished: Path, tmp_path: Path) -> None:
    taken = replace(recipe, encoder=replace(recipe.encoder, model=str(finished / "theta")))
    with stages(taken, tmp_path / "run") as do:
        known = do.collect(do.dataset(), theta_index(do))
        assert not (tmp_path / "run" / "theta").exists()
        with stages(recipe, finished) as first:
            original = first.collect(first.dataset(), theta_index(first))
        query_ids = original.queries.ids[:3]
        assert np.allclose(known.queries.vectors(query_ids), original.queries.vectors(query_ids), atol=1e-5)


def test_the_papers_cross_encoder_row_starts_from_the_plain_encoder(recipe: Recipe, finished: Path) -> None:
    paper, equal = (student(recipe, finished, slug).manifest.inputs for slug in ("ce-kd-paper", "ce-kd"))
    assert paper["start"] != equal["start"]
    assert paper["groups"] != equal["groups"]


def test_a_score_file_is_a_teacher(recipe: Recipe, finished: Path, tmp_path: Path) -> None:
    with stages(recipe, finished) as do:
        ranking = do.collect(do.dataset(), theta_index(do)).ranking.run()
    lines = [f"{query}\t{passage}\t{score}" for query, found in ranking.items() for passage, score in found.items()]
    (tmp_path / "scores.tsv").write_text("\n".join(lines) + "\n")
    given = replace(recipe, labels=LabelSettings(candidates=10, scores=str(tmp_path / "scores.tsv")))
    found = student(given, finished, "scores-kd")
    assert found.manifest.settings["target"] == "scores"
    assert all(line["taught"] > 0 for line in found.log if "loss" in line)
    (tmp_path / "scores.tsv").write_text("\n".join(lines[1:]) + "\n")
    assert left(given, finished, "scores-kd").startswith("`label` differs in its teacher"), "edited where it lies"
    with pytest.raises(UsageError, match=r"labels\.scores"):
        run(recipe, finished, teacher="scores")


@pytest.mark.parametrize("count", [1, 4])
def test_few_train_queries_and_no_dev_split_are_enough(recipe: Recipe, tmp_path: Path, count: int) -> None:
    source = shutil.copytree(recipe.data.source, tmp_path / "few")
    head, *judged = (source / "qrels" / "train.tsv").read_text().splitlines()
    queries = list(dict.fromkeys(line.split("\t")[0] for line in judged))[:count]
    kept = [line for line in judged if line.split("\t")[0] in queries]
    (source / "qrels" / "train.tsv").write_text("\n".join([head, *kept]) + "\n")
    (source / "qrels" / "dev.tsv").unlink()
    few = replace(recipe, data=DataSettings(source=str(source), holdout=0.01), train=TrainSettings(steps=2))
    assert "dev" not in load_dataset(few.data).splits
    result = run(few, tmp_path / "run", teacher="collective")
    assert result.evaluation is not None and len(result.evaluation.means) == 6


@pytest.mark.parametrize(("split", "remedy"), [("train", "--clicks FILE"), ("dev", "fit.evaluate_every=0")])
def test_labels_that_teach_nothing_are_refused_at_once(recipe: Recipe, tmp_path: Path, split: str, remedy: str) -> None:
    source = shutil.copytree(recipe.data.source, tmp_path / "none")
    labels = source / "qrels" / f"{split}.tsv"
    labels.write_text(re.sub(r"\t[1-9]$", "\t0", labels.read_text(), flags=re.M))
    with pytest.raises(DataError, match=re.escape(remedy)):
        run(replace(recipe, data=DataSettings(source=str(source))), tmp_path / "run", teacher="collective")
    assert [path.name for path in (tmp_path / "run").rglob("*")] == []

"""A whole run on Ray against the same run in one process, with every teacher and kind of loss."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from colabel import Index, Recipe, open_labels, run, study
from colabel.artefacts import read_manifest
from colabel.cluster import Cluster
from colabel.cluster.engine import ClusterPredictor
from colabel.cluster.pool import WorkerPool
from colabel.collective.knowledge import open_knowledge
from colabel.data import load_dataset
from colabel.errors import ClusterError
from colabel.index.shards import ShardedIndex
from colabel.pipeline.preflight import note_recipe
from colabel.pipeline.run import distil_student
from colabel.progress import SILENT, Task
from colabel.settings import StudySettings
from colabel.teachers.pair_model import PairBatch

pytestmark = pytest.mark.usefixtures("small_ray")

FILES = ("runs/zero-shot/run.trec", "runs/colbert/run.trec", "runs/collective-0.5/run.trec")


class Heard:
    """Remembers the names of tasks and how many units each had."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None, str]] = []

    def start(self, what: str, total: int | None, unit: str) -> Task:
        self.tasks.append((what, total, unit))
        return SILENT.start(what, total, unit)


HEARD = Heard()


@pytest.fixture(scope="module")
def local(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local") / "run"
    run(replace(recipe, compute=replace(recipe.compute, engine="local")), out, teacher="collective")
    return out


@pytest.fixture(scope="module")
def on_ray(recipe: Recipe, local: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on Ray from the same θ: training has no part in what is compared."""
    out = tmp_path_factory.mktemp("ray") / "run"
    run(recipe, out, progress=HEARD, teacher="collective")
    return out


def same_labels(ours: Path, theirs: Path) -> None:
    for mine, other in zip(open_labels(ours).blocks(), open_labels(theirs).blocks(), strict=True):
        assert mine.query_ids == other.query_ids
        np.testing.assert_array_equal(mine.rows, other.rows)
        np.testing.assert_array_equal(mine.flags, other.flags)
        np.testing.assert_allclose(mine.teacher, other.teacher, atol=1e-5)
        np.testing.assert_allclose(mine.base, other.base, atol=1e-5)


def test_a_run_gives_the_same_rankings_knowledge_and_labels(on_ray: Path, local: Path) -> None:
    assert isinstance(Index.open(on_ray / "index"), ShardedIndex)
    same_labels(on_ray / "labels/collective-0.5", local / "labels/collective-0.5")
    ours, theirs = open_knowledge(on_ray / "knowledge"), open_knowledge(local / "knowledge")
    query_ids = list(theirs.queries.ids)
    np.testing.assert_array_equal(ours.centroids(query_ids).token_ids, theirs.centroids(query_ids).token_ids)
    np.testing.assert_array_equal(ours.feedback(query_ids), theirs.feedback(query_ids))
    for name in FILES:
        mine, other = ([line.split()[:4] for line in (out / name).read_text().splitlines()] for out in (on_ray, local))
        assert mine == other
    for name in ("knowledge/ranking", "knowledge/centroids", "labels/collective-0.5", "students/collective-0.5/model"):
        assert read_manifest(on_ray / name).fingerprint == read_manifest(local / name).fingerprint


def test_progress_tells_of_shards_that_are_encoded_and_searched(on_ray: Path) -> None:
    assert on_ray.exists()
    assert {("encoding shards", 5, "shards"), ("searching shards", 5, "shards")} <= set(HEARD.tasks)


def test_a_run_again_does_nothing(recipe: Recipe, on_ray: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in on_ray.rglob("manifest.json")}
    run(recipe, on_ray, teacher="collective")
    assert {path: path.stat().st_mtime_ns for path in on_ray.rglob("manifest.json")} == before


def test_a_student_of_whole_batches_asks_the_shards(recipe: Recipe, on_ray: Path, local: Path, tmp_path: Path) -> None:
    """The teacher of a batch looks its vectors up in the shards of the workers: the student has the same weights."""
    students = {}
    for name, source, compute in (
        ("ray", on_ray, recipe.compute),
        ("local", local, replace(recipe.compute, engine="local")),
    ):
        wanted = replace(recipe, compute=compute, distil=replace(recipe.distil, scope="batch", steps=4))
        wanted = replace(wanted, fit=replace(recipe.fit, keep="last"))
        shutil.copytree(source, tmp_path / name)
        note_recipe(tmp_path / name, wanted)  # other settings than noted are refused in the folder of a run
        students[name] = load_file(
            distil_student(wanted, tmp_path / name, teacher="collective").folder / "model.safetensors"
        )
    before = load_file(local / "theta/model.safetensors")
    moved = 0.0
    for key, weights in students["local"].items():
        np.testing.assert_allclose(students["ray"][key], weights, atol=1e-6)
        moved = max(moved, float(np.abs(weights - before[key]).max()))
    assert moved > 1e-5, "nothing was learnt"


@pytest.mark.slow
def test_a_study_on_the_workers_measures_what_one_process_measures(recipe: Recipe, tmp_path: Path) -> None:
    rows = ("bm25", "zero-shot", "colbert", "collective-0.5", "colbert-prf-rerank-0.5", "ce-kd")
    chosen = StudySettings(systems=rows, measures=("nDCG@10", "R@100"))
    wanted = replace(recipe, study=chosen)
    on_ray, _ = study(wanted, tmp_path / "ray")
    alone, _ = study(replace(wanted, compute=replace(recipe.compute, engine="local")), tmp_path / "local")
    assert on_ray.per_query.keys() == alone.per_query.keys() == set(rows)
    for slug in rows:
        for measure in chosen.measures:
            assert on_ray.per_query[slug][measure] == pytest.approx(alone.per_query[slug][measure], abs=1e-6), slug


@pytest.mark.slow
def test_cross_encoders_annotate_on_the_workers(recipe: Recipe, on_ray: Path, local: Path) -> None:
    distil_student(recipe, on_ray, teacher="cross-encoder")
    plain = replace(recipe, compute=replace(recipe.compute, engine="local"))
    distil_student(plain, local, teacher="cross-encoder")
    same_labels(on_ray / "labels" / "ce-kd", local / "labels" / "ce-kd")


@pytest.mark.slow
def test_a_restarted_driver_keeps_finished_shards(
    recipe: Recipe, on_ray: Path, pool: WorkerPool, tmp_path: Path
) -> None:
    """The folder as a killed driver leaves it: some shards, no statistics, no index.json."""
    index = tmp_path / "index"
    shutil.copytree(on_ray / "index", index)
    shutil.rmtree(index / "statistics")
    shutil.rmtree(index / "shard-00003")
    (index / "index.json").unlink()
    kept = {path: path.stat().st_mtime_ns for path in index.glob("shard-*/tokens/manifest.json")}
    assert len(kept) == 4
    dataset = load_dataset(recipe.data)
    encoder = replace(recipe.encoder, model=str(on_ray / "theta"))
    built = Cluster(recipe.compute, pool).build_index(dataset, index, encoder=encoder, index=recipe.index)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (index / "shard-00003/tokens/manifest.json").exists()
    assert built.fingerprint == Index.open(on_ray / "index").fingerprint


def test_a_broken_passage_ends_the_stage_with_its_row(recipe: Recipe, pool: WorkerPool, tmp_path: Path) -> None:
    """A line that was broken after the collection was opened."""
    source = Path(recipe.data.source)
    shutil.copytree(source, tmp_path / "poisoned")
    dataset = load_dataset(str(tmp_path / "poisoned"))
    lines = (tmp_path / "poisoned" / "corpus.jsonl").read_text().splitlines(keepends=True)
    with (tmp_path / "poisoned" / "corpus.jsonl").open("r+") as file:  # in place: offsets stay
        file.seek(sum(map(len, lines[:21])))
        file.write(lines[21].replace("{", "x", 1))
    with pytest.raises(
        ClusterError, match=r"shard 2 of 5 \(rows 16 to 23\): .*the passage in row 21 is not what it was"
    ):
        encoder = replace(recipe.encoder, projection="random")  # which reads no passage
        Cluster(recipe.compute, pool).build_index(dataset, tmp_path / "index", encoder=encoder, index=recipe.index)


def test_pairs_that_cannot_be_scored_end_the_stage_with_their_names(pool: WorkerPool, tiny_cross_encoder: Path) -> None:
    predictor = ClusterPredictor(pool, str(tiny_cross_encoder), 48, "cpu")
    fine = PairBatch([("a word", "a text")], "the pairs (q1, d1)")
    poisoned = PairBatch([("a word", "a text"), ("a word", None)], "the pairs (q7, d3), (q7, d9)")  # type: ignore[list-item]
    with pytest.raises(ClusterError, match=r"annotating the pairs \(q7, d3\), \(q7, d9\)"):
        list(predictor.predict([fine, poisoned, fine]))


def test_workers_do_not_keep_the_weights_of_a_model_that_was_trained_again(
    pool: WorkerPool, tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    folder = tmp_path / "model"
    shutil.copytree(tiny_cross_encoder, folder)
    batch = PairBatch([("a word", "a text")], "one pair")
    ((_, before),) = ClusterPredictor(pool, str(folder), 48, "cpu").predict([batch])
    model = CrossEncoder(str(folder), device="cpu")
    model.model.classifier.weight.data.mul_(-1)  # type: ignore[union-attr, operator]
    model.model.classifier.bias.data.mul_(-1)  # type: ignore[union-attr, operator]
    shutil.rmtree(folder)
    model.save(str(folder), create_model_card=False)
    ((_, after),) = ClusterPredictor(pool, str(folder), 48, "cpu").predict([batch])
    np.testing.assert_allclose(after, -before, atol=1e-5)

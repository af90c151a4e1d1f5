"""Documents longer than the model reads: cut into pieces, ranked, labelled and learnt from as documents."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from colabel import EncoderSettings, Index, Recipe, build_index, export_labels, load_dataset, open_run, run
from colabel.artefacts import Builder
from colabel.data.splits import TRAIN
from colabel.index.shards import Shards, build_sharded, plan_shards
from colabel.pipeline.layout import Layout
from colabel.pipeline.stages import Stages
from colabel.ranking import Bm25, Hybrid, LateInteraction
from colabel.ranking.labelled_pieces import positive_rows
from colabel.ranking.late_interaction import search
from colabel.settings import ComputeSettings, DataSettings, RankSettings
from colabel.teachers.score_file import ScoreFileTeacher
from tests.conftest import Said
from tests.pipeline.small import small_recipe

QUESTION = "a fjord is a narrow inlet with steep sides"
OTHERS = ("melt water carves tunnels", "a glacier of old ice", "how are caves formed", "summer is the same season")


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty documents of five sentences; only the last one of d7 answers the question."""
    folder = tmp_path_factory.mktemp("long")
    with (folder / "corpus.jsonl").open("w") as file:
        for number, sentences in zip(range(30), itertools.cycle(itertools.permutations(OTHERS)), strict=False):
            last = "A fjord is a narrow inlet with steep sides." if number == 7 else "The harbour is old."
            text = " ".join([*(f"{one.capitalize()} in the ice of a cave." for one in sentences), last])
            file.write(json.dumps({"_id": f"d{number}", "text": text}) + "\n")
    return folder


def settings(model: Path) -> EncoderSettings:
    return EncoderSettings(model=str(model), dimension=16, query_length=16, passage_length=24, device="cpu")


@pytest.mark.parametrize("chunk", [0, 12])
def test_the_answer_beyond_the_length_is_found_with_chunk_alone(
    collection: Path, tiny_model: Path, tmp_path: Path, chunk: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = DataSettings(source=str(collection), chunk=chunk)
    dataset = load_dataset(data, cache=tmp_path / "data")
    build_index(dataset, tmp_path / "index", data=data, encoder=settings(tiny_model))
    index = Index.open(tmp_path / "index")
    found = search(index, QUESTION, 10)
    assert len({hit.passage_id for hit in found}) == 10
    if chunk:
        assert found[0].passage_id == "d7"
        assert "fjord is a narrow inlet" in found[0].text
        assert "longer than" not in caplog.text
    else:
        assert found[0].passage_id != "d7"
        assert "30 of 30 passages are longer than the 24 tokens that the model reads" in caplog.text
        assert "; --chunk 16" in caplog.text


def test_every_ranker_gives_the_brute_force_maximum(collection: Path, tiny_model: Path, tmp_path: Path) -> None:
    data = DataSettings(source=str(collection), chunk=12)
    dataset = load_dataset(data, cache=tmp_path / "data")
    index = build_index(dataset, tmp_path / "index", data=data, encoder=settings(tiny_model))
    words = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    late = LateInteraction(index)
    texts, ids = [QUESTION, "caves of melt water"], dataset.passages.ids
    everything = np.tile(np.arange(len(ids)), (2, 1))
    expected = {"late": index.store.score(late.encode(texts), everything), "bm25": words.scores(texts, everything)}
    for name, ranker in (("late", late), ("bm25", words)):
        rows, scores = ranker.rank(texts, 12)
        for line, values, own in zip(rows, scores, expected[name], strict=True):
            best: dict[str, float] = {}
            for row, value in enumerate(own.tolist()):
                best[ids[row]] = max(value, best.get(ids[row], -np.inf))
            wanted = sorted((one for one in best if best[one] > 0), key=lambda one: (best[one], one), reverse=True)[:12]
            names = [ids[row] for row in line.tolist() if row >= 0]
            assert sorted(values[values > -np.inf].tolist(), reverse=True) == pytest.approx(
                [best[one] for one in wanted], abs=1e-3
            )
            assert len(set(names)) == len(names) == len(wanted)
    both, _ = Hybrid(late, words).rank(texts, 12)
    assert all(len({ids[row] for row in line.tolist()}) == 12 for line in both)
    allowed, _ = late.rank(texts, 3, np.isin(np.arange(len(ids)), ids.all_of(ids.rows(["d3"]))))
    assert [{ids[row] for row in line.tolist() if row >= 0} for line in allowed] == [{"d3"}, {"d3"}]


@pytest.fixture(scope="module")
def long_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    folder = tmp_path_factory.mktemp("chunked")
    recipe = small_recipe(folder / "data", tiny_model)
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, chunk=4))
    run(recipe, folder / "run", teacher="collective")
    return recipe, folder / "run"


def test_a_run_knows_documents_alone(long_run: tuple[Recipe, Path], tmp_path: Path) -> None:
    _, out = long_run
    opened, documents = open_run(out), {f"d{number}" for number in range(40)}
    dataset = opened.dataset
    assert len(dataset.passages) > 80
    for path in opened.rankings.values():
        lines = (path / "run.trec").read_text().split("\n")[:-1]
        pairs = [(line.split()[0], line.split()[2]) for line in lines]
        assert len(pairs) == len(set(pairs))
        assert {passage for _, passage in pairs} <= documents
    assert opened.evaluate().means
    assert set(opened.search("what is ice", 5).ids[0].tolist()) <= documents
    judged = dataset.labels(TRAIN)
    missing = opened.missing(50)
    assert missing
    assert all(one.passage_id in documents and one.passage_id not in judged[one.query_id] for one in missing)
    assert len({(one.query_id, one.passage_id) for one in missing}) == len(missing)
    export_labels(opened.labels, dataset, tmp_path / "trec", "trec")
    lines = (tmp_path / "trec" / "run.trec").read_text().split("\n")[:-1]
    assert {line.split()[2] for line in lines} <= documents


def test_training_texts_have_an_id_for_each_piece(long_run: tuple[Recipe, Path], tmp_path: Path) -> None:
    import datasets

    opened = open_run(long_run[1])
    export_labels(opened.labels, opened.dataset, tmp_path / "pylate", "pylate")
    train, documents = (datasets.load_from_disk(str(tmp_path / "pylate" / name)) for name in ("train", "documents"))
    used = {name for row in train for name in row["document_ids"]}
    assert used == set(documents["document_id"])
    assert len(set(documents["document_id"])) == len(documents)
    assert any("#" in name for name in used)


def test_the_query_side_learns_from_pieces_and_a_score_file_from_documents(
    long_run: tuple[Recipe, Path], tmp_path: Path
) -> None:
    recipe, out = long_run
    result = run(recipe, tmp_path / "views", teacher="views")
    assert result.evaluation is not None
    opened = open_run(out)
    (tmp_path / "scores.tsv").write_text("".join(f"q0\td{number}\t{number}\n" for number in range(40)))
    teacher = ScoreFileTeacher(tmp_path / "scores.tsv", opened.dataset)
    found = opened.labels.query("q0").rows.astype(np.int64)
    names = [f"d{score:.0f}" for score in teacher.scores(["q0"], found[None])[0].tolist()]
    assert names == [opened.dataset.passages.ids[row] for row in found.tolist()]


def test_documents_are_suggested_judged_and_learned(long_run: tuple[Recipe, Path], tmp_path: Path) -> None:
    _, out = long_run
    shutil.copytree(out, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    first, other = (
        next(one for one in opened.missing(50) if one.query_id == query) for query in opened.labels.query_ids[:2]
    )
    verdicts = [(first.query_id, first.passage_id, "yes"), (other.query_id, other.passage_id, "no")]
    assert opened.judge(verdicts) == 2
    pairs = {(one.query_id, one.passage_id) for one in opened.missing(500)}
    assert not pairs & {(query, passage) for query, passage, _ in verdicts}
    done = opened.again()
    assert (done.added, done.negatives) == (1, 1)
    learned = done.run.dataset
    assert learned.labels(TRAIN)[first.query_id][first.passage_id] == 1
    assert learned.trusted == {other.query_id: (other.passage_id,)}
    shown = next(one for one in opened.missing(50))
    row = opened.dataset.passages.ids.row(shown.passage_id)
    assert shown.text in {opened.dataset.passages[one].text for one in range(row, row + 8)}


def test_shards_may_cut_a_document(collection: Path, tiny_model: Path, tmp_path: Path) -> None:
    dataset, encoder = load_dataset(DataSettings(source=str(collection), chunk=12)), settings(tiny_model)
    whole = build_index(dataset, tmp_path / "whole", encoder=encoder)
    source = plan_shards(dataset, tmp_path / "parts", encoder, "fp16", ComputeSettings(shard_passages=7))
    parts = build_sharded(dataset, tmp_path / "parts", Shards(source))
    queries = whole.encoder.encode_queries([QUESTION, "caves of melt water"]).vectors
    for wanted, found in zip(whole.search(queries, 12), parts.search(queries, 12), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_commands_offer_and_take_chunk(collection: Path, tiny_model: Path, tmp_path: Path, said: Said) -> None:
    offered = said("check", collection, "--set", "encoder.passage_length=24")
    assert "30 passages have more than 20 words" in offered
    assert "--chunk 16 cuts them into pieces" in offered
    assert "cut into " in said("check", collection, "--chunk", 16)
    values = {"model": tiny_model, "passage_length": 24, "dimension": 16}
    small = [part for key, value in values.items() for part in ("--set", f"encoder.{key}={value}")]
    said("index", collection, "--chunk", 12, *small, "--out", tmp_path / "index")
    found = json.loads(said("search", tmp_path / "index", QUESTION, "-k", 1, "--json"))
    assert "d7" in json.dumps(found)
    assert "d7#" not in json.dumps(found)
    assert {"fjord", "narrow", "inlet"} <= {one["passage"] for one in found[0]["matches"]}  # of its last piece


def test_labels_stand_for_the_piece_that_bm25_scores_best(long_run: tuple[Recipe, Path]) -> None:
    recipe, out = long_run
    with Stages(recipe, Layout.of(out), builder=Builder()) as do:
        data = do.dataset()
        index = do.index(data, do.at.theta, do.at.index)
        known = do.collect(data, index)
        groups = do.groups(data, known.ranking)
        chosen, ids = positive_rows(data, TRAIN), data.passages.ids
        for number, (query, rows) in enumerate(zip(groups.query_ids, groups.rows.tolist(), strict=True)):
            assert rows[0] in chosen[query], number
            labelled = set(data.labels(TRAIN)[query])
            assert not labelled & {ids[row] for row in rows[1:]}
        labels = open_run(out).labels
        for query, positives in chosen.items():
            found = labels.query(query)
            marked = found.rows[(found.flags & 1) != 0]
            assert sorted(marked.tolist()) == positives.tolist()
            assert len(set(ids.first_of(found.rows).tolist())) == len(found.rows)


def test_the_best_piece_holds_the_words_of_the_query(collection: Path, tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": QUESTION}) + "\n")
    (tmp_path / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td7\t1\nq1\td3\t1\n")
    data = DataSettings(
        source=str(collection),
        chunk=12,
        queries=(str(tmp_path / "queries.jsonl"),),
        labels={"train": str(tmp_path / "train.tsv")},
        holdout=0.0,
    )
    dataset = load_dataset(data)
    rows = positive_rows(dataset, TRAIN)["q1"].tolist()
    assert [dataset.passages.ids[row] for row in rows] == ["d3", "d7"]
    assert "narrow inlet" in dataset.passages[rows[1]].text

"""A run from a dataset, without a recipe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conftest import Call

from colabel.findings import read_study
from colabel.pipeline.preflight import noted_recipe
from colabel.pipeline.study import Study

TINY = {
    **{"encoder.dimension": 16, "encoder.query_length": 12, "encoder.passage_length": 24, "encoder.device": "cpu"},
    **{"train.steps": 2, "train.batch_queries": 1, "distil.steps": 2, "distil.batch_queries": 1, "distil.passages": 2},
    **{"query_side.steps": 2, "collective.clusters": 4, "collective.centroids": 2, "fit.evaluate_every": 0},
}
KINDS = ("glacier cave", "narrow fjord", "old harbour", "ice tunnels")


def settings(model: Path) -> list[str]:
    return [part for key, value in {**TINY, "encoder.model": model}.items() for part in ("--set", f"{key}={value}")]


def write_shop(folder: Path) -> None:
    """A catalogue and a click log, as a shop has them; a pair that was clicked once is no label."""
    rows = [f"p{number},{KINDS[number % 4]} {number},made by water and ice,{number}.50" for number in range(24)]
    (folder / "products.csv").write_text("\n".join(["sku,product,description,price", *rows]) + "\n")
    clicks = [f"what is a {kind},p{place},5" for place, kind in enumerate(KINDS)]
    clicks += [f"how is the {kind} formed,p{place + 4},3" for place, kind in enumerate(KINDS)]
    (folder / "clicks.csv").write_text("\n".join(["query,sku,clicks", *clicks, "summer,p9,1"]) + "\n")


def test_run_takes_a_catalogue_and_clicks(
    tiny_model: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = ("products.csv", "--clicks", "clicks.csv", "--min-clicks", 2, "--columns", "title=product")
    code, out, err = call("check", *data)
    assert (code, "24 passages, 8 queries" in out) == (0, True), err
    code, _, err = call("run", *data, *settings(tiny_model), "--out", "runs/shop")
    assert code == 0, err
    noted = json.loads((tmp_path / "runs" / "shop" / "recipe.json").read_text())["data"]
    assert (noted["min_clicks"], noted["columns"]) == (2, {"passage_title": "product"})
    assert noted["labels"] == {"clicks": str(tmp_path / "clicks.csv")}, "understood in any folder"


def test_columns_that_say_no_role_are_refused(tmp_path: Path, call: Call) -> None:
    write_shop(tmp_path)
    for given, words in (("product", "ROLE=NAME"), ("titel=product", "data.columns.titel")):
        code, _, err = call("check", tmp_path / "products.csv", "--columns", given)
        assert (code, words in err) == (2, True), err


def test_study_takes_a_dataset(tiny_model: Path, tmp_path: Path, call: Call) -> None:
    write_shop(tmp_path)
    data = (tmp_path / "products.csv", "--clicks", tmp_path / "clicks.csv", *settings(tiny_model))
    code, out, err = call("study", *data, "--dry-run", "--out", tmp_path / "study")
    assert (code, "colbert" in out) == (0, True), err


def test_folders_with_foreign_files_stay_as_they_are(tiny_model: Path, tmp_path: Path, call: Call) -> None:
    write_shop(tmp_path)
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "notes.txt").write_text("somebody's work")
    (tmp_path / "runs" / "other" / "theta").mkdir(parents=True)
    (tmp_path / "runs" / "other" / "theta" / "manifest.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    data = (tmp_path / "products.csv", "--clicks", tmp_path / "clicks.csv", *settings(tiny_model))
    for out in (tmp_path, tmp_path / "mine", tmp_path / "runs", tmp_path / "clicks.csv"):
        for command in ("run", "train", "distil", "study"):
            code, _, err = call(command, *data, "--out", out)
            assert (code, str(out) in err) == (2, True), err
        code, _, err = call("index", data[0], "--set", f"encoder.model={tiny_model}", "--out", out)
        assert (code, str(out) in err) == (2, True), err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_index_is_not_advised_into_the_dataset(tmp_path: Path, call: Call) -> None:
    write_shop(tmp_path)
    code, _, err = call("search", tmp_path, "ice")
    assert (code, f"--out {tmp_path}" in err) == (1, False)


def test_run_takes_a_collection_that_nobody_labelled(
    tiny_model: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    small = ("--set", "query_side.steps=2", "--set", "query_side.batch_queries=4", "--set", "pseudo.queries=40")
    data = ("products.csv", "--columns", "title=product", *settings(tiny_model), *small)
    code, out, err = call("run", *data, "--out", "runs/mine")
    assert (code, "no test labels" in out) == (0, True), err
    assert "products.csv has no training labels: a student learns from queries alone" in err
    noted = json.loads((tmp_path / "runs" / "mine" / "recipe.json").read_text())
    assert (noted["train"]["theta"], noted["student"]) == ("take", "views")
    assert "colabel serve runs/mine" in out
    page = (tmp_path / "runs" / "mine" / "report.md").read_text()
    assert "## What is known without judged queries" in page and "colabel serve runs/mine" in page
    assert re.search(r"^\| hybrid θ \(with BM25\) \| \**[01]\.\d{3}", page, re.MULTILINE), page
    code, out, err = call("search", "runs/mine", "narrow fjord 5", "-k", 3)
    assert (code, "p5" in out) == (0, True), err
    code, _, err = call("run", *data, "--out", "runs/mine")
    assert (code, "everything is up to date" in err) == (0, True), err


def test_a_bootstrapped_row_sees_no_label_and_no_query_of_training(
    tiny_model: Path, tmp_path: Path, call: Call
) -> None:
    write_shop(tmp_path)
    small = ("query_side.steps=1", "query_side.batch_queries=4", "pseudo.queries=40", "study.sweep=false")
    rows = 'study.systems=["bm25", "zero-shot", "bootstrap", "hybrid-bootstrap"]'
    given = [part for one in (*small, rows) for part in ("--set", one)]
    shop = (tmp_path / "products.csv", "--clicks", tmp_path / "clicks.csv", "--columns", "title=product")
    code, _, err = call("study", *shop, *settings(tiny_model), *given, "--out", tmp_path / "study")
    assert (code, "failed" in err) == (0, False), err
    found = read_study(tmp_path / "study")
    assert [one.slug for one in found.finished] == ["bm25", "zero-shot", "bootstrap", "hybrid-bootstrap"]
    with Study(noted_recipe(tmp_path / "study")[0], tmp_path / "study").stages as stages:
        data, seen = stages.dataset(), stages.without_labels().dataset()
    asked = {text for split in ("train", "dev") for text in data.split_queries(split).values()}
    assert asked and not asked & set(seen.queries.values())
    assert set(seen.pseudo) == {"train", "dev"} and seen.labels("test") == data.labels("test")


def test_a_query_log_teaches_beside_queries_made_of_passages(tiny_model: Path, tmp_path: Path, call: Call) -> None:
    write_shop(tmp_path)
    (tmp_path / "log.csv").write_text("query,count\n" + "".join(f"what is a {kind},3\n" for kind in KINDS))
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\tp{n}\t1\n" for n in range(2)))
    (tmp_path / "asked.tsv").write_text(f"q0\twhat is a {KINDS[0]}\nq1\tanother thing\n")
    small = ("--set", "query_side.steps=1", "--set", "query_side.batch_queries=4", "--set", "pseudo.queries=40")
    more = ("--queries", tmp_path / "log.csv", "--queries", tmp_path / "asked.tsv")
    more += ("--set", f"data.labels.test={tmp_path / 'test.tsv'}")
    data = (tmp_path / "products.csv", "--columns", "title=product", *settings(tiny_model), *small, *more)
    code, out, err = call("run", *data, "--out", tmp_path / "mine")
    assert code == 0, err
    assert f"{len(KINDS) - 1} queries without labels" in err, "the test query's text is left out"
    assert "hybrid-views" in out

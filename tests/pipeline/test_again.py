"""The loop: train, search, list missing labels, judge them in a spreadsheet, train again, compare."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from colabel import Dataset, DataSettings, Recipe, load_dataset, open_run, run
from colabel.data.string_table import StringTable
from colabel.errors import UsageError
from colabel.labels import Verdict, VerdictStore, apply_verdicts
from colabel.pipeline.run import distil_student
from colabel.pipeline.versions import versions
from colabel.teachers.guarded import JudgedTeacher
from colabel.train.groups import Candidates, draw_groups
from tests.conftest import Call, Said
from tests.train.small import NOUNS

SMALL = (
    *("encoder.dimension=16", "encoder.query_length=12", "encoder.passage_length=24", 'encoder.device="cpu"'),
    *("rank.depth=20", "collective.clusters=6", "collective.centroids=3", "labels.candidates=10"),
    *("train.steps=2", "train.batch_queries=2", "distil.steps=2", "distil.batch_queries=2", "distil.passages=3"),
    *("fit.evaluate_every=1", "fit.evaluate_queries=2", "query_side.steps=2", "query_side.batch_queries=2"),
)


def write_shop(folder: Path) -> None:
    """A catalogue of 40 products, and clicks of 24 queries on one product each."""
    names = [f"{one} {two}" for one in NOUNS for two in NOUNS if one != two][:40]
    with (folder / "products.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["sku", "name", "description", "price"])
        table.writerows([[f"p{number}", name, f"{name} of {name}", number] for number, name in enumerate(names)])
    with (folder / "clicks.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["query", "sku", "clicks"])
        table.writerows([[f"how are {names[number]} formed", f"p{number}", 3] for number in range(24)])


def fill_in(review: Path, answers: Sequence[str]) -> list[tuple[str, str, str]]:
    """Fill in the column 'verdict' as a person would: the only file that is written by hand."""
    head, *lines = review.read_text().splitlines()
    assert head.endswith("\tverdict") and all(line.endswith("\t") for line in lines)
    filled = [line + answer for line, answer in zip(lines, answers, strict=False)]
    review.write_text("\n".join([head, *filled, *lines[len(answers) :]]) + "\n")
    columns = head.split("\t")
    rows = [dict(zip(columns, line.split("\t"), strict=True)) for line in filled]
    return [(row["query_id"], row["passage_id"], row["verdict"]) for row in rows]


@pytest.mark.parametrize("teacher", ["collective", "views"])
def test_five_commands_close_the_loop(
    teacher: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    said: Said,
) -> None:
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = [part for one in (f"encoder.model='{tiny_model}'", *SMALL) for part in ("--set", one)]
    said(*("run", "products.csv", "--clicks", "clicks.csv", "--teacher", teacher, "--out", "runs/shop"), *settings)
    assert "matched: glacier" in said("search", "runs/shop", "glacier", "-k", "3")
    assert "colabel judge runs/shop review.tsv" in said("missing", "runs/shop", "--out", "review.tsv", "--limit", "12")
    judged = fill_in(Path("review.tsv"), ["yes", "no", "unsure", "no"])
    assert "4 new verdicts" in said("judge", "runs/shop", "review.tsv")
    before = (Path("runs/shop") / "recipe.json").read_text()
    told = said("run", "runs/shop")
    assert "labels added: 1, judged negatives: 2, left open: 1" in told
    assert all(word in told for word in ("before", "after", "paired t-test", "hybrid", "student", "nDCG@10", "test"))

    opened, earlier = open_run("runs/shop"), open_run("runs/shop/versions/0001")
    assert (earlier.folder / "recipe.json").read_text() == before
    assert earlier.dataset.trusted == {} and earlier.labels.manifest != opened.labels.manifest
    old, new = earlier.dataset.labels("train"), opened.dataset.labels("train")
    added = {(query, passage) for query in new for passage in new[query] if passage not in old.get(query, {})}
    assert added == {judged[0][:2]} and all(old[query].items() <= new[query].items() for query in old)
    refused = {(query, passage) for query, held in opened.dataset.trusted.items() for passage in held}
    assert refused == {judged[1][:2], judged[3][:2]}
    suggested = {(one.query_id, one.passage_id) for one in opened.missing(1000)}
    assert not suggested & {judged[0][:2], *refused} and judged[2][:2] in suggested

    student = (opened.student / "manifest.json").read_bytes()
    said("run", "runs/shop")
    said(*("run", "products.csv", "--clicks", "clicks.csv", "--teacher", teacher, "--out", "runs/shop"), *settings)
    assert (opened.student / "manifest.json").read_bytes() == student, "what was learned stays learned"
    assert len(versions(Path("runs/shop"))) == 1
    assert call("run", "runs/shop", "--set", "seed=3")[0] == 2 and versions(Path("runs/shop")) == [earlier.folder]


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("again") / "run"
    run(recipe, out, teacher="collective")
    return out


def test_a_notebook_closes_the_loop_with_tables(finished: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    shutil.copytree(finished, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    table = pandas.DataFrame([one.as_dict() for one in opened.missing(4)])
    table["verdict"] = ["yes", None, "no", float("nan")]
    assert opened.judge(table, "ann") == 2 and opened.judge(table, "ann") == 0
    assert opened.judge([{"query": "a question of my own", "passage_id": "d7", "verdict": "yes"}]) == 1
    assert opened.judge([("q1", "d9", 0)], "bob") == 1
    with pytest.raises(Exception, match="no query 'q99'"):
        opened.judge([("q99", "d9", "yes")])
    done = opened.again()
    assert (done.added, done.negatives, done.unsure, done.split) == (2, 2, 0, "test")
    assert done.before == tmp_path / "run" / "versions" / "0001"
    assert {(one.system, one.measure) for one in done.changes} >= {("hybrid", "nDCG@10"), ("student", "R@100")}
    assert "a question of my own" in done.run.dataset.queries.values()
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text())["means"]["collective-0.5"]
    assert (
        next(one.after for one in done.changes if (one.system, one.measure) == ("student", "RR@10")) == stored["RR@10"]
    )


def test_tables_in_memory_become_a_run_that_can_be_moved(tiny_model: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_shop(tmp_path)
    products, clicks = (pandas.read_csv(tmp_path / name) for name in ("products.csv", "clicks.csv"))
    data, out = Dataset.from_records(products, clicks=clicks, name="my shop"), tmp_path / "run"
    settings = (f"encoder.model='{tiny_model}'", *SMALL)
    result = run(data, out, overrides=settings)
    assert result.dataset == "my-shop" and result.evaluation is not None
    from_files = load_dataset(
        DataSettings(source=str(tmp_path / "products.csv"), labels={"clicks": str(tmp_path / "clicks.csv")})
    )
    opened = open_run(out)
    assert {split: dict(opened.dataset.labels(split)) for split in opened.dataset.splits} == {
        split: dict(from_files.labels(split)) for split in from_files.splits
    }
    assert opened.dataset.passages[3].metadata == {"price": 3}
    student = (opened.student / "manifest.json").read_bytes()
    run(Dataset.from_records(products, clicks=clicks, name="my shop"), out, overrides=settings)
    assert (opened.student / "manifest.json").read_bytes() == student and versions(out) == []
    run(Dataset.from_records(products, clicks=clicks[:20], name="my shop"), out, overrides=settings)
    shutil.move(out, tmp_path / "moved")
    moved, earlier = open_run(tmp_path / "moved"), open_run(tmp_path / "moved" / "versions" / "0001")
    assert len(earlier.dataset.queries) == 24 and len(moved.dataset.queries) == 20
    moved.judge([(moved.dataset.splits and next(iter(moved.dataset.labels("train"))), "p39", "yes")])
    assert moved.again().added == 1
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="nothing was written"):
        run(data, tmp_path, overrides=settings)
    assert not (tmp_path / "collections").exists()
    with pytest.raises(UsageError, match="from_records"):
        run(products, tmp_path / "other")  # type: ignore[arg-type]


def test_without_test_labels_dev_queries_compare(recipe: Recipe, tmp_path: Path) -> None:
    shutil.copytree(recipe.data.source, tmp_path / "caves")
    (tmp_path / "caves" / "qrels" / "test.tsv").unlink()
    run(replace(recipe, data=replace(recipe.data, source=str(tmp_path / "caves"))), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    opened.judge([("q1", "d9", "no")])
    done = opened.again()
    assert done.split == "dev" and done.queries == 5 and done.changes


def test_judged_negatives_are_taught_and_never_trusted_to_a_teacher(recipe: Recipe) -> None:
    dataset = apply_verdicts(load_dataset(recipe.data), [Verdict("q1", "d9", "no", "ann")]).dataset
    rows = np.arange(10, dtype=np.int32)[None]
    ranking: Any = SimpleNamespace(query_ids=StringTable.of(["q1"]), query=lambda _: (rows[0], rows[0]))
    positives, judged = [rows[0, 3:4]], {0: np.array([30], np.int32)}
    drawn = Candidates(["q1"], positives, positives, 40, 0, 0, "f", ranking, 8, judged)
    groups = draw_groups(drawn, count=20, size=4, seed=0)
    assert (groups.rows == 30).sum(axis=1).tolist() == [1] * 20, "in every group, though it is no candidate"
    assert all(len(set(line)) == 4 for line in groups.rows.tolist())
    found = JudgedTeacher(Ones(), dataset).scores(["q1", "q2"], np.array([[9, 8], [9, 8]]))
    assert np.isneginf(found).tolist() == [[True, False], [False, False]]


class Ones:
    """A teacher as a user may write one."""

    name, fingerprint, knows = "ones", "ones-1", "any"

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return (-rows).astype(np.float32)


def test_a_teacher_of_ones_own_teaches_and_is_asked_again(recipe: Recipe, tmp_path: Path) -> None:
    result = run(recipe, tmp_path / "run", teacher=Ones())
    assert result.system.slug == "own-kd" and result.labels is not None
    opened = open_run(tmp_path / "run")
    assert opened.labels.teacher == "ones" and opened.search("summer", k=2).ids.shape == (1, 2)
    assert distil_student(recipe, tmp_path / "run", teacher=Ones()).folder == result.student
    opened.judge([("q1", "d9", "no")])
    with pytest.raises(UsageError, match="give it again"):
        opened.again()
    assert opened.again(teacher=Ones()).negatives == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": ""}, "fingerprint"),
        ({"knows": "all"}, "'knows' is 'all'"),
        ({"scores": None}, "no method scores"),
        ({"scores": lambda self, ids, rows: [[1.0]]}, "returned a list; expected a numpy array"),
        ({"scores": lambda self, ids, rows: np.ones(3)}, r"shape \(3,\)"),
        ({"scores": lambda self, ids, rows: rows.astype(str)}, "expected numbers"),
    ],
)
def test_what_a_teacher_lacks_is_said(
    recipe: Recipe, finished: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        run(recipe, tmp_path / "run", teacher=type("Mine", (Ones,), changes)())


def test_verdicts_are_read_as_they_were(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    store.add_all([Verdict("q1", "d1", "yes", "ann"), Verdict("q1", "d2", "yes", "ann")])
    store.undo("ann")
    store.add(Verdict("q1", "d1", "no", "ann"))
    assert [(one.passage_id, one.answer) for one in store.current()] == [("d1", "no")]
    assert [(one.passage_id, one.answer) for one in store.current(2)] == [("d1", "yes"), ("d2", "yes")]
    assert [one.passage_id for one in store.current(3)] == ["d1"]

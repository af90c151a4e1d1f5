"""The folder of a run, opened in Python and by commands."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colabel import Recipe, open_run, run, study
from colabel.errors import ArtefactError, UsageError
from colabel.pipeline.run import distil_student
from colabel.pipeline.versions import versions
from colabel.settings import StudySettings
from tests.conftest import Call

SLUG = "collective-0.5"


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "my run"
    run(recipe, out, teacher="collective")
    return out


def test_a_run_searches_with_its_student_and_words_together(recipe: Recipe, finished: Path) -> None:
    opened = open_run(str(finished))
    assert opened.recipe == recipe
    assert opened.student == finished / "students" / SLUG / "model"
    found = opened.search(["ice of the glacier", "summer"], k=4)
    assert found.ids.shape == found.scores.shape == (2, 4)
    assert opened.search("summer", k=4).ids.tolist() == found.ids[1:].tolist()
    alone = {name: opened.search("summer", k=4, ranker=name).scores for name in ("student", "colbert", "bm25")}
    assert not np.allclose(alone["student"], alone["colbert"])
    with pytest.raises(UsageError, match="hybrid, student, colbert, prf, bm25"):
        opened.search("summer", ranker="bm52")
    pandas = pytest.importorskip("pandas")
    table = found.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table.passage_id.tolist() == [one for one in found.ids.ravel().tolist() if one]
    assert set(table["query"]) == {"ice of the glacier", "summer"}


def test_a_run_lists_missing_labels_and_evaluates(recipe: Recipe, finished: Path) -> None:
    opened = open_run(finished)
    listed = opened.missing(limit=3)
    assert len(listed) == 3 and all(one.reasons for one in listed)
    stored = json.loads((finished / "evaluation.json").read_text())["means"]
    assert opened.evaluate().means == stored
    assert open_run(finished).report().read_text() == (finished / "report.html").read_text()


def test_a_query_side_student_searches_the_index_of_theta(recipe: Recipe, tmp_path: Path) -> None:
    result = run(recipe, tmp_path / "run", teacher="hard-query")
    opened = open_run(tmp_path / "run")
    assert (opened.student, opened.index.folder) == (result.student, tmp_path / "run" / "index")
    assert opened.search("summer", k=3).ids.shape == (1, 3)
    with pytest.raises(UsageError, match="no teacher"):
        opened.missing()


def test_commands_take_the_folder_of_a_run(
    finished: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("search", finished, "ice of the glacier", "-k", 2)
    assert (code, out[:5]) == (0, "  1  "), err
    ids = [hit["passage_id"] for hit in json.loads(call("search", finished, "ice of the glacier", "--json")[1])]
    assert ids == open_run(finished).search("ice of the glacier").ids[0].tolist()
    query = open_run(finished).knowledge.queries.ids[0]
    for command in (
        ("search", finished, "ice", "--ranker", "bm25"),
        ("search", finished, "ice", "--ranker", "prf"),
        ("inspect", finished, query),
        ("missing", finished, "--limit", 2),
        ("missing", finished, "--limit", 2, "--out", "review.tsv"),
        ("evaluate", finished, "-m", "RR@10"),
        ("evaluate", finished, "--baseline", "colbert"),
        ("report", finished),
        ("export", finished, "--format", "parquet", "--out", "parquet"),
        ("export", finished, "--format", "pylate", "--out", "pylate"),
    ):
        code, out, err = call(*command)
        assert (code, bool(out)) == (0, True), f"{command}: {err}"
    assert re.search(rf"^hybrid-{SLUG} ", call("evaluate", finished)[1], re.M)
    for command in (
        ("missing", finished, "other"),
        ("missing", finished, "--set", "data.keep_labels=1"),
        ("evaluate", finished, "--set", "data.relevant_from=2"),
        ("search", finished / "index", "ice", "--ranker", "bm25"),
        ("label-quality", finished / "labels" / SLUG),
        ("evaluate", finished / "index"),
    ):
        assert call(*command)[0] == 2, command


@pytest.fixture(scope="module")
def studied(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("studied") / "my study"
    asked = out.parent / "asked.csv"
    asked.write_text("query\na question that nobody labelled\n")  # a study does not learn from it
    systems = ("bm25", "colbert", SLUG, "hn-query", "views", "hybrid-views")
    data = replace(recipe.data, keep_labels=1, queries=(str(asked),))
    study(replace(recipe, data=data, study=StudySettings(systems=systems)), out)
    return out


def test_of_a_study_the_student_that_gained_most_on_dev_is_taken(studied: Path) -> None:
    opened = open_run(studied)
    gains = {}
    for slug in (SLUG, "hn-query", "views"):
        summary = json.loads((studied / "seed-0" / "students" / slug / "model/training/summary.json").read_text())
        gains[slug] = summary["gain"][0] if "gain" in summary else summary["kept_value"] - summary["start_value"]
    assert gains[opened.system.slug] == max(gains.values())
    other = open_run(studied, "views")
    assert (other.system.slug, other.search("summer", k=3).ids.shape) == ("views", (1, 3))
    assert (
        other.ranker("hybrid").weight
        == json.loads(  # type: ignore[attr-defined]
            (studied / "seed-0" / "hybrid" / "hybrid-views" / "manifest.json").read_text()
        )["counts"]["weight"]
    )
    assert list(other.rankings) == ["bm25", "colbert", SLUG, "hn-query", "views", "hybrid-views"]
    assert open_run(studied, "hn-query").missing(limit=2)
    with pytest.raises(UsageError, match="views"):
        open_run(studied, "colbert")


def test_commands_take_the_folder_of_a_study(
    studied: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    query, taken = open_run(studied).knowledge.queries.ids[0], open_run(studied).system.slug
    for command in (
        ("search", studied, "ice"),
        ("inspect", studied, query),
        ("missing", studied, "--limit", 2, "--out", "review.tsv"),
        ("label-quality", studied),
        ("evaluate", studied),
        ("export", studied, "--format", "parquet", "--out", "parquet"),
    ):
        code, out, err = call(*command)
        assert (code, bool(out), f"'{taken}'" in err) == (0, True, True), f"{command}: {err}"
    for command in (("report", studied), ("runs", studied)):
        assert call(*command)[0] == 0
    filled = Path("review.tsv").read_text().replace("\t\n", "\tyes\n")
    Path("review.tsv").write_text(filled)
    code, out, _ = call("judge", studied, "review.tsv")
    assert (code, out.splitlines()[-1].split()[:3]) == (0, ["Next:", "colabel", "labels"])
    assert call(*shlex.split(out.splitlines()[-1])[2:])[0] == 0
    assert call("run", studied)[0] == 2


def test_questions_are_read_until_an_empty_line(finished: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, answers in (("ice\nsummer\n\nfjord\n", 2), ("ice\n", 1), ("", 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        code, out, _ = call("search", finished, "-k", 1)
        assert (code, out.count("  1  ")) == (0, answers)


def test_commands_on_the_page_can_be_pasted(finished: Path, call: Call) -> None:
    page = (finished / "report.md").read_text()
    hints = re.findall(r"^colabel (.+)$", page, re.M)
    assert [shlex.split(hint)[:2] for hint in hints] == [["search", str(finished)], ["missing", str(finished)]]
    for hint in hints:
        assert call(*shlex.split(hint))[0] == 0


def test_hints_can_be_pasted(
    recipe: Recipe, finished: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it's here").mkdir()
    monkeypatch.chdir(tmp_path / "it's here")
    data, home = Path("my data"), tmp_path / "it's here"
    shutil.copytree(recipe.data.source, data)
    (home / "review.tsv").write_text("somebody's notes")
    small = (f"model={recipe.encoder.model}", "dimension=16", "passage_length=24", "query_length=12")
    sets = [part for key in small for part in ("--set", f"encoder.{key}")]
    short = [part for key in ("query_side.steps=2", "fit.evaluate_queries=2") for part in ("--set", key)]
    knowledge = finished / "knowledge"

    def follow(*command: object) -> None:
        """Call a command, and what it says to call next."""
        code, out, err = call(*command)
        assert code == 0, err
        hint = shlex.split(re.findall(r"^Next: (.+)$", out, re.M)[0])
        code, _, err = call(*hint[1:])
        assert code == 0, f"{hint}: {err}"

    assert shlex.join(["run", str(data), *sets, "--out", "runs/my-data"]) in call("check", data, *sets)[1]
    follow("index", data, *sets, "--out", "my index")
    follow("rank", data, "--bm25", "--set", "data.relevant_from=1", "--out", "my ranking")
    follow("collect", data, "--index", "my index", "--set", "rank.depth=20", "--out", "my knowledge")
    follow("label", data, "--knowledge", knowledge, "--set", "labels.candidates=10", "--out", "my labels")
    follow("missing", finished, "--limit", 3)
    assert (home / "review.tsv").read_text() == "somebody's notes" and (home / "review-2.tsv").exists()
    follow("missing", finished, "--limit", 3, "--out", "my review.tsv")
    out = call("distil", data, *sets, *short, "--teacher", "hard-query", "--out", "my run")[1]
    hint = shlex.split(re.findall(r"^Next: (.+)$", out, re.M)[0])[1:]
    assert hint == ["run", str(data), *sets, *short, "--teacher", "hard-query", "--out", "my run"]
    follow(*hint)


def test_what_is_no_finished_run_is_refused(recipe: Recipe, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"recipe\.json"):
        open_run(tmp_path)
    (tmp_path / "recipe.json").write_bytes((finished / "recipe.json").read_bytes())
    with pytest.raises(ArtefactError, match="repeat `colabel run`"):
        open_run(tmp_path)


def changed(recipe: Recipe, rate: float = 1e-3) -> Recipe:
    return replace(recipe, distil=replace(recipe.distil, learning_rate=rate))


def contents(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith("versions/")}


def test_an_earlier_result_is_kept_and_opens(recipe: Recipe, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    run(recipe, out, teacher="collective")
    before, found = contents(out), open_run(out).search("summer").scores
    run(recipe, out, teacher="collective")
    assert versions(out) == [], "a run that is up to date replaces nothing"
    run(changed(recipe), out, teacher="collective")
    assert [path.name for path in versions(out)] == ["0001"]
    kept = contents(versions(out)[0])
    assert {name: kept.get(name) for name in before} == before
    assert open_run(versions(out)[0]).search("summer").scores.tolist() == found.tolist()
    assert open_run(versions(out)[0]).evaluate().means == json.loads(before["evaluation.json"])["means"]
    student = Path("students", SLUG, "model", "manifest.json")
    assert (out / student).read_bytes() != before[student.as_posix()]
    assert (out / "theta" / "manifest.json").samefile(versions(out)[0] / "theta" / "manifest.json"), "no second copy"
    run(changed(recipe), out, teacher="collective")
    run(recipe, out, teacher="hard-query")
    code, shown, _ = call("runs", out)
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [*map(str, versions(out)), str(out)]
    assert len(versions(out)) == 2
    listed = json.loads(call("runs", out, "--json")[1])
    assert listed[0]["means"] == json.loads(before["evaluation.json"])["means"][f"hybrid-{SLUG}"]
    after = contents(out)
    assert call("runs", out, "--prune")[0] == 0
    assert (versions(out), contents(out)) == ([], after)


def test_new_labels_make_a_version(recipe: Recipe, tmp_path: Path) -> None:
    shutil.copytree(recipe.data.source, tmp_path / "data")
    mine = replace(recipe, data=replace(recipe.data, source=str(tmp_path / "data")))
    run(mine, tmp_path / "run", teacher="collective")
    train = tmp_path / "data" / "qrels" / "train.tsv"
    train.write_text("\n".join(train.read_text().splitlines()[:-1]) + "\n")
    run(mine, tmp_path / "run", teacher="collective")
    out, index = tmp_path / "run", Path("students") / SLUG / "index"
    assert len(versions(out)) == 1
    for name in ("evaluation.json", "report.html", "report.md"):  # as a kill between student and index leaves it
        (out / name).unlink()
    shutil.rmtree(out / index)
    shutil.copytree(versions(out)[0] / index, out / index)
    run(mine, out, teacher="collective")
    assert len(versions(out)) == 1, "a run that was killed is no result of its own"


def test_a_kill_while_a_model_is_replaced_loses_nothing(recipe: Recipe, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(recipe, out, teacher="collective")
    before = contents(out)
    program = (
        "import sys; from pathlib import Path; from dataclasses import replace; from colabel import run;"
        "from colabel.pipeline.preflight import noted_recipe; from tests.train.drive import DiesAt;"
        "recipe = noted_recipe(Path(sys.argv[1]))[0];"
        "recipe = replace(recipe, train=replace(recipe.train, learning_rate=1e-3));"
        "run(recipe, sys.argv[1], teacher='collective', progress=DiesAt(int(sys.argv[2])))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    for step in (1, 4):
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", program, out, str(step)], env=environment, cwd=root, check=False)
        assert done.returncode == -signal.SIGKILL
        kept = contents(versions(out)[0])
        assert {name: kept.get(name) for name in before} == before
    run(replace(recipe, train=replace(recipe.train, learning_rate=1e-3)), out, teacher="collective")
    assert len(versions(out)) == 1, "a run that was killed is no result of its own"


def test_distil_does_not_replace_the_models_of_a_run(recipe: Recipe, finished: Path) -> None:
    with pytest.raises(UsageError, match="colabel run"):
        distil_student(changed(recipe), finished)
    distil_student(recipe, finished, teacher="uniform")


def test_the_labels_of_a_run_are_measured_on_those_it_hid(recipe: Recipe, tmp_path: Path, call: Call) -> None:
    run(replace(recipe, data=replace(recipe.data, keep_labels=1)), tmp_path / "run", teacher="collective")
    code, out, err = call("label-quality", tmp_path / "run")
    assert (code, "hidden positives" in out) == (0, True), err

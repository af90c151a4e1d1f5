"""The demo on a tiny model and a tiny collection: what it shows, that it is true, and that it resumes."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colabel import Index, demo, load_recipe, search
from colabel.cli.demo_command import _ROWS, demo_lines, part_lines
from colabel.cli.output import _Line
from colabel.errors import SettingsError, UsageError
from colabel.findings import read_study
from colabel.pipeline.budget import noted
from colabel.pipeline.capacity import Rates
from colabel.pipeline.demo import DEMO_RECIPE, DemoResult, Part, Training
from colabel.ranking import LateInteraction
from colabel.systems.registry import default_slugs
from tests.conftest import Call
from tests.train.small import write_collection

Shown = tuple[Path, DemoResult, list[str]]
"""Its folder, its result, and what was told of each part."""


@pytest.fixture(scope="module", autouse=True)
def few_words() -> Iterator[None]:
    """The small collection has no more words than common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colabel.data.pseudo.COMMON", 1.0)
        yield


@pytest.fixture(scope="module")
def overrides(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = write_collection(tmp_path_factory.mktemp("demo") / "small")
    head, *judged = (folder / "qrels" / "dev.tsv").read_text().splitlines()
    (folder / "qrels" / "dev.tsv").write_text("\n".join([head, *judged[:4]]) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join([head, *judged[4:]]) + "\n")
    return [
        f'data.source="{folder}"',
        "data.keep_labels=1",
        f'encoder.model="{tiny_model}"',
        "encoder.dimension=16",
        "encoder.passage_length=24",
        "collective.clusters=6",
        "collective.centroids=3",
        "labels.candidates=40",
        "train.steps=2",
        "train.batch_queries=2",
        "distil.steps=2",
        "distil.batch_queries=2",
        "distil.passages=3",
        "query_side.steps=2",
        "query_side.batch_queries=4",
        "query_side.passages=8",
    ]


@pytest.fixture(scope="module")
def shown(overrides: list[str], tmp_path_factory: pytest.TempPathFactory) -> Shown:
    out, told = tmp_path_factory.mktemp("shown") / "demo", []
    result = demo(out, overrides=overrides, show=lambda part: told.append("\n".join(part_lines(part))))
    return out, result, told


def test_the_story_is_told_in_order(shown: Shown) -> None:
    out, result, told = shown
    assert [part[:2] for part in told] == ["1.", "2.", "3.", "4.", "5."]
    indexed, searched, suspected, training, compared = told
    assert "40 passages" in indexed and " 1 labels were hidden on" in " ".join(indexed.split())
    assert searched.count("words (BM25)") == searched.count("both (hybrid)") == searched.count("vectors  ") == 2
    assert suspected.count(" → ") == 5 and "because of:" in suspected
    assert "4 models, at most 2 steps each" in training
    rows = compared.splitlines()[2 : 3 + len(_ROWS)]
    assert [row.split("  ")[0] for row in rows[1:]] == list(_ROWS.values())
    assert "against BEFORE" in rows[0] and "p = " in rows[4]
    assert compared.count("What was found: ") == 1
    measured = {one.slug: one.means["nDCG@10"] for one in result.document.finished}
    without = re.findall(r"\d\.\d{3}(?! *\))", compared[compared.index("Without any label: ") :].splitlines()[0])
    slugs = ("colbert", "bootstrap", "hybrid-bootstrap", "bm25")
    assert without == [f"{measured[slug]:.3f}" for slug in slugs]
    assert f"The page with all figures: {out / 'report.html'}" in compared
    assert "on your own data: colabel check DATASET" in compared


def test_the_examples_are_the_largest_gains_and_the_largest_loss(shown: Shown) -> None:
    _, result, _ = shown
    before, after = (result.document.per_query[slug]["nDCG@10"] for slug in ("colbert", result.student))
    gains = sorted((after[query] - before[query] for query in before), reverse=True)
    assert [after - before for before, after in (one.values for one in result.examples)] == pytest.approx(
        [*gains[:2], gains[-1]]
    )
    assert all(len(one.before) == len(one.after) == 3 for one in result.examples)


def test_suggestions_are_checked_against_what_was_hidden(shown: Shown) -> None:
    found = shown[1].suspected
    assert [share.hidden for share in found.shares] == [1, 1, 1]
    assert [share.suggestions for share in found.shares] == [10, 20, 50]
    listed = sum(right for _, right in found.missing)
    assert listed <= found.shares[0].found <= 1
    assert len(found.missing) == 5


def test_the_printed_next_command_works(shown: Shown, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    _, result, _ = shown
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", [".venv/bin/colabel", "demo"])
        patch.setattr("shutil.which", lambda name: None)
        assert "Next: .venv/bin/colabel search" in "\n".join(demo_lines(result)), "where the shell does not find it"
    command = re.search(r"^Next: colabel (.*)$", "\n".join(demo_lines(result)), re.MULTILINE)
    assert command is not None
    assert call(*shlex.split(command.group(1)))[1].startswith("  1  ")


def test_again_it_does_nothing_and_shows_the_same(
    shown: Shown, overrides: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    out, result, told = shown
    before = {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")}
    with caplog.at_level(logging.INFO, logger="colabel.pipeline"):
        again: list[str] = []
        demo(out, overrides=overrides, show=lambda part: again.append("\n".join(part_lines(part))))
    assert {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")} == before
    assert again[1:] == told[1:], "all but the seconds that indexing took"
    assert "nothing is left to do" in [record.getMessage() for record in caplog.records]
    assert "two-view student" in (out / "report.html").read_text()
    slugs = [system["slug"] for system in json.loads((out / "study.json").read_text())["systems"]]
    assert result.student == "views" and slugs.count("views") == 1


def test_the_demo_encodes_the_collection_once(shown: Shown) -> None:
    out = shown[0]
    stores = sorted(path.relative_to(out).parts[:-2] for path in out.rglob("tokens/manifest.json"))
    assert stores == [("seed-0", "index")]
    assert not (out / "seed-0" / "rankings").exists()
    assert (out / "seed-0" / "bootstrap" / "students" / "bootstrap" / "model" / "manifest.json").exists()


def test_a_student_of_the_query_side_refuses_another_index(shown: Shown, tmp_path: Path) -> None:
    _, result, _ = shown
    index = Index.open(result.index)
    LateInteraction(index, student=result.model).rank(["ice"], 3)
    other = shutil.copytree(result.model, tmp_path / "model")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["inputs"]["start"] = "another model"
    del manifest["sums"]  # as an earlier version would have written it
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="an index of another model"):
        LateInteraction(index, student=other)


def test_the_command_tells_its_progress_and_a_finished_demo_is_told_at_once(
    overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr("colabel.cli.output._LINE_SECONDS", 0.0)
    monkeypatch.setattr("colabel.cli.output._LINE_SHARE", 0.0)
    monkeypatch.setattr("colabel.cli.output._AT_ONCE", 0.0)
    settings = [part for override in overrides for part in ("--set", override)]
    code, told, err = call("demo", *settings, "--minutes", "5", "--out", tmp_path / "demo")
    assert code == 0, err
    assert re.search(
        r"^encoding passages \(begun with [45].\d of 5 min left\): [\d,]+ of 40 passages, [\d,]+/s, about ",
        err,
        re.MULTILINE,
    )
    assert "3. Labels that are probably missing" in told
    monkeypatch.setattr(sys.modules["colabel.pipeline.demo"], "demo", None)
    code, again, _ = call("demo", *settings, "--out", tmp_path / "demo")
    assert (code, again.rstrip()) == (0, told.rstrip())


def test_size_and_steps_are_chosen_once_and_kept(
    overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a collection that is given, the steps alone; a later call keeps them, whatever the machine does now."""
    fast = Rates(encoded=1000.0, queries=1000.0, searched=1e9, step=0.5, tokens=20.0, dimension=16)
    monkeypatch.setattr(sys.modules["colabel.pipeline.demo"], "measure_rates", lambda recipe, data: fast)
    open_steps = [one for one in overrides if not one.startswith("query_side.steps")]
    told: list[str] = []

    def show(part: Part) -> None:
        told.append("\n".join(part_lines(part)))
        if isinstance(part, Training):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path / "demo", minutes=1, overrides=open_steps, show=show)
    assert told[0].startswith("Chosen to fit 1 minutes on this machine: the collection as it is, ")
    chosen = noted(tmp_path / "demo", None)
    assert chosen is not None and chosen[0] == 1.0
    steps = chosen[1]["query_side.steps"]
    assert 10 <= steps <= 40, "four models of half a second a step, in less than a minute"
    monkeypatch.setattr(sys.modules["colabel.pipeline.demo"], "measure_rates", None)
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path / "demo", overrides=open_steps, show=show)
    assert noted(tmp_path / "demo", 1.0) == chosen and f"at most {steps} steps each" in told[-1]


def test_time_left_is_told_for_many_units_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 20.0, 30.0, 60.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    line = _Line("reading", 40, "passages")
    line.advance(10)  # after 20 seconds
    line.advance(10)  # 10 seconds later: too soon to say something again
    line.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "reading: 10 of 40 passages, 30.0/min, about 1.0 min left",
        "reading: 30 of 40 passages, 30.0/min, about 0.3 min left",
    ]


def test_steps_of_an_earlier_call_are_no_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.01, 20.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    line = _Line("training", 200, "steps")
    line.advance(100)  # resumed
    line.advance(10)
    assert capsys.readouterr().err == "training: 110 of 200 steps, 30.0/min, about 3.0 min left\n"


def test_a_log_of_hours_gets_few_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, *range(20, 7200, 20)])
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    line = _Line("ranking", 359, "queries")
    for _ in range(359):
        line.advance()
    assert 20 < len(capsys.readouterr().err.splitlines()) < 50


def test_the_recipe_of_the_demo_is_a_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(DEMO_RECIPE)
    assert recipe.data.source == "pydocs:2000"
    assert recipe.study.systems == tuple(_ROWS)
    with pytest.raises(SettingsError, match="unknown key"):
        demo(tmp_path / "demo", overrides=["train.stepz=1"])


@pytest.mark.slow
def test_the_student_of_a_finished_demo_answers_questions() -> None:
    """Of ``make demo`` in this clone."""
    folder = Path(__file__).parents[2] / "demo"
    if not (folder / "study.json").exists():
        pytest.skip("there is no finished demo: run `make demo` first")
    index = Index.open(folder / "seed-0" / "index")
    for question, known in (
        ("smooth a noisy signal", "scipy.signal"),
        ("how do I find eigenvalues of a sparse matrix", "eig"),
    ):
        student = LateInteraction(index, student=folder / "seed-0" / "students" / "views" / "model")
        found = [hit.passage_id for hit in search(index, question, k=5, ranker=student)]
        assert any(known in passage for passage in found), (question, found)


@pytest.mark.slow
def test_the_full_demo_has_every_row_of_the_paper(
    overrides: list[str], tiny_model: Path, tmp_path: Path, call: Call
) -> None:
    readers = [
        f'cross_encoder.models=["{tiny_model}", "{tiny_model}:1"]',
        "cross_encoder.steps=2",
        "cross_encoder.batch_queries=2",
        "cross_encoder.negatives=2",
        "cross_encoder.max_length=48",
    ]
    every = ["study.systems=[]", "study.sweep=true"]
    changed = [part for one in (*overrides, *readers, *every) for part in ("--set", one)]
    code, out, err = call("demo", "--minutes", "600", "--out", tmp_path / "demo", *changed)
    assert code == 0, err
    document = read_study(tmp_path / "demo")
    slugs = [system.slug for system in document.finished]
    assert sorted(slugs) == sorted(default_slugs())
    assert document.sweep
    assert "The page with all figures:" in out


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("study.systems=['bm25', 'colbert']", "shows 'colbert' and a student"),
        ("study.systems=['bm25', 'collective-0.5']", "shows 'colbert' and a student"),
        ("data.keep_labels=0", "no labels of small are hidden"),
    ],
)
def test_what_it_could_not_show_is_told_first(changed: str, told: str, overrides: list[str], tmp_path: Path) -> None:
    chosen = [one for one in overrides if not (changed.startswith("data.") and one.startswith("data.keep_labels"))]
    more = [] if changed.startswith("data.") else [changed]
    with pytest.raises(UsageError, match=told):
        demo(tmp_path / "demo", overrides=[*chosen, *more])
    assert not list((tmp_path / "demo").glob("seed-*"))

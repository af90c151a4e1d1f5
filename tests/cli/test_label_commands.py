"""label → missing → export as a user types them, with real knowledge of a tiny real model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.conftest import Call

from colabel.cli import cli, folder_commands, label_commands, search_commands
from colabel.collective.knowledge import Knowledge, collect
from colabel.data import Dataset, load_dataset
from colabel.index import build_index
from colabel.labels import FORMATS, ORDERS, Flag, label, missing_labels, open_labels
from colabel.pipeline.folder import RANKERS
from colabel.ranking import serving
from colabel.settings import CollectiveSettings, EncoderSettings, LabelSettings
from colabel.teachers import CollectiveTeacher, SelfTeacher


@pytest.fixture
def real(write_beir: Callable[..., Path], tiny_model: Path, tmp_path: Path) -> tuple[Dataset, Knowledge]:
    """The caves, indexed by the tiny model, and the knowledge of its train queries."""
    dataset = load_dataset(str(write_beir()))
    encoder = EncoderSettings(model=str(tiny_model), dimension=16, passage_length=24, query_length=12)
    index = build_index(dataset, tmp_path / "index", encoder=encoder)
    settings = CollectiveSettings(clusters=6, centroids=4, beta=0.7)
    return dataset, collect(dataset, index, tmp_path / "knowledge", settings=settings)


@pytest.mark.parametrize("scale", ["paper", "normalised"])
def test_base_score_and_reasons_add_up_to_the_teacher_score(
    real: tuple[Dataset, Knowledge], tmp_path: Path, scale: str
) -> None:
    """Eq. (6), term by term, also with another β than the knowledge remembers."""
    dataset, knowledge = real
    teacher = CollectiveTeacher(knowledge, beta=1.3, scale=scale)
    made = label(knowledge, dataset, teacher, tmp_path / "labels", settings=LabelSettings(candidates=2))
    found = missing_labels(made, knowledge, dataset)
    assert found
    for suggestion in found:
        assert len(suggestion.reasons) > 1
        contributions = [reason.contribution for reason in suggestion.reasons]
        assert contributions == sorted(contributions, reverse=True)
        assert suggestion.base_score + sum(contributions) == pytest.approx(suggestion.teacher_score, rel=1e-4)


def test_the_self_teacher_gives_the_base_score(real: tuple[Dataset, Knowledge], tmp_path: Path) -> None:
    """φ from the ranking, and φ computed for positives beyond it, are what scoring all pairs at once gives."""
    dataset, knowledge = real
    teacher = SelfTeacher(knowledge.index, knowledge.queries)
    made = label(knowledge, dataset, teacher, tmp_path / "labels", settings=LabelSettings(candidates=2))
    beyond = 0
    for block in made.blocks():
        used = block.rows >= 0
        assert block.teacher[used] == pytest.approx(block.base[used], rel=1e-4)
        beyond += int(((block.flags & (Flag.LABELLED | Flag.HARD_NEGATIVE))[:, 2:] == Flag.LABELLED).sum())
    assert beyond, "no positive lies beyond the top 2; the test would show nothing"


def test_the_way_of_a_user(real: tuple[Dataset, Knowledge], tmp_path: Path, call: Call) -> None:
    data, knowledge, out = tmp_path / "caves", tmp_path / "knowledge", tmp_path / "labels"
    code, text, err = call("label", data, "--knowledge", knowledge, "--out", out)
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: 2 queries labelled by the teacher 'collective'\n")
    assert "hard negatives" in text
    assert text.splitlines()[-1] == f"Next: colabel missing {out} {data}"
    assert open_labels(out).origin().beta == 0.7, "β is the knowledge's"
    assert not list(tmp_path.glob(".labels.*")), "nothing is left beside the result"
    code, text, _ = call("label", data, "--knowledge", knowledge, "--out", out, "--json")
    assert json.loads(text)["queries"] == 2
    code, text, err = call("missing", out, data, "--limit", 3)
    assert (code, err) == (0, "")
    assert "│" in text
    assert f"{out}: 3 passages" in text
    assert text.splitlines()[-1] == f"Next: colabel missing {out} {data} --out review.tsv"
    code, text, _ = call("missing", out, data, "--limit", 1, "--set", "data.relevant_from=1")
    assert text.splitlines()[-1].endswith(f"{data} --set data.relevant_from=1 --out review.tsv"), "the same data"
    code, text, _ = call("missing", out, data, "--json", "--limit", 2)
    rows = json.loads(text)
    assert len(rows) == 2
    assert rows[0]["value"] >= rows[1]["value"]
    assert rows[0]["reasons"][0]["contribution"] >= rows[0]["reasons"][1]["contribution"]
    code, text, _ = call("missing", out, data, "--out", tmp_path / "new" / "review.tsv")
    assert (tmp_path / "new" / "review.tsv").read_text().startswith("query_id\tquery\tpassage_id")
    assert "│" not in text
    for form in FORMATS:
        code, text, err = call("export", out, data, "--format", form, "--out", tmp_path / form)
        assert (code, err) == (0, ""), form
        assert text.startswith(f"{tmp_path / form}: 2 queries, ")
        assert not list(tmp_path.glob(f".{form}.*"))
    frame = pd.read_parquet(tmp_path / "parquet" / "labels.parquet")
    assert np.isclose(frame.groupby("query_id").probability.sum(), 1).all()


def test_other_teachers_and_settings(
    real: tuple[Dataset, Knowledge], tiny_cross_encoder: Path, tmp_path: Path, call: Call
) -> None:
    data, knowledge = tmp_path / "caves", tmp_path / "knowledge"
    (tmp_path / "scores.tsv").write_text("q1\td1\t2.5\nq1\td2\t1.5\nq3\td5\t1.0\n")
    for name, given in {
        "self": [],
        "scores": ["--set", f"labels.scores={tmp_path}/scores.tsv"],
        "mixed": ["--model", tiny_cross_encoder, "--set", "cross_encoder.max_length=48"],
    }.items():
        out = tmp_path / name
        code, _, err = call("label", data, "--knowledge", knowledge, "--teacher", name, *given, "--out", out)
        assert (code, err) == (0, ""), name
        assert open_labels(out).teacher.startswith(name.removesuffix("s")), name
    code, _, _ = call("label", data, "--knowledge", knowledge, "--set", "collective.beta=0.1", "--out", tmp_path / "b")
    assert open_labels(tmp_path / "b").origin().beta == 0.1
    (tmp_path / "recipe.toml").write_text(
        f'[data]\nsource = "{data}"\n[collective]\nbeta = 0.2\n[labels]\ncandidates = 3\n'
    )
    recipe = tmp_path / "recipe.toml"
    code, text, _ = call("label", recipe, "--knowledge", knowledge, "--out", tmp_path / "r", "--json")
    assert (json.loads(text)["teacher"], open_labels(tmp_path / "r").origin().beta) == ("collective", 0.2)
    assert open_labels(tmp_path / "r").manifest.settings["candidates"] == 3


def test_hidden_labels_do_not_leak_through_the_knowledge(
    real: tuple[Dataset, Knowledge], tmp_path: Path, call: Call
) -> None:
    hiding = ("--set", "data.keep_labels=1")
    code, _, err = call(
        "label", tmp_path / "caves", *hiding, "--knowledge", tmp_path / "knowledge", "--out", tmp_path / "x"
    )
    assert code == 1
    assert "'train' of caves" in err
    assert not (tmp_path / "x").exists()


def test_the_report_works_where_the_knowledge_is_gone(
    real: tuple[Dataset, Knowledge], tmp_path: Path, call: Call
) -> None:
    data = tmp_path / "caves"
    call("label", data, "--knowledge", tmp_path / "knowledge", "--out", tmp_path / "labels")
    (tmp_path / "knowledge").rename(tmp_path / "index" / "moved")
    code, text, err = call("missing", tmp_path / "labels", data, "--json")
    assert code == 0
    assert "no reasons are given, as the knowledge cannot be used" in err
    assert {len(row["reasons"]) for row in json.loads(text)} == {0}
    (tmp_path / "index" / "moved").rename(tmp_path / "knowledge")
    code, text, err = call("missing", tmp_path / "labels", data, "--json")
    assert (code, err) == (0, "")
    assert min(len(row["reasons"]) for row in json.loads(text)) > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("label", "TMP/caves", "--knowledge", "TMP/none", "--out", "TMP/x"), 1, "does not exist; make it with"),
        (("label", "TMP/caves", "--knowledge", "KNOW", "--teacher", "ensemble", "--out", "TMP/x"), 2, "two models"),
        (("label", "TMP/caves", "--knowledge", "KNOW", "--teacher", "best", "--out", "TMP/x"), 2, "'best' is not one"),
        (("label", "TMP/caves", "--knowledge", "KNOW", "--set", "labels.x=1", "--out", "TMP/x"), 2, "unknown key"),
        (
            ("label", "TMP/caves", "--knowledge", "KNOW", "--model", "reader", "--out", "TMP/x"),
            2,
            "for the teacher cross-encoder",
        ),
        (("missing", "TMP/none", "TMP/caves"), 2, "there is no folder"),
        (("missing", "KNOW/ranking", "TMP/caves"), 1, "holds the result of 'ranking'; expected one of 'labels'"),
        (("missing", "LABELS", "TMP/caves", "--out", "TMP/x.csv"), 2, "x.csv: suggestions are written as .tsv"),
        (("missing", "LABELS", "TMP/caves", "--out", "TMP/x.qrels"), 2, "x.qrels"),
        (("missing", "LABELS", "TMP/caves", "--set", "data.keep_labels=1"), 1, "was made from other queries or labels"),
        (("export", "LABELS", "TMP/caves", "--format", "csv", "--out", "TMP/x"), 2, "'csv' is not one of"),
        (("export", "LABELS", "TMP/caves", "--format", "hf", "--passages", 9, "--out", "TMP/x"), 2, "the most is 5"),
        (("export", "LABELS", "TMP/caves", "--format", "trec", "--passages", 9, "--out", "TMP/x"), 2, "every pair"),
        (("export", "LABELS", "TMP/caves", "--format", "hf", "--temperature", 0, "--out", "TMP/x"), 2, "x>0"),
        (("export", "LABELS", "--format", "vespa", "--out", "TMP/x"), 1, "holds no finished index"),
        (("export", "TMP/index", "--format", "hf", "--out", "TMP/x"), 2, "'hf' is no format for an index"),
        (("export", "TMP/index", "TMP/caves", "--format", "vespa", "--out", "TMP/x"), 2, "leave it out"),
    ],
)
def test_misuse(
    real: tuple[Dataset, Knowledge],
    tmp_path: Path,
    call: Call,
    arguments: tuple[object, ...],
    code: int,
    words: str,
) -> None:
    folders = {"LABELS": tmp_path / "labels", "KNOW": tmp_path / "knowledge", "TMP": tmp_path}
    if "LABELS" in arguments:
        call("label", tmp_path / "caves", "--knowledge", folders["KNOW"], "--out", folders["LABELS"])
    filled = [str(part) for part in arguments]
    for name, folder in folders.items():
        filled = [part.replace(name, str(folder)) for part in filled]
    found, out, err = call(*filled)
    assert (found, out) == (code, "")
    assert words in err
    assert not (tmp_path / "x").exists()


def test_options_name_what_the_library_has() -> None:
    assert search_commands._RANKERS == RANKERS
    assert (*FORMATS, *folder_commands._ENGINES) == folder_commands._FORMATS
    assert {*folder_commands._ENGINES, "parquet"} == set(serving.FORMATS)
    assert label_commands._ORDERS == ORDERS
    for name in ("label", "export", "missing"):
        assert f"colabel {name} " in str(cli.commands[name].help)


@pytest.mark.parametrize("form", ["parquet", "vespa"])
def test_export_of_an_index(real: tuple[Dataset, Knowledge], tmp_path: Path, call: Call, form: str) -> None:
    passages, tokens, model = len(real[0].passages), real[1].index.store.tokens, tmp_path / "index" / "encoder"
    code, _, err = call("export", tmp_path / "index", "--format", form, "--out", tmp_path / "out")
    assert (code, "are gone" in err) == (1, True), "it was built without saying where its passages are"
    call("index", tmp_path / "caves", "--set", f"encoder.model={model}", "--out", tmp_path / "own")
    code, text, err = call("export", tmp_path / "own", "--format", form, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert text.startswith(f"{tmp_path / 'out'}: {passages} passages, {tokens} token vectors of 16\n")
    assert ("Next: vespa feed" in text) == (form == "vespa")


def test_missing_never_overwrites_a_file(real: tuple[Dataset, Knowledge], tmp_path: Path, call: Call) -> None:
    data, labels, review = tmp_path / "caves", tmp_path / "labels", tmp_path / "review.tsv"
    call("label", data, "--knowledge", tmp_path / "knowledge", "--out", labels)
    review.write_text("somebody's work\n")
    code, _, err = call("missing", labels, data, "--out", review)
    assert (code, "review.tsv" in err) == (2, True)
    assert review.read_text() == "somebody's work\n"


def test_folders_may_be_text(real: tuple[Dataset, Knowledge], tmp_path: Path) -> None:
    from colabel import CollectiveTeacher, Index, open_knowledge

    dataset, knowledge = real
    label(knowledge, dataset, CollectiveTeacher(knowledge), tmp_path / "labels")
    assert open_labels(str(tmp_path / "labels")).folder == tmp_path / "labels"
    assert open_knowledge(str(tmp_path / "knowledge")).folder == tmp_path / "knowledge"
    assert Index.open(str(tmp_path / "index")).folder == tmp_path / "index"

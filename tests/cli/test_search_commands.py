"""index → rank → evaluate → search, as a user types them, on a tiny real model."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Call

from colabel.encode.weights import check_exists
from colabel.errors import UsageError

WriteBeir = Callable[..., Path]


@pytest.fixture
def index(write_beir: WriteBeir, tiny_model: Path, tmp_path: Path, call: Call) -> Path:
    settings = ["encoder.dimension=16", "encoder.passage_length=24", "encoder.query_length=12"]
    options = [part for setting in [f"encoder.model={tiny_model}", *settings] for part in ("--set", setting)]
    code, out, _ = call("index", write_beir(), *options, "--out", tmp_path / "index")
    assert code == 0
    assert "5 passages" in out
    return tmp_path / "index"


def test_the_way_of_a_user(index: Path, tmp_path: Path, call: Call) -> None:
    data = tmp_path / "caves"
    code, out, _ = call("rank", data, "--index", index, "--out", tmp_path / "runs" / "late")
    assert (code, "2 queries" in out) == (0, True)
    code, out, _ = call("rank", data, "--bm25", "--out", tmp_path / "runs" / "bm25", "--set", "rank.depth=2")
    assert code == 0
    code, out, _ = call("evaluate", data, tmp_path / "runs" / "late", tmp_path / "runs" / "bm25", "-m", "RR@10")
    assert code == 0
    assert out.splitlines()[0].split() == ["caves", "test", "RR@10"]
    code, out, _ = call("evaluate", data, tmp_path / "runs" / "bm25", "--json")
    assert json.loads(out)["means"][str(tmp_path / "runs" / "bm25")]["RR@10"] > 0
    code, out, _ = call("search", index, "glacier cave", "-k", 2)
    assert out.startswith("  1  ")
    code, out, _ = call("search", index, "glacier cave", "--json")
    assert [hit["rank"] for hit in json.loads(out)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("search", "INDEX", " "), 1, "is empty"),
        (("search", "INDEX", "ሰላም"), 2, "knows less than half of the query"),
        (("search", "TMP/none", "x"), 1, "does not exist; build one with"),
        (("rank", "TMP/caves", "--out", "TMP/x"), 2, "choose one: --index FOLDER or --bm25"),
        (("rank", "TMP/caves", "--index", "INDEX", "--split", "tst", "--out", "TMP/x"), 1, "no split 'tst'"),
        (("evaluate", "TMP/caves", "TMP/none.trec"), 2, "no such run"),
        (
            ("evaluate", "TMP/caves", "TMP/caves/corpus.jsonl"),
            1,
            "corpus.jsonl:1: JSON lines without query_id",
        ),
        (("evaluate", "TMP/caves", "TMP/caves/corpus.jsonl", "-m", "nope"), 2, "'nope' is not a measure"),
        (("rank", "TMP/caves", "--bm25", "--set", "encoder.device=cpu", "--out", "TMP/y"), 2, "[compute], seed,"),
        (("index", "TMP/caves", "--set", "encoder.model=TMP/none", "--out", "TMP/y"), 2, "does not exist"),
    ],
)
def test_misuse(
    index: Path,
    tmp_path: Path,
    call: Call,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    filled = [part.replace("INDEX", str(index)).replace("TMP", str(tmp_path)) for part in arguments]
    found, out, err = call(*filled)
    assert (found, out) == (code, "")
    assert words in err


def test_run_ends_with_a_table_and_the_next_command(
    write_beir: WriteBeir, tiny_model: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "recipe.toml").write_text(_short_recipe(write_beir(), tiny_model))
    code, out, _ = call("run", tmp_path / "recipe.toml", "--out", tmp_path / "out")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["caves", "bm25", "colbert"]
    assert lines[-2:] == [
        f"Next: colabel search {tmp_path / 'out'} 'your question'",
        f"      and for missing labels: colabel missing {tmp_path / 'out'}",
    ]
    stamp = (tmp_path / "out" / "index" / "tokens" / "manifest.json").stat().st_mtime_ns
    assert call("run", tmp_path / "recipe.toml", "--out", tmp_path / "out")[1] == out
    assert (tmp_path / "out" / "index" / "tokens" / "manifest.json").stat().st_mtime_ns == stamp


def test_study_prints_its_table_and_a_plan_knows_moved_data(
    write_beir: WriteBeir, tiny_model: Path, tmp_path: Path, call: Call
) -> None:
    source = write_beir()
    rows = '["bm25", "colbert", "colbert-hn"]'
    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(_short_recipe(source, tiny_model) + f"[study]\nsystems = {rows}\n")
    code, plan, _ = call("study", recipe, "--dry-run", "--out", out)
    assert code == 0
    assert re.findall(r"^ *([\w-]+), seed 0: .*about", plan, re.M) == ["bm25", "colbert", "colbert-hn"]
    assert not out.exists()
    assert "trained with one seed" not in plan
    seeds = ("--set", "study.seeds=2", "--set", 'study.repeated=["colbert"]')
    plan = call("study", recipe, *seeds, "--dry-run", "--out", out)[1]
    assert "trained with one seed, since 'study.repeated' does not name them: colbert-hn\n" in plan
    code, table, _ = call("study", recipe, "--out", out)
    assert code == 0
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["caves", "bm25", "colbert", "colbert-hn"]
    assert table.endswith("report.html\n")
    assert call("study", recipe, "--dry-run", "--out", out)[1].endswith("nothing is left to do\n")

    made = _manifests(out)
    moved = source.rename(source.with_name("moved"))
    recipe.write_text(recipe.read_text().replace(str(source), str(moved)))
    plan = call("study", recipe, "--dry-run", "--out", out)[1]
    assert plan.count("up to date") == 3, "it is the same collection in another place"
    assert call("study", recipe, "--out", out)[0] == 0
    assert _manifests(out) == made


def _manifests(folder: Path) -> dict[Path, bytes]:
    """Those of all that is made from the passages; their own table knows its file's place."""
    found = (path for path in folder.rglob("manifest.json") if path.parent.name != "passages")
    return {path: path.read_bytes() for path in found}


def _short_recipe(source: Path, model: Path) -> str:
    return (
        f'[data]\nsource = "{source}"\n[encoder]\nmodel = "{model}"\ndimension = 16\npassage_length = 24\n'
        "[collective]\nclusters = 4\ncentroids = 2\n[train]\nsteps = 2\nbatch_queries = 1\n"
        "[distil]\nsteps = 2\nbatch_queries = 1\npassages = 2\n[fit]\nevaluate_every = 0\n"
    )


def test_a_damaged_index_gives_an_error_and_no_nan(index: Path, call: Call) -> None:
    store = max((index / "tokens").glob("*.npy"), key=lambda path: path.stat().st_size)
    blocks = [path for path in (index / "tokens").rglob("*") if path.is_file() and "vector" in path.name] or [store]
    for path in blocks:
        held = path.read_bytes()
        path.write_bytes(held[:128] + b"\xff" * (len(held) - 128))
    for options in ((), ("--json",)):
        code, out, err = call("search", index, "glacier cave", *options)
        assert (code, out) == (1, "")
        assert str(index) in err


def test_lines_of_every_call_are_for_verbose(index: Path, tmp_path: Path, call: Call) -> None:
    command = ("rank", tmp_path / "caves", "--index", index, "--out", tmp_path / "run")
    call(*command)
    assert call(*command)[2] == ""
    assert "up to date" in call("--verbose", *command)[2]


def test_a_hub_id_out_of_reach_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    with pytest.raises(UsageError, match="nobody/nothing"):
        check_exists("nobody/nothing")
    assert time.monotonic() - begun < 15


def test_verify_names_the_damaged_file_and_the_command(index: Path, call: Call) -> None:
    code, out, _ = call("verify", index)
    assert code == 0 and "nothing is damaged" in out
    victim = next((index / "tokens").glob("*.vectors.npy"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x01")
    code, out, _ = call("verify", index)
    assert code == 1 and f"DAMAGED {victim}" in out
    assert f"delete {index / 'tokens'} and repeat the `colabel index` that wrote {index}" in out
    assert json.loads(call("verify", index, "--json")[1])["damaged"][0]["file"] == str(victim)


def test_an_array_of_an_earlier_version_that_cannot_be_read(index: Path, call: Call) -> None:
    """Without sums, damage shows when numpy reads it: a sentence, not a bug."""
    manifest = json.loads((index / "tokens" / "manifest.json").read_text())
    del manifest["sums"]
    (index / "tokens" / "manifest.json").write_text(json.dumps(manifest))
    assert f"not checked: {index / 'tokens'}" in call("verify", index)[1]
    for path in (index / "tokens").glob("*.npy"):
        path.write_bytes(path.read_bytes()[:12] + b"\xb1" * (path.stat().st_size - 12))
    code, _, err = call("search", index, "glacier cave")
    assert code == 1 and "a bug" not in err

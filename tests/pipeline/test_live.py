"""A run whose passages change without training."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colabel import Recipe, Run, open_run, run, verify
from colabel.artefacts.lock import folder_lock
from colabel.encode import Encoder
from colabel.errors import DataError, LockedError, UsageError
from colabel.pipeline.folder import RANKERS
from colabel.pipeline.versions import versions
from tests.conftest import Call

NEW = {"id": "new", "text": "melt water of the old fjord in summer, melt water", "price": 3}
ASKED = "melt water old fjord"


@pytest.fixture(scope="module")
def collection(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The small collection with metadata, of its own."""
    folder = Path(shutil.copytree(recipe.data.source, tmp_path_factory.mktemp("live") / "small"))
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    lines = [json.dumps({**row, "metadata": {"price": 10 + place}}) for place, row in enumerate(rows)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return replace(recipe, data=replace(recipe.data, source=str(folder)))


@pytest.fixture(scope="module")
def made(collection: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "shop"
    run(collection, out, teacher="views")
    return out


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    """A run whose student's query side alone was trained."""
    return Path(shutil.copytree(made, tmp_path / "shop"))


def found(opened: Run, ranker: str, text: str = ASKED, **how: Any) -> list[str]:
    return [one for one in opened.search(text, k=50, ranker=ranker, **how).ids[0].tolist() if one]


def assert_searches(opened: Run, there: str, gone: str = "") -> None:
    """A passage is the first by words, and every ranker finds it with its text; another has disappeared."""
    assert found(opened, "bm25")[0] == there
    for ranker in RANKERS:
        ids = found(opened, ranker)
        assert there in ids, ranker
        assert gone not in ids, ranker
    hit = next(hit for hit in opened.search(ASKED, k=50).hits() if hit.passage_id == there)
    assert hit.text == NEW["text"]


def test_what_is_added_is_found_and_what_is_deleted_is_not(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_run(shop)
    before = opened.search(ASKED, k=40, ranker="student")
    deleted = before.ids[0, 0]
    suggested = {one.passage_id for one in opened.missing(limit=400)}
    read: list[str] = []
    encode = Encoder.encode_passages

    def count(self: Encoder, texts: list[str], *given: Any) -> Any:
        read.extend(texts)
        return encode(self, texts, *given)

    monkeypatch.setattr(Encoder, "encode_passages", count)
    assert opened.add([NEW]) is opened
    opened.delete([deleted])
    assert read == [NEW["text"]]
    again = open_run(shop)
    for one in (opened, again):
        assert_searches(one, "new", deleted)
        assert found(one, "hybrid", where="price < 5") == found(one, "student", where="price < 5") == ["new"]
        scores = dict(zip(before.ids[0].tolist(), before.scores[0].tolist(), strict=True))
        now = one.search(ASKED, k=41, ranker="student")
        for passage_id, score in zip(now.ids[0].tolist(), now.scores[0].tolist(), strict=True):
            assert passage_id in ("new", "") or score == pytest.approx(scores[passage_id], abs=1e-5)
        listed = {pair.passage_id for pair in one.missing(limit=400)}
        assert listed == suggested - {deleted}
        assert one.evaluate().means
        assert len(one.index.store) == 40 == len(one.bm25.ids)
        assert len(one.theta_index.store) == 40 == len(one.dataset.passages)
    opened.add([{**NEW, "text": "harbour"}], update=True)
    assert "new" in found(open_run(shop), "bm25", "harbour")
    assert "new" not in found(open_run(shop), "bm25")
    assert len(opened.compact().index.store) == 40
    assert verify(shop).damaged == ()
    with pytest.raises(DataError, match="'new'"):
        opened.add([NEW])


def test_hits_of_a_changed_run_have_probabilities(shop: Path) -> None:
    where = Path(open_run(shop).at.probability) / "probability.json"
    if "why" in json.loads(where.read_text()):
        weights = {"weights": [0.5] * 8, "intercept": 0.0, "basis": "labels", "labelled": [1, 1, 1]}
        held_out = {"bins": [], "ece": 0.0, "brier": 0.0, "pairs": 0}
        table = {**weights, "relevant": [1, 1, 1], "found": 1.0, "queries": 2, "held_out": held_out}
        where.unlink()
        where.write_text(json.dumps(table))
    opened = open_run(shop)
    listed = {(one.query_id, one.passage_id): one.probability for one in opened.missing(limit=20)}
    opened.add([NEW])
    likely = opened.search(ASKED, k=41)
    assert "new" in likely.ids
    assert np.isfinite(likely.probabilities[likely.ids != ""]).all()
    assert {(one.query_id, one.passage_id): one.probability for one in opened.missing(limit=20)} == listed


def test_commands_change_a_run(shop: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "new.csv").write_text(f'id,text,price\nnew,"{NEW["text"]}",3\n')
    (tmp_path / "gone.txt").write_text("d0\n")
    code, out, err = call("index", shop, "--add", tmp_path / "new.csv", "--delete", tmp_path / "gone.txt")
    assert (code, "40 passages" in out) == (0, True), err
    for ranker in RANKERS:
        code, out, err = call("search", shop, ASKED, "--ranker", ranker, "-k", 50, "--json")
        ids = [hit["passage_id"] for hit in json.loads(out)]
        assert (code, "new" in ids, "d0" in ids) == (0, True, False), err
    assert call("index", shop, "--compact")[0] == 0
    assert call("index", shop / "index", "--compact")[0] == call("index", shop / "live", "--compact")[0] == 2
    assert call("export", shop, "--format", "parquet", "--out", tmp_path / "labels")[0] == 0


def test_a_student_with_an_index_of_its_own(collection: Recipe, tmp_path: Path) -> None:
    run(collection, tmp_path / "run", teacher="collective")
    opened = open_run(tmp_path / "run").add([NEW]).delete(["d0"])
    for ranker in ("hybrid", "student", "bm25"):
        assert "new" in found(opened, ranker)
        assert "d0" not in found(opened, ranker)
    for ranker in ("colbert", "prf"):
        with pytest.raises(UsageError, match="hybrid, student or bm25"):
            opened.search(ASKED, ranker=ranker)
    assert opened.index.encoder_folder == tmp_path / "run" / "live" / "encoder"


def test_training_again_loses_nothing(
    collection: Recipe, shop: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_run(shop).add([NEW]).delete(["d0"])
    run(collection, shop)  # nothing to train
    assert_searches(open_run(shop), "new", "d0")
    pair = opened.missing(limit=1)[0]
    opened.judge([{"query_id": pair.query_id, "passage_id": pair.passage_id, "verdict": "yes"}], "me")
    opened.again()  # the index stays, and so do the changes
    assert len(versions(shop)) == 1
    for one in (opened, open_run(shop), open_run(versions(shop)[0])):
        assert_searches(one, "new", "d0")
    with pytest.raises(UsageError, match="earlier result"):
        open_run(versions(shop)[0]).delete(["d1"])

    source = Path(shutil.copytree(collection.data.source, tmp_path / "source"))
    grown = replace(collection, data=replace(collection.data, source=str(source)))
    corpus = (source / "corpus.jsonl").read_text().splitlines()
    (source / "corpus.jsonl").write_text("\n".join([*corpus, json.dumps({"_id": "d99", "text": "ice"})]) + "\n")
    with pytest.raises(DataError, match=r"'new'.*'d0'"):
        run(grown, shop)
    assert_searches(open_run(shop), "new", "d0")

    row = {"_id": "new", "title": "", "text": NEW["text"], "metadata": {"price": 3}}
    for name in ("train", "dev", "test"):
        labels = source / "qrels" / f"{name}.tsv"
        kept = [line for line in labels.read_text().splitlines(keepends=True) if "\td0\t" not in line]
        labels.write_text("".join(kept))
    (source / "corpus.jsonl").write_text("\n".join([*corpus[1:], json.dumps(row)]) + "\n")
    run(grown, shop)
    assert not (shop / "live").exists()
    assert_searches(open_run(shop), "new", "d0")

    opened = open_run(shop).delete(["new"])
    note = json.loads((shop / "live" / "index.json").read_text())
    (shop / "live" / "index.json").write_text(json.dumps({**note, "trained": "another"}))
    with caplog.at_level(logging.WARNING):
        assert "new" in found(open_run(shop), "hybrid")
    assert "repeat `colabel run`" in caplog.text


def test_who_has_a_run_open_sees_changes_when_asked_to(shop: Path) -> None:
    reader, writer = open_run(shop), open_run(shop)
    assert not reader.refresh()
    reader.search(ASKED)
    model = reader.late.encoder
    for number in range(3):  # files of generations that the reader never saw go away
        writer.add([{**NEW, "id": f"new{number}"}])
    assert "new0" not in found(reader, "hybrid")
    assert reader.refresh()
    assert "new2" in found(reader, "hybrid")
    assert reader.late.encoder is model
    assert not reader.refresh()


def test_damage_is_named_with_its_remedy(shop: Path) -> None:
    open_run(shop).add([NEW])
    damaged = shop / "live" / "segment-00001" / "data" / "passages" / "corpus.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b"melt", b"meld"))
    (found,) = verify(shop).damaged
    assert (found.file, f"delete {shop / 'live'} " in found.remedy) == (str(damaged), True)


def test_two_writers_are_refused(shop: Path) -> None:
    opened = open_run(shop)
    with folder_lock(shop), pytest.raises(LockedError):
        opened.add([NEW])
    with pytest.raises(DataError, match="'d77'"):
        opened.delete(["d77"])
    assert open_run(shop).live is None
    assert not open_run(shop).refresh()


@pytest.mark.slow
def test_a_killed_change_leaves_the_old_or_the_new_state(shop: Path, tmp_path: Path) -> None:
    program = """if True:
        import sys
        from colabel import open_run
        from tests.pipeline.test_live import NEW
        run = open_run(sys.argv[1])
        run.index.encoder
        print("ready", flush=True)
        for number in range(30):
            run.change(add=[{**NEW, "id": f"new{number}"}], delete=[f"new{number - 1}"] if number else [])
            run = run.compact() if number % 4 == 3 else run
    """
    random = np.random.default_rng(0)
    for trial in range(6):
        copy = Path(shutil.copytree(shop, tmp_path / f"copy-{trial}"))
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(copy)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0, 3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        opened = open_run(copy)
        new = [one for one in opened.index.store.ids if one.startswith("new")]
        assert len(new) <= 1
        assert [one for one in found(opened, "bm25") if one.startswith("new")] == new
        assert [one for one in found(opened, "hybrid") if one.startswith("new")] == new
        opened.change(add=[{**NEW, "id": "last"}], delete=new)
        assert found(open_run(copy), "bm25")[0] == "last"
        assert verify(copy).damaged == ()

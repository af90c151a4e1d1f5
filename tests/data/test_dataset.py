"""Splits, label hiding and random access."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colabel.data import Dataset, hide_labels, load_dataset
from colabel.data.splits import hidden_labels, hold_out, leaks, stable_fraction, with_hidden_labels
from colabel.data.text_lines import qrel_lines
from colabel.errors import DataError, SettingsError
from colabel.settings import DataSettings

WriteBeir = Callable[..., Path]


def test_hold_out_is_stable_and_about_the_share() -> None:
    train = {f"q{number}": {"d": 1} for number in range(4000)}
    texts = {f"q{number}": f"what is {number // 2}" for number in range(4000)}  # every text twice
    rest, dev = hold_out(train, texts, 0.15)
    assert rest.keys() | dev.keys() == train.keys()
    assert not rest.keys() & dev.keys()
    assert 0.12 < len(dev) / 4000 < 0.18
    assert not {texts[query] for query in dev} & {texts[query] for query in rest}, "no text on both sides"
    smaller = {query: labels for query, labels in train.items() if query not in ("q1", "q2", "q3")}
    assert hold_out(smaller, texts, 0.15)[1].keys() == dev.keys() - {"q1", "q2", "q3"}, "other queries do not matter"
    assert stable_fraction("q1", "dev") == 0.1422266771941787, "the hash is the same on every machine, for ever"


def test_dev_is_held_out_only_where_there_is_none(write_beir: WriteBeir) -> None:
    lines = "".join(f"q{number}\td1\t1\n" for number in range(100))
    queries = "".join(json.dumps({"_id": f"q{n}", "text": f"query {n}"}) + "\n" for n in range(100))
    raw = {"queries": queries, "qrels__train": lines, "qrels__test": None}
    with_dev = load_dataset(str(write_beir("with", **raw, qrels__dev="q5\td1\t1\n")))
    assert with_dev.splits == ("dev", "train")
    assert len(with_dev.labels("train")) == 99, "q5 stands in dev"
    without = load_dataset(str(write_beir("without", **raw, qrels__dev=None)))
    assert 5 < len(without.labels("dev")) < 30
    assert len(without.labels("dev")) + len(without.labels("train")) == 100
    none = load_dataset(DataSettings(source=str(write_beir("none", **raw, qrels__dev=None)), holdout=0.0))
    assert none.splits == ("train",)


def test_a_file_of_all_train_labels_keeps_what_was_held_out(write_beir: WriteBeir, tmp_path: Path) -> None:
    lines = "".join(f"q{number}\td1\t1\n" for number in range(100))
    queries = "".join(json.dumps({"_id": f"q{n}", "text": f"query {n}"}) + "\n" for n in range(100))
    raw = {"queries": queries, "qrels__train": lines, "qrels__test": None}
    folder = write_beir("without", **raw, qrels__dev=None)
    dataset = load_dataset(str(folder))
    (tmp_path / "more.qrels").write_text("".join(qrel_lines(dataset.source_labels("train"))))
    again = load_dataset(DataSettings(source=str(folder), labels={"train": str(tmp_path / "more.qrels")}))
    assert {split: again.labels(split) for split in again.splits} == {
        split: dataset.labels(split) for split in ("dev", "train")
    }
    own = load_dataset(str(write_beir("with", **raw, qrels__dev="q5\td1\t1\n")))
    assert own.source_labels("train") == own.labels("train")
    assert dataset.source_labels("dev") == dataset.labels("dev")


def test_leaks_go_by_text_as_well_as_by_id() -> None:
    queries = {"a": "What is ice?", "b": "what  is ICE?", "c": "fjord", "d": "cave"}
    labels = {"train": {"a": {}, "c": {}, "d": {}}, "dev": {"c": {}}, "test": {"b": {}, "c": {}}}
    found = {(leak.split, leak.query_id, leak.later, leak.twin) for leak in leaks(labels, queries)}
    assert found == {
        ("train", "a", "test", "b"),
        ("train", "c", "test", "c"),
        ("train", "c", "dev", "c"),
        ("dev", "c", "test", "c"),
    }


def test_leaked_queries_leave_the_earlier_split(write_beir: WriteBeir) -> None:
    dataset = load_dataset(str(write_beir(qrels__test="q1\td4\t1\n")))
    assert dataset.labels("train").keys() == {"q3"}
    assert dataset.labels("test").keys() == {"q1"}


def caves(write_beir: WriteBeir, name: str = "caves") -> Dataset:
    return load_dataset(str(write_beir(name)))


def test_hiding_keeps_k_and_remembers_the_rest(write_beir: WriteBeir) -> None:
    dataset = caves(write_beir)
    for keep in (1, 2, 3):
        sparse = hide_labels(dataset, keep=keep, seed=0)
        assert len(sparse.positives("train")["q1"]) == keep
        assert len(hidden_labels(sparse).get("q1", {})) == 3 - keep
        joined = {**sparse.labels("train")["q1"], **hidden_labels(sparse).get("q1", {})}
        assert joined == dataset.labels("train")["q1"]
        assert sparse.labels("train")["q3"] == {"d5": 1, "d1": 0}, "judged non-relevant passages stay visible"
        assert sparse.labels("dev") == dataset.labels("dev")
        assert sparse.labels("test") == dataset.labels("test")
        whole = with_hidden_labels(sparse)
        assert whole.labels("train") == dataset.labels("train") and not hidden_labels(whole)
    kept = {hide_labels(dataset, 1, seed).positives("train")["q1"] for seed in range(20)}
    assert kept == {("d1",), ("d2",), ("d4",)}, "the seed chooses, and every label can be chosen"
    assert hide_labels(dataset, 1, 3).labels("train") == hide_labels(dataset, 1, 3).labels("train")
    with pytest.raises(SettingsError, match="keep_labels"):
        hide_labels(dataset, 0)


def test_hiding_twice_forgets_nothing(write_beir: WriteBeir) -> None:
    once = hide_labels(hide_labels(caves(write_beir), keep=2), keep=1)
    assert len(hidden_labels(once)["q1"]) == 2


def test_nothing_that_training_reads_depends_on_hidden_labels(write_beir: WriteBeir) -> None:
    sparse = hide_labels(caves(write_beir), keep=1)
    changed = dataclasses.replace(sparse, _hidden={"q3": {"d2": 1}})
    for split in sparse.splits:
        assert changed.labels(split) == sparse.labels(split)
        assert changed.positives(split) == sparse.positives(split)
        assert changed.labels_fingerprint(split) == sparse.labels_fingerprint(split)
    public = [name for name in dir(sparse) if not name.startswith("_")]
    for name in public:
        value = getattr(sparse, name)
        if not callable(value):
            assert value == getattr(changed, name), f"Dataset.{name} shows hidden labels"


def test_hidden_labels_join_a_held_out_dev_split(write_beir: WriteBeir) -> None:
    queries = "".join(json.dumps({"_id": f"q{n}", "text": f"query {n}"}) + "\n" for n in range(60))
    visible = "".join(f"q{n}\td1\t1\n" for n in range(60))
    folder = write_beir(queries=queries, qrels__train=visible, qrels__dev=None, qrels__test=None)
    (folder / "hidden").mkdir()
    (folder / "hidden" / "train.tsv").write_text("".join(f"q{n}\td2\t1\n" for n in range(60)))
    dataset = load_dataset(str(folder))
    assert all(labels == {"d1": 1, "d2": 1} for labels in dataset.labels("dev").values()), "dev is whole"
    assert all(labels == {"d1": 1} for labels in dataset.labels("train").values())
    assert hidden_labels(dataset).keys() == dataset.labels("train").keys()


def test_keep_labels_setting(write_beir: WriteBeir) -> None:
    dataset = load_dataset(DataSettings(source=str(write_beir()), keep_labels=1))
    assert all(len(passages) == 1 for passages in dataset.positives("train").values())


def test_access(write_beir: WriteBeir) -> None:
    dataset = caves(write_beir)
    assert dataset.passages.rows(["d5", "nope", "d1"]).tolist() == [4, -1, 0]
    with pytest.raises(DataError, match="no passage 'nope'"):
        dataset.passages.get("nope")
    with pytest.raises(IndexError):
        dataset.passages[5]
    with pytest.raises(DataError, match="no split 'tst'; it has: dev, test, train"):
        dataset.labels("tst")
    assert [passage.id for passage in dataset.passages.range(1, 3)] == ["d2", "d3"]


def test_cache_is_reused_and_follows_the_corpus(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir(gzipped=True)
    first = load_dataset(str(folder), cache=tmp_path / "cache")
    manifest = tmp_path / "cache" / "passages" / "manifest.json"
    stamp = manifest.stat().st_mtime_ns
    assert load_dataset(str(folder), cache=tmp_path / "cache").passages.fingerprint == first.passages.fingerprint
    assert manifest.stat().st_mtime_ns == stamp
    write_beir("other", gzipped=True, corpus='{"_id": "d1", "text": "new"}\n', qrels__train=None, qrels__dev=None)
    (tmp_path / "other" / "qrels" / "test.tsv.gz").unlink()
    other = load_dataset(str(tmp_path / "other"), cache=tmp_path / "cache")
    assert other.passages[0].text == "new"
    assert other.passages.fingerprint != first.passages.fingerprint


def test_the_temporary_folder_goes_with_the_dataset(write_beir: WriteBeir) -> None:
    dataset = load_dataset(str(write_beir(gzipped=True)))
    folder = dataset.passages.path.parent
    assert folder.exists()
    assert dataset.passages[0].title == "Glacier cave"
    del dataset
    assert not folder.exists()


def test_a_table_can_be_sent_to_another_process(write_beir: WriteBeir, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    passages = load_dataset(write_beir().name, cache=tmp_path / "cache").passages
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(passages))
    assert list(copy) == list(passages)
    assert copy._descriptor != passages._descriptor


def test_a_file_that_changed_under_us_is_a_sentence(write_beir: WriteBeir) -> None:
    folder = write_beir()
    passages = load_dataset(str(folder)).passages
    with (folder / "corpus.jsonl").open("r+b") as file:
        file.write(b"XXXX")
    with pytest.raises(DataError, match="row 0 is not what it was"):
        passages[0]


MEMORY_CHILD = """
import json, re, sys
from pathlib import Path
from colabel.data import load_dataset
dataset = load_dataset(sys.argv[1], cache=Path(sys.argv[2]))
rows = range(0, len(dataset.passages), len(dataset.passages) // 50)
assert all(dataset.passages.get(dataset.passages.ids[row]).id == dataset.passages.ids[row] for row in rows)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())  # unlike ru_maxrss, not the parent's
print(len(dataset.passages), int(peak.group(1)) / 1024)
"""


def open_generated(tmp_path: Path, passages: int) -> float:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    folder = tmp_path / "big"
    folder.mkdir()
    words = "melt water carves long tunnels through the old ice of a glacier " * 4
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(passages):
            file.write(json.dumps({"_id": f"passage-{number}", "title": "", "text": f"{number} {words}"}) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "ice"}\n')
    command = [sys.executable, "-c", MEMORY_CHILD, str(folder), str(tmp_path / "cache")]
    count, megabytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(count) == passages
    return float(megabytes)


def test_text_is_not_held_in_memory(tmp_path: Path) -> None:
    assert open_generated(tmp_path, 100_000) < 60  # the program alone takes 35; the text would add 28


@pytest.mark.slow
def test_a_million_passages_open_below_500_megabytes(tmp_path: Path) -> None:
    assert open_generated(tmp_path, 1_000_000) < 500

"""`check` finds every problem at once, with file and line; loading stops at the first fatal one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from colabel.data import check, load_dataset
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings

WriteBeir = Callable[..., Path]
GOOD = '{"_id": "d1", "title": "", "text": "ice"}\n'
REST = "".join(f'{{"_id": "d{number}", "text": "water {number}"}}\n' for number in range(2, 6))


def found(folder: Path) -> list[tuple[str, str, int | None]]:
    return [(problem.kind.slug, Path(problem.file).name, problem.line) for problem in check(str(folder)).problems]


CASES: list[tuple[str, dict[str, str | bytes | None], tuple[str, str, int | None]]] = [
    ("bad JSON", {"corpus": GOOD + "{nope\n" + REST}, ("bad-json", "corpus.jsonl", 2)),
    ("JSON list", {"corpus": GOOD + "[1]\n" + REST}, ("bad-json", "corpus.jsonl", 2)),
    ("deep JSON", {"corpus": GOOD + "[" * 100_000 + "\n" + REST}, ("bad-json", "corpus.jsonl", 2)),
    ("bad UTF-8", {"corpus": GOOD.encode() + b'{"_id": "x\xff"}\n' + REST.encode()}, ("bad-utf8", "corpus.jsonl", 2)),
    ("missing id", {"corpus": GOOD + '{"text": "x"}\n' + REST}, ("missing-field", "corpus.jsonl", 2)),
    ("missing text", {"corpus": GOOD + '{"_id": "x"}\n' + REST}, ("missing-field", "corpus.jsonl", 2)),
    ("text is a number", {"corpus": GOOD + '{"_id": "x", "text": 3}\n' + REST}, ("bad-field", "corpus.jsonl", 2)),
    ("surrogate", {"corpus": GOOD + '{"_id": "x", "text": "\\ud800"}\n' + REST}, ("bad-field", "corpus.jsonl", 2)),
    ("id with a space", {"corpus": GOOD + '{"_id": "x y", "text": "a"}\n' + REST}, ("bad-id", "corpus.jsonl", 2)),
    ("duplicate id", {"corpus": GOOD + REST + GOOD}, ("duplicate-passage", "corpus.jsonl", 6)),
    ("no passages", {"corpus": "\n\n"}, ("empty-file", "caves", None)),
    ("query without text", {"queries": '{"_id": "q1", "text": " "}\n'}, ("empty-query", "queries.jsonl", 1)),
    (
        "query twice",
        {"queries": '{"_id": "q1", "text": "a"}\n{"_id": "q1", "text": "b"}\n'},
        ("duplicate-query", "queries.jsonl", 2),
    ),
    ("no text column", {"corpus": '{"_id": "d1", "title": "x", "body": "y"}\n'}, ("missing-field", "corpus.jsonl", 1)),
    ("unknown query", {"qrels__dev": "q4\td3\t1\nq99\td1\t1\n"}, ("unknown-query", "dev.tsv", 2)),
    ("unknown passage", {"qrels__dev": "q4\td99\t1\n"}, ("unknown-passage", "dev.tsv", 1)),
    ("negative grade", {"qrels__dev": "q4\td3\t-1\n"}, ("bad-grade", "dev.tsv", 1)),
    ("fractional grade", {"qrels__dev": "q4\td3\t0.5\n"}, ("bad-grade", "dev.tsv", 1)),
    ("Arabic digits", {"qrels__dev": "q4\td3\t١\n"}, ("bad-grade", "dev.tsv", 1)),
    ("two columns", {"qrels__dev": "q4 d3\n"}, ("bad-columns", "dev.tsv", 1)),
    ("two grades", {"qrels__dev": "q4\td3\t1\nq4\td3\t2\n"}, ("conflicting-label", "dev.tsv", 2)),
    ("no queries file", {"queries": None}, ("unreadable", "queries.jsonl", None)),
]


@pytest.mark.parametrize(("raw", "expected"), [pytest.param(raw, want, id=name) for name, raw, want in CASES])
def test_fatal_problems(write_beir: WriteBeir, raw: dict[str, str | bytes | None], expected: tuple[str, ...]) -> None:
    folder = write_beir(**raw)
    assert expected in found(folder)
    assert not check(str(folder)).ok
    with pytest.raises(DataError) as error:
        load_dataset(str(folder))
    assert expected[1] in str(error.value)


WARNINGS: list[tuple[str, dict[str, str | bytes], tuple[str, str, int | None]]] = [
    ("empty passage", {"corpus": GOOD + REST + '{"_id": "e", "text": ""}\n'}, ("empty-passage", "corpus.jsonl", 6)),
    ("BOM", {"corpus": b"\xef\xbb\xbf" + (GOOD + REST).encode()}, ("byte-order-mark", "corpus.jsonl", 1)),
    ("CRLF", {"corpus": (GOOD + REST).replace("\n", "\r\n")}, ("crlf", "corpus.jsonl", None)),
    ("same label twice", {"qrels__dev": "q4\td3\t1\nq4\td3\t1\n"}, ("repeated-label", "dev.tsv", 2)),
    ("test query in train", {"qrels__test": "q1\td4\t1\n"}, ("test-query-in-train", "queries.jsonl", 1)),
]


@pytest.mark.parametrize(("raw", "expected"), [pytest.param(raw, want, id=name) for name, raw, want in WARNINGS])
def test_warnings_do_not_fail(write_beir: WriteBeir, raw: dict[str, str], expected: tuple[str, ...]) -> None:
    folder = write_beir(**raw)
    assert found(folder) == [expected]
    assert check(str(folder)).ok
    dataset = load_dataset(str(folder))
    assert dataset.passages.get("d1").id == "d1"
    assert [passage.id for passage in dataset.passages] == list(dataset.passages.ids)
    assert dataset.passages[4] == dataset.passages.get("d5")


def test_all_problems_at_once(write_beir: WriteBeir) -> None:
    folder = write_beir(
        corpus=GOOD + "{nope\n" + '{"_id": "x"}\n' + REST, qrels__dev="q4\td3\t-1\nq4\td77\t1\n", queries='{"_id": 4}\n'
    )
    kinds = {kind for kind, _, _ in found(folder)}
    assert {"bad-json", "missing-field", "bad-grade", "unknown-query"} <= kinds


def test_title_alone_is_not_empty(write_beir: WriteBeir) -> None:
    assert check(str(write_beir())).problems.counts == {}  # d3 has a title and no text


def test_truncated_gzip(write_beir: WriteBeir) -> None:
    folder = write_beir(gzipped=True)
    whole = (folder / "corpus.jsonl.gz").read_bytes()
    (folder / "corpus.jsonl.gz").write_bytes(whole[:-20])
    assert "bad-gzip" in check(str(folder)).problems.counts
    with pytest.raises(DataError, match="copy it again"):
        load_dataset(str(folder))
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b"x")[:5] + b"garbage")
    assert "bad-gzip" in check(str(folder)).problems.counts


def test_unknown_labels_can_be_dropped(write_beir: WriteBeir, caplog: pytest.LogCaptureFixture) -> None:
    lines = "q4\td3\t1\n" + "".join(f"q4\tgone{number}\t1\n" for number in range(7))
    settings = DataSettings(source=str(write_beir(qrels__dev=lines)), unknown_labels="drop")
    assert check(settings).ok
    assert check(settings).problems.counts == {"dropped-label": 7}
    dataset = load_dataset(settings)
    assert dataset.labels("dev") == {"q4": {"d3": 1}}
    assert dataset.warnings == {"dropped-label": 7}
    assert "and 6 more of the kind 'dropped-label'" in caplog.text


def test_relevant_from(write_beir: WriteBeir) -> None:
    folder = str(write_beir("trec-dl-mine"))
    report = check(folder)
    assert (report.relevant_from, report.splits["test"].relevant, report.splits["test"].positive) == (2, 1, 3)
    assert load_dataset(folder).positives("test") == {"q2": ("d4",)}
    assert check(DataSettings(source=folder, relevant_from=1)).splits["test"].relevant == 3


def test_report_as_json(write_beir: WriteBeir) -> None:
    table = json.loads(json.dumps(check(str(write_beir(qrels__dev="q4\tgone\t1\n"))).as_dict()))
    assert table["ok"] is False
    assert table["passages"] == 5
    assert table["splits"]["train"]["mean_relevant"] == 2.0
    assert table["problems"][0]["line"] == 1


def test_mistyped_columns_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": "d1", "abstract": "ice", "body": "cold"}\n')
    (tmp_path / "labels.jsonl").write_text('{"q": "q1", "d": "d1", "grade": 0}\n')
    (tmp_path / "queries.tsv").write_text("q1\tice\n")
    base = {"label_query": "q", "label_passage": "d"}

    def kinds(**columns: str) -> dict[str, int]:
        settings = DataSettings(
            source=str(tmp_path / "docs.jsonl"),
            queries=(str(tmp_path / "queries.tsv"),),
            labels={"test": str(tmp_path / "labels.jsonl")},
            columns={**base, **columns},
        )
        return dict(check(settings).problems.counts)

    assert kinds(passage_text="abstract+body", label_grade="grade") == {}
    assert kinds(passage_text="abstract", label_grade="garde") == {"missing-field": 1}
    with pytest.raises(UsageError, match="abstrct"):
        kinds(passage_text="abstrct+body", label_grade="grade")


def test_columns_apply_to_beir_folders_and_change_the_fingerprint(write_beir: WriteBeir, tmp_path: Path) -> None:
    rows = "".join(f'{{"_id": "d{n}", "text": "a{n}", "body": "b{n}"}}\n' for n in range(1, 6))
    folder = str(write_beir(corpus=rows))
    first = load_dataset(folder, cache=tmp_path / "cache")
    other = load_dataset(DataSettings(source=folder, columns={"passage_text": "body"}), cache=tmp_path / "cache")
    assert (first.passages[0].text, other.passages[0].text) == ("a1", "b1")
    assert first.passages.fingerprint != other.passages.fingerprint


def test_two_files_for_one_split(write_beir: WriteBeir) -> None:
    folder = write_beir(qrels__validation="q4\td3\t1\n")
    for read in (check, load_dataset):
        with pytest.raises(DataError, match="'dev' and 'validation' both mean the split 'dev'"):
            read(str(folder))


def test_split_names_are_read_in_any_case_and_never_leave_the_folder(write_beir: WriteBeir) -> None:
    folder = write_beir(
        qrels__train=None, qrels__TRAIN="q1\td1\t1\n", qrels__dev=None, **{"qrels__dev.small": "q4\td3\t1\n"}
    )
    (folder / "qrels" / "._test.tsv").write_text("junk of a file manager")
    assert set(load_dataset(str(folder)).splits) == {"train", "dev", "test"}
    settings = DataSettings(source=str(folder), labels={"../../evil": str(folder / "qrels" / "test.tsv")})
    with pytest.raises(DataError, match="cannot be the name of a split"):
        load_dataset(settings)


def test_a_label_cannot_be_hidden_and_visible(write_beir: WriteBeir) -> None:
    folder = write_beir()
    (folder / "hidden").mkdir()
    (folder / "hidden" / "train.tsv").write_text("q1\td1\t2\n")
    assert check(str(folder)).problems.counts == {"hidden-and-visible": 1}
    with pytest.raises(DataError, match="both hidden and visible"):
        load_dataset(str(folder))


def test_an_unreadable_folder_is_not_an_empty_one(write_beir: WriteBeir, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_beir()
    iterdir = Path.iterdir

    def denied(self: Path) -> object:
        if self.name == "qrels":
            raise PermissionError(13, "Permission denied", str(self))
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(DataError, match="qrels: cannot be read: Permission denied"):
        check(str(folder))


def test_a_query_may_be_called_qid(write_beir: WriteBeir) -> None:
    folder = write_beir(queries='{"_id": "qid", "text": "x"}\n', qrels__train=None, qrels__dev=None,
                        qrels__test="\nquery-id\tcorpus-id\tscore\nqid\td1\t1\n")  # fmt: skip
    assert load_dataset(str(folder)).labels("test") == {"qid": {"d1": 1}}

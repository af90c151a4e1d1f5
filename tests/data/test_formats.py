"""Every format gives the same dataset, and the counts of the real collections are what their makers say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import LABELS, PASSAGES, QUERIES

from colabel.data import check, convert, hide_labels, load_dataset, open_source, read_triples
from colabel.data.hiding import hidden_labels
from colabel.data.problems import Collected
from colabel.data.run_files import read_run
from colabel.data.trec import run_line
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, ScoredPassage, Triple

WriteBeir = Callable[..., Path]


def assert_is_caves(data: str | DataSettings, *, titles: bool = True, text_equal: bool = True) -> None:
    dataset = load_dataset(data)
    assert list(dataset.passages.ids) == [row["_id"] for row in PASSAGES]
    for row, passage in zip(PASSAGES, dataset.passages, strict=True):
        if titles:
            assert passage == Passage(row["_id"], row["title"], row["text"])
        else:
            assert passage.full_text == f"{row['title']} {row['text']}".strip()
    assert dataset.passages.get("d4").id == "d4"
    assert dict(dataset.queries) == QUERIES
    for split, labels in LABELS.items():
        flat = [(q, p, g) for q, rels in dataset.labels(split).items() for p, g in rels.items()]
        assert sorted(flat) == sorted(labels)
    assert check(data).ok


@pytest.mark.parametrize("gzipped", [False, True])
def test_beir(write_beir: WriteBeir, gzipped: bool) -> None:
    assert_is_caves(str(write_beir(gzipped=gzipped)))


@pytest.mark.parametrize("to", ["beir", "trec", "msmarco"])
def test_convert_and_read_back(write_beir: WriteBeir, tmp_path: Path, to: str) -> None:
    convert(load_dataset(str(write_beir())), tmp_path / "out", to)
    assert_is_caves(str(tmp_path / "out"), titles=to != "msmarco")


def test_convert_refuses_an_unknown_format_and_keeps_hidden_labels_out_of_trec(
    write_beir: WriteBeir, tmp_path: Path
) -> None:
    dataset = load_dataset(str(write_beir()))
    with pytest.raises(UsageError, match="expected one of beir, msmarco, trec"):
        convert(dataset, tmp_path / "out", "xml")
    with pytest.raises(UsageError, match="hidden labels"):
        convert(hide_labels(dataset), tmp_path / "out", "trec")
    assert not (tmp_path / "out").exists()


def test_jsonl_with_free_columns(tmp_path: Path) -> None:
    docs = [{"docno": row["_id"], "head": row["title"], "a": row["text"][:5], "b": row["text"][5:]} for row in PASSAGES]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"qid": q, "ask": t}) + "\n" for q, t in QUERIES.items()))
    (tmp_path / "train.jsonl").write_text('{"qid": "q1", "doc": "d1"}\n')
    (tmp_path / "test.txt").write_text("q2 0 d4 2\n")
    settings = DataSettings(
        source=f"jsonl:{tmp_path / 'docs.jsonl'}",
        queries=(str(tmp_path / "q.jsonl"),),
        labels={"train": str(tmp_path / "train.jsonl"), "test": str(tmp_path / "test.txt")},
        columns={
            "passage_id": "docno",
            "passage_title": "head",
            "passage_text": "a+b",
            "query_id": "qid",
            "query_text": "ask",
            "label_query": "qid",
            "label_passage": "doc",
            "label_grade": "",
        },
        holdout=0.0,
    )
    dataset = load_dataset(settings)
    assert dataset.passages.get("d1") == Passage("d1", "Glacier cave", "A cav e formed within the ice of a glacier.")
    assert dataset.labels("train") == {"q1": {"d1": 1}}
    assert dataset.labels("test") == {"q2": {"d4": 2}}


def test_hugging_face_on_disk(tmp_path: Path, write_beir: WriteBeir) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(PASSAGES).save_to_disk(str(tmp_path / "hf" / "corpus"))
    rows = [{"_id": query, "text": text} for query, text in QUERIES.items()]
    datasets.DatasetDict({"queries": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "hf" / "queries"))
    qrels = {
        split: datasets.Dataset.from_list([{"query-id": q, "corpus-id": p, "score": g} for q, p, g in labels])
        for split, labels in LABELS.items()
    }
    datasets.DatasetDict(qrels).save_to_disk(str(tmp_path / "hf" / "qrels"))
    assert_is_caves(f"hf:{tmp_path / 'hf'}")
    with pytest.raises(DataError, match="save_to_disk"):
        load_dataset(f"hf:{write_beir('other')}")


class _Doc(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


@pytest.fixture
def irds_caves(tmp_path: Path) -> Iterator[str]:
    """A local data set in ir_datasets' own registry: its real code paths, no download."""
    import ir_datasets
    from ir_datasets.formats import TrecQrels, TsvQueries
    from ir_datasets.formats.base import BaseDocs

    class CaveDocs(BaseDocs):
        def docs_iter(self) -> Iterator[_Doc]:
            return (_Doc(row["_id"], row["title"], row["text"]) for row in PASSAGES)

        def docs_cls(self) -> type:
            return _Doc

        def docs_count(self) -> int:
            return len(PASSAGES)

        def docs_namespace(self) -> str:
            return "caves"

        def docs_lang(self) -> str:
            return "en"

    class Local:
        def __init__(self, path: Path) -> None:
            self._path = path

        def stream(self) -> object:
            return self._path.open("rb")

        def path(self) -> str:
            return str(self._path)

    docs = CaveDocs()
    names = ["caves-test-set"]
    ir_datasets.registry.register(names[0], ir_datasets.Dataset(docs))
    for split, labels in LABELS.items():
        ids = {query for query, _, _ in labels}
        (tmp_path / f"{split}.tsv").write_text("".join(f"{q}\t{t}\n" for q, t in QUERIES.items() if q in ids))
        (tmp_path / f"{split}.qrels").write_text("".join(f"{q} 0 {p} {g}\n" for q, p, g in labels))
        parts = (TsvQueries(Local(tmp_path / f"{split}.tsv")), TrecQrels(Local(tmp_path / f"{split}.qrels"), {}))
        names.append(f"caves-test-set/{split}")
        ir_datasets.registry.register(names[-1], ir_datasets.Dataset(docs, *parts))
    yield names[0]
    for name in names:
        del ir_datasets.registry._registered[name]


def test_ir_datasets(irds_caves: str) -> None:
    assert_is_caves(f"irds:{irds_caves}")
    assert_is_caves(f"irds:{irds_caves}/train+{irds_caves}/dev+{irds_caves}/test")
    assert load_dataset(f"irds:{irds_caves}/test").splits == ("test",)
    with pytest.raises(UsageError, match="both train"):
        load_dataset(f"irds:{irds_caves}/train+{irds_caves}/train")


def test_ir_datasets_unknown_id() -> None:
    with pytest.raises(UsageError, match="no such id; did you mean 'vaswani'"):
        load_dataset("irds:vaswanni")


def test_extra_labels_replace_a_split(write_beir: WriteBeir, tmp_path: Path) -> None:
    (tmp_path / "test.qrels").write_text("q2 0 d1 3\n")
    (tmp_path / "more.tsv").write_text("q9\tanother question\n")
    settings = DataSettings(
        source=str(write_beir()), labels={"test": str(tmp_path / "test.qrels")}, queries=(str(tmp_path / "more.tsv"),)
    )
    dataset = load_dataset(settings)
    assert dataset.labels("test") == {"q2": {"d1": 3}}
    assert dataset.queries["q9"] == "another question"


def test_triples_as_ids_and_as_texts(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = tmp_path / "ms"
    convert(load_dataset(str(write_beir())), folder, "msmarco")
    dataset = load_dataset(str(folder))
    (folder / "qidpidtriples.train.tsv").write_text("q1\td1\td3\nq3\td5\td1\n")
    text = {passage.id: passage.full_text for passage in dataset.passages}
    (folder / "triples.train.tsv").write_text(f"{QUERIES['q1']}\t{text['d1']}\t{text['d3']}\n")
    assert list(read_triples(folder / "qidpidtriples.train.tsv", dataset)) == [
        Triple("q1", "d1", "d3"),
        Triple("q3", "d5", "d1"),
    ]
    assert list(read_triples(folder / "triples.train.tsv", dataset)) == [Triple("q1", "d1", "d3")]
    (folder / "bad.tsv").write_text("q1\td1\td3\nq1\td1\tnone\nq1\td1\n")
    problems = Collected()
    assert len(list(read_triples(folder / "bad.tsv", dataset, problems))) == 1
    assert [(p.kind.name, p.line) for p in problems] == [("unknown-passage", 2), ("bad-columns", 3)]


def test_run_files(tmp_path: Path) -> None:
    rows = [ScoredPassage("q1", "d1", 1, 12.345678), ScoredPassage("q1", "d2", 2, -3.0)]
    path = tmp_path / "run.txt.gz"
    path.write_bytes(gzip.compress("".join(run_line(row, "x") + "\n" for row in rows).encode()))
    assert [located.value for located in read_run(path)] == rows
    (tmp_path / "other.run").write_text("q1 Q0 d1 1.0 3 x\nq1 Q0 d2 -1 2 x\n")
    assert [(one.value.rank, one.value.score) for one in read_run(tmp_path / "other.run")] == [
        (1, 3),
        (-1, 2),
    ]
    (tmp_path / "swapped.run").write_text("q1 Q0 d1 12.5 1 x\n")
    with pytest.raises(DataError, match=r"swapped\.run:1: the rank is '12\.5'; expected a whole number"):
        list(read_run(tmp_path / "swapped.run"))
    (tmp_path / "bad.run").write_text("q1 Q0 d1 1 nan x\n")
    with pytest.raises(DataError, match=r"bad\.run:1: the score is 'nan'"):
        list(read_run(tmp_path / "bad.run"))
    (tmp_path / "bad.run").write_text("q1 Q0 d1 1 1_0 x\n")
    with pytest.raises(DataError, match=r"bad\.run:1: the score is '1_0'"):
        list(read_run(tmp_path / "bad.run"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q1\td7\t1\t22.5\nq1\td9\t2\t-1\n", [("d7", 1, 22.5), ("d9", 2, -1.0)]),
        ("query passage rank score\nq1 d7 1 22.5\n", [("d7", 1, 22.5)]),
        ("q1\td7\t1\nq1\td9\t2\n", [("d7", 1, -1.0), ("d9", 2, -2.0)]),
        ("qid pid rank\nq1 d7 0\nq1 d9 1\n", [("d7", 0, 0.0), ("d9", 1, -1.0)]),
        ("qid pid rank\nq1 d7 3\nq1 d9 1\n", [("d7", 3, -3.0), ("d9", 1, -1.0)]),
        ("qid pid score\nq1 d7 1\nq1 d9 2\n", [("d7", 0, 1.0), ("d9", 0, 2.0)]),
        ("q1 d7 1.0\nq1 d9 2.0\n", [("d7", 1, -1.0), ("d9", 2, -2.0)]),
        ("q1 d7 1\nq1 d8 1\nq1 d9 4\n", [("d7", 1, -1.0), ("d8", 1, -1.0), ("d9", 4, -4.0)]),
        ("q1 d7 1\n", [("d7", 0, 1.0)]),
        ("q1 d7 -1\nq1 d9 0\n", [("d7", 0, -1.0), ("d9", 0, 0.0)]),
        ("q1\td7\t2\nq1\td9\t1\n", [("d7", 0, 2.0), ("d9", 0, 1.0)]),
        ("q1 d7 0.25\nq1 d9 0.5\n", [("d7", 0, 0.25), ("d9", 0, 0.5)]),
        ('{"q1": {"d7": 2, "d9": -0.5}}', [("d7", 0, 2.0), ("d9", 0, -0.5)]),
        ('{\n "q1": {\n  "d7": 2\n }\n}\n', [("d7", 0, 2.0)]),
        ("{}", []),
    ],
)
def test_runs_of_other_programs(tmp_path: Path, text: str, expected: list[tuple[str, int, float]]) -> None:
    (tmp_path / "run").write_bytes(gzip.compress(text.encode()))
    found = [located.value for located in read_run(tmp_path / "run")]
    assert [(one.passage_id, one.rank, one.score) for one in found] == expected
    assert {one.query_id for one in found} <= {"q1"}


def test_a_query_id_may_begin_as_json_does_and_damaged_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("{q1} Q0 d7 1 2.5 x\n")
    assert [located.value for located in read_run(tmp_path / "run")] == [ScoredPassage("{q1}", "d7", 1, 2.5)]
    entries = ", ".join(f'"d{number}": {number / 7}' for number in range(2000))
    whole = gzip.compress(('{"q1":\n {' + entries + "}}").encode())
    for place in range(20, len(whole), 397):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "run").write_bytes(bytes(damaged))
        with pytest.raises(DataError):
            list(read_run(tmp_path / "run"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 d1\n", r"run:1: 2 columns; expected a TREC run \(6 columns"),
        ("q1 d1 1 2.0\nq1 d1 1 2.0 x\n", r"run:2: 5 columns; expected 4: query, passage, rank, score"),
        ("q1 d1 2\nq1 d2 1\nq1 d3 3\n", "the third column may be a rank or a score.* on a line before them"),
        ("q1 d1 2\nq1 d2 3\n", "the third column may be a rank or a score"),
        ("q1 d1 1\nq1 d2 2\nq2 d1 9\nq2 d2 3\n", "the third column may be a rank or a score"),
        ("q p rank\nq1 d2 1\nq p rank\n", r"run:3: a header line inside the file"),
        ("q p rank score\nq1 d2 1 2\nq p rank score\n", r"run:3: a header line inside the file"),
        ("q1 d1 1\nq1 x rank\n", r"run:2: a header line inside the file"),
        ("101 0 7187158 1\n", "four columns, of which the third is no rank"),
        ("q1 a 30 1\nq1 b 20 2\n", "four columns, of which the third is no rank"),
        ('{"q1": {"d1": 1}, "q1": {"d2": 2}}', "'q1' stands twice in one JSON object"),
        ('{"q1": {"d1": 1, "d1": 2}}', "'d1' stands twice in one JSON object"),
        ('{"q1": {"d1": ' + "1" * 5000 + "}}", "cannot be read: Exceeds the limit"),
        ('{"q1": {"\\ud800": 1}}', "query 'q1': 'passage' holds half of a surrogate pair"),
        ("q1 d1 2\nq1 d2\n", r"run:2: 2 columns; expected 3"),
        ("q1 d1 high\n", r"run:1: the score is 'high'"),
        ('{"q1": {"d1": 1.0},\n', r"run:2: not JSON \(.*expected a TREC run"),
        ('{"q1": [1]}', r"query 'q1' has a list; expected JSON \{query: \{passage: score\}\}"),
        ('{"q1": {"d1": "2"}}', "query 'q1': the score of passage 'd1' is a str; expected a number"),
        ('{"q1": {"d1": NaN}}', "query 'q1': the score is 'nan'; expected a finite number"),
        ('{"q1": {"d 1": 1}}', "query 'q1': .*white space"),
    ],
)
def test_what_is_no_run_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_run(tmp_path / "run"))


@pytest.mark.parametrize("name", ["nfcorpus", "semanlink", "cranfield", "scifact", "cosqa", "wikiqa", "trec-dl19-pool"])
def test_real_collections_have_the_counts_their_makers_state(shared_data: Callable[[str], Path], name: str) -> None:
    folder = shared_data(name)
    stats = json.loads((folder / "stats.json").read_text(encoding="utf-8"))
    report = check(str(folder))
    assert report.ok
    assert report.passages == stats["docs"]
    found = {
        split: {
            "queries": counts.queries,
            "qrels": counts.labels,
            "positive": counts.positive,
            "mean_rel": round(counts.mean_positive, 2),
        }
        for split, counts in report.splits.items()
    }
    assert found == stats["splits"]
    assert report.relevant_from == (2 if name == "trec-dl19-pool" else 1)
    assert report.problems.counts["test-query-in-train"] == {"nfcorpus": 4, "scifact": 2}.get(name, 0)
    assert round(report.passage_words.mean, 1) == stats["mean_doc_words"]


def test_unknown_places(tmp_path: Path) -> None:
    for source in ("nowhere", "hf:nowhere", "jsonl:nowhere", "pydocs:many", str(tmp_path)):
        with pytest.raises(UsageError):
            open_source(DataSettings(source=source))


def test_hidden_labels_survive_conversion(write_beir: WriteBeir, tmp_path: Path) -> None:
    sparse = hide_labels(load_dataset(str(write_beir())), keep=1, seed=0)
    convert(sparse, tmp_path / "sparse", "beir")
    again = load_dataset(str(tmp_path / "sparse"))
    assert hidden_labels(again) == hidden_labels(sparse) != {}
    assert again.labels("train") == sparse.labels("train")
    assert check(str(tmp_path / "sparse")).splits["train"].hidden == 2


def test_conversion_keeps_the_cut_off_and_unlabelled_queries(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir("trec-dl-mine")
    with (folder / "queries.jsonl").open("a") as file:
        file.write('{"_id": "extra", "text": "nobody judged this"}\n')
    for to in ("beir", "trec", "msmarco"):
        convert(load_dataset(str(folder)), tmp_path / to, to)
        again = load_dataset(str(tmp_path / to))
        assert again.relevant_from == 2
        assert again.queries["extra"] == "nobody judged this"


def test_conversion_follows_everything_it_writes(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = write_beir()
    convert(load_dataset(str(folder)), tmp_path / "out")
    (folder / "queries.jsonl").write_text(
        (folder / "queries.jsonl").read_text().replace("tunnels in ice", "ice tunnels")
    )
    convert(load_dataset(str(folder)), tmp_path / "out")
    assert load_dataset(str(tmp_path / "out")).queries["q5"] == "ice tunnels"
    with pytest.raises(UsageError, match="holds the collection that is to be converted"):
        convert(load_dataset(str(tmp_path / "out")), tmp_path / "out", "trec")
    assert check(str(tmp_path / "out")).ok


def test_hostile_documents_are_read_in_linear_time(tmp_path: Path) -> None:
    import time

    from colabel.data.trec import read_documents

    path = tmp_path / "documents.trec"
    path.write_text("<DOC>\n<DOCNO>d1</DOCNO>\n" + "<TEXT> <BODY> " * 20_000 + "\n</DOC>\n")
    start = time.perf_counter()
    assert len(list(read_documents(path, Collected()))) == 1
    assert time.perf_counter() - start < 2

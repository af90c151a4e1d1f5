"""No input whatever makes a traceback: every parser turns any bytes into records and problems."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colabel.data import check, load_dataset
from colabel.data.scored_files import parse_line
from colabel.data.string_table import StringTable
from colabel.data.text_lines import (
    BEIR_COLUMNS,
    Collected,
    Malformed,
    json_row,
    passage_from_row,
    passage_from_tsv,
    qrel_from_line,
    qrel_from_row,
    query_from_row,
    query_from_tsv,
    read_qrels,
    read_queries,
)
from colabel.errors import ColabelError

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
rows = st.dictionaries(
    st.sampled_from(["_id", "title", "text", "query-id", "corpus-id", "score"]), any_json, max_size=6
)
tokens = st.sampled_from(
    ["q1", "d1", "0", "1", "-1", "9" * 30, "0.5", "\t", " ", "\n", "\r\n", "&#xD800;", "{", "}", '"_id"', ":",
     '"x"', ",", "\x00", "\u2028", "é", "\ufeff"]
)  # fmt: skip
near_files = st.lists(tokens, max_size=25).map("".join).map(str.encode)
any_files = st.binary(max_size=80) | near_files | near_files.map(gzip.compress)


def parse_run_line(text: str) -> object:
    return parse_line(text, 6)


@given(st.text(max_size=60) | st.lists(tokens, max_size=10).map("".join))
@pytest.mark.parametrize(
    "parse", [json_row, passage_from_tsv, query_from_tsv, qrel_from_line, parse_run_line], ids=lambda f: f.__name__
)
def test_lines(parse: object, text: str) -> None:
    try:
        parse(text)  # type: ignore[operator]
    except Malformed as error:
        assert str(error)


@given(rows)
@pytest.mark.parametrize("parse", [passage_from_row, query_from_row, qrel_from_row], ids=lambda f: f.__name__)
def test_rows(parse: object, row: dict[str, object]) -> None:
    try:
        record = parse(row, BEIR_COLUMNS)  # type: ignore[operator]
    except Malformed as error:
        assert str(error)
    else:
        json.dumps(repr(record)).encode("utf-8")


@given(any_files)
@pytest.mark.parametrize("reader", [read_qrels, read_queries], ids=lambda f: f.__name__)
def test_files(tmp_path_factory: pytest.TempPathFactory, reader: object, content: bytes) -> None:
    path = tmp_path_factory.mktemp("file") / "input.tsv"
    path.write_bytes(content)
    problems = Collected()
    for located in reader(path, problems):  # type: ignore[operator]
        assert located.line >= 1
        repr(located.value).encode("utf-8")
    for problem in problems:
        assert problem.file == str(path)
        assert problem.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(corpus=any_files, queries=any_files, qrels=any_files, layout=st.sampled_from(["beir", "msmarco"]))
def test_folders(
    tmp_path_factory: pytest.TempPathFactory, corpus: bytes, queries: bytes, qrels: bytes, layout: str
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    names = {
        "beir": ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"),
        "msmarco": ("collection.tsv", "queries.test.tsv", "qrels.test.tsv"),
    }
    (folder / "qrels").mkdir()
    for name, content in zip(names[layout], (corpus, queries, qrels), strict=True):
        (folder / name).write_bytes(content)
    report = check(str(folder))
    json.dumps(report.as_dict()).encode("utf-8")
    try:
        dataset = load_dataset(str(folder))
    except ColabelError as error:
        assert not report.ok, f"check found nothing, loading did: {error}"
    else:
        assert report.ok
        assert [dataset.passages[row].id for row in range(len(dataset.passages))] == list(dataset.passages.ids)


@given(st.lists(st.text(max_size=6), max_size=30))
def test_string_table(values: list[str]) -> None:
    values = [value.encode("utf-8", "replace").decode() for value in values]
    table = StringTable.of(values)
    assert list(table) == values
    assert [table.row(value) for value in values] == [values.index(value) for value in values]
    assert table.row("not there, surely") == -1
    later = [row for row, value in enumerate(values) if value in values[:row]]
    assert [row for _, row in table.duplicates()] == later


def test_the_strategies_reach_good_input(tmp_path: Path) -> None:
    """The property tests would be idle if nothing ever parsed: the simplest good lines do."""
    path = tmp_path / "q.tsv"
    path.write_bytes(b"q1 0 d1 1\n")
    assert [located.value.grade for located in read_qrels(path, Collected())] == [1]

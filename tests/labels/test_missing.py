from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from tests.labels.conftest import MakeLabels, Teacher

from colabel.errors import ArtefactError, UsageError
from colabel.labels import Labels, MissingLabel, missing_labels, write_missing


def report(labels: Labels, **options: Any) -> list[MissingLabel]:
    return missing_labels(labels, labels.knowledge, labels.dataset, **options)  # type: ignore[attr-defined]


def test_a_suggestion_says_what_a_person_needs(make_labels: MakeLabels) -> None:
    first = report(make_labels(), limit=2)[0]
    assert (first.query_id, first.query, first.passage_id) == ("q2", "query 2", "d2")
    assert (first.title, first.text) == ("", "text of d2")
    assert (first.teacher_score, first.margin, first.rank) == (3.0, 1.0, 1)


def test_reasons_by_hand(make_labels: MakeLabels) -> None:
    """β = 0.5; centroids [0, 1] with σ = 2 and [1, 0] with σ = 1 against d2 = [0.8, 0.6]."""
    first = report(make_labels())[0]
    assert [(reason.token, reason.sigma, reason.weight) for reason in first.reasons] == [
        ("piece7", 2.0, 1.0),
        ("piece8", 1.0, 0.5),
    ]
    assert [reason.similarity for reason in first.reasons] == pytest.approx([0.6, 0.8])
    assert [reason.contribution for reason in first.reasons] == pytest.approx([0.6, 0.4]), "largest first"


def test_reasons_are_ordered_by_contribution_and_take_the_best_token(make_labels: MakeLabels) -> None:
    found = {label.passage_id: label for label in report(make_labels())}
    d3 = {reason.token: reason.similarity for reason in found["d3"].reasons}
    assert d3 == pytest.approx({"piece7": 0.8, "piece8": 0.6}), "the larger of d3's two tokens"
    assert [reason.token for reason in found["d1"].reasons] == ["piece8", "piece7"]


def test_many_suggestions_are_explained_in_batches(make_labels: MakeLabels) -> None:
    train = "".join(f"q{number}\td4\t1\n" for number in range(1, 201))
    found = report(make_labels(train=train, queries=201), limit=600)
    assert [label.passage_id for label in found] == ["d2"] * 200 + ["d3"] * 200 + ["d1"] * 200
    for passage in (found[:200], found[200:400], found[400:]):
        assert {label.reasons for label in passage} == {passage[0].reasons}


def test_without_knowledge_there_are_no_reasons(make_labels: MakeLabels) -> None:
    labels = make_labels()
    found = missing_labels(labels, None, labels.dataset)  # type: ignore[attr-defined]
    assert [label.reasons for label in found] == [()] * 4
    assert [label.passage_id for label in found] == [label.passage_id for label in report(labels)]


def test_other_knowledge_is_refused(make_labels: MakeLabels) -> None:
    labels = make_labels()
    labels.knowledge.fingerprint = "other"  # type: ignore[attr-defined]
    with pytest.raises(ArtefactError, match="was made from other knowledge than"):
        report(labels)


def test_files(make_labels: MakeLabels, tmp_path: Path) -> None:
    labels = make_labels()
    found = report(labels)
    write_missing(found, tmp_path / "new" / "m.tsv")
    text = (tmp_path / "new" / "m.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows[0]["reasons"] == "piece7 +0.60, piece8 +0.40"
    assert (rows[0]["text"], rows[0]["margin"], rows[0]["teacher_score"]) == ("text of d2", "1", "3")
    write_missing(found, tmp_path / "m.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()]
    write_missing(found, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text()) == lines
    assert lines[0]["reasons"][0]["token"] == "piece7"
    write_missing(found[:1], tmp_path / "m.qrels", grade=2)
    assert (tmp_path / "m.qrels").read_text() == "q2 0 d2 2\n"
    visible = labels.dataset.labels("train")  # type: ignore[attr-defined]
    write_missing(found[:1], tmp_path / "all.qrels", visible=visible)
    qrels = [(label.query_id, label.doc_id) for label in ir_measures.read_trec_qrels(str(tmp_path / "all.qrels"))]
    assert qrels == [*((query, passage) for query in visible for passage in visible[query]), ("q2", "d2")]
    with pytest.raises(UsageError, match=r"m\.csv: suggestions are written as \.tsv, \.jsonl, \.json or \.qrels"):
        write_missing(found, tmp_path / "m.csv")
    assert not (tmp_path / "m.csv").exists()


def test_a_margin_that_is_not_known_is_none(make_labels: MakeLabels, tmp_path: Path) -> None:
    found = report(make_labels(Teacher({0: 1.0, 2: 2.0})), order="probability")
    assert [(label.query_id, label.passage_id) for label in found] == [("q1", "d3"), ("q1", "d1")]
    assert np.isnan(found[0].margin)
    assert found[0].as_dict()["margin"] is None
    write_missing(found, tmp_path / "m.json")
    assert "NaN" not in (tmp_path / "m.json").read_text()


def test_long_texts_are_cut_at_a_word() -> None:
    from colabel.labels.missing import _snippet

    assert _snippet("a  b\n c") == "a b c"
    cut = _snippet("word " * 100)
    assert len(cut) <= 300
    assert cut.endswith("word …")
    assert len(_snippet("x" * 1000)) <= 300

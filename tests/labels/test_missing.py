from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from colabel.errors import ArtefactError, UsageError
from colabel.labels import (
    ORDERS,
    LabelBlock,
    Labels,
    MissingLabel,
    find_missing,
    missing_labels,
)
from colabel.labels.missing import MissingPair, order_values, snippet, write_missing
from tests.labels.conftest import MakeLabels, Teacher


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
    assert lines[0]["reasons"][0]["token"] == "piece7"
    with pytest.raises(UsageError, match=r"m\.csv: suggestions are written as \.tsv or \.jsonl"):
        write_missing(found, tmp_path / "m.csv")
    assert not (tmp_path / "m.csv").exists()


def test_a_margin_that_is_not_known_is_none(make_labels: MakeLabels, tmp_path: Path) -> None:
    found = report(make_labels(Teacher({0: 1.0, 2: 2.0})))
    assert [(label.query_id, label.passage_id) for label in found] == [("q1", "d3"), ("q1", "d1")]
    assert np.isnan(found[0].margin)
    assert found[0].as_dict()["margin"] is None
    write_missing(found, tmp_path / "n.jsonl")
    assert "NaN" not in (tmp_path / "n.jsonl").read_text()


def test_long_texts_are_cut_at_a_word() -> None:
    assert snippet("a  b\n c") == "a b c"
    cut = snippet("word " * 100)
    assert len(cut) <= 300
    assert cut.endswith("word …")
    assert len(snippet("x" * 1000)) <= 300


NONE, NAN = -np.inf, np.nan
TEACHER = [[1.0, 3.0, 2.0, 2.5], [10.0, 30.0, 20.0, NONE]]
FLAGS = [[4, 4, 4, 1], [1, 4, 4, 0]]
BASE = [[0.5, 4.0, 1.0, 2.0], [5.0, 2.0, 1.0, NONE]]
"""φ₁ is 4 and 5; the unlabelled ones' mean scores are 2 and 25, their standard deviations √(2/3) and 5."""


def values(order: str, teacher: object = TEACHER, flags: object = FLAGS, base: object = BASE) -> Any:
    scores, weights = np.array(teacher, np.float32), np.array(base, np.float32)
    rows = np.arange(scores.size, dtype=np.int32).reshape(scores.shape)
    block = LabelBlock([f"q{n}" for n in range(len(rows))], rows, scores, weights, np.array(flags, np.uint8))
    return order_values(block, order)


def test_values_of_each_order_by_hand() -> None:
    assert values("standout").tolist() == [[-0.25, 0.25, 0.0, NONE], [NONE, 1.0, -1.0, NONE]]
    assert values("deviation") == pytest.approx(
        np.array([[-np.sqrt(1.5), np.sqrt(1.5), 0.0, NONE], [NONE, 1.0, -1.0, NONE]])
    )


def test_what_has_no_score_is_not_suggested() -> None:
    base = [[1.0, 1.0, 1.0]]
    for order in ORDERS:
        assert values(order, [[NAN, 1.0, NONE]], [[4, 1, 4]], base).tolist() == [[NONE] * 3], order
        equal = values(order, [[1.0, 1.0, 1.0]], [[4, 1, 4]], base)[0]
        assert np.isfinite(equal[[0, 2]]).all(), "a query whose candidates all score the same"
        assert equal[0] == equal[2]
        unscored_label = values(order, [[1.0, NAN, 2.0]], [[4, 1, 4]], base)[0]
        assert np.isfinite(unscored_label[[0, 2]]).all(), order
        assert np.isfinite(values(order, [[1.0, 1.0, 2.0]], [[4, 1, 4]], [[-1.0, 0.0, -2.0]])[0, [0, 2]]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a_constant_added_to_a_query_changes_nothing(order: str) -> None:
    moved = np.array(TEACHER) + np.array([[7.0], [-3.0]])
    assert values(order, moved) == pytest.approx(values(order))


def test_the_length_of_a_query_does_not_matter() -> None:
    """Twice the tokens are twice the scores, the teacher's and the base ones."""
    longer = np.array([[2.0], [3.0]])
    for order in ORDERS:
        twice = values(order, np.array(TEACHER) * longer, base=np.array(BASE) * longer)
        assert twice == pytest.approx(values(order)), order


def pairs(labels: Labels, limit: int = 100, **options: object) -> list[MissingPair]:
    return find_missing(labels, labels.dataset, limit=limit, **options)  # type: ignore[attr-defined, arg-type]


def test_pairs_of_all_queries_best_first(make_labels: MakeLabels) -> None:
    """q1 (d4 labelled, d2 judged not relevant): d1 and d3 are left. q2 (d1 and d3 labelled): d2 and d4."""
    found = pairs(make_labels(), order="deviation")
    assert [(pair.query_id, pair.passage_id, pair.margin) for pair in found] == [
        ("q2", "d2", 1.0),
        ("q1", "d3", -0.5),
        ("q2", "d4", 0.5),
        ("q1", "d1", -1.5),
    ]
    assert found[0] == MissingPair("q2", "d2", 1, 3.0, found[0].base_score, 1.0, 1, 1.0)
    assert found[0].base_score == pytest.approx(0.8)
    assert [pair.rank for pair in found] == [1, 2, 2, 3]


def test_limit_and_order(make_labels: MakeLabels) -> None:
    labels = make_labels()
    whole = pairs(labels)
    assert [pairs(labels, limit) for limit in range(1, 5)] == [whole[:limit] for limit in range(1, 5)]
    with pytest.raises(UsageError, match="the limit is 0; expected at least 1"):
        pairs(labels, 0)
    with pytest.raises(UsageError, match="'best' is no order"):
        pairs(labels, order="best")


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_and_limits_do_not_matter(make_labels: MakeLabels, order: str) -> None:
    """Against sorting everything at once; queries share values, so ties at the cut and across blocks are many."""
    train = "".join(f"q{number}\td{1 + number % 4}\t1\n" for number in range(1, 1201))
    labels = make_labels(ByQuery(), train=train, queries=1201)
    everything = []
    for block in labels.blocks():
        by = order_values(block, order)
        for place, query_id in enumerate(block.query_ids):
            for candidate, value in enumerate(by[place].tolist()):
                if value > NONE:
                    pair = (query_id, labels.passage_ids[int(block.rows[place, candidate])])
                    everything.append((-value, labels.query_ids.row(query_id), candidate, pair))
    expected = [pair for *_, pair in sorted(everything)]
    for limit in (1, 700, len(expected), 10_000):
        found = [(pair.query_id, pair.passage_id) for pair in pairs(labels, limit, order=order)]
        assert found == expected[:limit]


class ByQuery(Teacher):
    """Queries of equal last digit score alike."""

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        digit = np.array([int(query_id[-1]) for query_id in query_ids])[:, None]
        return np.where(rows >= 0, ((rows + 1) * (digit % 3 + 1)) % 5, -np.inf).astype(np.float32)


def test_memory_is_that_of_the_limit(make_labels: MakeLabels) -> None:
    peaks = []
    for count in (1_200, 4_800):
        train = "".join(f"q{number}\td4\t1\n" for number in range(1, count))
        labels = make_labels(train=train, queries=count, name=f"n{count}")
        tracemalloc.start()
        pairs(labels, 50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]

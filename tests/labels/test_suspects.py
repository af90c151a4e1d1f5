from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.labels.conftest import MakeLabels, Teacher

from colabel.errors import UsageError
from colabel.labels import ORDERS, LabelBlock, Labels, Suspect, find_suspects, order_values

NONE, NAN = -np.inf, np.nan
TEACHER = [[1.0, 3.0, 2.0, 2.5], [10.0, 30.0, 20.0, NONE]]
FLAGS = [[4, 4, 4, 1], [1, 4, 4, 0]]
BASE = [[0.5, 4.0, 1.0, 2.0], [5.0, 2.0, 1.0, NONE]]
"""φ₁ is 4 and 5; the suspects' mean scores are 2 and 25, their standard deviations √(2/3) and 5."""


def values(order: str, teacher: object = TEACHER, flags: object = FLAGS, base: object = BASE, **options: float) -> Any:
    scores, weights = np.array(teacher, np.float32), np.array(base, np.float32)
    rows = np.arange(scores.size, dtype=np.int32).reshape(scores.shape)
    block = LabelBlock([f"q{n}" for n in range(len(rows))], rows, scores, weights, np.array(flags, np.uint8))
    return order_values(block, order, **options)


def test_values_of_each_order_by_hand() -> None:
    assert values("margin").tolist() == [[-1.5, 0.5, -0.5, NONE], [NONE, 20.0, 10.0, NONE]]
    assert values("standout").tolist() == [[-0.25, 0.25, 0.0, NONE], [NONE, 1.0, -1.0, NONE]]
    assert values("deviation") == pytest.approx(
        np.array([[-np.sqrt(1.5), np.sqrt(1.5), 0.0, NONE], [NONE, 1.0, -1.0, NONE]])
    )
    powers = np.exp(np.array(TEACHER[0]) / 2)
    assert values("probability", temperature=2.0)[0, :3] == pytest.approx(powers[:3] / powers.sum())
    ranks = values("rank")
    assert ranks[1, 1] > ranks[0, 1] > ranks[0, 2] > ranks[1, 2] > ranks[0, 0] > NONE


def test_what_has_no_score_is_no_suspect() -> None:
    base = [[1.0, 1.0, 1.0]]
    for order in ORDERS:
        assert values(order, [[NAN, 1.0, NONE]], [[4, 1, 4]], base).tolist() == [[NONE] * 3], order
        equal = values(order, [[1.0, 1.0, 1.0]], [[4, 1, 4]], base)[0]
        assert np.isfinite(equal[[0, 2]]).all(), "a query whose candidates all score the same"
        assert (equal[0] == equal[2]) == (order != "rank")
        unscored_label = values(order, [[1.0, NAN, 2.0]], [[4, 1, 4]], base)[0]
        assert np.isfinite(unscored_label[[0, 2]]).all() == (order != "margin"), order
        assert np.isfinite(values(order, [[1.0, 1.0, 2.0]], [[4, 1, 4]], [[-1.0, 0.0, -2.0]])[0, [0, 2]]).all()


@pytest.mark.parametrize("order", ["standout", "deviation", "margin", "rank"])
def test_a_constant_added_to_a_query_changes_nothing(order: str) -> None:
    moved = np.array(TEACHER) + np.array([[7.0], [-3.0]])
    assert values(order, moved) == pytest.approx(values(order))


def test_the_length_of_a_query_does_not_matter() -> None:
    """Twice the tokens are twice the scores, the teacher's and the base ones."""
    longer = np.array([[2.0], [3.0]])
    for order in ("standout", "deviation", "rank"):
        twice = values(order, np.array(TEACHER) * longer, base=np.array(BASE) * longer)
        assert twice == pytest.approx(values(order)), order
    assert values("margin", np.array(TEACHER) * longer) != pytest.approx(values("margin"))


def suspects(labels: Labels, limit: int = 100, **options: object) -> list[Suspect]:
    return find_suspects(labels, labels.dataset, limit=limit, **options)  # type: ignore[attr-defined, arg-type]


def test_suspects_of_all_queries_best_first(make_labels: MakeLabels) -> None:
    """q1 (d4 labelled, d2 judged not relevant): d1 and d3 are left. q2 (d1 and d3 labelled): d2 and d4."""
    found = suspects(make_labels(), order="margin")
    assert [(suspect.query_id, suspect.passage_id, suspect.margin) for suspect in found] == [
        ("q2", "d2", 1.0),
        ("q2", "d4", 0.5),
        ("q1", "d3", -0.5),
        ("q1", "d1", -1.5),
    ]
    assert found[0] == Suspect("q2", "d2", 1, 3.0, found[0].base_score, 1.0, 1, 1.0)
    assert found[0].base_score == pytest.approx(0.8)
    assert [suspect.rank for suspect in found] == [1, 2, 2, 3]


def test_limit_and_margin(make_labels: MakeLabels) -> None:
    labels = make_labels()
    whole = suspects(labels)
    assert [suspects(labels, limit) for limit in range(1, 5)] == [whole[:limit] for limit in range(1, 5)]
    assert [suspect.margin for suspect in suspects(labels, order="margin", margin=-0.5)] == [1.0, 0.5, -0.5]
    assert suspects(labels, margin=2.0) == []
    with pytest.raises(UsageError, match="the limit is 0; expected at least 1"):
        suspects(labels, 0)
    with pytest.raises(UsageError, match="'best' is no order of suggestions; expected one of standout, deviation"):
        suspects(labels, order="best")


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
        found = [(suspect.query_id, suspect.passage_id) for suspect in suspects(labels, limit, order=order)]
        assert found == expected[:limit]


class ByQuery(Teacher):
    """Queries of equal last digit score alike."""

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        digit = np.array([int(query_id[-1]) for query_id in query_ids])[:, None]
        return np.where(rows >= 0, ((rows + 1) * (digit % 3 + 1)) % 5, -np.inf).astype(np.float32)


def test_memory_is_that_of_the_limit(make_labels: MakeLabels) -> None:
    peaks = []
    for count in (1_200, 4_800):
        train = "".join(f"q{number}\td4\t1\n" for number in range(1, count))
        labels = make_labels(train=train, queries=count, name=f"n{count}")
        tracemalloc.start()
        suspects(labels, 50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from colabel.errors import DataError, UsageError
from colabel.evaluation import precision_recall
from colabel.evaluation.precision_recall import (
    CandidateList,
    average_precision,
    precision_at_recall,
    quality,
    roc_auc,
)
from colabel.measures import measure_run


def test_average_precision_by_hand() -> None:
    """Relevant at the places 1, 3 and 6: (1/1 + 2/3 + 3/6) / 3."""
    scores = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    assert average_precision(scores, [1, 0, 1, 0, 0, 1]) == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert average_precision(scores[::-1], [1, 0, 0, 1, 0, 1]) == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert average_precision([1.0], [1]) == 1.0
    assert average_precision([-np.inf, 2.0], [1, 0]) == 0.5


def test_precision_at_recall_by_hand() -> None:
    """Recall ⅓, ⅔ and 1 is reached at precision 1, 2/3 and 3/6; between them the next higher recall counts."""
    levels = precision_at_recall([9, 8, 7, 6, 5, 4], [1, 0, 1, 0, 0, 1])
    assert levels == pytest.approx([1, 1, 1, 1, 2 / 3, 2 / 3, 2 / 3, 1 / 2, 1 / 2, 1 / 2, 1 / 2])
    later = precision_at_recall([3, 2, 1], [0, 1, 1])
    assert later == pytest.approx([2 / 3] * 11), "interpolated: the best precision at this recall or beyond"
    assert precision_at_recall([3, 2, 1, 0], [1, 0, 1, 0])[5:7] == pytest.approx([1.0, 2 / 3])


def test_recall_levels_meet_recall_exactly() -> None:
    scores = np.arange(20.0)[::-1]
    relevant = np.tile([True, False], 10)
    precision = precision_at_recall(scores, relevant)
    assert precision == pytest.approx([1.0] + [n / (2 * n - 1) for n in range(1, 11)])


def test_auc_by_hand() -> None:
    """Pairs (relevant, not): 5>4, 5>3, 4=4, 4>3 → (3 + ½) / 4."""
    assert roc_auc([5, 4, 4, 3], [1, 1, 0, 0]) == pytest.approx(3.5 / 4)
    assert roc_auc([1, 1, 1], [1, 0, 0]) == 0.5
    assert roc_auc([1, 2], [1, 1]) is None
    assert roc_auc([1, 2], [0, 0]) is None


labelled_scores = st.lists(
    st.tuples(st.floats(-5, 5, width=32), st.booleans()), min_size=2, max_size=60
).filter(lambda pairs: 0 < sum(relevant for _, relevant in pairs) < len(pairs))  # fmt: skip


@given(labelled_scores)
def test_agreement_with_scikit_learn(pairs: list[tuple[float, bool]]) -> None:
    scores, relevant = map(np.array, zip(*pairs, strict=True))
    assert roc_auc(scores, relevant) == pytest.approx(roc_auc_score(relevant, scores), abs=1e-12)
    if len(set(scores.tolist())) == len(scores):
        assert average_precision(scores, relevant) == pytest.approx(average_precision_score(relevant, scores))


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_of_tied_lists_is_that_of_trec_eval(seed: int) -> None:
    generator = np.random.default_rng(seed)
    run = {f"q{q}": {f"d{d}": float(generator.integers(0, 5)) for d in range(40)} for q in range(10)}
    labels = {query: {"d3": 1, "d17": 2, "d8": 1, "d39": 0} for query in run}
    found = precision_recall({"x": run}, labels)
    assert found[1].systems["x"].per_query["AP"] == pytest.approx(measure_run(labels, run, ["AP"])["AP"])
    assert found[2].systems["x"].per_query["AP"] == pytest.approx(
        measure_run(labels, run, ["AP"], relevant_from=2)["AP"]
    )


def test_any_scores_against_any_labels() -> None:
    labels = {"q1": {"a": 3, "b": 1, "c": 0, "z": 2}, "q2": {"a": 1, "b": 0}, "gone": {"a": 3}, "zero": {"a": 0}}
    first = {"q1": {"a": 4.0, "u": 3.0, "b": 2.0, "c": 1.0}, "q2": {"a": 1.0, "b": 2.0}, "zero": {"a": 1.0}}
    second = {"q1": {"a": 1.0, "u": 3.0, "b": 2.0, "c": 4.0}, "q2": {"a": 2.0, "b": 1.0}, "zero": {"a": 1.0}}
    found = precision_recall({"φ": first, "teacher": second}, labels)
    assert list(found) == [1, 2, 3], "every grade above 0"
    one = found[1]
    assert (one.queries, one.left_out, one.relevant, one.found) == (2, 0, 4, 3)
    assert one.recall.mean == pytest.approx((2 / 3 + 1) / 2)
    assert one.systems["φ"].per_query["AP"] == pytest.approx({"q1": (1 + 2 / 3) / 2, "q2": 0.5})
    assert one.systems["φ"].per_query["AUC"] == pytest.approx({"q1": 3 / 4, "q2": 0.0})
    assert one.differences["teacher"]["AP"].difference.mean == pytest.approx(
        one.systems["teacher"].average_precision.mean - one.systems["φ"].average_precision.mean
    )
    assert one.systems["φ"].precision_at_recall[10].mean == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert (found[3].queries, found[3].left_out) == (1, 0)
    judged = precision_recall({"φ": first}, labels, judged_only=True, relevant_from=[1])
    assert judged[1].systems["φ"].per_query["AP"]["q1"] == 1.0, "u, which nobody judged, is not in the list"
    with pytest.raises(UsageError, match="different candidates for query 'q1' \\(passage 'u'"):
        precision_recall({"φ": first, "t": {**second, "q1": {"a": 1.0, "b": 2.0, "c": 3.0}}}, labels)
    with pytest.raises(DataError, match="none of the queries"):
        precision_recall({"φ": {"q9": {"a": 1.0}}}, labels)


def test_nobody_is_measured_on_a_pair_that_one_has_not_scored() -> None:
    lists = [
        CandidateList("q", np.array([0, 1, 0]), {"a": np.array([3.0, 2, 1]), "b": np.array([np.nan, 2, 1])},
                      np.array([1])),
        CandidateList("lost", np.array([0, 1]), {"a": np.array([3.0, 2]), "b": np.array([1.0, np.nan])}, np.array([1])),
    ]  # fmt: skip
    found = quality(lists, 1)
    assert found is not None
    assert found.systems["a"].per_query["AP"] == {"q": 1.0}
    assert (found.queries, found.left_out, found.unscored, found.found) == (1, 1, 2, 2)
    assert quality(lists, 2) is None


def test_lists_of_nothing_but_relevant_passages_have_no_auc() -> None:
    found = quality([CandidateList("q", np.array([1]), {"a": np.array([3.0])}, np.array([1]))], 1)
    assert found is not None
    assert found.systems["a"].auc is None
    assert found.as_dict()["systems"]["a"]["auc"] is None


def test_scores_are_compared_in_single_precision_as_by_trec_eval() -> None:
    labels = {"q": {"b": 1}}
    run = {"q": {"a": 40.0000010, "b": 40.0000005}}
    found = precision_recall({"x": run}, labels)[1].systems["x"]
    assert found.average_precision.mean == measure_run(labels, run, ["AP"])["AP"]["q"] == 1.0


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_queries_of_one_run_alone_are_refused_in_any_order(order: tuple[str, str]) -> None:
    runs = {"one": {"q1": {"a": 1.0}}, "two": {"q1": {"a": 1.0}, "q2": {"a": 1.0}}}
    with pytest.raises(UsageError, match="different candidates for query 'q2'"):
        precision_recall({name: runs[name] for name in order}, {"q1": {"a": 1}, "q2": {"a": 1}})

"""Our measures against trec_eval, on real and on random runs, and by hand where trec_eval has no such measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from colabel.data import load_dataset
from colabel.errors import DataError, UsageError
from colabel.evaluation import Evaluation, evaluate
from colabel.evaluation.evaluations import unjudged_at, without_unjudged
from colabel.measures import measure_run, parse_measure
from colabel.ranking import Bm25, rank
from colabel.settings import RankSettings

NAMES = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG@100": "ndcg_cut_100",
    "AP": "map",
    "R@100": "recall_100",
    "R@1000": "recall_1000",
    "P@5": "P_5",
}
Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]


def trec_eval(labels: Qrels, run: Run, relevant_from: int = 1) -> dict[str, dict[str, float]]:
    """Measure → query → value by pytrec_eval, 0 for queries without an answer."""
    asked = {"ndcg_cut.10,100", "map", "recall.100,1000", "P.5"}
    evaluator = pytrec_eval.RelevanceEvaluator(labels, asked, relevance_level=relevant_from)
    found = evaluator.evaluate({query: answers for query, answers in run.items() if query in labels and answers})
    return {name: {query: found.get(query, {}).get(theirs, 0.0) for query in labels} for name, theirs in NAMES.items()}


def assert_same(ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> None:
    for name, values in theirs.items():
        assert ours[name] == pytest.approx(values, abs=1e-9), name


@pytest.mark.parametrize("name", ["semanlink", "cranfield"])
def test_real_runs_agree_with_trec_eval(shared_data: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    dataset = load_dataset(str(shared_data(name)))
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    run = rank(bm25, dataset.split_queries("test"), tmp_path / "run", depth=1000).run()
    labels = {query: dict(judged) for query, judged in dataset.labels("test").items()}
    ours = evaluate(dataset, {"memory": run, "file": tmp_path / "run"}, measures=list(NAMES)).per_query
    assert_same(ours["memory"], trec_eval(labels, run, dataset.relevant_from))
    assert ours["memory"] == ours["file"]
    assert sum(ours["memory"]["AP"].values()) > 10
    judged = evaluate(dataset, {"bm25": run}, measures=list(NAMES), judged_only=True).per_query["bm25"]
    filtered = {q: {p: s for p, s in answers.items() if p in labels[q]} for q, answers in run.items()}
    assert_same(judged, trec_eval(labels, filtered, dataset.relevant_from))
    assert np.mean(list(judged["nDCG@10"].values())) > np.mean(list(ours["memory"]["nDCG@10"].values()))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("relevant_from", [1, 2])
def test_random_runs_agree_with_trec_eval(seed: int, relevant_from: int) -> None:
    """Graded labels, ties, queries without an answer, passages without a judgement."""
    generator = np.random.default_rng(seed)
    labels: Qrels = {
        f"q{q}": {f"d{d}": int(generator.integers(0, 4)) for d in generator.choice(300, 30, replace=False)}
        for q in range(20)
    }
    run: Run = {
        f"q{q}": {f"d{d}": float(generator.integers(0, 40)) for d in generator.choice(300, 150, replace=False)}
        for q in range(3, 23)
    }
    ours = measure_run(labels, run, list(NAMES), relevant_from=relevant_from)
    assert_same(ours, trec_eval(labels, run, relevant_from))
    kept = without_unjudged(labels, run)
    filtered = {query: dict(answers) for query, answers in kept.items()}
    assert_same(
        measure_run(labels, kept, list(NAMES), relevant_from=relevant_from), trec_eval(labels, filtered, relevant_from)
    )


@pytest.mark.parametrize("seed", range(3))
def test_runs_whose_ties_were_split_in_the_sixth_decimal_agree_with_trec_eval(seed: int) -> None:
    """As other programs write them; trec_eval holds single precision, where 40.000001 is not above 40."""
    generator = np.random.default_rng(seed)
    labels: Qrels = {f"q{q}": {f"d{d}": 1 for d in generator.choice(60, 6, replace=False)} for q in range(30)}
    run: Run = {}
    for query in labels:
        scores = np.sort(generator.choice(np.arange(38.0, 42.0, 0.25), 60))[::-1]
        order = generator.permutation(60)
        run[query] = {
            f"d{d}": round(float(score) - 1e-6 * place, 6)
            for place, (d, score) in enumerate(zip(order, scores, strict=True))
        }
        assert len(set(run[query].values())) == 60, "no ties as written"
    assert_same(measure_run(labels, run, list(NAMES)), trec_eval(labels, run))


def test_a_cutoff_is_of_binary_measures_alone() -> None:
    labels: Qrels = {"q": {"a": 1, "b": 2}}
    run: Run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    found = measure_run(labels, run, ["NumRet", "NumRelRet", "P@2", "nDCG@10"], relevant_from=2)
    assert (found["NumRet"]["q"], found["NumRelRet"]["q"], found["P@2"]["q"]) == (3.0, 1.0, 0.5)
    assert measure_run(labels, run, ["NumRelRet"])["NumRelRet"]["q"] == 2.0
    assert found["nDCG@10"] == measure_run(labels, run, ["nDCG@10"])["nDCG@10"]
    assert measure_run(labels, run, ["NumRel"])["NumRel"]["q"] == 2.0
    with pytest.raises(UsageError, match=r"'NumRel' cannot be computed with relevant passages from grade 2 on"):
        measure_run(labels, run, ["NumRel"], relevant_from=2)


def test_a_system_that_finds_nothing_is_measured(write_beir: Callable[..., Path]) -> None:
    dataset = load_dataset(str(write_beir()))
    found = evaluate(dataset, {"empty": {query: {} for query in dataset.labels("test")}}, measures=["RR@10"])
    assert found.means == {"empty": {"RR@10": 0.0}}
    assert found.unjudged_share == {}
    with pytest.raises(DataError, match="none of its passages"):
        evaluate(dataset, {"other": {query: {"foreign": 1.0} for query in dataset.labels("test")}})


def test_reciprocal_rank_at_ten_by_hand() -> None:
    tenth = {f"d{place:02}": float(20 - place) for place in range(1, 13)}  # d01 is first, d12 twelfth
    labels: Qrels = {
        "first": {"d01": 1, "d02": 1},
        "third": {"d03": 1, "d07": 1},
        "tenth": {"d10": 1},
        "eleventh": {"d11": 1},
        "graded": {"d01": 1, "d04": 2},
        "nothing": {"d99": 1},
    }
    values = measure_run(labels, dict.fromkeys(labels, tenth), ["RR@10", "RR"])
    assert values["RR@10"] == pytest.approx(
        {"first": 1.0, "third": 1 / 3, "tenth": 0.1, "eleventh": 0.0, "graded": 1.0, "nothing": 0.0}
    )
    assert values["RR"]["eleventh"] == pytest.approx(1 / 11)
    from_two = measure_run(labels, dict.fromkeys(labels, tenth), ["RR@10"], relevant_from=2)["RR@10"]
    assert from_two["graded"] == pytest.approx(1 / 4)
    assert from_two["first"] == 0.0


def test_passages_without_a_judgement() -> None:
    labels: Qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 1}, "q3": {"a": 1}}
    run: Run = {"q1": {"c": 9, "a": 8, "d": 7, "b": 6}, "q2": {f"d{n:02}": 1.0 for n in range(30)}, "other": {"a": 1}}
    assert unjudged_at(labels, run) == {"q1": 2, "q2": 10, "q3": 0}
    assert unjudged_at(labels, run, depth=1) == {"q1": 1, "q2": 1, "q3": 0}
    assert unjudged_at(labels, {"q1": {"a": 1.0, "z": 1.0}}, depth=1)["q1"] == 1, "of equal scores z is first"
    assert without_unjudged(labels, run) == {"q1": {"a": 8, "b": 6}, "q2": {}}


def test_a_short_list_has_no_fewer_unjudged_passages_for_being_short() -> None:
    """Of two passages one is unjudged, and of ten five: half of either."""
    short = Evaluation("c", "test", 1, {}, {"x": {"q1": 1.0, "q2": 5.0}}, {"x": {"q1": 2.0, "q2": 10.0}})
    assert short.unjudged_share == {"x": 0.5}
    nothing = Evaluation("c", "test", 1, {}, {"x": {"q1": 0.0}}, {"x": {"q1": 0.0}})
    assert nothing.unjudged_share == {}


def test_an_evaluation_counts_them_in_the_run_as_given(write_beir: Callable[..., Path], tmp_path: Path) -> None:
    dataset = load_dataset(str(write_beir()))
    run: Run = {"q2": {"d1": 3.0, "d4": 2.0}, "q5": {"d3": 2.0, "d4": 1.5, "d2": 1.0}}
    plain = evaluate(dataset, {"x": run}, measures=["RR@10"])
    judged = evaluate(dataset, {"x": run}, measures=["RR@10"], judged_only=True)
    assert plain.per_query["x"]["RR@10"] == pytest.approx({"q2": 1 / 2, "q5": 1 / 3})
    assert judged.per_query["x"]["RR@10"] == {"q2": 1.0, "q5": 1.0}
    assert plain.unjudged_share == judged.unjudged_share == {"x": 3 / 5}
    assert (plain.as_dict()["judged_only"], judged.as_dict()["judged_only"]) == (False, True)


def test_a_measure_that_some_runs_would_end_is_refused_before_anything_is_trained() -> None:
    """Accuracy divides by the passages that are not relevant and follow a relevant one: some queries have none."""
    with pytest.raises(
        UsageError, match=r"'Accuracy@5' cannot be computed here \(.*division by zero.*\); expected one of"
    ):
        parse_measure("Accuracy@5")
    with pytest.raises(UsageError, match="'NumQ' counts queries"):
        parse_measure("NumQ")
    with pytest.raises(UsageError, match="cannot be computed with 'judged_only'; write it without"):
        parse_measure("RR(judged_only=True)@10")
    for name in ("nDCG@10", "RR@10", "R@1000", "AP", "P@5", "Bpref", "ERR@20", "Rprec", "Judged@10", "NumRet", "infAP"):
        parse_measure(name)

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from colabel.errors import UsageError
from colabel.evaluation import Evaluation, compare, evaluate_qrels, holm, paired_test
from colabel.evaluation.comparison import average_seeds
from colabel.evaluation.significance import bootstrap_mean, bootstrap_means, paired_tests, randomisation_tests
from colabel.measures import t_test


def enumerated(differences: list[float]) -> float:
    """The randomisation test by writing out every assignment of signs."""
    seen = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(value >= seen - 1e-12 for value in sums) / len(sums)


def randomisation_test(differences: npt.ArrayLike, *, samples: int = 10_000, seed: int = 0) -> float | None:
    return randomisation_tests([np.asarray(differences, dtype=np.float64)], samples=samples, seed=seed)[0]


def normal(mean: float, queries: int, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(mean, 0.3, queries)


@pytest.mark.parametrize("mean", [0.0, 0.02, 0.1, -0.3])
@pytest.mark.parametrize("queries", [2, 7, 300])
def test_t_test_is_scipys_paired_test(mean: float, queries: int) -> None:
    first, second = normal(0.5 + mean, queries, 1), normal(0.5, queries, 2)
    expected = stats.ttest_rel(first, second).pvalue
    assert t_test(first - second) == pytest.approx(expected, rel=1e-12)
    assert t_test(second - first) == pytest.approx(expected, rel=1e-12), "two-sided"


def test_where_the_t_test_has_no_answer() -> None:
    assert t_test([0.0, 0.0, 0.0]) == 1.0
    assert t_test([0.5]) is None, "one query"
    assert t_test([0.5 - 0.4, 0.3 - 0.2, 0.1]) is None, "the same difference everywhere, but for rounding"
    assert t_test([1e-4, 1e-4 + 1e-9, 1e-4]) is not None
    with np.errstate(all="raise"):
        assert t_test([0.1] * 20) is None


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=7))
def test_randomisation_test_is_the_full_enumeration_on_few_queries(tenths: list[int]) -> None:
    differences = [value / 10 for value in tenths]  # many equal sums, which must count as equal despite rounding
    assert randomisation_test(differences) == pytest.approx(enumerated(differences), abs=1e-12)


def test_drawn_signs_come_near_the_enumeration() -> None:
    differences = normal(0.15, 12, 6).tolist()
    exact = enumerated(differences)
    drawn = randomisation_test(differences, samples=4000)
    assert randomisation_test(differences) == pytest.approx(exact, abs=1e-12), "4,096 assignments are enumerated"
    assert 0.02 < exact < 0.4
    assert drawn is not None
    assert drawn != exact
    assert abs(drawn - exact) < 4 * np.sqrt(exact * (1 - exact) / 4000)


def test_drawn_signs_are_seeded_and_never_give_zero() -> None:
    differences = normal(0.05, 200, 4)
    first = randomisation_test(differences, seed=1)
    assert first == randomisation_test(differences, seed=1)
    assert first != randomisation_test(differences, seed=2)
    assert first == pytest.approx(t_test(differences), abs=0.02), "the two tests agree on well-behaved values"
    assert randomisation_test(np.full(200, 0.3), samples=999) == 1 / 1000
    assert randomisation_test([0.0] * 50) == 1.0
    assert randomisation_test([0.4]) is None


def test_the_smallest_randomisation_p_of_a_large_family_survives_correction() -> None:
    """33 systems, each clearly above the one before: with 10,000 samples 528 tests could have .0528 at best."""
    steps = np.linspace(0.5, 1.0, 40)
    per_query = {str(place): {"AP": dict(enumerate((place * steps).tolist()))} for place in range(33)}
    found = compare(Evaluation("x", "test", 1, per_query), "AP")
    assert found.family == 528
    assert found.samples == 105_600
    assert max(pair.randomisation_holm or 0.0 for pair in found.pairs) < 0.05
    assert {pair.test.randomisation for pair in found.pairs} == {1 / 105_601}
    few = compare(Evaluation("x", "test", 1, dict(list(per_query.items())[:4])), "AP")
    assert (few.samples, few.as_dict()["samples"]) == (10_000, 10_000)


def test_pairs_with_and_without_ties_are_drawn_as_one_by_one() -> None:
    full, tied = normal(0.03, 60, 9), np.where(np.arange(60) % 2, normal(0.05, 60, 10), 0.0)
    exact = np.concatenate([[0.4, -0.1, 0.3], np.zeros(57)])
    names = {str(place): 0.0 for place in range(60)}
    pairs = [(dict(zip(names, values, strict=True)), names) for values in (full, tied, exact, np.zeros(60))]
    found = [one.randomisation for one in paired_tests(pairs, samples=500)]
    assert found == [randomisation_test(values, samples=500) for values in (full, tied, exact, np.zeros(60))]
    assert found[2:] == [pytest.approx(enumerated([0.4, -0.1, 0.3])), 1.0]


def test_signs_do_not_depend_on_how_many_pairs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colabel.evaluation.significance._BLOCK", 2**9)
    names = {str(place): 0.0 for place in range(21)}
    columns = [normal(0.1, 21, number) for number in range(40)]
    pairs = [(dict(zip(names, values.tolist(), strict=True)), names) for values in columns]
    together = [one.randomisation for one in paired_tests(pairs, samples=700)]
    assert together == [randomisation_test(values, samples=700) for values in columns]
    assert len(set(together)) > 20


def test_holm_by_hand() -> None:
    """Four p-values: .005·4 = .02; .01·3 = .03; .03·2 = .06; .04·1 = .04, raised to the .06 before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([None, 0.02, None, 0.5]) == [None, 0.04, None, 0.5], "what was not tested is not in the family"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    rejected = set()
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: (p_values[place], place))):
        if p_values[place] * (len(p_values) - rank) >= 0.05:
            break
        rejected.add(place)
    corrected = holm(p_values)
    assert {place for place, p in enumerate(corrected) if p is not None and p < 0.05} == rejected
    assert all(p is not None and raw <= p <= 1 for raw, p in zip(p_values, corrected, strict=True))


def test_paired_test_aligns_queries_by_id() -> None:
    first = {"q1": 1.0, "q2": 0.5, "q3": 0.2}
    second = {"q3": 0.2, "q1": 0.4, "q2": 0.6}
    found = paired_test(first, second)
    assert (found.better, found.equal, found.worse) == (1, 1, 1)
    assert found.difference.mean == pytest.approx(0.5 / 3)
    assert found.t_test == pytest.approx(stats.ttest_rel([1.0, 0.5, 0.2], [0.4, 0.6, 0.2]).pvalue)
    one = paired_test({"q": 1.0}, {"q": 0.0})
    assert (one.t_test, one.randomisation, one.difference.low, one.difference.mean) == (None, None, None, 1.0)
    with pytest.raises(UsageError, match="query 'q3' and 0 more have a value of one of them only"):
        paired_test({"q1": 1.0, "q3": 1.0}, {"q1": 1.0})
    with pytest.raises(UsageError, match="at least one query"):
        paired_test({}, {})


def test_bootstrap_is_seeded_and_does_as_a_loop_does() -> None:
    values = normal(0.4, 40)
    found = bootstrap_mean(values, seed=3)
    assert found == bootstrap_mean(values, seed=3)
    assert found != bootstrap_mean(values, seed=4)
    assert found.mean == pytest.approx(values.mean())
    generator = np.random.default_rng(3)
    means = [np.mean([values[place] for place in draw]) for draw in generator.integers(0, 40, size=(10_000, 40))]
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]))


def test_bootstrap_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).beta(0.6, 0.4, 150)
    expected = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    found = bootstrap_mean(values)
    assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=0.004)


def test_columns_are_resampled_alike_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.stack([normal(0.1, 30), normal(0.7, 30, 1)], axis=1)
    both = bootstrap_means(values)
    assert [interval.low for interval in both] == pytest.approx([bootstrap_mean(column).low for column in values.T])
    monkeypatch.setattr("colabel.evaluation.significance._BLOCK", 5000)
    assert [interval.high for interval in bootstrap_means(values)] == pytest.approx(
        [interval.high for interval in both]
    )


def test_bootstrap_of_hardly_anything() -> None:
    one = bootstrap_mean([0.7])
    assert (one.mean, one.low, one.high, one.queries) == (0.7, None, None, 1)
    same = bootstrap_mean([0.1] * 7)
    assert (same.low, same.high) == pytest.approx((0.1, 0.1), abs=1e-15)
    with pytest.raises(UsageError, match="no query"):
        bootstrap_mean([])


def test_means_over_seeds_that_are_equal_but_for_rounding_are_equal() -> None:
    """5/9 as the mean of (1, 1/3, 1/3) and of (1, 1/2, 1/6) differs in the last digit."""
    first, second = (1 + 1 / 3 + 1 / 3) / 3, (1 + 1 / 2 + 1 / 6) / 3
    assert first != second
    queries = [f"q{number}" for number in range(5)]
    found = paired_test(dict.fromkeys(queries, first) | {"q": 1.0}, dict.fromkeys(queries, second) | {"q": 1.0})
    assert (found.better, found.equal, found.worse) == (0, 6, 0)
    assert (found.t_test, found.randomisation) == (1.0, 1.0)


def test_a_system_that_is_another_counts_once() -> None:
    """Holm's family is of distinct systems: three pairs of a, b and c, and c again as d."""
    values = {"a": (0.1, 0.2, 0.3, 0.4), "b": (0.2, 0.3, 0.5, 0.5), "c": (0.5, 0.4, 0.7, 0.9)}
    values["d"] = values["c"]
    per_query = {name: {"AP": {f"q{n}": value for n, value in enumerate(one)}} for name, one in values.items()}
    runs = {"a": 1, "b": 2, "c": 3, "d": 3}
    whole = compare(Evaluation("x", "test", 1, per_query, identities=runs), "AP")
    part = compare(Evaluation("x", "test", 1, {name: per_query[name] for name in "abc"}), "AP")
    assert (len(whole.pairs), whole.family, part.family) == (6, 3, 3)
    corrected = {(pair.system, pair.against): pair.t_test_holm for pair in whole.pairs}
    assert {pair: p for pair, p in corrected.items() if "d" not in pair} == {
        (pair.system, pair.against): pair.t_test_holm for pair in part.pairs
    }
    assert corrected["d", "a"] == corrected["c", "a"]
    assert corrected["d", "c"] == 1.0


@pytest.mark.parametrize("order", ["acb", "abc", "cab", "bca"])
def test_a_system_counts_once_wherever_its_copy_stands(order: str) -> None:
    """c is a again; of a and b there is one pair, whichever of them is taken from which."""
    values = {"a": (0.1, 0.2, 0.3, 0.4), "b": (0.2, 0.3, 0.5, 0.5)}
    values["c"] = values["a"]
    per_query = {name: {"AP": {f"q{n}": value for n, value in enumerate(values[name])}} for name in order}
    found = compare(Evaluation("x", "test", 1, per_query, identities={"a": 1, "b": 2, "c": 1}), "AP")
    assert (len(found.pairs), found.family) == (3, 1)
    for pair in found.pairs:
        assert pair.t_test_holm == pair.test.t_test
        assert pair.randomisation_holm == pair.test.randomisation


def test_a_system_with_some_seeds_of_another_is_tested_on_its_own() -> None:
    """One seed with equal values does not make it the other, whose mean over two seeds is something else."""
    seeds = {
        "a": {0: (0.1, 0.2, 0.3), 1: (0.3, 0.1, 0.6)},
        "b": {0: (0.2, 0.4, 0.4), 1: (0.4, 0.2, 0.9)},
        "c": {0: (0.2, 0.4, 0.4)},
    }
    held = {
        name: {seed: {"AP": {f"q{n}": value for n, value in enumerate(one)}} for seed, one in of_seed.items()}
        for name, of_seed in seeds.items()
    }
    merged = {name: average_seeds(list(of_seed.values())) for name, of_seed in held.items()}
    runs = {"a": (1, 2), "b": (3, 4), "c": (3,)}
    found = compare(Evaluation("x", "test", 1, merged, identities=runs), "AP", seeds=held)
    tests = {(pair.system, pair.against): pair for pair in found.pairs}
    assert found.family == 3
    assert (tests["b", "a"].seeds, tests["c", "a"].seeds) == ((0, 1), (0,))
    assert tests["c", "b"].test.t_test == 1.0


def test_a_run_that_is_that_of_a_system_with_every_seed_keeps_its_own() -> None:
    """A lone run with the ranking of BM25, which has every seed, is compared with others on the seed that it has."""
    queries = [str(number) for number in range(30)]
    seeds = {number: {"AP": dict(zip(queries, normal(0.2, 30, number).tolist(), strict=True))} for number in range(3)}
    words = {"AP": dict.fromkeys(queries, 0.1)}
    held = {"bm25": dict.fromkeys(range(3), words), "lone": {0: words}, "other": seeds}
    merged = {name: average_seeds(list(found.values())) for name, found in held.items()}
    found = compare(Evaluation("x", "test", 1, merged, identities={"bm25": 1, "lone": 1}), "AP", seeds=held)
    pairs = {(pair.system, pair.against): pair for pair in found.pairs}
    assert pairs["other", "bm25"].seeds == (0, 1, 2)
    assert pairs["other", "lone"].seeds == (0,)
    assert pairs["other", "lone"].test.difference.mean == pytest.approx(np.mean(list(seeds[0]["AP"].values())) - 0.1)
    assert found.family == 2, "on other seeds it is another test"
    plain = {"AP": dict(zip(queries, normal(0.15, 30, 7).tolist(), strict=True))}
    held["plain"] = dict.fromkeys(range(3), plain)
    merged["plain"] = plain
    found = compare(Evaluation("x", "test", 1, merged, identities={"bm25": 1, "lone": 1}), "AP", seeds=held)
    assert found.family == 4, "plain − lone is plain − bm25: neither depends on the seed"
    with pytest.raises(UsageError, match="'alpha' is 0; expected a level between 0 and 1"):
        compare(Evaluation("x", "test", 1, merged), "AP", alpha=0)


def test_many_pairs_are_tested_as_one_by_one() -> None:
    draw = np.random.default_rng(3)
    systems = [{f"q{n}": float(value) for n, value in enumerate(draw.random(length))} for length in (40, 40, 40, 7, 7)]
    pairs = [(systems[0], systems[1]), (systems[3], systems[4]), (systems[2], systems[0])]
    for found, pair in zip(paired_tests(pairs), pairs, strict=True):
        alone = paired_test(*pair)
        assert found.difference.low == pytest.approx(alone.difference.low, abs=1e-12)
        assert found.difference.high == pytest.approx(alone.difference.high, abs=1e-12)
        assert (found.t_test, found.randomisation, found.better) == (alone.t_test, alone.randomisation, alone.better)


def test_systems_with_equal_values_and_other_rankings_are_two(tmp_path: Path) -> None:
    """The family of a measure does not depend on which others were asked for."""
    labels = {f"q{n}": {"r": 1} for n in range(8)}
    last = {query: {"x": 3.0, "y": 2.0, "r": 1.0} for query in labels}
    second = {query: {"x": 3.0, "r": 2.0, "y": 1.0} for query in list(labels)[:6]}
    first = {query: {"r": 3.0, "y": 2.0, "x": 1.0} for query in list(labels)[:6]}
    runs = {"a": {query: {"x": 1.0} for query in labels}, "b": {**last, **second}, "c": {**last, **first}}
    runs["again"] = {query: dict(reversed(held.items())) for query, held in runs["c"].items()}
    (tmp_path / "qrels.txt").write_text("".join(f"{query} 0 r 1\n" for query in labels))
    for measures in (["R@3"], ["R@3", "nDCG@10"]):
        found = compare(evaluate_qrels(tmp_path / "qrels.txt", runs, measures=measures), "R@3")
        assert (len(found.pairs), found.family) == (6, 3), "a, b and c; the last is c again"
    turned = {query: {"r": -1.0, "x": -2.0} for query in labels}, {query: {"x": -1.0, "r": -2.0} for query in labels}
    two = evaluate_qrels(tmp_path / "qrels.txt", dict(zip("ab", turned, strict=True)), measures=["R@3"])
    assert compare(two, "R@3").family == 1, "scores that are ranks, of which -1 and -2 have the same hash"


def test_significant_tests_are_counted_one_by_one() -> None:
    """b and c find as many more than a, for other queries: their tests against a have the same figures and are two."""
    queries = [f"q{n}" for n in range(40)]
    values = {
        "a": dict.fromkeys(queries, 0.0),
        "b": {query: float(place < 15) for place, query in enumerate(queries)},
        "c": {query: float(place >= 25) for place, query in enumerate(queries)},
    }
    per_query = {name: {"RR": held} for name, held in values.items()}
    found = compare(Evaluation("x", "test", 1, per_query), "RR")
    assert (found.family, sum((pair.t_test_holm or 1) < 0.05 for pair in found.pairs)) == (3, 2)
    copies = Evaluation("x", "test", 1, {**per_query, "d": per_query["c"]}, identities={"c": 1, "d": 1})
    assert compare(copies, "RR").family == 3

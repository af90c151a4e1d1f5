from __future__ import annotations

import json

import numpy as np
import pytest

from colabel.errors import UsageError
from colabel.evaluation import Evaluation, compare, holm, merge_seeds, paired_test
from colabel.evaluation.comparison import average_seeds


def evaluation(**systems: list[float]) -> Evaluation:
    per_query = {
        name: {"AP": {f"q{number}": value for number, value in enumerate(values)}} for name, values in systems.items()
    }
    unjudged = {name: {f"q{number}": float(len(name)) for number in range(len(v))} for name, v in systems.items()}
    retrieved = {name: dict.fromkeys(counts, 8.0) for name, counts in unjudged.items()}
    return Evaluation("caves", "test", 1, per_query, unjudged, retrieved)


def noisy(mean: float, seed: int) -> list[float]:
    generator = np.random.default_rng(99)
    shared = generator.normal(0.0, 0.2, 60)  # queries are easy or hard for all systems
    return (mean + shared + np.random.default_rng(seed).normal(0.0, 0.1, 60)).tolist()


SYSTEMS = {"bm25": noisy(0.3, 1), "colbert": noisy(0.5, 2), "student": noisy(0.57, 3), "self": noisy(0.5, 4)}


def test_letters_of_the_systems_that_each_beats() -> None:
    found = compare(evaluation(**SYSTEMS), "AP")
    assert [(line.letter, line.system) for line in found.lines] == list(zip("abcd", SYSTEMS, strict=True))
    beats = {line.system: line.beats for line in found.lines}
    assert beats["bm25"] == ()
    assert beats["colbert"] == ("a",)
    assert beats["self"] == ("a",), "the earlier system does not beat the later one either"
    raw = paired_test(*({f"q{n}": v for n, v in enumerate(SYSTEMS[name])} for name in ("student", "colbert")))
    assert raw.t_test is not None
    assert raw.t_test < 0.05
    assert beats["student"][:2] == ("a", "b")


def test_the_family_is_all_pairs_of_the_table() -> None:
    values = evaluation(**SYSTEMS)
    found = compare(values, "AP", seed=5)
    assert [(pair.system, pair.against) for pair in found.pairs] == [
        ("colbert", "bm25"),
        ("student", "bm25"),
        ("student", "colbert"),
        ("self", "bm25"),
        ("self", "colbert"),
        ("self", "student"),
    ]
    single = paired_test(values.per_query["student"]["AP"], values.per_query["colbert"]["AP"], seed=5)
    assert found.pairs[2].test.t_test == single.t_test
    assert found.pairs[2].test.randomisation == single.randomisation
    assert found.pairs[2].test.difference.low == pytest.approx(single.difference.low, abs=1e-12)
    assert [pair.t_test_holm for pair in found.pairs] == holm([pair.test.t_test for pair in found.pairs])
    assert [pair.randomisation_holm for pair in found.pairs] == holm([p.test.randomisation for p in found.pairs])
    against_one = compare(values, "AP", baseline="colbert")
    assert [pair.system for pair in against_one.pairs] == ["bm25", "student", "self"]
    assert against_one.pairs[1].t_test_holm == holm([pair.test.t_test for pair in against_one.pairs])[1]
    assert against_one.lines[1].beats == ("a",), "the baseline may beat a system"
    assert against_one.lines[2].beats == ("b",)
    assert json.loads(json.dumps(found.as_dict()))["pairs"][0]["test"]["difference"]["queries"] == 60


def test_correction_takes_letters_away() -> None:
    """b − a has a p-value just below .05; with three pairs Holm asks for less than .05 / 3 of the smallest."""
    ups = [0.1] * 20 + [-0.1] * 9
    values = evaluation(a=[0.0] * 29, b=ups, c=[0.0] * 28 + [0.001])
    found = compare(values, "AP")
    assert found.lines[1].beats == ("a", "c")
    assert found.lines[1].beats_holm == ()
    p = found.pairs[0].test.t_test
    assert p is not None
    assert 0.05 / 3 < p < 0.05
    assert found.family == 3
    loose = compare(values, "AP", alpha=0.2)
    assert loose.lines[1].beats_holm == ("a", "c")


def test_the_same_gain_on_every_query() -> None:
    """t is not defined and gives no letter; the randomisation test is sure."""
    found = compare(evaluation(a=[0.25] * 12, b=[0.5] * 12), "AP")
    assert found.lines[1].beats == ()
    assert found.pairs[0].test.randomisation == 2 / 2**12


def test_misuse() -> None:
    values = evaluation(a=[0.1, 0.2], b=[0.3, 0.4])
    with pytest.raises(UsageError, match="baseline 'c' is none of the runs: a, b"):
        compare(values, "AP", baseline="c")
    with pytest.raises(UsageError, match="'a' was not measured by 'RR@10'; it was by AP"):
        compare(values, "RR@10")
    with pytest.raises(UsageError, match="at least two systems"):
        compare(evaluation(a=[0.1, 0.2]), "AP")


def test_seeds() -> None:
    values = evaluation(**{"x-0": [0.2, 0.4], "x-1": [0.4, 0.8], "y-0": [0.5, 0.5], "longer": [1.0, 1.0]})
    merged, spreads = merge_seeds(values, {"x": ["x-0", "x-1"], "y": ["y-0"]})
    assert merged.per_query["x"]["AP"] == pytest.approx({"q0": 0.3, "q1": 0.6})
    assert merged.means["x"]["AP"] == pytest.approx(0.45)
    assert merged.unjudged["x"] == {"q0": 3.0, "q1": 3.0}
    assert merged.unjudged_share["x"] == 3 / 8
    assert spreads["x"]["AP"] == pytest.approx(0.3 / np.sqrt(2))
    assert "y" not in spreads, "one seed has no spread"
    assert compare(merged, "AP").lines[0].system == "x"


def test_systems_are_compared_on_the_seeds_that_both_have() -> None:
    """Worked by hand: three seeds of a, one of b. The mean of a's seeds must not meet b's only one."""
    queries = ("q1", "q2", "q3")
    a = {seed: {"AP": dict(zip(queries, row, strict=True))} for seed, row in enumerate([(0.1, 0.2, 0.3), (0.9,) * 3])}
    b = {0: {"AP": dict(zip(queries, (0.2, 0.2, 0.5), strict=True))}}
    c = {seed: {"AP": dict.fromkeys(queries, 0.5)} for seed in (0, 1)}
    merged = Evaluation(
        "x", "test", 1, {name: average_seeds(list(s.values())) for name, s in {"a": a, "b": b, "c": c}.items()}
    )
    pairs = {(p.system, p.against): p for p in compare(merged, "AP", seeds={"a": a, "b": b, "c": c}).pairs}
    assert pairs["b", "a"].seeds == (0,)
    assert pairs["b", "a"].test.difference.mean == pytest.approx((0.1 + 0.0 + 0.2) / 3)
    assert (pairs["b", "a"].test.better, pairs["b", "a"].test.equal) == (2, 1)
    assert pairs["c", "a"].seeds == (0, 1)
    assert pairs["c", "a"].test.difference.mean == pytest.approx(0.5 - (0.5 + 0.55 + 0.6) / 3)
    apart = {(p.system, p.against): p for p in compare(merged, "AP").pairs}
    assert apart["b", "a"].seeds == ()
    assert apart["b", "a"].test.difference.mean == pytest.approx(0.3 - 0.55), "what would have been compared"
    with pytest.raises(UsageError, match="'b' and 'a' have no seed in common"):
        compare(merged, "AP", seeds={"a": {7: a[0]}, "b": b, "c": c})

"""``colabel evaluate`` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from scipy import stats
from tests.conftest import Call

from colabel import compare, evaluate, load_dataset
from colabel.cli import main
from colabel.errors import DataError, UsageError
from colabel.evaluation import evaluate_qrels

QUERIES = 30


@pytest.fixture
def folder(write_beir: Callable[..., Path], tmp_path: Path) -> Path:
    """Thirty queries with one judged-relevant and one judged-irrelevant passage, and three runs of rising quality."""
    corpus = "".join(json.dumps({"_id": f"d{row}", "text": f"text {row}"}) + "\n" for row in range(40))
    queries = "".join(json.dumps({"_id": f"q{number}", "text": f"query {number}"}) + "\n" for number in range(QUERIES))
    labels = "".join(f"q{number}\td{number}\t1\nq{number}\td39\t0\n" for number in range(QUERIES))
    made = write_beir(corpus=corpus, queries=queries, qrels__train=None, qrels__dev=None, qrels__test=labels)
    for name, quality, seed in (("weak", 0.0, 0), ("good", 3.0, 1), ("best", 3.5, 2)):
        generator = np.random.default_rng(seed)
        lines = []
        for number in range(QUERIES):
            scores = generator.normal(size=40)
            scores[number] += quality
            order = np.argsort(-scores)
            lines += [f"q{number} Q0 d{row} {rank} {scores[row]} {name}\n" for rank, row in enumerate(order, start=1)]
        (tmp_path / f"{name}.trec").write_text("".join(lines))
    return made


def test_every_run_against_the_first(folder: Path, tmp_path: Path, call: Call) -> None:
    names = [tmp_path / f"{name}.trec" for name in ("weak", "good", "best")]
    code, out, err = call("evaluate", folder, *names, "-m", "RR@10", "--compare")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["caves", "test", "RR@10"]
    values = evaluate(load_dataset(str(folder)), {str(name): name for name in names}, measures=["RR@10"])
    lists = [list(values.per_query[str(name)]["RR@10"].values()) for name in names]
    by_letters = {line.split("  ")[0]: line for line in lines if line[1:4] == " - "}
    assert list(by_letters) == ["b - a", "c - a"]
    assert f"{np.mean(lists[1]) - np.mean(lists[0]):+.4f}" in by_letters["b - a"]
    raw = stats.ttest_rel(lists[1], lists[0]).pvalue
    assert (f"{raw:.4f}" if raw >= 0.0001 else "<0.0001") in by_letters["b - a"]
    lettered = [line.split() for line in lines if line[:3] in ("a  ", "b  ", "c  ")]
    assert [cells[-2:] for cells in lettered] == [["-", "-"], ["a", "a"], ["a", "a"]]
    assert "30 queries" in lines[-1]
    assert "10,000 sign assignments" in lines[-1]


def test_a_named_baseline_and_all_pairs(folder: Path, tmp_path: Path, call: Call) -> None:
    names = [tmp_path / f"{name}.trec" for name in ("weak", "good", "best")]
    _, out, _ = call("evaluate", folder, *names, "-m", "RR@10", "--baseline", names[1])
    assert [line[:5] for line in out.splitlines() if line[1:4] == " - "] == ["a - b", "c - b"]
    _, out, _ = call("evaluate", folder, *names, "-m", "RR@10", "-m", "AP", "--all-pairs")
    assert [line[:5] for line in out.splitlines() if line[1:4] == " - "] == ["b - a", "c - a", "c - b"] * 2


def test_a_baseline_may_be_written_another_way(folder: Path, tmp_path: Path, call: Call) -> None:
    for name in ("weak", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.trec").rename(tmp_path / name / "run.trec")
    code, out, _ = call(
        "evaluate", folder, f"{tmp_path}/weak/", f"{tmp_path}/./good", "--baseline", f"{tmp_path}/good/"
    )
    assert code == 0
    assert [line[:5] for line in out.splitlines() if line[1:4] == " - "] == ["a - b"] * 3


def test_what_a_run_leaves_out_is_counted(folder: Path, tmp_path: Path, call: Call) -> None:
    whole, part = tmp_path / "weak.trec", tmp_path / "part.trec"
    part.write_text("q0 Q0 d0 1 2.0 part\n")
    labels = folder / "qrels" / "test.tsv"
    labels.write_text(labels.read_text().replace("q29\td29\t1\n", ""))
    out = call("evaluate", folder, whole, part, "-m", "RR@10")[1]
    assert f": {part} 29\n" in out, "unanswered queries"
    found = json.loads(call("evaluate", folder, whole, part, "--json")[1])
    assert (found["queries"], found["queries_without_relevant"]) == (30, 1)
    assert found["unanswered"] == {str(whole): 0, str(part): 29}
    part.write_text("q0 Q0 D0 1 2.0 part\n")
    code, _, err = call("evaluate", folder, part)
    assert (code, "caves" in err) == (1, True)


def test_labels_without_a_collection(folder: Path, tmp_path: Path, call: Call) -> None:
    weak = tmp_path / "weak.trec"
    table = call("evaluate", folder, weak)[1].splitlines()
    for name, separator in (("qrels.txt", " 0 "), ("qrels.tsv", "\t")):
        lines = [f"q{number}{separator}d{number}{separator[0]}1\n" for number in range(QUERIES)]
        lines += [f"q{number}{separator}d39{separator[0]}0\n" for number in range(QUERIES)]
        (tmp_path / name).write_text("".join(lines))
        code, out, err = call("evaluate", tmp_path / name, weak)
        assert (code, err) == (0, "")
        assert out.splitlines()[0].split() == [name, "labels", "nDCG@10", "RR@10", "R@1000"]
        assert out.splitlines()[1].split() == table[1].split()
        assert out.splitlines()[2:] == table[2:]
    graded = "".join(f"q{number} 0 d{number} 2\n" for number in range(QUERIES))
    (tmp_path / "qrels.txt").write_text(graded)
    graded = call("evaluate", tmp_path / "qrels.txt", weak, "--set", "data.relevant_from=2", "-m", "AP", "--json")[1]
    assert json.loads(graded)["relevant_from"] == 2
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq0 0 d1\n")
    code, _, err = call("evaluate", tmp_path / "qrels.txt", weak)
    assert code == 1
    assert "qrels.txt:2: " in err
    (tmp_path / "qrels.txt").write_text("")
    assert call("evaluate", tmp_path / "qrels.txt", weak)[0] == 1


def test_grades_below_zero_of_a_file_of_labels_count_as_zero(tmp_path: Path, call: Call) -> None:
    (tmp_path / "qrels.txt").write_text("1 0 spam -2\n1 0 good 2\n1 0 poor 0\n")
    (tmp_path / "run.trec").write_text("1 Q0 spam 1 3.0 x\n1 Q0 good 2 2.0 x\n1 Q0 poor 3 1.0 x\n")
    command = (tmp_path / "qrels.txt", tmp_path / "run.trec", "-m", "RR@10", "-m", "P@2", "--json")
    code, out, err = call("evaluate", *command)
    assert code == 0, err
    assert next(iter(json.loads(out)["means"].values())) == {"RR@10": 0.5, "P@2": 0.5}
    assert "1 grades below 0" in err


def test_measures_that_ask_what_was_judged_get_grades_below_zero_as_they_are(tmp_path: Path, call: Call) -> None:
    """As trec_eval (pytrec_eval): a grade of −1 is not judged, to Bpref, and of the pool, to infAP."""
    qrels = {"1": {"spam": -1, "junk": -2, "good": 2, "fair": 1, "poor": 0}}
    order = ("spam", "junk", "poor", "good", "fair")
    (tmp_path / "qrels.txt").write_text("".join(f"1 0 {one} {grade}\n" for one, grade in qrels["1"].items()))
    (tmp_path / "run.trec").write_text("".join(f"1 Q0 {one} {n} {9 - n} x\n" for n, one in enumerate(order)))
    code, out, err = call(
        "evaluate", tmp_path / "qrels.txt", tmp_path / "run.trec", "-m", "Bpref", "-m", "infAP", "-m", "AP", "--json"
    )
    assert code == 0, err
    scores = {"1": {one: 9.0 - n for n, one in enumerate(order)}}
    expected = pytrec_eval.RelevanceEvaluator(qrels, {"bpref", "infAP", "map"}).evaluate(scores)["1"]
    found = next(iter(json.loads(out)["means"].values()))
    assert found == pytest.approx({"Bpref": expected["bpref"], "infAP": expected["infAP"], "AP": expected["map"]})


def test_json_holds_everything(folder: Path, tmp_path: Path, call: Call) -> None:
    names = [tmp_path / "weak.trec", tmp_path / "good.trec"]
    _, out, _ = call("evaluate", folder, *names, "-m", "RR@10", "--compare", "--json", "--set", "seed=7")
    found = json.loads(out)
    values = evaluate(load_dataset(str(folder)), {str(name): name for name in names}, measures=["RR@10"])
    expected = compare(values, "RR@10", baseline=str(names[0]), seed=7)
    assert found["comparisons"] == json.loads(json.dumps([expected.as_dict()]))
    assert found["means"] == values.means
    assert found["unjudged_share_at_10"] == values.unjudged_share
    assert "comparisons" not in json.loads(call("evaluate", folder, *names, "--json")[1])


def test_judged_only_and_values_of_every_query(folder: Path, tmp_path: Path, call: Call) -> None:
    code, out, _ = call("evaluate", folder, tmp_path / "weak.trec", "-m", "RR@10", "--judged-only", "--json")
    assert code == 0
    (values,) = json.loads(out)["per_query"].values()
    assert len(values["RR@10"]) == QUERIES
    assert set(values["RR@10"].values()) == {0.5, 1.0}, "of two judged passages one is relevant"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("TMP/weak.trec", "--compare"), "two"),
        (("TMP/weak.trec", "TMP/weak.trec", "--compare"), "two"),
        (("TMP/weak.trec", "TMP/good.trec", "--baseline", "bm25"), "--baseline bm25"),
        (("TMP/weak.trec", "TMP/good.trec", "--baseline", "TMP/weak.trec", "--all-pairs"), "--all-pairs"),
    ],
)
def test_misuse(folder: Path, tmp_path: Path, call: Call, options: tuple[str, ...], named: str) -> None:
    code, out, err = call("evaluate", folder, *(part.replace("TMP", str(tmp_path)) for part in options))
    assert (code, out) == (2, "")
    assert named in err


def test_one_query_is_said_not_computed(write_beir: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    data = write_beir(qrels__test="q2\td4\t1\n")
    (tmp_path / "a.trec").write_text("q2 Q0 d4 1 9 a\n")
    (tmp_path / "b.trec").write_text("q2 Q0 d1 1 9 b\nq2 Q0 d4 2 8 b\n")
    code, out, err = call("evaluate", data, tmp_path / "a.trec", tmp_path / "b.trec", "-m", "RR@10", "--compare")
    assert (code, err) == (0, "")
    assert next(line for line in out.splitlines() if line.startswith("b - a")).split()[3:] == [
        "-0.5000", "one", "query", "none", "none", "none", "none", "0/0/1",
    ]  # fmt: skip


def test_what_cannot_be_evaluated_is_refused_before_anything_is_read(
    folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colabel.load_dataset", lambda *_: pytest.fail("the collection was read"))
    weak = tmp_path / "weak.trec"
    for arguments, named in (
        ((weak, "-m", "ndcg@10"), "'ndcg@10'"),
        ((weak, weak), "weak.trec"),
        ((tmp_path / "none.trec",), "none.trec"),
        ((tmp_path,), "run.trec"),
    ):
        before = weak.read_bytes()
        code, _, err = call("evaluate", folder, *arguments)
        assert (code, weak.read_bytes()) == (2, before)
        assert named in err


def test_a_label_file_takes_its_own_settings_only(tmp_path: Path, call: Call) -> None:
    qrels, run = tmp_path / "qrels.txt", tmp_path / "run.trec"
    qrels.write_text("1 0 good 2\n1 0 poor 0\n")
    run.write_text("1 Q0 poor 1 3.0 x\n1 Q0 good 2 2.0 x\n9 Q0 good 1 2.0 x\n")
    code, _, err = call("evaluate", qrels, run)
    assert code == 0
    assert "data.relevant_from" in err
    assert "1 of its 2 queries" in err
    assert "data.relevant_from" not in call("evaluate", qrels, run, "--set", "data.relevant_from=1")[2]
    assert call("evaluate", qrels, run, "--split", "dev")[0] == 2
    code, _, err = call("evaluate", qrels, run, "--set", "data.keep_labels=1")
    assert (code, "data.keep_labels" in err) == (2, True)
    code, _, err = call("evaluate", qrels, run, "--set", "data.relevant_from=3")
    assert (code, "'data.relevant_from'" in err) == (1, True)
    run.write_text("1 Q0 other 1 -3.0 x\n1 Q0 another 2 -2.0 x\n")
    code, out, err = call("evaluate", qrels, run, "--judged-only")
    assert code == 0
    assert "none of its passages has a label" in err
    assert "the ranks of 1 queries contradict the scores" in err
    assert f"{run} 100 %" in out, "unjudged before they were taken out"


def test_runs_of_other_programs_stand_in_one_table(tmp_path: Path, call: Call) -> None:
    (tmp_path / "qrels.txt").write_text("1 0 good 1\n1 0 poor 0\n")
    (tmp_path / "trec").write_text("1 Q0 poor 1 3.0 x\n1 Q0 good 2 2.0 x\n")
    (tmp_path / "colbert.tsv").write_text("1\tpoor\t1\t3.0\n1\tgood\t2\t2.0\n")
    (tmp_path / "msmarco.tsv").write_text("1\tpoor\t1\n1\tgood\t2\n")
    (tmp_path / "run.json").write_text('{"1": {"good": 2.0, "poor": 3.0}}')
    names = [tmp_path / name for name in ("trec", "colbert.tsv", "msmarco.tsv", "run.json")]
    code, out, err = call("evaluate", tmp_path / "qrels.txt", *names, "-m", "RR", "-m", "AP(rel=2)")
    assert code == 0
    assert [line.split()[-2:] for line in out.splitlines()[1:5]] == [["0.5000", "0.0000"]] * 4
    assert "msmarco.tsv: three columns" in err
    assert "AP(rel=2) is 0 for every system" in out
    (tmp_path / "run.json").write_text('{"1": {"good": 2.0,')
    code, _, err = call("evaluate", tmp_path / "qrels.txt", tmp_path / "run.json")
    assert (code, "run.json:1: " in err) == (1, True)


def test_passages_that_the_collection_does_not_have_are_counted(folder: Path, tmp_path: Path, call: Call) -> None:
    weak = (tmp_path / "weak.trec").read_text().splitlines()
    (tmp_path / "half.trec").write_text("\n".join([*weak, "q0 Q0 elsewhere 99 -99 x"]) + "\n")
    assert call("evaluate", folder, tmp_path / "weak.trec")[2] == ""
    assert "1 of its 41 passages" in call("evaluate", folder, tmp_path / "half.trec")[2]


def test_debug_keeps_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--debug", "evaluate", str(folder), "none.trec"])
    assert stop.value.code == 2
    assert "Traceback" in capsys.readouterr().err


def test_runs_that_have_no_order_or_no_entry_are_refused(folder: Path, tmp_path: Path, call: Call) -> None:
    dataset = load_dataset(str(folder))
    with pytest.raises(DataError, match="broken: passage 'd1' of query 'q0'"):
        evaluate(dataset, {"broken": {"q0": {"d0": 1.0, "d1": float("nan")}}})
    with pytest.raises(DataError, match="nothing"):
        evaluate(dataset, {"nothing": {}})
    code, _, err = call("evaluate", folder, tmp_path / "weak.trec", "-m", "nDCG@99999999999999999999")
    assert (code, "'nDCG@99999999999999999999'" in err) == (2, True)


def test_paths_may_be_text(folder: Path, tmp_path: Path) -> None:
    qrels = folder / "qrels" / "test.tsv"
    written = evaluate_qrels(str(qrels), {"weak": str(tmp_path / "weak.trec")})
    assert written.means == evaluate_qrels(qrels, {"weak": tmp_path / "weak.trec"}).means
    with pytest.raises(UsageError, match="'relevant_from'"):
        evaluate_qrels(qrels, {"weak": tmp_path / "weak.trec"}, relevant_from=0)


def test_a_label_file_given_as_a_run_is_refused(folder: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "qrels.json").write_text(json.dumps({"q0": {"d0": 1, "d39": 0}, "q1": {"d1": 1}}))
    for name in (folder / "qrels" / "test.tsv", tmp_path / "qrels.json"):
        code, out, err = call("evaluate", folder, name)
        assert (code, out) == (1, "")
        assert name.name in err

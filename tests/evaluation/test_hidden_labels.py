from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.conftest import Call

from colabel.artefacts import Spec, Workspace, build
from colabel.data import Dataset, hide_labels, load_dataset
from colabel.data.splits import hidden_labels
from colabel.data.string_table import StringTable
from colabel.errors import ArtefactError, DataError
from colabel.evaluation import label_quality, suggestion_precision
from colabel.labels import Flag, LabelBlock, open_labels

WriteBeir = Callable[..., Path]
TRAIN = {
    "q1": {"p00": 2, "p01": 1, "p02": 2, "p03": 1},
    "q2": {"p04": 1, "p05": 2, "p11": 0},
    "q3": {"p06": 1},
    "q5": {"p07": 1, "p08": 1},
}
COUNT = 12


@pytest.fixture
def whole(write_beir: WriteBeir) -> Dataset:
    corpus = "".join(json.dumps({"_id": f"p{row:02}", "text": f"text {row}"}) + "\n" for row in range(COUNT))
    train = "".join(
        f"{query}\t{passage}\t{grade}\n" for query, held in TRAIN.items() for passage, grade in held.items()
    )
    return load_dataset(str(write_beir(corpus=corpus, qrels__train=train, qrels__dev="q4\tp00\t1\n", qrels__test=None)))


@pytest.fixture
def sparse(whole: Dataset) -> Dataset:
    return hide_labels(whole, keep=1)


def block(dataset: Dataset, seed: int = 0, candidates: int = COUNT) -> LabelBlock:
    """Random scores of the first ``candidates`` passages for every train query, and a place of padding."""
    generator = np.random.default_rng(seed)
    query_ids = list(dataset.positives("train"))
    shape = (len(query_ids), candidates)
    rows = np.tile(np.arange(candidates, dtype=np.int32), (len(query_ids), 1))
    rows = generator.permuted(rows, axis=1)
    labelled = np.zeros(shape, dtype=np.uint8)
    for place, query_id in enumerate(query_ids):
        labelled[place] = np.isin(rows[place], dataset.passages.ids.rows(dataset.positives("train")[query_id]))
    teacher, base = generator.normal(size=(2, *shape)).astype(np.float32)

    def padded(values: Any, filler: float) -> Any:
        return np.pad(values, ((0, 0), (0, 1)), constant_values=filler)

    return LabelBlock(
        query_ids,
        padded(rows, -1),
        padded(teacher, -np.inf),
        padded(base, -np.inf),
        padded(labelled * np.uint8(Flag.LABELLED), 0),
    )


def expected(dataset: Dataset, made: LabelBlock, scores: Any, grade: int) -> tuple[dict[str, float], dict[str, float]]:
    """AP and AUC of every query by scikit-learn, from the ids."""
    precisions, aucs = {}, {}
    for place, query_id in enumerate(made.query_ids):
        hidden = hidden_labels(dataset).get(query_id, {})
        pairs = [
            (hidden.get(dataset.passages.ids[int(row)], 0) >= grade, float(score))
            for row, score in zip(made.rows[place], scores[place], strict=True)
            if row >= 0 and dataset.passages.ids[int(row)] not in dataset.positives("train")[query_id]
        ]
        relevant, values = zip(*pairs, strict=True)
        if any(relevant):
            precisions[query_id] = average_precision_score(relevant, values)
            aucs[query_id] = roc_auc_score(relevant, values)
    return precisions, aucs


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_ranking_of_the_hidden_positives(sparse: Dataset, seed: int) -> None:
    made = block(sparse, seed)
    found = label_quality([made], sparse)
    assert list(found.grades) == sorted({g for held in hidden_labels(sparse).values() for g in held.values()})
    for grade, measured in found.grades.items():
        for name, scores in (("base", made.base), ("teacher", made.teacher)):
            precisions, aucs = expected(sparse, made, scores, grade)
            system = measured.systems[name]
            assert system.per_query["AP"] == pytest.approx(precisions)
            assert system.per_query["AUC"] == pytest.approx(aucs)
            assert system.average_precision.mean == pytest.approx(np.mean(list(precisions.values())))
            assert system.average_precision.queries == measured.queries == len(precisions)
    one = found.grades[1]
    test = one.differences["teacher"]["AP"]
    assert test.difference.mean == pytest.approx(
        one.systems["teacher"].average_precision.mean - one.systems["base"].average_precision.mean
    )
    assert (one.queries, one.left_out) == (3, 0), "q3 has one label, so none is hidden"
    assert (one.relevant, one.found, one.recall.mean) == (5, 5, 1.0)
    assert found.as_dict() == label_quality([made], sparse).as_dict(), "seeded"


def test_a_teacher_that_knows_the_hidden_labels_is_perfect(sparse: Dataset) -> None:
    made = block(sparse)
    for place, query_id in enumerate(made.query_ids):
        ids = hidden_labels(sparse).get(query_id, {})
        made.teacher[place] = np.isin(made.rows[place], sparse.passages.ids.rows(ids)) * 1.0
        made.base[place] = -made.teacher[place]
    made.teacher[:, -1] = np.inf  # padding is no candidate whatever stands in it
    made.teacher[(made.flags & Flag.LABELLED) != 0] = 99.0  # and neither are labelled passages
    found = label_quality([made], sparse).grades[1]
    teacher, base = found.systems["teacher"], found.systems["base"]
    assert teacher.average_precision.mean == 1.0
    assert [level.mean for level in teacher.precision_at_recall] == [1.0] * 11
    assert teacher.auc is not None
    assert base.auc is not None
    assert (teacher.auc.mean, base.auc.mean) == (1.0, 0.0)


def test_candidates_that_do_not_hold_all(sparse: Dataset) -> None:
    made = block(sparse, candidates=5)
    found = label_quality([made], sparse).grades[1]
    hidden = {query: set(held) for query, held in hidden_labels(sparse).items()}
    within = {query: {p for p in held if p < "p05"} for query, held in hidden.items()}
    assert found.relevant == sum(map(len, hidden.values()))
    assert found.found == sum(map(len, within.values()))
    assert found.queries == sum(bool(held) for held in within.values())
    assert found.left_out == sum(not held for held in within.values()) >= 1
    assert found.recall.mean == pytest.approx(np.mean([len(within[q]) / len(hidden[q]) for q in hidden]))


def test_pairs_that_the_teacher_did_not_score_count_for_neither(sparse: Dataset) -> None:
    made = block(sparse)
    missing = (made.rows == 9) | (made.rows == 10)
    made.teacher[missing] = np.nan
    found = label_quality([made], sparse).grades[1]
    rest = LabelBlock(made.query_ids, np.where(missing, -1, made.rows), made.teacher, made.base, made.flags)
    assert found.systems["base"].per_query == label_quality([rest], sparse).grades[1].systems["base"].per_query
    assert found.unscored == 2 * 3


def test_equal_scores_are_ordered_as_in_rankings(sparse: Dataset) -> None:
    made = block(sparse)
    made.teacher[:] = 0.0
    found = label_quality([made], sparse).grades[1].systems["teacher"]
    visible = sparse.positives("train")["q5"][0]
    hidden = "p08" if visible == "p07" else "p07"
    in_order = [f"p{row:02}" for row in range(COUNT - 1, -1, -1) if f"p{row:02}" != visible]
    assert found.per_query["AP"]["q5"] == pytest.approx(1 / (1 + in_order.index(hidden)))
    assert set(found.per_query["AUC"].values()) == {0.5}


def test_labels_that_do_not_fit_the_dataset(whole: Dataset, sparse: Dataset) -> None:
    with pytest.raises(DataError, match="has no hidden labels to measure against; hide some before labelling"):
        label_quality([block(whole)], whole)
    with pytest.raises(DataError, match="is labelled for query 'q1' in the labels and hidden in the dataset"):
        label_quality([block(whole)], sparse)
    with pytest.raises(DataError, match=r"no hidden positive of caves is among the candidates"):
        made = block(sparse)
        made.rows[made.rows < 9] = -1
        label_quality([made], sparse)


def write_labels(folder: Path, dataset: Dataset, made: LabelBlock, split: str = "train") -> Path:
    """The artefact that labelling would have written."""

    def write(space: Workspace) -> Mapping[str, Any]:
        for part in ("rows", "teacher", "base", "flags"):
            with space.file(f"block-00000.{part}.npy") as path, path.open("wb") as file:
                np.save(file, getattr(made, part), allow_pickle=False)
        StringTable.of(made.query_ids).save(space, "queries")
        StringTable.of(dataset.passages.ids).save(space, "ids")
        return {"blocks": 1}

    inputs = {"labels": dataset.labels_fingerprint(split), "passages": dataset.passages.fingerprint}
    build(folder, Spec("labels", {"teacher": "collective", "split": split}, inputs), write)
    return folder


def test_labels_from_disk(whole: Dataset, sparse: Dataset, tmp_path: Path) -> None:
    made = block(sparse)
    labels = open_labels(write_labels(tmp_path / "labels", sparse, made))
    found = label_quality(labels, sparse)
    assert found.teacher == "collective"
    assert found.grades[1].as_dict() == label_quality([made], sparse).grades[1].as_dict()
    others = hide_labels(whole, keep=1, seed=1)
    assert others.positives("train") != sparse.positives("train")
    with pytest.raises(ArtefactError, match=r"made from other queries or labels .* data\.keep_labels"):
        label_quality(labels, others)
    dev = open_labels(write_labels(tmp_path / "dev", sparse, made, split="dev"))
    with pytest.raises(DataError, match="labels the split 'dev'; only labels of 'train' are hidden"):
        label_quality(dev, sparse)


def test_the_command(sparse: Dataset, tmp_path: Path, call: Call) -> None:
    made = block(sparse)
    command = ("label-quality", write_labels(tmp_path / "labels", sparse, made), tmp_path / "caves")
    code, out, err = call(*command, "--set", "data.keep_labels=1", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert [one["multiple"] for one in printed.pop("suggestions")] == [1, 2, 5]
    assert printed.pop("order") == "standout"
    assert printed == json.loads(json.dumps(label_quality([made], sparse).as_dict())) | {"teacher": "collective"}
    code, out, _ = call(*command, "--set", "data.keep_labels=1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "5 of 5 hidden positives are among the candidates, 100.0% of a query's on average"
    assert lines[2].split()[-8:] == ["base", "φ", "collective", "difference", "t-test", "p", "random.", "p"]
    systems = label_quality([made], sparse).grades[1].systems
    means = [systems[name].average_precision.mean for name in ("base", "teacher")]
    assert lines[3].startswith("average precision")
    assert [f"{mean:.4f}" in lines[3] for mean in means] == [True, True]
    assert sum(line.startswith("average precision") for line in lines) == 2, "for two grades"
    code, out, err = call(*command)
    assert (code, out) == (1, "")
    assert "no hidden labels" in err
    code, _, err = call(*command, "--set", "data.keep_labels=2")
    assert code == 1
    assert "made from other queries or labels" in err


def test_precision_of_suggestions_by_hand(sparse: Dataset) -> None:
    """Four queries: at 1× the first four suggestions count, at 2× eight, at 5× all nine that there are."""
    hidden = [(query, passage) for query, held in hidden_labels(sparse).items() for passage in held]
    assert len(hidden) == 5
    suggestions: list[tuple[str, str | int]] = [
        hidden[0],
        ("q3", "p00"),
        (hidden[1][0], int(sparse.passages.ids.row(hidden[1][1]))),
        ("q2", "p11"),
        hidden[2],
        ("q3", "p01"),
        ("q3", "p02"),
        ("q3", "p03"),
        hidden[3],
    ]
    found = suggestion_precision(suggestions, sparse)
    assert [(one.multiple, one.suggestions, one.found) for one in found] == [(1, 4, 2), (2, 8, 3), (5, 9, 4)]
    assert [one.precision for one in found] == pytest.approx([2 / 4, 3 / 8, 4 / 9])
    assert [one.recall for one in found] == pytest.approx([2 / 5, 3 / 5, 4 / 5])
    assert suggestion_precision(suggestions, sparse, queries=2, multiples=[0.5])[0].suggestions == 1
    assert suggestion_precision([], sparse)[0].precision is None
    assert json.dumps([one.as_dict() for one in found])


def test_suggestions_without_hidden_labels(whole: Dataset) -> None:
    with pytest.raises(DataError, match="no hidden labels"):
        suggestion_precision([("q3", "p01")], whole)

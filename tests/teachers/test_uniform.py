from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colabel.data import Dataset, hide_labels, load_dataset
from colabel.errors import DataError, SettingsError
from colabel.teachers import UniformTeacher

WriteBeir = Callable[..., Path]
# Rows: d1 = 0, d2 = 1, d3 = 2, d4 = 3, d5 = 4. In train, q1 → d1, d2, d4 and q3 → d5 (d1 judged, not relevant).


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(np.where(np.isfinite(scores), scores, -np.inf).astype(np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


def test_by_hand(write_beir: WriteBeir) -> None:
    teacher = UniformTeacher(load_dataset(str(write_beir())), "train", 0.2)
    rows = np.array([[0, 2, 3, 4], [4, 0, 2, -1]])
    scores = teacher.score(["q1", "q3"], rows)
    assert scores.dtype == np.float32
    # two of four labelled: 0.8 / 2 + 0.2 / 4; one of three labelled: 0.8 + 0.2 / 3
    expected = [[0.45, 0.05, 0.45, 0.05], [0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3, 0.0]]
    assert softmax(scores) == pytest.approx(np.array(expected), abs=1e-6)
    assert np.exp(scores) == pytest.approx(np.array(expected), abs=1e-6), "the scores are logarithms already"
    assert scores[1, 3] == -np.inf


def test_no_smoothing_is_one_hot_without_infinities(write_beir: WriteBeir) -> None:
    teacher = UniformTeacher(load_dataset(str(write_beir())), "train", 0.0)
    scores = teacher.score(["q3"], np.array([[4, 0, 2, -1]]))
    assert np.isfinite(scores[0, :3]).all(), "−∞ would mean that there is no candidate"
    assert softmax(scores)[0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_nothing_to_smooth_is_nan(write_beir: WriteBeir) -> None:
    teacher = UniformTeacher(load_dataset(str(write_beir())), "train", 0.1)
    scores = teacher.score(["q3", "q2"], np.array([[0, 1, -1], [3, 1, 0]]))  # q2 is a test query
    assert np.isnan(scores[0, :2]).all()
    assert scores[0, 2] == -np.inf
    assert np.isnan(scores[1]).all()


def test_hidden_labels_are_not_seen(write_beir: WriteBeir) -> None:
    dataset = load_dataset(str(write_beir()))
    sparse = hide_labels(dataset, keep=1)
    scores = UniformTeacher(sparse, "train", 0.1).score(["q1"], np.array([[0, 1, 2, 3]]))
    assert (scores[0] > np.log(0.5)).sum() == 1
    assert UniformTeacher(sparse, "train", 0.1).fingerprint != UniformTeacher(dataset, "train", 0.1).fingerprint


def test_fingerprint_and_bad_input(write_beir: WriteBeir) -> None:
    dataset = load_dataset(str(write_beir()))
    assert UniformTeacher(dataset, "train", 0.1).fingerprint == UniformTeacher(dataset, "train", 0.1).fingerprint
    assert UniformTeacher(dataset, "train", 0.1).fingerprint != UniformTeacher(dataset, "train", 0.2).fingerprint
    for bad in (1.0, -0.1, float("nan")):
        with pytest.raises(SettingsError, match=r"'labels\.smoothing' is .*; expected a number from 0"):
            UniformTeacher(dataset, "train", bad)
    with pytest.raises(DataError, match="no split 'nope'"):
        UniformTeacher(dataset, "nope", 0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("uniform")
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "x"}}\n' for n in range(1, 6)))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n')
    (folder / "qrels" / "train.tsv").write_text("q1\td1\t1\nq1\td2\t1\nq1\td4\t1\n")
    (folder / "qrels" / "dev.tsv").write_text("q2\td1\t1\n")
    return load_dataset(str(folder))


@given(line=st.lists(st.integers(-1, 4), min_size=1, max_size=5, unique=True), smoothing=st.floats(0.0, 0.99))
def test_rows_are_distributions(dataset: Dataset, line: list[int], smoothing: float) -> None:
    rows = np.array([line])
    scores = UniformTeacher(dataset, "train", smoothing).score(["q1"], rows)
    labelled = [row in (0, 1, 3) for row in line]
    if not any(labelled):
        assert np.isnan(scores[rows >= 0]).all()
        return
    count, known = sum(row >= 0 for row in line), sum(labelled)
    expected = [0.0 if row < 0 else smoothing / count + mine * (1 - smoothing) / known
                for row, mine in zip(line, labelled, strict=True)]  # fmt: skip
    assert softmax(scores)[0] == pytest.approx(np.array(expected), abs=1e-6)

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from colabel.artefacts import folder_lock
from colabel.data import Dataset, load_dataset
from colabel.errors import ArtefactError, DataError, LockedError, UsageError
from colabel.teachers import CrossEncoderTeacher, cross_encoder

WriteBeir = Callable[..., Path]

ROWS = np.array([[0, 3, -1, 1], [4, 2, 0, 0]])
QUERIES = ["q1", "q5"]


@pytest.fixture
def dataset(write_beir: WriteBeir) -> Dataset:
    return load_dataset(str(write_beir()))


def teacher_of(model: Path, dataset: Dataset, **options: object) -> CrossEncoderTeacher:
    return CrossEncoderTeacher(str(model), dataset, max_length=64, device="cpu", **options)  # type: ignore[arg-type]


def plain_scores(model: Path, dataset: Dataset, query_ids: list[str], rows: npt.NDArray[np.int64]) -> np.ndarray:
    """One pair at a time, by sentence-transformers alone."""
    from sentence_transformers import CrossEncoder

    loaded = CrossEncoder(str(model), device="cpu", activation_fn=torch.nn.Identity())
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    for place, query_id in enumerate(query_ids):
        for column, row in enumerate(rows[place].tolist()):
            if row >= 0:
                pair = (dataset.queries[query_id], dataset.passages[row].full_text)
                scores[place, column] = loaded.predict([pair], show_progress_bar=False)[0]
    return scores


@pytest.mark.parametrize("batch_tokens", [64, 100, 100_000])
def test_scores_are_the_models_own_logits(tiny_cross_encoder: Path, dataset: Dataset, batch_tokens: int) -> None:
    scores = teacher_of(tiny_cross_encoder, dataset, batch_tokens=batch_tokens).scores(QUERIES, ROWS)
    assert scores.dtype == np.float32
    assert scores == pytest.approx(plain_scores(tiny_cross_encoder, dataset, QUERIES, ROWS), abs=1e-4)
    assert np.ptp(scores[np.isfinite(scores)]) > 0.1, "different pairs have different scores"
    assert np.abs(scores[np.isfinite(scores)]).max() > 1, "logits, not probabilities"


def test_equal_pairs_are_scored_once(
    tiny_cross_encoder: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = teacher_of(tiny_cross_encoder, dataset)
    asked: list[tuple[str, str]] = []
    predict = teacher._model.predict

    def counting(pairs: list[tuple[str, str]]) -> npt.NDArray[np.float32]:
        asked.extend(pairs)
        return predict(pairs)

    monkeypatch.setattr(teacher._model, "predict", counting)
    scores = teacher.scores(["q1", "q1"], np.array([[0, 1, 0], [1, 0, -1]]))
    assert len(asked) == 2
    assert scores[0, 0] == scores[0, 2] == scores[1, 1]
    assert teacher.scores(["q1"], np.array([[-1, -1]])).tolist() == [[-np.inf, -np.inf]]
    assert teacher.scores([], np.zeros((0, 3), np.int64)).shape == (0, 3)
    assert len(asked) == 2


def test_queries_longer_than_the_model_are_scored(
    tiny_cross_encoder: Path, write_beir: WriteBeir, caplog: pytest.LogCaptureFixture
) -> None:
    queries = '{"_id": "q1", "text": "' + "ice cave " * 200 + '"}\n{"_id": "q2", "text": "fjord"}\n'
    dataset = load_dataset(str(write_beir(queries=queries, qrels__train="q1\td1\t1\n", qrels__dev=None,
                                          qrels__test="q2\td4\t1\n")))  # fmt: skip
    scores = teacher_of(tiny_cross_encoder, dataset).scores(["q1", "q2"], np.array([[0, 1], [0, 1]]))
    assert np.isfinite(scores).all()
    assert "1 of 2 queries are longer than the cross-encoder takes and were cut" in caplog.text


def test_progress_counts_every_pair_once(tiny_cross_encoder: Path, dataset: Dataset) -> None:
    class Heard:
        def __init__(self) -> None:
            self.total, self.done, self.closed = 0, 0, 0

        def start(self, what: str, total: int | None, unit: str) -> Heard:
            self.total += total or 0
            return self

        def advance(self, steps: int = 1) -> None:
            self.done += steps

        def close(self) -> None:
            self.closed += 1

    heard = Heard()
    teacher_of(tiny_cross_encoder, dataset, progress=heard, batch_tokens=64).scores(QUERIES, ROWS)
    assert (heard.total, heard.done, heard.closed) == (6, 6, 1)


def test_fingerprint(tiny_cross_encoder: Path, dataset: Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_cross_encoder, copy)
    teacher = teacher_of(tiny_cross_encoder, dataset)
    assert teacher.fingerprint == teacher_of(copy, dataset, batch_tokens=64).fingerprint, "the place does not matter"
    shorter = CrossEncoderTeacher(str(copy), dataset, max_length=32, device="cpu")
    assert shorter.fingerprint != teacher.fingerprint
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert teacher_of(copy, dataset).fingerprint != teacher.fingerprint


def test_models_that_cannot_teach(tiny_model: Path, dataset: Dataset, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    with pytest.raises(UsageError, match=r"is an encoder \(BertModel\) and no cross-encoder"):
        teacher_of(tiny_model, dataset).scores(QUERIES, ROWS)
    CrossEncoder(str(tiny_model), num_labels=3, device="cpu").save(str(tmp_path / "nli"), create_model_card=False)
    with pytest.raises(UsageError, match="gives 3 scores for a pair; expected one"):
        teacher_of(tmp_path / "nli", dataset).scores(QUERIES, ROWS)
    with pytest.raises(UsageError, match="does not exist"):
        teacher_of(tmp_path / "a" / "nope", dataset)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is not a model"):
        teacher_of(tmp_path / "empty", dataset)


def test_bad_calls(tiny_cross_encoder: Path, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'cross_encoder\.max_length' is 65; expected at most 64"):
        CrossEncoderTeacher(str(tiny_cross_encoder), dataset, max_length=65, device="cpu").scores(QUERIES, ROWS)
    with pytest.raises(DataError, match="no query 'q99'"):
        teacher_of(tiny_cross_encoder, dataset).scores(["q99"], np.array([[0]]))
    with pytest.raises(UsageError, match="'nonsense'; expected 'auto'"):
        CrossEncoderTeacher(str(tiny_cross_encoder), dataset, max_length=64, device="nonsense")


def test_scores_that_are_no_numbers(
    tiny_cross_encoder: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = teacher_of(tiny_cross_encoder, dataset)
    monkeypatch.setattr(teacher._model, "predict", lambda pairs, **_: np.full(len(pairs), np.nan, np.float32))
    with pytest.raises(DataError, match="no finite score for query 'q1', passage 'd4'"):
        teacher.scores(["q1"], np.array([[3]]))


def test_scores_that_are_known_need_no_model(
    tiny_cross_encoder: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = teacher_of(tiny_cross_encoder, dataset, cache=tmp_path / "cache").scores(QUERIES, ROWS)
    monkeypatch.setattr(cross_encoder, "load_cross_encoder", lambda *_, **__: pytest.fail("it was loaded"))
    again = teacher_of(tiny_cross_encoder, dataset, cache=tmp_path / "cache")
    assert again.seconds_per_pair is not None
    assert np.array_equal(again.scores(QUERIES, ROWS), first)


def test_two_writers_and_a_damaged_cache(tiny_cross_encoder: Path, dataset: Dataset, tmp_path: Path) -> None:
    teacher = teacher_of(tiny_cross_encoder, dataset, cache=tmp_path)
    with folder_lock(tmp_path / teacher.fingerprint), pytest.raises(LockedError, match="is being written by"):
        teacher.scores(QUERIES, ROWS)
    teacher.scores(QUERIES, ROWS)
    (part,) = (tmp_path / teacher.fingerprint).glob("part-*.npy")
    part.write_bytes(part.read_bytes()[:-5])
    with pytest.raises(ArtefactError, match=r"part-00000\.npy cannot be read .*; delete its folder"):
        teacher_of(tiny_cross_encoder, dataset, cache=tmp_path).scores(QUERIES, ROWS)
    np.save(part, np.zeros(3))
    with pytest.raises(ArtefactError, match="holds no scores of pairs"):
        teacher_of(tiny_cross_encoder, dataset, cache=tmp_path).scores(QUERIES, ROWS)


KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from colabel.data import load_dataset
from colabel.teachers import CrossEncoderTeacher, cross_encoder

cross_encoder._SAVE_SECONDS = 0.0
model, data, cache = sys.argv[1:]
teacher = CrossEncoderTeacher(
    model, load_dataset(data), max_length=64, batch_tokens=64, device="cpu", cache=Path(cache)
)
predict = teacher._model.predict
def slow(pairs):
    time.sleep(0.2)
    return predict(pairs)
teacher._model.predict = slow
teacher.scores(["q1", "q5"], np.array([[0, 3, -1, 1], [4, 2, 0, 0]]))
"""


def test_kill_costs_only_what_was_not_saved(
    tiny_cross_encoder: Path, write_beir: WriteBeir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_beir()
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tiny_cross_encoder), str(data), str(tmp_path / "c")])
    deadline = time.monotonic() + 120
    while not list((tmp_path / "c").glob("*/part-00001.npy")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    dataset = load_dataset(str(data))
    whole = teacher_of(tiny_cross_encoder, dataset, batch_tokens=64).scores(QUERIES, ROWS)
    teacher = teacher_of(tiny_cross_encoder, dataset, batch_tokens=64, cache=tmp_path / "c")
    scored: list[int] = []
    predict = teacher._model.predict
    monkeypatch.setattr(teacher._model, "predict", lambda pairs: (scored.append(len(pairs)), predict(pairs))[1])
    assert teacher.scores(QUERIES, ROWS).tobytes() == whole.tobytes()
    assert 0 < sum(scored) <= 4, "two batches at least were on disk"
    scored.clear()
    assert teacher.scores(QUERIES, ROWS).tobytes() == whole.tobytes()
    assert scored == [], "all of it is on disk now"


def test_what_a_pair_took_is_kept_and_looked_up_pairs_do_not_count(
    tiny_cross_encoder: Path, dataset: Dataset, tmp_path: Path
) -> None:
    teacher = teacher_of(tiny_cross_encoder, dataset, cache=tmp_path)
    assert teacher.seconds_per_pair is None
    teacher.scores(QUERIES, ROWS)
    first = teacher.seconds_per_pair
    assert first is not None
    assert first > 0
    again = teacher_of(tiny_cross_encoder, dataset, cache=tmp_path)
    again.scores(QUERIES, ROWS)
    assert again.seconds_per_pair == first
    assert teacher_of(tiny_cross_encoder, dataset).seconds_per_pair is None

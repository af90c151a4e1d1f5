"""Training steps against sentence-transformers' own trainer: all layers, the upper ones, and the query side alone.

    python benchmarks/training.py [--json FILE] [--data pydocs:2000] [--rounds 5]

All train MiniLM (180 tokens) on the same texts with one thread: 16 queries with a positive and a negative passage
each, every query compared with all 32 passages of its step. The query side is trained as by `colabel run`: 32 queries,
each compared with 32 passages of its own and 96 of the step. Variants take turns, a few steps each; a ratio is that of
compared pairs per second, the median over the rounds. Seconds are CPU time, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import datasets
import numpy as np
import torch
from common import write_report
from sentence_transformers import MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss
from transformers import TrainerCallback

from colabel import load_dataset
from colabel.data import Dataset
from colabel.encode import Encoder, open_checkpoint, prepare_encoder
from colabel.encode.colbert import load_checkpoint
from colabel.ranking import Bm25, rank
from colabel.settings import EncoderSettings, FitSettings, QuerySideSettings, RankSettings, TrainSettings
from colabel.train import candidates_from_ranking, groups_for
from colabel.train.groups import GroupTexts
from colabel.train.loop import Job, fit
from colabel.train.objective import LossSettings
from colabel.train.query_side import SHARED_PASSAGES, step_seconds

THEIRS = "sentence-transformers"
QUERIES, PASSAGES = 16, 2


class Ticks(TrainerCallback):
    """Notes the CPU time at which each step was done, as a callback of a trainer and as progress of ours."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.once = 0.0

    def start(self, what: str, total: int | None, unit: str) -> Ticks:
        self._counts, self._begun = unit == "steps", time.process_time()
        return self

    def advance(self, steps: int = 1) -> None:
        if self._counts and steps:
            self.on_step_end()
        elif steps:
            self.once = time.process_time() - self._begun

    def close(self) -> None:
        self._counts = True

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.process_time())

    @property
    def seconds(self) -> float:
        """Of a step; the first, which sets up the optimiser, is left out."""
        return median(np.diff(self.times).tolist())


def theirs(start: Path, texts: GroupTexts, steps: int, place: Path) -> Ticks:
    """Their trainer and contrastive loss, with nothing but the batch and the number of steps set."""
    model, ticks = load_checkpoint(str(start), "cpu"), Ticks()
    groups = [texts[number] for number in range(len(texts))]
    columns = {"query": [one["query"] for one in groups]}
    columns |= {f"passage_{place}": [one["passage"][place] for one in groups] for place in range(PASSAGES)}
    arguments = MultiVectorEncoderTrainingArguments(
        output_dir=str(place),
        per_device_train_batch_size=QUERIES,
        max_steps=steps,
        learning_rate=3e-5,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = MultiVectorEncoderTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=MultiVectorMultipleNegativesRankingLoss(model),
        callbacks=[ticks],
    )
    trainer.train()
    return ticks


def ours(job: Job, layers: int | str, place: Path) -> Ticks:
    ticks = Ticks()
    with tempfile.TemporaryDirectory(dir=place) as folder:
        fit(Job(**{**vars(job), "layers": layers}), Path(folder), ticks)
    return ticks


def query_side(encoder: Encoder, data: Dataset) -> Callable[[], float]:
    """Seconds of a step over a sample of passages and queries."""
    rows = np.linspace(0, len(data.passages) - 1, 256).astype(int).tolist()
    passages = encoder.encode_passages([data.passages[row].full_text or "a" for row in rows])
    queries = list(data.queries.values())[:256]
    return lambda: step_seconds(encoder, passages, queries, QuerySideSettings(), clock=time.process_time)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", default="pydocs:2000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a slice")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as folder:
        figures = measure(options.data, options.rounds, options.steps + 1, Path(folder))
    for line in figures["rows"]:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    write_report(options.json, figures)


def measure(source: str, rounds: int, steps: int, place: Path) -> dict[str, Any]:
    data, settings = load_dataset(source, cache=place / "data"), EncoderSettings()
    prepare_encoder(settings, data.passages, place / "start")
    ranking = rank(
        Bm25(data.passages, RankSettings(), place / "bm25"), data.split_queries("train"), place / "ranking", depth=100
    )
    train = TrainSettings(steps=steps, batch_queries=QUERIES, passages=PASSAGES)
    groups = groups_for(candidates_from_ranking(data, ranking, depth=100), train, 0)
    loss = LossSettings(scope="batch", temperature=train.temperature)
    how = (train, FitSettings(evaluate_every=0, keep="last"), 0, None, "cpu")
    job = Job("training", place / "start", data, groups, None, loss, *how)
    encoder = open_checkpoint(place / "start", "cpu")
    side, texts = query_side(encoder, data), GroupTexts(data, groups)
    in_step, in_list = QUERIES * QUERIES * PASSAGES, 32 * (32 + SHARED_PASSAGES)
    pairs = {THEIRS: in_step, "all layers": in_step, "upper 4": in_step, "upper 2": in_step, "query side": in_list}
    seconds: dict[str, list[float]] = {name: [] for name in pairs}
    once: dict[str, list[float]] = {name: [0.0] for name in pairs}
    for _ in range(rounds):
        seconds[THEIRS].append(theirs(place / "start", texts, steps, place / "theirs").seconds)
        for name, layers in (("all layers", "all"), ("upper 4", 4), ("upper 2", 2)):
            ticks = ours(job, layers, place)
            seconds[name].append(ticks.seconds)
            once[name].append(ticks.once / steps)  # every step of a slice has passages of its own
        seconds["query side"].append(side())
    rows = []
    for name, compared in pairs.items():
        by_pair = [
            (theirs / pairs[THEIRS]) / (own / compared)
            for theirs, own in zip(seconds[THEIRS], seconds[name], strict=True)
        ]
        rows.append(
            {
                "training": name,
                "pairs_per_step": compared,
                "steps_per_second": round(1 / median(seconds[name]), 3),
                "pairs_per_second": round(compared / median(seconds[name])),
                "times_sentence_transformers": round(median(by_pair), 2),
                "lowest": round(min(by_pair), 2),
                "highest": round(max(by_pair), 2),
                "frozen_layers_once_in_steps": round(median(once[name]) / median(seconds[name]), 2),
            }
        )
    tokens = encoder.encode_passages([text for number in range(len(texts)) for text in texts[number]["passage"]])
    return {
        "data": source,
        "rounds": rounds,
        "timed_steps_per_round": steps - 1,
        "stored_tokens_per_passage": round(float(np.diff(tokens.offsets).mean()), 1),
        "rows": rows,
    }


if __name__ == "__main__":
    main()

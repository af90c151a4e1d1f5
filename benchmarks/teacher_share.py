"""The collective teacher's share of a training step, from the token store and with a BERT pass.

    python benchmarks/teacher_share.py [--json FILE] [--data pydocs:4000] [--work FOLDER] [--steps 12]

The same batches, three ways in turns: the teacher's scores of the whole batch, B × B·(1 + n), from stored vectors; its
scores of each query's own passages, read from stored labels; and an online teacher, which encodes the step's passages
with θ once more. All in one process with the same threads. The targets of stored and online scores are compared
as probabilities.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from common import write_report

from colabel import DataSettings, EncoderSettings, Recipe
from colabel.artefacts import Builder
from colabel.collective import expand
from colabel.encode.colbert import load_checkpoint
from colabel.pipeline.layout import Layout
from colabel.pipeline.run import theta_index
from colabel.pipeline.stages import Stages
from colabel.settings import DistilSettings, FitSettings, TrainSettings
from colabel.systems import parse_system
from colabel.teachers import CollectiveTeacher, StoredTeacher, Teacher
from colabel.teachers.protocol import Knows
from colabel.train.groups import GroupTexts, collator_for
from colabel.train.losses import batch_scores
from colabel.train.objective import LossSettings, Objective, embed

SYSTEM = parse_system("collective-0.5")


class OnlineTeacher:
    """Eq. (6) with passages that θ encodes when they are asked for: the features of a step come from outside."""

    name = "online"
    knows: Knows = "any"

    def __init__(self, stored: CollectiveTeacher, theta: Any) -> None:
        self.fingerprint = f"online-{stored.fingerprint}"
        self._knowledge, self._beta, self._scale = stored.knowledge, stored.beta, stored.scale
        self._theta = theta.eval()
        self.passages: dict[str, Any] = {}

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Every query with every passage of the step, in the step's order."""
        with torch.no_grad():
            vectors, mask = embed(self._theta, self.passages)
            queries = self._knowledge.queries.vectors(query_ids)
            expanded = expand(queries, self._knowledge.centroids(query_ids), self._beta, self._scale)
            weights = (expanded != 0).any(dim=2)
            return batch_scores(expanded, weights, vectors.float(), mask).numpy()


def features(batch: dict[str, Any], column: str) -> dict[str, Any]:
    return {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(f"{column}_")}


def step_seconds(objective: Objective, optimiser: torch.optim.Optimizer, batch: dict[str, Any]) -> float:
    start = time.perf_counter()
    loss = objective([features(batch, "query"), features(batch, "passage")], batch["label"])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(objective.model.parameters(), 2.0)
    optimiser.step()
    optimiser.zero_grad()
    return time.perf_counter() - start


def probabilities(scores: npt.NDArray[np.float32], temperature: float) -> torch.Tensor:
    return torch.softmax(torch.from_numpy(scores) / temperature, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", default="pydocs:4000")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "colabel-teacher-share")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    recipe = Recipe(
        data=DataSettings(source=arguments.data),
        encoder=EncoderSettings(passage_length=96),
        train=TrainSettings(theta="take"),
        distil=DistilSettings(steps=arguments.steps),
        fit=FitSettings(evaluate_every=0),
    )
    with Stages(recipe, Layout.of(arguments.work), builder=Builder()) as do:
        data, theta = do.dataset(), str(do.at.encoder)
        known = do.collect(data, theta_index(do))
        groups = do.groups(data, known.ranking)
        stored = CollectiveTeacher(known, beta=SYSTEM.beta)
        labels = do.label(SYSTEM, data, known, stored, groups)
    online = OnlineTeacher(stored, load_checkpoint(theta, "cpu"))
    student = load_checkpoint(theta, "cpu").train()
    optimiser = torch.optim.AdamW(student.parameters(), lr=1e-6)
    ways: dict[str, tuple[str, Teacher]] = {
        "stored vectors, whole batch": ("batch", stored),
        "stored labels, own passages": ("group", StoredTeacher(labels)),
        "online forward, whole batch": ("batch", online),
    }
    objectives = {
        name: Objective(student, groups, target, LossSettings(scope=scope)) for name, (scope, target) in ways.items()
    }
    texts, collate = GroupTexts(data, groups), collator_for(student)
    size = recipe.distil.batch_queries
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    teaching: dict[str, list[float]] = {name: [] for name in ways}
    furthest = 0.0
    for step in range(arguments.steps):
        batch = collate([texts[number] for number in range(step * size, (step + 1) * size)])
        online.passages = features(batch, "passage")
        for name, objective in objectives.items():
            took = step_seconds(objective, optimiser, batch)
            asked = objective.meter.take().teacher_seconds
            if step:  # the first step pays for what torch sets up
                seconds[name].append(took)
                teaching[name].append(asked)
        query_ids = [groups.candidates.query_ids[number] for number in batch["label"][:, 0].tolist()]
        rows = batch["label"][:, 1:].reshape(1, -1).expand(size, -1).numpy()
        ours, theirs = (
            probabilities(teacher.scores(query_ids, rows), recipe.distil.teacher_temperature)
            for teacher in (stored, online)
        )
        furthest = max(furthest, float((ours - theirs).abs().max()))
    figures = {
        name: {
            "step_ms": round(1000 * median(seconds[name]), 1),
            "teacher_ms": round(1000 * median(teaching[name]), 1),
            "share": round(median(t / s for t, s in zip(teaching[name], seconds[name], strict=True)), 4),
        }
        for name in ways
    }
    for name, found in figures.items():
        print(f"{name:<30} step {found['step_ms']:>8} ms, teacher {found['teacher_ms']:>7} ms, {found['share']:.2%}")
    print(f"target probabilities of stored and online scores differ by at most {furthest:.2e}")
    write_report(
        arguments.json,
        {
            "data": Path(arguments.data).name,
            "queries": size,
            "passages": recipe.distil.passages,
            "passage_length": recipe.encoder.passage_length,
            "threads": torch.get_num_threads(),
            "steps": arguments.steps - 1,
            "ways": figures,
            "furthest_probability": furthest,
        },
    )


if __name__ == "__main__":
    main()

"""What a run will do, what of it is done, and about how long the rest takes on this machine."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from colabel.artefacts import read_manifest
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.encode import open_encoder
from colabel.errors import ArtefactError
from colabel.pipeline.chain import Chain
from colabel.pipeline.systems import System
from colabel.pipeline.workbench import Workbench
from colabel.settings import FitSettings

_SAMPLE = 48  # passages encoded to learn this machine's speed
TRAINING_PASS = 3.2
"""A training step's time by that of encoding the same passages: forward, backward, update."""
_PAIR_PASS = 1.1  # a cross-encoder's time for a pair by that of encoding its passage with the same layers


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of the plan: what it does, whether a result of it is present, and its estimated seconds."""

    name: str
    done: bool
    seconds: float

    def __str__(self) -> str:
        state = "present" if self.done else f"about {duration(self.seconds)}"
        return f"  {self.name:<34} {state}"


def duration(seconds: float) -> str:
    """A rough time in words.

    >>> duration(40), duration(400), duration(9000)
    ('1 min', '7 min', '2.5 h')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h"


def plan_student(chain: Chain, system: System, rate: float | None = None) -> list[Stage]:
    """What one row of a study takes: training and indexing; rows that need neither take next to nothing."""
    bench = chain.bench
    rate = rate or passages_per_second(bench)
    name = f"{system.slug}, seed {chain.seed}"
    collection = len(bench.dataset.passages) / rate
    if system.kind == "search" or system.slug == "bm25":
        return [Stage(name, False, 60.0)]
    if system.slug == "zero-shot":
        return [Stage(name, _indexed(bench.out / "zero-shot"), collection)]
    if system.slug == "colbert":
        training = 0.0 if bench.takes_teacher else _training(bench.recipe.train, bench, rate)
        return [Stage(name, _indexed(chain.out / "index"), training + collection)]
    trained = 1 + (len(bench.recipe.study.trials) if chain.seed == bench.recipe.seed and not system.from_plain else 0)
    seconds = trained * _training(bench.recipe.distil, bench, rate) + collection
    if system.needs_cross_encoder:
        seconds += _annotation(bench, chain, system, rate).seconds
    return [Stage(name, _indexed(chain.student_folder(system) / "index"), seconds)]


def plan_run(bench: Workbench, chain: Chain, system: System) -> list[Stage]:
    """The stages of ``run`` with estimates from encoding a few passages of this collection now."""
    rate = passages_per_second(bench)
    recipe, data = bench.recipe, bench.dataset
    collection = len(data.passages) / rate
    student = chain.student_folder(system)
    stages = []
    if not bench.takes_teacher:
        stages.append(Stage("train θ", _finished(chain.out / "theta"), _training(recipe.train, bench, rate)))
    stages.append(Stage("index with θ", _indexed(chain.out / "index"), collection))
    queries = len(data.labels(TRAIN)) if TRAIN in data.splits else 0
    stages.append(Stage("collect knowledge, label", _finished(chain.out / "labels" / system.slug), 0.02 * queries))
    if system.needs_cross_encoder:
        stages.append(_annotation(bench, chain, system, rate))
    stages.append(Stage(f"train {system.slug}", _finished(student / "model"), _training(recipe.distil, bench, rate)))
    stages.append(Stage("index with the student", _indexed(student / "index"), collection))
    if TEST in data.splits:
        done = _indexed(bench.out / "zero-shot")
        stages.append(Stage("index untrained, rank, evaluate", done, collection + 0.05 * len(data.labels(TEST))))
    return stages


def _annotation(bench: Workbench, chain: Chain, system: System, rate: float) -> Stage:
    settings, distil = bench.recipe.cross_encoder, bench.recipe.distil
    models = len(settings.models) if system.target == "ensemble" else 1
    pairs = settings.steps * settings.batch_queries * (1 + settings.negatives) * TRAINING_PASS * _PAIR_PASS
    drawn = distil.steps * distil.batch_queries * distil.passages * _PAIR_PASS
    done = _finished(chain.out / "labels" / system.slug)
    trained = 0.0 if settings.checkpoints else pairs
    return Stage("train cross-encoders, annotate", done, models * (trained + drawn) / rate)


def _training(settings: FitSettings, bench: Workbench, rate: float) -> float:
    """Seconds of the steps, and of evaluating on dev."""
    steps = settings.steps * settings.batch_queries * settings.passages * TRAINING_PASS / rate
    if not settings.evaluate_every or DEV not in bench.dataset.splits:
        return steps
    queries = min(settings.evaluate_queries, len(bench.dataset.positives(DEV)))
    pool = min(len(bench.dataset.passages), queries * settings.evaluate_depth)
    return steps + (1 + settings.steps // settings.evaluate_every) * pool / rate


def passages_per_second(bench: Workbench) -> float:
    """How fast this machine encodes a few passages of the collection."""
    encoder = open_encoder(bench.start, bench.recipe.encoder)
    step = max(1, len(bench.dataset.passages) // _SAMPLE)
    texts = [bench.dataset.passages[row].full_text for row in range(0, len(bench.dataset.passages), step)]
    texts = [text for text in texts if text][:_SAMPLE] or ["a"]
    encoder.encode_passages(texts[:8])  # the first batch pays for what torch sets up
    start = time.perf_counter()
    encoder.encode_passages(texts)
    return len(texts) / max(1e-6, time.perf_counter() - start)


def _finished(folder: Path) -> bool:
    return seconds_of(folder) is not None


def _indexed(folder: Path) -> bool:
    return _finished(folder / "tokens") or _finished(folder / "statistics")


def seconds_of(folder: Path) -> float | None:
    """Seconds that an artefact took; None where there is none, or a damaged one."""
    try:
        return read_manifest(folder).seconds
    except (ArtefactError, OSError):
        return None

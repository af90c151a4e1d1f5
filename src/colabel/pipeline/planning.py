"""What a run will do, what of it is done, and about how long the rest takes on this machine."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from colabel.artefacts import read_manifest
from colabel.artefacts.manifest import MANIFEST_FILE
from colabel.data.splits import DEV, TEST, TRAIN
from colabel.encode import open_encoder
from colabel.errors import ArtefactError
from colabel.pipeline.chain import CHOOSING_QUERIES, DEV_QUERIES, Chain
from colabel.pipeline.changes import Changes
from colabel.pipeline.rows import run_name
from colabel.pipeline.systems import System, cross_encoder_count, parse_system
from colabel.pipeline.workbench import Workbench
from colabel.settings import FitSettings
from colabel.train.cross_encoder import share_of_layers

log = logging.getLogger(__name__)

_SAMPLE = 48  # passages encoded to learn this machine's speed
TRAINING_PASS = 3.2
"""A training step's time by that of encoding the same passages: forward, backward, update."""
_PAIR_PASS = 1.1  # a cross-encoder's time for a pair by that of encoding its passage with the same layers
_RANKING_SECONDS = 60.0  # of a row that needs no training
_THETA = "colbert"
_SEARCH_SECONDS = 0.05  # of a query, with all that is around it
_OF_ONE_TARGET = {"labels.smoothing": "uniform", "labels.scores": "scores"}


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of the plan: what it does, whether a result of it is present, and its estimated seconds.

    ``outdated``: a result is there, but of other settings. ``refused``: it will fail and takes no time.
    """

    name: str
    done: bool
    seconds: float
    outdated: bool = False
    refused: bool = False

    def __str__(self) -> str:
        state = "will fail" if self.refused else "present" if self.done else f"about {duration(self.seconds)}"
        return f"  {self.name:<34} {state}"


def duration(seconds: float) -> str:
    """A rough time in words.

    >>> duration(40), duration(400), duration(9000)
    ('1 min', '7 min', '2.5 h')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h"


def time_left(stages: Iterable[Stage]) -> str:
    """What all stages take that are not done, as the last line of a plan."""
    left = [stage.seconds for stage in stages if not stage.done]
    return f"left: about {duration(sum(left))}" if left else "nothing is left to do"


def affects_data(changed: Iterable[str]) -> bool:
    """Whether changed settings are of the collection or of the untrained encoder."""
    return any(key.split(".")[0] in ("data", "encoder", "seed") for key in changed)


def _affects(changed: Sequence[str], system: System) -> bool:
    """Whether a row must be made again where these settings have changed."""
    changed = [key for key in changed if _OF_ONE_TARGET.get(key, system.target) == system.target]
    sections = {key.split(".")[0] for key in changed}
    if affects_data(changed) or "index" in sections:
        return True
    if _affects_theta(changed):
        return system.slug != "zero-shot" and (system.slug != "bm25" or "rank" in sections)
    labelled = system.kind == "student" and system.target not in ("hard", "uniform")
    if "collective" in sections and (system.kind == "search" or labelled):
        return True
    if "cross_encoder" in sections and system.needs_cross_encoder:
        return True
    if system.tuned and {"study.measures", "rank.depth"} & set(changed):  # by which β is chosen
        return True
    return system.kind == "student" and bool((sections & {"distil", "labels"}) or "study.trials" in changed)


def _affects_theta(changed: Sequence[str]) -> bool:
    """Whether θ, and with it its ranking, must be made again; BM25's settings choose its negatives."""
    words = {"rank.k1", "rank.b", "rank.language"}
    return affects_data(changed) or any(key.split(".")[0] in ("index", "train") or key in words for key in changed)


def _affects_cross_encoders(changed: Sequence[str]) -> bool:
    """Whether cross-encoders that are trained from the labels must be trained again."""
    shared = [key for key in changed if key not in _OF_ONE_TARGET]
    return _affects_theta(shared) or any(key.split(".")[0] in ("cross_encoder", "labels") for key in shared)


def plan_student(chain: Chain, system: System, rate: float, changes: Changes) -> Stage:
    """What one row of a study takes: training and indexing; rows that need neither take next to nothing."""
    bench = chain.bench
    name = f"{system.slug}, seed {chain.seed}"
    collection = len(bench.dataset.passages) / rate
    run = bench.out / "runs" / run_name(system, chain.seed, bench.recipe)
    if system.kind == "search" or system.slug == "bm25":
        made, seconds = _made(run), _RANKING_SECONDS
    elif system.slug == "zero-shot":
        made, seconds = _index_made(bench.out / "zero-shot"), collection
    elif system.slug == _THETA:
        training = 0.0 if bench.takes_teacher else _training(bench.recipe.train, bench, rate)
        made, seconds = _index_made(chain.out / "index"), training + collection
    else:
        # A tuned row is the student of a β that is not known before the sweep.
        made = _made(run) if system.tuned else _index_made(chain.student_folder(system) / "index")
        seconds = _training(bench.recipe.distil, bench, rate) + collection + _reading(bench, system, rate)
        if bench.recipe.study.trials and chain.seed == bench.recipe.seed and not system.from_plain:
            seconds += _trying(bench, rate)
    done = made is not None and not _affects(changes.of_stage(made), system)
    ranked = _made(run)
    if made is not None and done and (ranked is None or ranked < made or "rank.depth" in changes.of_stage(ranked)):
        return Stage(name, False, _RANKING_SECONDS, outdated=ranked is not None)
    return Stage(name, done, seconds, outdated=made is not None and not done)


def plan_theta(rows: Sequence[tuple[Chain, System]], rate: float, changes: Changes) -> Iterator[Stage]:
    """θ and its index of every seed that has rows which need them and no row of its own.

    Rows that start from the plain encoder need θ too: they are evaluated on its top passages.
    """
    have = {chain for chain, system in rows if system.slug == _THETA}
    need = {chain: None for chain, system in rows if system.kind in ("student", "search")}
    for chain in need:
        if chain not in have:
            stage = plan_student(chain, parse_system(_THETA), rate, changes)
            made = _index_made(chain.out / "index")
            done = made is not None and not _affects_theta(changes.of_stage(made))
            yield dataclasses.replace(stage, name=f"θ, seed {chain.seed}", done=done, outdated=bool(made) and not done)


def plan_cross_encoders(rows: Sequence[tuple[Chain, System]], rate: float, changes: Changes) -> Iterator[Stage]:
    """Training of the cross-encoders of every seed that has rows of theirs; rows share them."""
    needed: dict[Chain, int] = {}
    for chain, system in rows:
        needed[chain] = max(needed.get(chain, 0), cross_encoder_count(system, chain.recipe))
    for chain, count in needed.items():
        if count and not chain.recipe.cross_encoder.checkpoints:
            for number, model in enumerate(chain.recipe.cross_encoder.models[:count]):
                made = _made(chain.out / "cross-encoders" / str(number))
                done = made is not None and not _affects_cross_encoders(changes.of_stage(made))
                name = f"cross-encoder {number + 1} ({model.rsplit('/', 1)[-1]}), seed {chain.seed}"
                seconds = _reader_training(chain.bench, model, rate)
                yield Stage(name, done, seconds, outdated=made is not None and not done)


def plan_measuring(bench: Workbench, rows: Sequence[tuple[Chain, System]], rate: float, *, finished: bool) -> Stage:
    """What comes after the rows: quality of labels, the sweep, response times."""
    settings, data = bench.recipe.study, bench.dataset
    models = max((cross_encoder_count(system, bench.recipe) for _, system in rows), default=0)
    sets = 2 if bench.recipe.data.keep_labels else 1
    pairs = models * (sets * settings.quality_queries * 100 + DEV_QUERIES * bench.recipe.distil.evaluate_depth)
    dev = len(data.labels(DEV)) if DEV in data.splits else 0
    searched = len(rows) * settings.timed_queries + (10 * dev if settings.sweep else 0)
    return Stage("quality of labels, sweep, times", finished, pairs * _PAIR_PASS / rate + _SEARCH_SECONDS * searched)


def plan_run(bench: Workbench, chain: Chain, system: System, changed: Sequence[str] = ()) -> list[Stage]:
    """The stages of ``run`` with estimates from encoding a few passages of this collection now.

    ``changed`` are the settings that are not those with which the folder was last run.
    """
    rate = passages_per_second(bench)
    recipe, data = bench.recipe, bench.dataset
    collection = len(data.passages) / rate
    student = chain.student_folder(system)
    theta, own = not _affects_theta(changed), not _affects(changed, system)
    stages = []
    if not bench.takes_teacher:
        done = theta and _finished(chain.out / "theta")
        stages.append(Stage("train θ", done, _training(recipe.train, bench, rate)))
    stages.append(Stage("index with θ", theta and _indexed(chain.out / "index"), collection))
    queries = len(data.labels(TRAIN)) if TRAIN in data.splits else 0
    if system.target in ("hard", "uniform"):
        name, made = "collect knowledge", chain.out / "knowledge" / "ranking"
    else:
        name, made = "collect knowledge, label", chain.out / "labels" / system.made_as
    labels = own and _finished(made)
    stages.append(Stage(name, labels, 0.02 * queries))
    if system.needs_cross_encoder:
        stages.append(_annotation(bench, system, rate, done=labels))
    stages.append(
        Stage(f"train {system.slug}", own and _finished(student / "model"), _training(recipe.distil, bench, rate))
    )
    stages.append(Stage("index with the student", own and _indexed(student / "index"), collection))
    if TEST in data.splits:
        done = (
            own
            and "rank.depth" not in changed
            and _indexed(bench.out / "zero-shot")
            and _finished(bench.out / "runs" / system.slug)
        )
        stages.append(Stage("index untrained, rank, evaluate", done, collection + 0.05 * len(data.labels(TEST))))
    return stages


def _annotation(bench: Workbench, system: System, rate: float, *, done: bool) -> Stage:
    settings = bench.recipe.cross_encoder
    trained = () if settings.checkpoints else settings.models[: cross_encoder_count(system, bench.recipe)]
    seconds = sum(_reader_training(bench, model, rate) for model in trained) + _reading(bench, system, rate)
    return Stage("train cross-encoders, annotate", done, seconds)


def _reader_training(bench: Workbench, model: str, rate: float) -> float:
    """Seconds of training a cross-encoder."""
    settings = bench.recipe.cross_encoder
    pairs = settings.steps * settings.batch_queries * (1 + settings.negatives)
    return pairs * TRAINING_PASS * _PAIR_PASS * share_of_layers(model) / rate


def _reading(bench: Workbench, system: System, rate: float) -> float:
    """Seconds of scoring the pairs that training draws, with every cross-encoder of a row."""
    settings = bench.recipe.distil
    drawn = settings.steps * settings.batch_queries * settings.passages
    return cross_encoder_count(system, bench.recipe) * drawn * _PAIR_PASS / rate


def _trying(bench: Workbench, rate: float) -> float:
    """Seconds of a row's other trials, and of comparing all of them on dev."""
    settings, trials = bench.recipe.distil, len(bench.recipe.study.trials)
    dev = len(bench.dataset.labels(DEV)) if DEV in bench.dataset.splits else 0
    compared = min(dev, max(settings.evaluate_queries, CHOOSING_QUERIES)) * settings.evaluate_depth
    pool = min(len(bench.dataset.passages), compared)
    return trials * _training(settings, bench, rate) + (1 + trials) * pool / rate


def _training(settings: FitSettings, bench: Workbench, rate: float) -> float:
    """Seconds of the steps, and of evaluating on dev."""
    dev = len(bench.dataset.positives(DEV)) if DEV in bench.dataset.splits else 0
    return training_passes(settings, len(bench.dataset.passages), dev) / rate


def training_passes(settings: FitSettings, passages: int, dev: int) -> float:
    """What training takes, in passages that could be encoded meanwhile: the steps, and evaluations on dev queries."""
    steps = settings.steps * settings.batch_queries * settings.passages * TRAINING_PASS
    if not settings.evaluate_every or not dev:
        return steps
    pool = min(passages, min(settings.evaluate_queries, dev) * settings.evaluate_depth)
    return steps + (1 + settings.steps // settings.evaluate_every) * pool


def passages_per_second(bench: Workbench) -> float:
    """How fast this machine encodes a few passages of the collection."""
    log.info("timing this machine on %d passages", min(_SAMPLE, len(bench.dataset.passages)))
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
    return _index_made(folder) is not None


def _made(folder: Path) -> float | None:
    """When an artefact was finished; None where there is none, or a damaged one."""
    return (folder / MANIFEST_FILE).stat().st_mtime if _finished(folder) else None


def _index_made(folder: Path) -> float | None:
    tokens = _made(folder / "tokens")
    return _made(folder / "statistics") if tokens is None else tokens


def seconds_of(folder: Path) -> float | None:
    """Seconds that an artefact took; None where there is none, or a damaged one."""
    try:
        return read_manifest(folder).seconds
    except (ArtefactError, OSError):
        return None

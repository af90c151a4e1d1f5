"""The figures of a study: means and tests of its systems, what they cost, and how it was run."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from msgspec.structs import replace

from colabel.artefacts import fingerprint, write_json
from colabel.artefacts.manifest import library_versions, seconds_of, source_commit
from colabel.data import Dataset
from colabel.data.splits import DEV, TEST
from colabel.encode.colbert import choose_device
from colabel.errors import ColabelError
from colabel.evaluation import Evaluation, bootstrap_mean, compare, evaluate, merge_seeds, response_times_of
from colabel.evaluation.hidden_labels import count_hidden
from colabel.evaluation.timing import THREADS, WARMUP
from colabel.findings.records import (
    CROSS_ENCODER_STAGE,
    DatasetSummary,
    Efficiency,
    Environment,
    Milliseconds,
    Ratio,
    Reached,
    Setting,
    StudyDocument,
    SweepSetting,
    SystemResult,
    Timing,
    TrainingCurve,
)
from colabel.findings.teacher_quality import examples, label_findings, prf_gain
from colabel.measures import PerQuery, Run
from colabel.settings import CollectiveSettings, DistilSettings, Recipe, TrainSettings
from colabel.systems import System, parse_system
from colabel.train.callbacks import LOG_FILE, read_log

log = logging.getLogger(__name__)

Study = Any
"""A study or transfer of :mod:`colabel.pipeline`, which lies to the right of this package."""
PlainFigures = TypeVar("PlainFigures")
"""Plain JSON types."""
T = TypeVar("T")

TIMED_QUERIES = 50
"""Test queries whose response times are taken, of every system."""
_IN_TURNS = "in turns"  # how times are taken: those of systems asked one after another do not compare with them
_LEAD = 0.01  # how far above the best start the target on dev is, as a share of it
_PAPER = {
    "feedback": "top",
    "feedback_passages": "3",
    "clusters": "24",
    "centroids": "10",
    "token": "nearest",
    "expansion_scale": "paper",
}
"""What the paper says of [collective]; β is that of each system, and where k-means starts it leaves open."""
_START = r"(?:\.{1,2}|~)?/(?!/)"  # of a path with folders
_QUOTED = re.compile(rf"(?<=['\"]){_START}[^'\"\n]*/")  # may have spaces
_WHOLE = re.compile(rf"{_START}[^'\"\n]*/")
_FOLDERS = re.compile(rf"(?:(?<![\w/.~])|(?<=file://)){_START}(?:[^\s/'\"]+/)+")


def describe(study: Study, recipe_text: str) -> StudyDocument:
    """The document of a finished study."""
    missed: list[str] = []
    quality, suggestions = optional_section("the quality of labels", lambda: label_findings(study), missed) or ((), {})
    verdicts = optional_section("whether cross-encoders beat θ", lambda: _cross_encoder_notes(study), missed) or ()
    gains, difference = optional_section("the gain of feedback", lambda: prf_gain(study), missed) or ({}, None)
    document = measured(study, recipe_text, missed)  # after all pairs are scored: costs go by the time that a pair took
    return replace(
        document,
        systems=_with_equal_passes(document.systems),
        prf_gain=gains,
        gain_difference=difference,
        sweep=optional_section("the sweep", lambda: _sweep(study), missed) or (),
        examples=optional_section("the examples", lambda: examples(study), missed) or (),
        label_quality=quality,
        suggestions={name: {f"{one.multiple:g}": one.precision for one in held} for name, held in suggestions.items()},
        suggestions_recall={
            name: {f"{one.multiple:g}": one.recall for one in held} for name, held in suggestions.items()
        },
        training=_training(study),
        efficiency=_efficiency(study, document.systems),
        seconds=_stage_seconds(study),
        notes=(*study.lost, *study.shallow, *study.unreachable, *verdicts, *missed),
    )


def measured(study: Study, recipe_text: str, missed: list[str]) -> StudyDocument:
    """What the report of a study and of a transfer have in common: the table, its tests, and how it was run.

    ``missed`` takes a sentence for every part that fails and can be left out.
    """
    recipe, dataset = study.recipe, study.dataset
    runs = {
        system.slug: {seed: ranking.run for seed, ranking in study.runs[system.slug].items()}
        for system in study.systems
        if study.finished(system.slug)
    }
    document = compared(dataset, study.systems, runs, recipe.study.measures, seed=recipe.seed, failed=study.failed)
    times = optional_section("the response times", lambda: response_times(study), missed) or {}
    costs = {slug: study.costs(study.system(slug)) for slug in runs}
    readers = {system.slug: system.cross_encoder_count(recipe) for system in study.systems}
    depth, queries = min(recipe.rank.depth, len(dataset.passages)), len(dataset.split_queries(TEST))
    return replace(
        document,
        systems=tuple(
            replace(
                one,
                milliseconds=times.get(one.slug),
                cross_encoders=readers[one.slug],
                **costs.get(one.slug, {}),
            )
            for one in document.systems
        ),
        timing=Timing(min(TIMED_QUERIES, queries), depth, THREADS, WARMUP) if times else None,
        recipe=recipe_text,
        settings=all_settings(recipe, recipe_text),
        models=_models(recipe, max(readers.values(), default=0), recipe_text),
        collective=collective_settings(recipe.collective),
        environment=_environment(recipe.encoder.device),
    )


def compared(
    dataset: Dataset,
    systems: Sequence[System],
    runs: Mapping[str, Mapping[int, Run]],
    measures: Sequence[str],
    *,
    seed: int = 0,
    failed: Mapping[str, str] | None = None,
) -> StudyDocument:
    """Systems on the test queries: means with intervals, and tests on the seeds that two systems have in common.

    Args:
        runs: slug → seed → run; a system without one is shown as failed.
        seed: of intervals and tests.
        failed: slug → why it has no run.
    """
    groups = list(dict.fromkeys(system.group for system in systems))
    ordered = sorted(systems, key=lambda system: groups.index(system.group))  # as tables letter them
    held = {system.slug: runs[system.slug] for system in ordered if system.slug in runs}
    every = {f"{slug}/{number}": run for slug, seeds in held.items() for number, run in seeds.items()}
    names = {slug: [f"{slug}/{number}" for number in seeds] for slug, seeds in held.items()}
    apart = evaluate(dataset, every, measures=measures)
    merged, spreads = merge_seeds(apart, names)
    judged, _ = merge_seeds(evaluate(dataset, every, measures=measures, judged_only=True), names)
    alone = {slug: {number: apart.per_query[f"{slug}/{number}"] for number in seeds} for slug, seeds in held.items()}
    everywhere = sorted({number for seeds in alone.values() for number in seeds})
    unseeded = {system.slug for system in systems if not system.seeded}
    by_seed = {
        slug: dict.fromkeys(everywhere, next(iter(seeds.values()))) if slug in unseeded else seeds
        for slug, seeds in alone.items()
    }
    document = evaluated(dataset, systems, merged, seeds=by_seed, seed=seed, failed=failed)
    return replace(
        document,
        systems=tuple(
            replace(
                one,
                seeds=len(held[one.slug]),
                spread={name: found.std for name, found in spreads[one.slug].items() if found.std is not None},
                judged_only=judged.means[one.slug],
            )
            if one.slug in held
            else one
            for one in document.systems
        ),
        per_seed={
            slug: {str(number): values for number, values in seeds.items()}
            for slug, seeds in alone.items()
            if len(seeds) > 1
        },
    )


def evaluated(
    dataset: Dataset,
    systems: Sequence[System],
    evaluation: Evaluation,
    *,
    seeds: Mapping[str, Mapping[int, PerQuery]] | None = None,
    seed: int = 0,
    failed: Mapping[str, str] | None = None,
    student: str | None = None,
) -> StudyDocument:
    """An evaluation of some systems as a document: means with intervals, and tests between every two.

    Args:
        seeds: slug → seed → values, where some systems have several.
        seed: of intervals and tests.
        failed: slug → why it is not in the evaluation.
        student: slug of the system that the report is about; default: the first collective student.
    """
    per_query = evaluation.per_query
    measures = tuple(next(iter(per_query.values()), ()))
    tested = measures if len(per_query) > 1 else ()
    comparisons = {name: compare(evaluation, name, seeds=seeds, seed=seed) for name in tested}

    def result(system: System) -> SystemResult:
        slug, values = system.slug, per_query.get(system.slug)
        row = SystemResult(slug, system.title, system.group, system.beta, about=system.about, seeded=system.seeded)
        if values is None:
            return replace(row, failed=(failed or {}).get(slug, "it was not run"))
        means = {name: line.mean for name, one in comparisons.items() for line in one.lines if line.system == slug}
        means = means or {name: bootstrap_mean(list(values[name].values()), seed=seed) for name in values}
        return replace(
            row,
            means=evaluation.means[slug],
            intervals={name: (mean.low, mean.high) for name, mean in means.items()},
            unjudged_share=evaluation.unjudged_share.get(slug),
            unanswered=evaluation.unanswered.get(slug),
        )

    about = next((system.slug for system in systems if system.collective and system.slug in per_query), None)
    return StudyDocument(
        name=dataset.name,
        measures=measures,
        split=TEST,
        relevant_from=dataset.relevant_from,
        without_relevant=evaluation.without_relevant,
        dataset=_summary(dataset),
        systems=tuple(map(result, systems)),
        per_query=per_query,
        comparisons=comparisons,
        student=student or about,
    )


def response_times(study: Study) -> dict[str, Milliseconds]:
    """Response times of all finished systems, taken in turns: a resumed study shows the same figures.

    Where a system is new or has changed, all are taken again, since times of different hours do not compare.
    """
    dataset = study.dataset
    depth = min(study.recipe.rank.depth, len(dataset.passages))
    rankers = {system.slug: study.ranker(system) for system in study.systems if study.finished(system.slug)}

    def measure() -> dict[str, dict[str, float]]:
        texts = list(dataset.split_queries(TEST).values())[:TIMED_QUERIES]
        found = response_times_of(list(rankers.values()), texts, k=depth)
        return {
            slug: {"median": times.median, "mean": times.mean, "p95": times.p95}
            for slug, times in zip(rankers, found, strict=True)
        }

    names = {slug: ranker.fingerprint for slug, ranker in rankers.items()}
    kept = measured_once(study.out / "timing.json", [_IN_TURNS, names, TIMED_QUERIES, depth], measure)
    return {slug: Milliseconds(**found) for slug, found in kept.items()}


def all_settings(recipe: Recipe, recipe_text: str) -> dict[str, str]:
    """Every setting of a recipe, as "section.key" → value, defaults included.

    Folders that the text of the recipe does not name are left out: they are those of the machine.
    """
    found: dict[str, object] = {}
    for section, table in recipe.as_dict().items():
        if isinstance(table, dict):
            found |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            found[section] = table
    return {key: _public(_written(value), recipe_text) for key, value in found.items()}


def _written(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _models(recipe: Recipe, cross_encoders: int, recipe_text: str) -> dict[str, str]:
    """The encoder, and the cross-encoders that some system learns from."""
    named = (recipe.cross_encoder.checkpoints or recipe.cross_encoder.models)[:cross_encoders]
    found = {"encoder": recipe.encoder.model}
    found |= {f"cross-encoder {number}": name for number, name in enumerate(named, start=1)}
    return {role: _public(name, recipe_text) for role, name in found.items()}


def _public(value: str, recipe_text: str) -> str:
    return value if value in recipe_text else without_folders(value)


def without_folders(text: str) -> str:
    """The text with the folders of paths left out.

    >>> without_folders('source = "/home/me/data/caves" # see https://ir-measur.es/en/latest, and/or ../docs/x.md')
    'source = "…/caves" # see https://ir-measur.es/en/latest, and/or …/x.md'
    >>> without_folders("hf:/home/me/data/caves")
    'hf:…/caves'
    >>> without_folders("/home/Jane Doe/data/caves"), without_folders("file:///home/me/scratch/x")
    ('…/caves', 'file://…/x')
    """
    whole = _WHOLE.match(text)
    if whole and "\n" not in text and " " not in text[whole.end() :]:
        return f"…/{text[whole.end() :]}"
    return _FOLDERS.sub("…/", _QUOTED.sub("…/", text))


def collective_settings(settings: CollectiveSettings) -> tuple[Setting, ...]:
    """How collective knowledge was made, with the paper's values where it has some."""
    return tuple(
        Setting(name, f"{value:g}" if isinstance(value, float) else str(value), _PAPER.get(name, ""))
        for name, value in settings.as_dict().items()
    )


def _environment(device: str) -> Environment:
    """What this machine is, and what a model computes on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    chosen = choose_device(device)
    on = f"computed on {torch.cuda.get_device_name(chosen)}" if chosen.startswith("cuda") else f"computed on {chosen}"
    versions = {"Python": platform.python_version(), **library_versions()}
    return Environment(versions, _processor(), os.cpu_count(), source_commit(), memory, on)


def _processor() -> str:
    """The processor's name; the kind of machine where the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def _summary(dataset: Dataset) -> DatasetSummary:
    labels = {split: dataset.labels(split) for split in dataset.splits}
    grades = {split: [grade for held in found.values() for grade in held.values()] for split, found in labels.items()}
    return DatasetSummary(
        dataset.name,
        len(dataset.passages),
        {split: len(found) for split, found in labels.items()},
        {split: len(found) for split, found in grades.items()},
        count_hidden(dataset),
        {split: sum(grade < dataset.relevant_from for grade in found) for split, found in grades.items()},
    )


def _cross_encoder_notes(study: Study) -> tuple[str, ...]:
    finished = [system for system in study.systems if system.needs_cross_encoder and study.finished(system.slug)]
    return tuple(dict.fromkeys(note for one in finished for note in study.cross_encoder_verdicts(one)))


def _sweep(study: Study) -> tuple[SweepSetting, ...]:
    if not study.recipe.study.sweep or DEV not in study.dataset.splits or not study.has_theta:
        return ()
    return tuple(
        SweepSetting(point.feedback_passages, point.clusters, point.centroids, point.beta, point.measures)
        for point in study.sweep()
    )


# What training costs.


@dataclasses.dataclass(frozen=True)
class TrainingTimes:
    """A training log with its clock.

    Attributes:
        loss: (step, loss).
        dev: (step, value of the measure on dev).
        clock: (step, seconds of all steps up to it), rising from (0, 0). Evaluations and save points are no part of it.
        shape: queries of a step, and passages of each.
    """

    loss: tuple[tuple[int, float], ...]
    dev: tuple[tuple[int, float], ...]
    clock: tuple[tuple[int, float], ...]
    shape: tuple[int, int]

    @property
    def step_seconds(self) -> float | None:
        """Mean seconds of a step; None where the log has no times."""
        step, seconds = self.clock[-1]
        return seconds / step if step else None

    def at(self, step: int) -> float | None:
        """Seconds of the steps up to ``step``.

        Steps between two lines of the log, or after the last, count as long as those around them.

        >>> TrainingTimes((), (), ((0, 0.0), (10, 5.0)), shape=(4, 8)).at(4)
        2.0
        """
        if step == 0:
            return 0.0
        if len(self.clock) < 2:
            return None
        before, after = next(
            (pair for pair in zip(self.clock, self.clock[1:], strict=False) if step <= pair[1][0]), self.clock[-2:]
        )
        return before[1] + (step - before[0]) * (after[1] - before[1]) / (after[0] - before[0])

    def curve(self) -> TrainingCurve:
        """The same as a report shows it."""
        return TrainingCurve(self.loss, tuple((step, self.at(step), value) for step, value in self.dev))


def training_times(model: Path, settings: TrainSettings | DistilSettings, measure: str) -> TrainingTimes | None:
    """Read the log of a trained model; None where there is none."""
    return times_of(read_log(model / "training" / LOG_FILE), settings, measure)


def times_of(
    lines: Sequence[Mapping[str, Any]], settings: TrainSettings | DistilSettings, measure: str
) -> TrainingTimes | None:
    """The clock of a log: a line's steps took as long as its passages per second say."""
    clock, passages = [(0, 0.0)], settings.batch_queries * settings.passages
    for line in lines:
        if line.get("passages_per_second"):
            step, seconds = clock[-1]
            clock.append((line["step"], seconds + (line["step"] - step) * passages / line["passages_per_second"]))
    loss = tuple((line["step"], line["loss"]) for line in lines if "loss" in line)
    dev = tuple((line["step"], line[measure]) for line in lines if measure in line)
    shape = settings.batch_queries, settings.passages
    return TrainingTimes(loss, dev, tuple(clock), shape) if loss or dev else None


def _training(study: Study) -> dict[str, TrainingCurve]:
    """Curves of θ and of every student; θ's own dev values are left out, since it is evaluated on other passages."""
    found = {system: study.times(system) for system in study.systems if study.finished(system.slug)}
    curves = {system: times.curve() for system, times in found.items() if times is not None}
    return {system.slug: curve if system.student else replace(curve, dev=()) for system, curve in curves.items()}


def _efficiency(study: Study, systems: tuple[SystemResult, ...]) -> Efficiency:
    """Seconds of every student to a fixed value on dev, and the paper's ratios."""
    students = {system.slug: system for system in study.systems if system.student and study.finished(system.slug)}
    times = {slug: found for slug, one in students.items() if (found := study.times(one)) is not None and found.dev}
    efficiency = Efficiency(study.recipe.fit.measure, ratios=ratios(systems))
    target = dev_target(times.values())
    if target is None:
        return efficiency
    speed, seconds = pooled_step_seconds(times.values()), {one.slug: one.seconds for one in systems}
    reached = []
    for slug, found in times.items():
        step = next((step for step, value in found.dev if value >= target[0]), None)
        per_step = speed.get(found.shape)
        reached.append(
            Reached(
                slug,
                "plain encoder" if students[slug].from_plain else "θ",
                step,
                study.seconds_before(students[slug]),
                seconds[slug].get("annotation"),
                None if step is None or per_step is None else step * per_step,
            )
        )
    pool = study.dev_set()
    queries = None if pool is None else len(pool.query_ids)
    return replace(efficiency, target=target[0], origin=target[1], queries=queries, reached=tuple(reached))


def dev_target(times: Iterable[TrainingTimes]) -> tuple[float, str] | None:
    """The value on dev that is waited for, 1 % above the best start, and where it comes from.

    So no student's own curve decides on it. None where no student was evaluated before its first step,
    and where a start is so good, or finds so little, that there is no such value.

    >>> dev_target([TrainingTimes((), ((0, 0.5), (10, 0.7)), ((0, 0.0),), shape=(4, 8))])
    (0.505, '1 % above the highest value before training, 0.500')
    """
    start = max((value for found in times for step, value in found.dev if not step), default=None)
    if not start or start * (1 + _LEAD) > 1:
        return None
    return start * (1 + _LEAD), f"{100 * _LEAD:g} % above the highest value before training, {start:.3f}"


def pooled_step_seconds(times: Iterable[TrainingTimes]) -> dict[tuple[int, int], float]:
    """Shape of a step → its seconds, the median over all students that were trained with such steps.

    Of three or more students, what else the machine did while one of them was trained does not move it.
    """
    found: dict[tuple[int, int], list[float]] = {}
    for one in times:
        if one.step_seconds is not None:
            found.setdefault(one.shape, []).append(one.step_seconds)
    return {shape: statistics.median(seconds) for shape, seconds in found.items()}


def _with_equal_passes(systems: tuple[SystemResult, ...]) -> tuple[SystemResult, ...]:
    """The systems with the passes that their labels would take for as many pairs as the collective student has.

    Passes of the cross-encoders grow with the pairs; those beyond them do not.
    """
    ours = _collective_student(systems)
    if ours is None or ours.pairs is None:
        return systems
    return tuple(
        one
        if one.pairs is None or one.encoder_passes is None
        else replace(one, equal_passes=one.encoder_passes + one.cross_encoders * (ours.pairs - one.pairs))
        for one in systems
    )


def _collective_student(systems: Iterable[SystemResult]) -> SystemResult | None:
    """The student that others are compared with: the first finished one of collective labels."""
    return next((one for one in systems if one.pairs and not one.failed and parse_system(one.slug).collective), None)


def ratios(systems: Sequence[SystemResult]) -> tuple[Ratio, ...]:
    """Annotation and training of cross-encoder systems by those of the collective student, as run and for equal pairs.

    As run, annotation is all that came before training, on both sides. For equal pairs it is counted as the paper does:
    on our side encoding the collection and ranking the queries is part of it, on theirs reading pairs alone.
    """
    ours = _collective_student(systems)
    if ours is None or ours.pairs is None:
        return ()
    mine, training = _before_training(ours), ours.seconds.get("training")
    found: list[Ratio] = []
    for system in systems:
        paper = parse_system(system.slug).paper
        if paper is None or system.failed or not system.pairs:
            continue
        annotation, theirs = system.seconds.get("annotation"), system.seconds.get("training")
        whole, factor = _before_training(system), ours.pairs / system.pairs
        scaled = None if annotation is None else annotation * factor
        sides = {
            "annotation_as_run": (whole, mine),
            "training": (theirs, training),
            "overall_as_run": (_added(whole, theirs), _added(mine, training)),
            "annotation": (scaled, mine),
            "overall": (_added(scaled, theirs), _added(mine, training)),
        }
        seconds = {name: (one, other) for name, (one, other) in sides.items() if one is not None and other}
        values = {name: one / other for name, (one, other) in seconds.items()}
        reported = {"paper_annotation": paper[0], "paper_overall": paper[1]}
        found.append(Ratio(system.slug, ours.slug, **values, factor=factor, seconds=seconds, **reported))
    return tuple(found)


def _added(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _before_training(system: SystemResult) -> float | None:
    values = [value for part in ("hard negatives", "annotation") if (value := system.seconds.get(part)) is not None]
    return sum(values) if values else None


def _stage_seconds(study: Study) -> dict[str, float]:
    """Seconds of the shared stages; what lies there of earlier settings is left out."""
    at = study.at
    approximate = study.has_theta and study.index().engine == "ivf"
    readers = max((system.cross_encoder_count(study.recipe) for system in study.systems), default=0)
    places = {
        "BM25": at.bm25,
        **({} if study.uses_checkpoint else {"training θ": at.theta}),
        "encoding the collection": at.index / "tokens",
        "encoding the collection in shards": at.index / "statistics",
        **({"approximate index": at.index / "ivf"} if approximate else {}),
        "ranking the training queries": at.knowledge / "ranking",
        "collective knowledge": at.knowledge / "centroids",
    }
    for number in range(0 if study.recipe.cross_encoder.checkpoints else readers):
        places[f"{CROSS_ENCODER_STAGE} {number + 1}"] = at.cross_encoder(number)
    return {name: seconds for name, folder in places.items() if (seconds := seconds_of(folder)) is not None}


def measured_once(file: Path, depends_on: object, measure: Callable[[], PlainFigures]) -> PlainFigures:
    """The figures in ``file``; taken, and written there, where it has none for what they depend on now."""
    key = fingerprint(depends_on)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            figures: PlainFigures = kept["figures"]
            return figures
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not ours: they are taken again
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"key": key, "figures": found})
    return found


def optional_section(what: str, make: Callable[[], T], missed: list[str]) -> T | None:
    """A part of the report; where it fails, None and a note: hours of training are not lost to it."""
    try:
        return make()
    except Exception as error:  # whatever a library below may raise
        log.warning("%s could not be measured: %s", what, error)
        log.debug("%s", what, exc_info=error)
        reason = str(error) if isinstance(error, ColabelError) else f"{type(error).__name__}: {error}"
        missed.append(f"Missing from this report is {what}: {reason}")
        return None

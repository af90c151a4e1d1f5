"""What a study found, as ``study.json`` holds it: the one input of a report.

All figures are computed when the study ends; a report only shows them. Everything but the name and the measures may be
left out (absent, null or empty), and the report then leaves out the section. Figures that could not be computed are
None. Unknown keys are ignored, so that a later version may add some.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from colabel.artefacts import write_text
from colabel.errors import ArtefactError, SettingsError, UsageError
from colabel.evaluation.comparison import Comparison, Pair, letter
from colabel.measures import mean_values
from colabel.systems import parse_system

FORMAT = 1
STUDY_FILE = "study.json"
TRANSFERRED = " → "  # in the name of a transfer, between its study and its collection
CROSS_ENCODER_STAGE = "training cross-encoder"
"""The stages of training cross-encoders go by this and their number."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # in no XML or UTF-8 file

Figures = Mapping[str, float | None]
"""Name (of a measure, a query …) → value."""


class Record(msgspec.Struct, frozen=True):
    """A part of the document."""


class DatasetSummary(Record, frozen=True, rename={"labels_hidden": "hidden"}):
    """The collection: counts, by split where there are several; ``not_relevant`` are labels below ``relevant_from``."""

    name: str
    passages: int | None = None
    queries: Mapping[str, int] = {}
    labels: Mapping[str, int] = {}
    labels_hidden: int | None = None
    not_relevant: Mapping[str, int] = {}


class Milliseconds(Record, frozen=True):
    """Response time of one query, from its text to ranked passages (the paper's MRT is the mean)."""

    median: float
    mean: float
    p95: float


class Timing(Record, frozen=True):
    """How response times were taken: timed queries, passages asked for, threads, and questions before the clock."""

    queries: int
    depth: int
    threads: int
    warmup: int


class SystemResult(Record, frozen=True):
    """One system of the study and how it did.

    Attributes:
        slug, title, group, beta: as in the registry of systems; systems of a group stand together.
        about: its line in the glossary.
        seeded: whether it draws at random; one run of a system that does not stands for every seed.
        cross_encoders: how many cross-encoders taught it.
        seeds: how many students were trained; figures are means over them.
        means: measure → mean over queries (and seeds) on the study's split.
        intervals: measure → bounds of the bootstrap interval of the mean.
        spread: measure → standard deviation over seeds; None or absent for one seed.
        judged_only: measure → mean with passages without a judgement taken out of the run first.
        unjudged_share: of the passages in the top 10 of all queries, the share without a judgement.
        unanswered: queries that it, or one of its seeds, finds no passage for.
        seconds: "annotation", "training" or any other part of the work → seconds.
        pairs: query–passage pairs that the teacher labelled.
        encoder_passes: texts (or pairs of texts) that went through a transformer for the labels.
        equal_passes: the same for as many labelled pairs as the collective student has.
        failed: why there are no figures, as one sentence; None where there are.
    """

    slug: str
    title: str
    group: str = ""
    beta: float | None = None
    seeds: int = 1
    means: Figures = {}
    intervals: Mapping[str, tuple[float | None, float | None]] = {}
    spread: Figures = {}
    judged_only: Figures = {}
    unjudged_share: float | None = None
    unanswered: int | None = None
    milliseconds: Milliseconds | None = None
    seconds: Figures = {}
    pairs: int | None = None
    encoder_passes: int | None = None
    equal_passes: int | None = None
    failed: str | None = None
    about: str = ""
    seeded: bool = True
    cross_encoders: int = 0


class Mean(Record, frozen=True):
    """A mean over queries with its interval."""

    mean: float
    low: float | None = None
    high: float | None = None
    queries: int | None = None


class Difference(Record, frozen=True):
    """A mean of paired differences with its interval and the p-value of the paired t-test."""

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


class FeedbackGain(Record, frozen=True):
    """What feedback from the top passages brings on the queries of a split.

    Attributes:
        gain: ColBERT-PRF less ColBERT in the study's first measure.
        plain: ColBERT.
        precision: the share of the feedback passages that are relevant.
        depth: how many of ColBERT's top passages are ranked again.
    """

    gain: Mean
    plain: Mean | None = None
    precision: Mean | None = None
    depth: int | None = None


class TeacherQuality(
    Record, frozen=True, rename={"average_precision": "AP", "auc": "AUC", "difference": "AP_less_phi"}
):
    """How a teacher's scores rank relevant passages among the candidates, at one grade as the cut-off.

    Attributes:
        difference: average precision less that of φ, paired by query; φ itself has none.
        precision_at_recall: interpolated, averaged over queries, at recall 0, 0.1 … 1.
        pooled_curve: (recall, interpolated precision) of one threshold over the pairs of all queries.
        base_rate: the share of these pairs that are relevant.
    """

    queries: int | None = None
    average_precision: Mean | None = None
    auc: Mean | None = None
    difference: Difference | None = None
    precision_at_recall: tuple[float | None, ...] = ()
    pooled_curve: tuple[tuple[float, float | None], ...] = ()
    base_rate: float | None = None


class Coverage(Record, frozen=True):
    """How much of what is relevant is among the candidates: the rest no teacher can rank.

    Attributes:
        relevant: relevant passages of the queries; ``found`` of them are candidates.
        left_out: queries of which no relevant passage is a candidate; nothing is measured on them.
    """

    relevant: int
    found: int
    left_out: int = 0


class QualitySet(Record, frozen=True):
    """Teachers on the same candidates of the same queries.

    Attributes:
        title: which queries, and what counts as relevant.
        teachers: teacher → grade (as text) from which passages count as relevant → how its scores rank them.
        curves: whether the report draws them.
        coverage: grade → what the candidates hold.
    """

    title: str
    teachers: Mapping[str, Mapping[str, TeacherQuality]]
    curves: bool = True
    coverage: Mapping[str, Coverage] = {}


class SweepSetting(Record, frozen=True):
    """One setting of (f_p, f_c, f_e, β) and its measures."""

    feedback_passages: int
    clusters: int
    centroids: int
    beta: float
    measures: Figures


class ExampleToken(Record, frozen=True):
    """An expansion token with σ."""

    token: str
    sigma: float | None = None


class ExamplePassage(Record, frozen=True):
    """A passage whose label changed.

    Attributes:
        title, text: empty where the study keeps ids and figures only.
        before, after: its rank by φ and by the teacher score; None where it is beyond the candidates.
        labelled: whether it has a (visible) label.
        hidden_positive: whether its positive label was hidden; None where none were.
        matched: tokens of the expansion that it matches, as WordPiece writes them ("ice", "##berg").
    """

    passage_id: str
    title: str = ""
    text: str = ""
    before: int | None = None
    after: int | None = None
    labelled: bool = False
    hidden_positive: bool | None = None
    matched: tuple[str, ...] = ()


class Example(Record, frozen=True):
    """A query whose labels changed much: φ ranked ``candidates`` passages for it, and the teacher's β changed them."""

    query_id: str
    query: str = ""
    tokens: tuple[ExampleToken, ...] = ()
    passages: tuple[ExamplePassage, ...] = ()
    candidates: int | None = None
    beta: float | None = None


class TrainingCurve(Record, frozen=True):
    """How a student learned: (step, loss), and (step, seconds since the start, value on dev)."""

    loss: tuple[tuple[int, float | None], ...] = ()
    dev: tuple[tuple[int, float | None, float | None], ...] = ()


class Reached(Record, frozen=True):
    """When a student first had the target; no seconds where it did not within its steps.

    Attributes:
        start: what it was trained from, as "θ" or "plain encoder".
        before: seconds from the plain encoder to that start.
        annotation: seconds that its labels cost before training began.
        training: seconds of training until then: its steps at the speed of all students, without evaluations.
    """

    slug: str
    start: str
    step: int | None = None
    before: float | None = None
    annotation: float | None = None
    training: float | None = None

    @property
    def from_start(self) -> float | None:
        """Seconds from the student's start: labels and training."""
        return None if self.training is None else self.training + (self.annotation or 0.0)

    @property
    def from_plain(self) -> float | None:
        """Seconds from the plain encoder."""
        return None if self.from_start is None or self.before is None else self.before + self.from_start


class Ratio(Record, frozen=True):
    """How many times longer ``slug`` takes than ``against``.

    Attributes:
        annotation, overall: for equal numbers of labelled pairs, counted as in the paper.
        annotation_as_run, overall_as_run: for the pairs that each of the two labelled.
        factor: what ``slug``'s seconds of annotation were multiplied by to have equal numbers of pairs.
        seconds: name of one of these ratios → the seconds above and below the line.
        paper_annotation, paper_overall: what the paper reports.
    """

    slug: str
    against: str
    annotation: float | None = None
    training: float | None = None
    overall: float | None = None
    annotation_as_run: float | None = None
    overall_as_run: float | None = None
    factor: float | None = None
    seconds: Mapping[str, tuple[float, float]] = {}
    paper_annotation: float | None = None
    paper_overall: float | None = None


class Efficiency(Record, frozen=True):
    """What training costs: seconds to a fixed value of a measure on dev, and ratios between systems.

    ``origin`` says where the value comes from, ``queries`` on how many dev queries it is measured.
    """

    measure: str = "nDCG@10"
    target: float | None = None
    origin: str = ""
    queries: int | None = None
    reached: tuple[Reached, ...] = ()
    ratios: tuple[Ratio, ...] = ()


class Setting(Record, frozen=True):
    """A setting as the study used it, and its value in the paper; empty where the paper leaves it open."""

    name: str
    value: str
    paper: str = ""

    @property
    def differs(self) -> bool:
        """Whether the paper has another value."""
        return bool(self.paper) and self.value != self.paper


class Environment(Record, frozen=True):
    """What the study ran on; versions are those of Python and of libraries."""

    versions: Mapping[str, str] = {}
    cpu: str = ""
    cores: int | None = None
    commit: str = ""
    memory: int | None = None
    device: str = ""


class StudyDocument(Record, frozen=True):
    """All that a report shows.

    Attributes:
        measures: in the order of the tables; the first is the one that plots of a single measure show.
        systems: in the order of tables, letters and plots, those of a group together; failed ones included.
        reference: slug of the system that differences and scatter plots are against.
        student: slug of the student that the study is about.
        relevant_from: grade from which passages count as relevant.
        without_relevant: queries that have no such passage, which count 0 for every system in binary measures.
        per_query: slug → measure → query id → value, the mean over seeds.
        per_seed: slug → seed (as text) → the same of that seed, for systems of several seeds.
        comparisons: measure → tests between systems, which go by their slugs.
        label_quality: how the scores of teachers rank relevant passages, for each choice of queries.
        suggestions: order of suggested labels → "1", "2", "5" times as many as queries → precision.
        suggestions_recall: the same → of all hidden positives, the share that is among them.
        prf_gain: split → gain of ColBERT-PRF over ColBERT, and how good its feedback is.
        gain_difference: that gain on the training queries less that on the test queries.
        training: slug → curves.
        timing: how response times were taken.
        recipe: the TOML text.
        settings: every setting, as "section.key", → its value, defaults included.
        models: what a model is for, as "encoder" → its name.
        collective: the settings of collective knowledge, defaults included.
        seconds: stage → seconds, in the order in which they ran.
        notes: sentences that a reader must know.
    """

    name: str
    measures: tuple[str, ...]
    split: str = "test"
    relevant_from: int = 1
    without_relevant: int | None = None
    reference: str | None = "colbert"
    dataset: DatasetSummary | None = None
    systems: tuple[SystemResult, ...] = ()
    per_query: Mapping[str, Mapping[str, Figures]] = {}
    per_seed: Mapping[str, Mapping[str, Mapping[str, Figures]]] = {}
    comparisons: Mapping[str, Comparison] = {}
    label_quality: tuple[QualitySet, ...] = ()
    suggestions: Mapping[str, Figures] = {}
    suggestions_recall: Mapping[str, Figures] = {}
    prf_gain: Mapping[str, FeedbackGain] = {}
    gain_difference: Mean | None = None
    sweep: tuple[SweepSetting, ...] = ()
    examples: tuple[Example, ...] = ()
    training: Mapping[str, TrainingCurve] = {}
    efficiency: Efficiency | None = None
    timing: Timing | None = None
    recipe: str = ""
    settings: Mapping[str, str] = {}
    models: Mapping[str, str] = {}
    collective: tuple[Setting, ...] = ()
    environment: Environment | None = None
    seconds: Figures = {}
    notes: tuple[str, ...] = ()
    student: str | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.measures:
            raise UsageError("measures: a study has at least one")
        slugs = [system.slug for system in self.systems]
        twice = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
        if twice is not None:
            raise UsageError(f"systems: two have the slug '{twice}'")
        groups = list(dict.fromkeys(system.group for system in self.systems))
        ordered = sorted(self.systems, key=lambda system: groups.index(system.group))
        msgspec.structs.force_setattr(self, "systems", tuple(ordered))

    @property
    def finished(self) -> tuple[SystemResult, ...]:
        """The systems that have figures."""
        return tuple(system for system in self.systems if system.failed is None)

    @property
    def letters(self) -> dict[str, str]:
        """Slug → letter, as the comparisons have them; failed systems have none."""
        found = next(iter(self.comparisons.values()), None)
        names = {line.system: line.letter for line in found.lines} if found else {}
        if any(system.slug not in names for system in self.finished):
            names = {system.slug: letter(place) for place, system in enumerate(self.finished)}
        return names

    @property
    def work(self) -> list[str]:
        """The parts of the work that systems have seconds of, training last."""
        found = dict.fromkeys(part for system in self.finished for part in system.seconds)
        return sorted(found, key=lambda part: part == "training")

    def system(self, slug: str | None) -> SystemResult | None:
        """The system of a slug."""
        return next((system for system in self.systems if system.slug == slug), None)

    def title(self, slug: str) -> str:
        """A system's name in tables; the slug itself where the study has no such system."""
        found = self.system(slug)
        return found.title if found else slug

    def setting(self, name: str) -> str | None:
        """The value of a setting of collective knowledge; None where the study does not record it."""
        return next((one.value for one in self.collective if one.name == name), None)

    def pair(self, measure: str, one: str, other: str) -> Pair | None:
        """The tests between two systems."""
        pairs = self.comparisons[measure].pairs if measure in self.comparisons else ()
        return next((pair for pair in pairs if {pair.system, pair.against} == {one, other}), None)

    @property
    def query_count(self) -> int:
        """How many queries means are over."""
        held = (len(values) for measures in self.per_query.values() for values in measures.values())
        return max(held, default=0)

    @property
    def unequal_seeds(self) -> bool:
        """Whether systems were trained with different numbers of seeds; those that draw nothing have every seed."""
        return len({system.seeds for system in self.finished if system.seeded}) > 1

    @property
    def seed_means(self) -> dict[str, dict[str, dict[str, float]]]:
        """Slug → seed → measure → mean over queries, of systems of several seeds; a query without a value counts 0."""
        return {
            slug: {
                seed: mean_values({name: {q: value or 0.0 for q, value in one.items()} for name, one in held.items()})
                for seed, held in seeds.items()
            }
            for slug, seeds in self.per_seed.items()
        }

    @property
    def compared_seed(self) -> str | None:
        """The first seed that all systems have, where their numbers of seeds differ; a system of one has the first."""
        held = [set(self.per_seed.get(system.slug, ())) for system in self.finished if system.seeds > 1]
        return min(set.intersection(*held), key=int, default=None) if self.unequal_seeds and held else None

    def comparable(self, measure: str) -> Figures:
        """Slug → the value by which systems are compared.

        The mean over seeds where all have as many, else the value on :attr:`compared_seed`: the best of several single
        values is higher by luck than a mean. Empty where such a seed is not known.
        """
        seed = self.compared_seed
        if self.unequal_seeds and seed is None:
            return {}
        means = self.seed_means if seed is not None else {}
        return {
            system.slug: (means[system.slug][seed] if seed is not None and system.seeds > 1 else system.means).get(
                measure
            )
            for system in self.finished
        }

    def best(self, measure: str) -> set[str]:
        """Slugs of the systems with the highest comparable value, to the three places that are shown."""
        return best(self.comparable(measure))


def best(values: Figures) -> set[str]:
    """The names of the highest value, to three places.

    >>> sorted(best({"a": 0.5, "b": 0.49996, "c": 0.1, "d": None}))
    ['a', 'b']
    """
    highest = max((value for value in values.values() if value is not None), default=0.0)
    return {name for name, value in values.items() if value is not None and f"{value:.3f}" == f"{highest:.3f}"}


def as_json(value: Any) -> Any:
    """JSON types of records: numpy's numbers become plain ones, what is not finite null, unprintable characters �.

    >>> as_json({"a": float("nan"), "b": Setting("x", "y\\x00")})
    {'a': None, 'b': {'name': 'x', 'value': 'y�', 'paper': ''}}
    """
    plain = msgspec.to_builtins(value, enc_hook=lambda number: number.item())
    return msgspec.json.decode(msgspec.json.encode(_printable(plain)))  # which writes null for what is not finite


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_printable(key): _printable(inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_study(folder: Path, document: StudyDocument) -> Path:
    """Write ``study.json`` into an existing folder, whole or not at all."""
    path, table = folder / STUDY_FILE, as_json(document)
    first = {"format": table.pop("format"), **table}
    write_text(path, msgspec.json.format(msgspec.json.encode(first), indent=1).decode() + "\n")
    return path


def read_study(folder: Path) -> StudyDocument:
    """Read ``study.json`` of a finished study.

    Raises:
        ArtefactError: there is none, or it is not a study of this format.
    """
    path = folder / STUDY_FILE
    try:
        return parse_study(msgspec.json.decode(path.read_bytes()))
    except FileNotFoundError:
        what = f"has no {STUDY_FILE}, so it is not a finished study" if folder.is_dir() else "does not exist"
        raise ArtefactError(f"{folder} {what}; expected the output folder of `colabel study`") from None
    except NotADirectoryError:
        raise ArtefactError(f"{folder} is a file; expected the output folder of `colabel study`") from None
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as error:
        raise ArtefactError(f"{path} is not a study: {error}; run the study again to write it") from None


def parse_study(value: Any) -> StudyDocument:
    """The document that parsed JSON holds.

    What a study of an earlier version does not say of its systems is taken from the registry.

    Raises:
        msgspec.ValidationError, UsageError: of another format, a part has the wrong type or is not consistent.
    """
    if isinstance(value, dict) and value.get("format") != FORMAT:
        raise UsageError(f"format: expected {FORMAT}, found {value.get('format')!r}")
    document = msgspec.convert(_given(StudyDocument, value), StudyDocument)
    if any(system.about for system in document.systems):
        return document
    known = {system.slug: _described(system) for system in document.systems}
    student = next((slug for slug, (one, collective) in known.items() if collective and one.failed is None), None)
    systems = tuple(system for system, _ in known.values())
    return msgspec.structs.replace(document, systems=systems, student=document.student or student)


def _described(system: SystemResult) -> tuple[SystemResult, bool]:
    """A system of an earlier version with what the registry says of it, and whether it is a collective student."""
    try:
        entry = parse_system(system.slug)
    except SettingsError:  # a system that this version does not have
        return system, False
    readers = 3 if "cross-encoders" in entry.needs else int(entry.needs_cross_encoder)
    described = msgspec.structs.replace(system, about=entry.about, seeded=entry.seeded, cross_encoders=readers)
    return described, entry.collective


def _given(kind: Any, value: Any) -> Any:
    """JSON of a type without the nulls that stand for a default: files of other versions may hold some."""
    inner = typing.get_args(kind)
    if type(None) in inner:
        return _given(inner[0], value)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Record):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return {key: _given(types.get(key), one) for key, one in value.items() if one is not None}
    if isinstance(value, dict):
        return {key: _given(inner[-1] if inner else None, one) for key, one in value.items()}
    return [_given(inner[0] if inner else None, one) for one in value] if isinstance(value, list) else value

"""The records of which ``study.json`` is made: what a runner fills and a report shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from colabel.evaluation.quality import ScoreQuality
from colabel.evaluation.significance import PairedTest
from colabel.reporting.reading import renamed

T = TypeVar("T")

Figures = Mapping[str, float | None]
"""Name (of a measure, a query …) → value."""

SEEDLESS = ("bm25", "zero-shot")
"""Systems that draw nothing at random: one run of theirs stands for every seed."""

CROSS_ENCODER_STAGE = "training cross-encoder"
"""The stages of training cross-encoders go by this and their number."""


def grouped(rows: Iterable[T], group: Callable[[T], str]) -> tuple[T, ...]:
    """Rows with those of a group together; groups stand in the order of their first rows.

    >>> grouped(["b1", "a1", "b2"], lambda name: name[0])
    ('b1', 'b2', 'a1')
    """
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(group(row), []).append(row)
    return tuple(row for held in found.values() for row in held)


@dataclasses.dataclass(frozen=True)
class DatasetSummary:
    """The collection: counts, by split where there are several.

    ``not_relevant`` are those of the labels whose grade is below the one from which passages count as relevant.
    """

    name: str
    passages: int | None = None
    queries: Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels_hidden: int | None = renamed("hidden", default=None)
    not_relevant: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Milliseconds:
    """Response time of one query, from its text to ranked passages (the paper's MRT is the mean)."""

    median: float
    mean: float
    p95: float


@dataclasses.dataclass(frozen=True)
class Timing:
    """How response times were taken: timed queries, passages asked for, threads, and questions before the clock."""

    queries: int
    depth: int
    threads: int
    warmup: int


@dataclasses.dataclass(frozen=True)
class System:
    """One row of the study.

    Attributes:
        slug: its name in files, as "collective-1".
        title: its name in tables, as "Collective self-KD (β = 1)".
        group: rows of a group stand together: "baseline", "hard labels", "distilled" or "search time".
        seeds: how many students were trained; figures are means over them.
        means: measure → mean over queries (and seeds) on the study's split.
        intervals: measure → bounds of the bootstrap interval of the mean.
        spread: measure → standard deviation over seeds; None or absent for one seed.
        judged_only: measure → mean with passages without a judgement taken out of the run first.
        unjudged_share: of the passages in the top 10 of all queries, the share without a judgement.
        unanswered: queries that it, or one of its seeds, finds no passage for.
        milliseconds: response time.
        seconds: "annotation", "training" or any other part of the work → seconds.
        pairs: query–passage pairs that the teacher labelled.
        encoder_passes: texts (or pairs of texts) that went through a transformer for the labels.
        equal_passes: the same for as many labelled pairs as the collective row has.
        failed: why there are no figures, as one sentence; None where there are.
    """

    slug: str
    title: str
    group: str = ""
    beta: float | None = None
    seeds: int = 1
    means: Figures = dataclasses.field(default_factory=dict)
    intervals: Mapping[str, tuple[float | None, float | None]] = dataclasses.field(default_factory=dict)
    spread: Figures = dataclasses.field(default_factory=dict)
    judged_only: Figures = dataclasses.field(default_factory=dict)
    unjudged_share: float | None = None
    unanswered: int | None = None
    milliseconds: Milliseconds | None = None
    seconds: Figures = dataclasses.field(default_factory=dict)
    pairs: int | None = None
    encoder_passes: int | None = None
    equal_passes: int | None = None
    failed: str | None = None


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over queries with its interval."""

    mean: float
    low: float | None = None
    high: float | None = None
    queries: int | None = None


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean of paired differences with its interval and the p-value of the paired t-test."""

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclasses.dataclass(frozen=True)
class FeedbackGain:
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


@dataclasses.dataclass(frozen=True)
class TeacherQuality:
    """How a teacher's scores rank relevant passages among the candidates, at one grade as the cut-off.

    Attributes:
        average_precision, auc: means over queries ("AP" and "AUC" in JSON).
        difference: average precision less that of φ, paired by query ("AP_less_phi" in JSON); φ itself has none.
        precision_at_recall: interpolated, averaged over queries, at recall 0, 0.1 … 1.
        pooled_curve: (recall, interpolated precision) of one threshold over the pairs of all queries.
        base_rate: the share of these pairs that are relevant.
    """

    queries: int | None = None
    average_precision: Mean | None = renamed("AP", default=None)
    auc: Mean | None = renamed("AUC", default=None)
    difference: Difference | None = renamed("AP_less_phi", default=None)
    precision_at_recall: tuple[float | None, ...] = ()
    pooled_curve: tuple[tuple[float, float | None], ...] = ()
    base_rate: float | None = None

    @classmethod
    def of(cls, found: ScoreQuality, against: PairedTest | None = None) -> TeacherQuality:
        """The part of an evaluation of scores that a report shows; ``against`` is the test of its AP against φ's."""
        pooled = found.pooled.as_dict()
        average, auc = found.average_precision, found.auc
        return cls(
            queries=average.queries,
            average_precision=Mean(average.mean, average.low, average.high, average.queries),
            auc=None if auc is None else Mean(auc.mean, auc.low, auc.high, auc.queries),
            difference=None if against is None else _difference(against),
            precision_at_recall=tuple(level.mean for level in found.precision_at_recall),
            pooled_curve=tuple(zip(pooled["recall"], pooled["precision"], strict=True)),
            base_rate=float(found.pooled.precision[-1]),  # of the lowest threshold, which all pairs pass
        )


def _difference(found: PairedTest) -> Difference:
    return Difference(found.difference.mean, found.difference.low, found.difference.high, found.t_test)


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of what is relevant is among the candidates: the rest no teacher can rank.

    Attributes:
        relevant: relevant passages of the queries; ``found`` of them are candidates.
        left_out: queries with relevant passages of which none is a candidate that all teachers scored; nothing is
            measured on them.
    """

    relevant: int
    found: int
    left_out: int = 0


@dataclasses.dataclass(frozen=True)
class QualitySet:
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
    coverage: Mapping[str, Coverage] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SweepRow:
    """One setting of (f_p, f_c, f_e, β) and its measures."""

    feedback_passages: int
    clusters: int
    centroids: int
    beta: float
    measures: Figures


@dataclasses.dataclass(frozen=True)
class ExampleToken:
    """An expansion token with σ."""

    token: str
    sigma: float | None = None


@dataclasses.dataclass(frozen=True)
class ExamplePassage:
    """A passage whose label changed.

    Attributes:
        text: empty where the study keeps ids and figures only; likewise ``title``.
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


@dataclasses.dataclass(frozen=True)
class Example:
    """A query whose labels changed much.

    Attributes:
        candidates: how many passages φ ranked for it, at most.
        beta: β of the teacher that changed them.
    """

    query_id: str
    query: str = ""
    tokens: tuple[ExampleToken, ...] = ()
    passages: tuple[ExamplePassage, ...] = ()
    candidates: int | None = None
    beta: float | None = None


@dataclasses.dataclass(frozen=True)
class TrainingCurve:
    """How a student learned: (step, loss), and (step, seconds since the start, value on dev)."""

    loss: tuple[tuple[int, float | None], ...] = ()
    dev: tuple[tuple[int, float | None, float | None], ...] = ()


@dataclasses.dataclass(frozen=True)
class Reached:
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


@dataclasses.dataclass(frozen=True)
class Trial:
    """Settings that a student was trained with, their value on dev, and whether they were chosen by it.

    ``note`` says why there is no value; ``queries`` are those of dev that all trials are compared on.
    """

    name: str
    value: float | None = None
    note: str = ""
    chosen: bool = False
    queries: int | None = None


@dataclasses.dataclass(frozen=True)
class Ratio:
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
    seconds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    paper_annotation: float | None = None
    paper_overall: float | None = None


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """What training costs: seconds to a fixed value of a measure on dev, and ratios between systems.

    ``origin`` says where the value comes from, ``queries`` on how many dev queries it is measured.
    """

    measure: str = "nDCG@10"
    target: float | None = None
    origin: str = ""
    queries: int | None = None
    reached: tuple[Reached, ...] = ()
    ratios: tuple[Ratio, ...] = ()


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting as the study used it, and its value in the paper; empty where the paper leaves it open."""

    name: str
    value: str
    paper: str = ""

    @property
    def differs(self) -> bool:
        """Whether the paper has another value."""
        return bool(self.paper) and self.value != self.paper


@dataclasses.dataclass(frozen=True)
class Environment:
    """What the study ran on; versions are those of Python and of libraries."""

    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cpu: str = ""
    cores: int | None = None
    commit: str = ""
    memory: int | None = None
    device: str = ""

"""What a study found, as ``study.json`` holds it: the one input of a report.

All figures are computed when the study ends; a report only shows them. Everything but the name and the measures may be
left out, and the report then leaves out the section. Figures that could not be computed are None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from colabel.artefacts import write_text
from colabel.errors import ArtefactError, UsageError
from colabel.evaluation.comparison import Comparison, Pair, letter
from colabel.evaluation.significance import Interval, PairedTest
from colabel.evaluation.sweep import SweepPoint
from colabel.evaluation.timing import ResponseTimes
from colabel.measures import mean_values

FORMAT = 2
STUDY_FILE = "study.json"
TRANSFERRED = " → "  # in the name of a transfer, between its study and its collection
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # in no XML or UTF-8 file

Figures = Mapping[str, float | None]
"""Name (of a measure, a query …) → value."""


class DatasetSummary(Struct, frozen=True, rename={"labels_hidden": "hidden"}):
    """The collection: counts, by split where there are several."""

    name: str
    passages: int
    queries: Mapping[str, int]
    labels: Mapping[str, int]
    labels_hidden: int


class SystemResult(Struct, frozen=True):
    """One system of the study and how it did.

    Attributes:
        seeded: whether it draws at random; one run of a system that does not stands for every seed.
        spread: measure → standard deviation over seeds; absent for one seed.
        unjudged_share: of the passages in the top 10 of all queries, the share without a judgement.
        unanswered: queries that it, or one of its seeds, finds no passage for.
        seconds: "annotation", "training" or any other part of the work → seconds.
        encoder_passes: texts (or pairs of texts) that went through a transformer for the labels.
    """

    slug: str
    title: str
    group: str = ""
    beta: float | None = None
    about: str = ""
    seeded: bool = True
    seeds: int = 1
    means: Figures = {}
    intervals: Mapping[str, tuple[float | None, float | None]] = {}
    spread: Figures = {}
    unjudged_share: float | None = None
    unanswered: int | None = None
    milliseconds: ResponseTimes | None = None
    seconds: Figures = {}
    pairs: int | None = None
    encoder_passes: int | None = None
    failed: str | None = None


class TeacherQuality(Struct, frozen=True):
    """How a teacher's scores rank relevant passages among the candidates, at one grade as the cut-off.

    Attributes:
        difference: average precision less that of φ, paired by query; φ itself has none.
        precision_at_recall: interpolated, averaged over queries, at recall 0, 0.1 … 1.
    """

    average_precision: Interval
    auc: Interval | None = None
    difference: PairedTest | None = None
    precision_at_recall: tuple[float, ...] = ()


class Coverage(Struct, frozen=True):
    """How much of what is relevant is among the candidates: the rest no teacher can rank.

    ``found`` of the ``relevant`` passages are candidates; ``left_out`` queries have none there and are not measured.
    """

    relevant: int
    found: int
    left_out: int = 0


class QualitySet(Struct, frozen=True):
    """Teachers on the same candidates of the same queries.

    Attributes:
        teachers: teacher → grade (as text) from which passages count as relevant → how its scores rank them.
        coverage: grade → what the candidates hold.
    """

    title: str
    teachers: Mapping[str, Mapping[str, TeacherQuality]]
    coverage: Mapping[str, Coverage] = {}


class NewQueries(Struct, frozen=True):
    """Test queries that training does not resemble, and each system's mean of the first measure over them."""

    name: str
    queries: int
    means: Mapping[str, float] = {}


class Ratio(Struct, frozen=True):
    """How many times longer ``slug`` takes than ``against``.

    Attributes:
        annotation, overall: for equal numbers of labelled pairs, counted as in the paper.
        annotation_as_run, overall_as_run: for the pairs that each of the two labelled.
        factor: what ``slug``'s seconds of annotation were multiplied by to have equal numbers of pairs.
    """

    slug: str
    against: str
    annotation: float | None = None
    training: float | None = None
    overall: float | None = None
    annotation_as_run: float | None = None
    overall_as_run: float | None = None
    factor: float | None = None
    paper_annotation: float | None = None
    paper_overall: float | None = None


class Setting(Struct, frozen=True):
    """A setting as the study used it, and its value in the paper; empty where the paper leaves it open."""

    name: str
    value: str
    paper: str = ""

    @property
    def differs(self) -> bool:
        """Whether the paper has another value."""
        return bool(self.paper) and self.value != self.paper


class Environment(Struct, frozen=True):
    """What the study ran on; versions are those of Python and of libraries."""

    versions: Mapping[str, str]
    cpu: str
    cores: int | None
    commit: str
    memory: int
    device: str


class StudyDocument(Struct, frozen=True):
    """All that a report shows.

    Attributes:
        measures: in the order of the tables; the first is the one that plots of a single measure show.
        systems: in the order of tables, letters and plots, those of a group together; failed ones included.
        reference: slug of the system that differences and scatter plots are against.
        without_relevant: queries that have no such passage, which count 0 for every system in binary measures.
        per_query: slug → measure → query id → value, the mean over seeds.
        per_seed: slug → seed (as text) → the same of that seed, for systems of several seeds.
        comparisons: measure → tests between systems, which go by their slugs.
        suggestions: order of suggested labels → "1", "2", "5" times as many as queries → precision.
        seconds: stage → seconds, in the order in which they ran.
    """

    name: str
    measures: tuple[str, ...]
    format: int = FORMAT
    split: str = "test"
    relevant_from: int = 1
    without_relevant: int = 0
    reference: str = "colbert"
    student: str | None = None
    dataset: DatasetSummary | None = None
    systems: tuple[SystemResult, ...] = ()
    per_query: Mapping[str, Mapping[str, Figures]] = {}
    per_seed: Mapping[str, Mapping[str, Mapping[str, Figures]]] = {}
    comparisons: Mapping[str, Comparison] = {}
    new_queries: tuple[NewQueries, ...] = ()
    label_quality: tuple[QualitySet, ...] = ()
    suggestions: Mapping[str, Figures] = {}
    sweep: tuple[SweepPoint, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    recipe: str = ""
    models: Mapping[str, str] = {}
    collective: tuple[Setting, ...] = ()
    environment: Environment | None = None
    seconds: Figures = {}
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> tuple[SystemResult, ...]:
        """The systems that have figures."""
        return tuple(system for system in self.systems if system.failed is None)

    @property
    def letters(self) -> dict[str, str]:
        """Slug → letter; failed systems have none."""
        return {system.slug: letter(place) for place, system in enumerate(self.finished)}

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
        if seed is None:
            return {} if self.unequal_seeds else {one.slug: one.means.get(measure) for one in self.finished}
        means = {slug: seeds[seed] for slug, seeds in self.seed_means.items() if seed in seeds}
        return {one.slug: means.get(one.slug, one.means).get(measure) for one in self.finished}

    def best(self, measure: str) -> set[str]:
        """Slugs of the systems with the highest comparable value, to the three places that are shown."""
        values = {slug: value for slug, value in self.comparable(measure).items() if value is not None}
        return {slug for slug, value in values.items() if f"{value:.3f}" == f"{max(values.values()):.3f}"}


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
    path = folder / STUDY_FILE
    write_text(path, msgspec.json.format(msgspec.json.encode(as_json(document)), indent=1).decode() + "\n")
    return path


def read_study(folder: Path) -> StudyDocument:
    """Read ``study.json`` of a finished study.

    Raises:
        ArtefactError: there is none, or it is not a study of this format.
    """
    path = folder / STUDY_FILE
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=dict[str, Any]).get("format", 0)
        if found != FORMAT:
            raise UsageError(f"format: expected {FORMAT}, found {found}")
        return msgspec.json.decode(content, type=StudyDocument)
    except (FileNotFoundError, NotADirectoryError):
        what = "is a file" if folder.exists() else "does not exist"
        what = f"has no {STUDY_FILE}, so it is not a finished study" if folder.is_dir() else what
        raise ArtefactError(f"{folder} {what}; expected the output folder of `colabel study`") from None
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as error:
        raise ArtefactError(f"{path} is not a study: {error}; run the study again to write it") from None

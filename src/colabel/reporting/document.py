"""What a finished study found: ``study.json``, the one input of a report.

The runner of the study computes all figures, fills a :class:`StudyDocument` and writes it with
:func:`colabel.reporting.write_study`; a report only shows them. Every part but the name and the measures may be left
out (absent, null or empty), and the report then leaves out the section. Figures that could not be computed are None.
In JSON, dataclasses are objects with the names of their fields, tuples are lists; unknown keys are ignored, so that a
later program may add some.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from colabel.errors import UsageError
from colabel.evaluation.comparison import Comparison
from colabel.measures import mean_values
from colabel.reporting.reading import UnreadableError, parse, plain
from colabel.reporting.records import (
    DatasetSummary,
    Efficiency,
    Environment,
    Example,
    FeedbackGain,
    Figures,
    Mean,
    QualitySet,
    Setting,
    SweepRow,
    System,
    Timing,
    TrainingCurve,
    Trial,
    grouped,
)
from colabel.reporting.seeds import comparable, first_common

FORMAT = 1
TRANSFERRED = " → "  # in the name of a transfer, between its study and its collection


@dataclasses.dataclass(frozen=True)
class StudyDocument:
    """All that a report shows.

    Attributes:
        measures: in the order of the tables; the first is the one that plots of a single measure show.
        systems: rows in the order of tables, letters and plots, those of a group together; failed ones included.
        reference: slug of the system that differences and scatter plots are against.
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
        trials: slug → settings that were tried on dev.
        timing: how response times were taken.
        recipe: the TOML text.
        settings: every setting, as "section.key", → its value, those that the recipe leaves at their defaults included.
        models: what a model is for, as "encoder" → its name.
        collective: the settings of collective knowledge, those that the recipe leaves at their defaults included.
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
    systems: tuple[System, ...] = ()
    per_query: Mapping[str, Mapping[str, Figures]] = dataclasses.field(default_factory=dict)
    per_seed: Mapping[str, Mapping[str, Mapping[str, Figures]]] = dataclasses.field(default_factory=dict)
    comparisons: Mapping[str, Comparison] = dataclasses.field(default_factory=dict)
    label_quality: tuple[QualitySet, ...] = ()
    suggestions: Mapping[str, Figures] = dataclasses.field(default_factory=dict)
    suggestions_recall: Mapping[str, Figures] = dataclasses.field(default_factory=dict)
    prf_gain: Mapping[str, FeedbackGain] = dataclasses.field(default_factory=dict)
    gain_difference: Mean | None = None
    sweep: tuple[SweepRow, ...] = ()
    examples: tuple[Example, ...] = ()
    training: Mapping[str, TrainingCurve] = dataclasses.field(default_factory=dict)
    efficiency: Efficiency | None = None
    trials: Mapping[str, tuple[Trial, ...]] = dataclasses.field(default_factory=dict)
    timing: Timing | None = None
    recipe: str = ""
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)
    collective: tuple[Setting, ...] = ()
    environment: Environment | None = None
    seconds: Figures = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.measures:
            raise UsageError("measures: a study has at least one")
        slugs = [system.slug for system in self.systems]
        twice = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
        if twice is not None:
            raise UsageError(f"systems: two have the slug '{twice}'")
        object.__setattr__(self, "systems", grouped(self.systems, lambda system: system.group))

    @classmethod
    def from_json(cls, value: Any) -> StudyDocument:
        """The document that parsed JSON holds.

        Raises:
            UnreadableError: of another format, a part has the wrong type, no measure, or two systems have one slug.
        """
        found = value.get("format") if isinstance(value, Mapping) else FORMAT
        if found != FORMAT:
            raise UnreadableError(f"format: expected {FORMAT}, found {found!r}; run the study again with this colabel")
        try:
            return parse(cls, value)
        except UsageError as error:
            raise UnreadableError(str(error)) from None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        found: dict[str, Any] = plain(self)
        return {"format": found.pop("format"), **found}

    @property
    def finished(self) -> tuple[System, ...]:
        """The systems that have figures."""
        return tuple(system for system in self.systems if system.failed is None)

    @property
    def work(self) -> list[str]:
        """The parts of the work that systems have seconds of, training last."""
        found = dict.fromkeys(part for system in self.finished for part in system.seconds)
        return sorted(found, key=lambda part: part == "training")

    def system(self, slug: str | None) -> System | None:
        """The system of a slug."""
        return next((system for system in self.systems if system.slug == slug), None)

    def setting(self, name: str) -> str | None:
        """The value of a setting of collective knowledge; None where the study does not tell."""
        return next((one.value for one in self.collective if one.name == name), None)

    @property
    def query_count(self) -> int:
        """How many queries means are over."""
        held = (len(values) for measures in self.per_query.values() for values in measures.values())
        return max(held, default=0)

    @property
    def seed_counts(self) -> dict[str, int]:
        """Slug → number of seeds, of the systems that have figures."""
        return {system.slug: system.seeds for system in self.finished}

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

    def comparable(self, measure: str) -> Figures:
        """Slug → the value by which systems are compared, on a seed that all have where some have several."""
        means = {system.slug: system.means for system in self.finished}
        return comparable(measure, means, self.seed_counts, self.seed_means)

    @property
    def compared_seed(self) -> str | None:
        """The seed on which :meth:`comparable` compares systems; None where it compares means over all seeds."""
        return first_common(self.seed_counts, self.seed_means)

    def title(self, slug: str) -> str:
        """A system's name in tables; the slug itself where the study has no such row."""
        found = self.system(slug)
        return found.title if found else slug

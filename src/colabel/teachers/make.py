"""Any teacher by its name, for the command line and recipes."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from colabel.data import Dataset
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress
from colabel.settings import CollectiveSettings, CrossEncoderSettings, LabelSettings
from colabel.teachers.base import Teacher
from colabel.teachers.cross_encoder import CrossEncoderTeacher
from colabel.teachers.ensemble import MeanTeacher
from colabel.teachers.mixed import MixedTeacher, Scale
from colabel.teachers.pairs import PairPredictor
from colabel.teachers.score_file import ScoreFileTeacher
from colabel.teachers.uniform import UniformTeacher

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

TEACHERS = ("collective", "self", "uniform", "cross-encoder", "ensemble", "scores", "mixed")


@dataclasses.dataclass(frozen=True)
class TeacherChoice:
    """Which teacher is wanted, and what that one needs beside the settings.

    Attributes:
        name: one of ``TEACHERS``.
        models: cross-encoders, as folders or hub ids: one for 'cross-encoder', several for 'ensemble'.
        scores: the file of 'scores'.
        standardise: whether 'ensemble' brings its teachers to one scale first.
        parts: the two teachers of 'mixed', by name; both draw on the same models and file.
        weight: the share of the first part.
        scale, temperatures: how the parts are mixed, see :class:`~colabel.teachers.mixed.MixedTeacher`.
        device: where cross-encoders run.
        cache: where they keep finished pairs, so that a kill costs little.
    """

    name: str
    models: tuple[str, ...] = ()
    scores: Path | None = None
    standardise: bool = False
    parts: tuple[str, ...] = ()
    weight: float = 0.5
    scale: Scale = "standardised"
    temperatures: tuple[float, float] = (1.0, 1.0)
    device: str = "auto"
    cache: Path | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.parts):
            if name not in TEACHERS:
                close = difflib.get_close_matches(name, TEACHERS, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise UsageError(f"there is no teacher '{name}'; expected one of {', '.join(TEACHERS)}{hint}")


def make_teacher(
    choice: TeacherChoice,
    dataset: Dataset,
    *,
    knowledge: Knowledge | None = None,
    split: str = "train",
    collective: CollectiveSettings | None = None,
    labels: LabelSettings | None = None,
    cross_encoder: CrossEncoderSettings | None = None,
    predictor: Callable[[str, int, str], PairPredictor] | None = None,
    progress: Progress = SILENT,
) -> Teacher:
    """Build the teacher of a choice.

    Args:
        knowledge: collective knowledge, for 'collective' and 'self'.
        split: whose labels 'uniform' smooths.
        collective: β and its scale; None: those that the knowledge was collected with.
        labels: ε of 'uniform'.
        cross_encoder: how pairs are read.
        predictor: who scores pairs, made from model, length and device; None: this process.
    """
    context = _Context(
        choice,
        dataset,
        knowledge,
        split,
        collective,
        labels or LabelSettings(),
        cross_encoder or CrossEncoderSettings(),
        predictor,
        progress,
    )
    return context.make(choice.name)


@dataclasses.dataclass(frozen=True)
class _Context:
    """All that a teacher may need."""

    choice: TeacherChoice
    dataset: Dataset
    knowledge: Knowledge | None
    split: str
    collective: CollectiveSettings | None
    labels: LabelSettings
    cross_encoder: CrossEncoderSettings
    predictor: Callable[[str, int, str], PairPredictor] | None
    progress: Progress

    def make(self, name: str) -> Teacher:
        makers: dict[str, Callable[[], Teacher]] = {
            "collective": self._collective,
            "self": self._self,
            "uniform": self._uniform,
            "cross-encoder": self._one_cross_encoder,
            "ensemble": self._ensemble,
            "scores": self._scores,
            "mixed": self._mixed,
        }
        return makers[name]()

    def _needed_knowledge(self, name: str) -> Knowledge:
        if self.knowledge is None:
            raise UsageError(f"the teacher '{name}' needs collective knowledge; name a folder that `collect` wrote")
        return self.knowledge

    def _collective(self) -> Teacher:
        from colabel.teachers.collective import CollectiveTeacher

        knowledge = self._needed_knowledge("collective")
        settings = self.collective or knowledge.settings
        return CollectiveTeacher(knowledge, beta=settings.beta, scale=settings.expansion_scale)

    def _self(self) -> Teacher:
        from colabel.teachers.self_distillation import SelfTeacher

        knowledge = self._needed_knowledge("self")
        return SelfTeacher(knowledge.index, knowledge.queries)

    def _uniform(self) -> Teacher:
        return UniformTeacher(self.dataset, self.split, self.labels.smoothing)

    def _one_cross_encoder(self) -> Teacher:
        models = self.choice.models
        if len(models) != 1:
            given = "none was named" if not models else f"{len(models)} were named (their mean is 'ensemble')"
            raise UsageError(f"the teacher 'cross-encoder' needs one model, and {given}; add --model FOLDER")
        return self._cross_encoder(models[0])

    def _ensemble(self) -> Teacher:
        models = self.choice.models
        if len(models) < 2:
            raise UsageError(
                f"the teacher 'ensemble' needs two models or more, and {len(models)} were named; add --model FOLDER "
                "for each"
            )
        if len(set(models)) < len(models):
            raise UsageError("the teacher 'ensemble' was given one model twice; name each once")
        return MeanTeacher([self._cross_encoder(model) for model in models], standardise=self.choice.standardise)

    def _cross_encoder(self, model: str) -> CrossEncoderTeacher:
        length = self.cross_encoder.max_length
        return CrossEncoderTeacher(
            model,
            self.dataset,
            max_length=length,
            predictor=None if self.predictor is None else self.predictor(model, length, self.choice.device),
            batch_tokens=self.cross_encoder.batch_tokens,
            device=self.choice.device,
            cache=self.choice.cache,
            progress=self.progress,
        )

    def _scores(self) -> Teacher:
        if self.choice.scores is None:
            raise UsageError("the teacher 'scores' needs a file of scores; add --scores FILE")
        return ScoreFileTeacher(self.choice.scores, self.dataset, progress=self.progress)

    def _mixed(self) -> Teacher:
        parts = self.choice.parts
        if len(parts) != 2 or "mixed" in parts:
            raise UsageError(
                f"the teacher 'mixed' needs two other teachers, and was given {', '.join(parts) or 'none'}; name them "
                "with --of, such as --of collective --of cross-encoder"
            )
        return MixedTeacher(
            self.make(parts[0]),
            self.make(parts[1]),
            self.choice.weight,
            scale=self.choice.scale,
            temperatures=self.choice.temperatures,
        )

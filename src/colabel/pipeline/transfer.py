"""The systems of a study on another collection, without training: what they learnt, and what only fitted the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from colabel.artefacts import Builder, folder_lock, read_manifest, write_json
from colabel.collective import PrfRanker
from colabel.data import resolve_paths
from colabel.errors import ArtefactError, UsageError
from colabel.findings import StudyDocument, SystemResult, read_study, write_study
from colabel.findings.records import TRANSFERRED, QualitySet
from colabel.findings.results import measured, optional_section
from colabel.findings.teacher_quality import judged_quality, name_readers
from colabel.index import Index
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import RECIPE_FILE, TRANSFER_FILE, noted_recipe
from colabel.pipeline.stages import Stages
from colabel.pipeline.study import Rows, outdated
from colabel.progress import SILENT, Progress
from colabel.ranking import Hybrid, LateInteraction, Ranker
from colabel.reporting import ReportFiles, report
from colabel.settings import DataSettings
from colabel.systems import System, parse_system
from colabel.teachers import CrossEncoderTeacher


def transfer(
    source: Path | str,
    data: DataSettings,
    out: Path | str,
    *,
    systems: Sequence[str] = (),
    measures: Sequence[str] = (),
    progress: Progress = SILENT,
) -> tuple[StudyDocument, ReportFiles]:
    """Rank the test queries of another collection with the systems of a finished study, and write the same report.

    Models are those of the study's first seed; nothing is trained. ColBERT-PRF takes its collective knowledge from
    the new collection. The same call continues after an interruption.

    Args:
        data: the new collection; all other settings are the study's.
        systems: some of its systems; empty: all.
        measures: other ones than the study's, such as ``RR(rel=2)@10`` for another scale of grades.
    """
    source, out = Path(source), Path(out)
    if out.resolve() == source.resolve():
        raise UsageError(f"{out} is the study itself; choose another folder for its transfer")
    if (out / RECIPE_FILE).exists():
        raise UsageError(f"{out} holds a study or run of its own; choose another folder for the transfer")
    if outdated(source):
        raise ArtefactError(f"the models in {source} are newer than its report; run `colabel study` to its end first")
    finished, (recipe, taken) = read_study(source), noted_recipe(source)
    wanted = tuple(measures) or recipe.study.measures
    chosen = dataclasses.replace(recipe.study, systems=_chosen(finished, systems), measures=wanted)
    recipe = dataclasses.replace(recipe, data=data, study=chosen)
    made = Layout.of(source, recipe.seed)
    # θ by what the study noted and holds: the model of its recipe may have moved since.
    theta = made.encoder if taken or (taken is None and not made.theta.is_dir()) else made.theta
    rows = Transfer(finished, made, theta, Stages(recipe, Layout.of(out), None, progress, builder=Builder()))
    with folder_lock(out), rows.stages:
        rows.check_data()
        note = {"study": str(source.resolve()), "data": resolve_paths(data).as_dict()}
        write_json(out / TRANSFER_FILE, note)
        rows.rank_all()
        missed: list[str] = []
        quality = optional_section("the quality of labels", rows.label_quality, missed) or ()
        document = msgspec.structs.replace(
            measured(rows, finished.recipe, missed),
            name=f"{finished.name}{TRANSFERRED}{rows.dataset.name}",
            label_quality=quality,
            notes=(
                f"Systems were trained on {finished.name} (seed {recipe.seed}) and are evaluated on "
                f"{rows.dataset.name} without training.",
                *rows.unreachable,
                *rows.shallow,
                *missed,
            ),
        )
        write_study(out, document)
        return document, report(out)


def _chosen(finished: StudyDocument, wanted: Sequence[str]) -> tuple[str, ...]:
    """Slugs of some systems of a study, in the order of the study."""
    known = [system.slug for system in finished.systems]
    slugs = {parse_system(name).slug for name in wanted or known}
    for slug in sorted(slugs - set(known)):
        raise UsageError(f"the study has no system '{slug}'; it has: {', '.join(known)}")
    return tuple(slug for slug in known if slug in slugs)


def _as_tuned(result: SystemResult) -> System:
    """A system of a finished study, with the β that it found."""
    system = parse_system(result.slug)
    return system.with_beta(result.beta) if system.tuned and result.beta is not None else system


class Transfer(Rows):
    """Systems whose models are trained already: opens them and makes none."""

    def __init__(self, finished: StudyDocument, source: Layout, theta: Path, stages: Stages) -> None:
        known = {result.slug: _as_tuned(result) for result in finished.systems}
        super().__init__([known[slug] for slug in stages.recipe.study.systems], stages)
        self._source, self._theta = source, theta
        self._teachers = [known[result.slug] for result in finished.systems if not result.failed]
        self.failed = {
            result.slug: f"in the study: {result.failed}"
            for result in finished.systems
            if result.failed and result.slug in self.recipe.study.systems
        }

    @property
    def rows(self) -> list[tuple[System, int]]:
        """Every system that was trained, with the first seed."""
        return [(system, self.recipe.seed) for system in self.systems if system.slug not in self.failed]

    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a system."""
        if not system.needs:
            return self.stages.bm25(self.dataset)
        if system.hybrid_of:  # with the weight that the study found; its memory is of other passages
            late = cast(LateInteraction, self.ranker(parse_system(system.hybrid_of)))
            plain = self._source.hybrid(system.slug.replace("memory", "hybrid", 1))
            weight = float(read_manifest(plain).counts["weight"])
            return Hybrid(late, self.stages.bm25(self.dataset), weight, name=system.slug)
        if system.query_side:
            return LateInteraction(self._theta_index(), system.slug, student=self._source.model(system))
        if system.student:
            return LateInteraction(self._index(system.made_as, self._source.model(system)), system.slug)
        if "theta" not in system.needs:
            return LateInteraction(self._index(system.slug, self._source.encoder), system.slug)
        if system.beta is None:
            return LateInteraction(self._theta_index(), system.slug)
        settings = dataclasses.replace(self.recipe.collective, beta=system.beta)
        return PrfRanker(self._theta_index(), settings, rerank=system.rerank, seed=self.recipe.seed)

    def _theta_index(self) -> Index:
        return self._index("colbert", self._theta)

    def _index(self, name: str, model: Path) -> Index:
        """The new collection indexed by a model of the study."""
        if not model.is_dir():
            raise ArtefactError(f"{model} is missing, so '{name}' has no model; run `colabel study` to its end")
        return self.stages.index(self.dataset, model, self.out / "indexes" / name)

    def label_quality(self) -> tuple[QualitySet, ...]:
        """All teachers of the study on θ's top passages of the new test queries: the paper's figure."""
        if not any("theta" in one.needs and not one.student and self.finished(one.slug) for one in self.systems):
            raise UsageError("θ has not ranked this collection without the system 'colbert' or one of ColBERT-PRF")
        readers = name_readers(self._teachers, self._cross_encoders)
        return judged_quality(self, self._theta_index(), self._teachers, readers)

    def _cross_encoders(self, system: System) -> tuple[CrossEncoderTeacher, ...]:
        models = self.recipe.cross_encoder.checkpoints
        if not models:
            folders = (self._source.cross_encoder(number) for number in range(len(self.recipe.cross_encoder.models)))
            models = tuple(str(folder) for folder in folders if folder.is_dir())
        needed = models[: system.cross_encoder_count(self.recipe)]
        return tuple(self.stages.cross_encoder(self.dataset, model) for model in needed)

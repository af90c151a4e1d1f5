"""The systems of a study on another collection, without training: what they learned, and what only fitted the first."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colabel.artefacts import folder_lock, write_text
from colabel.collective import PrfRanker
from colabel.errors import ArtefactError, UsageError
from colabel.index import Index
from colabel.pipeline.changes import RECIPE_FILE, TRANSFER_FILE, noted_recipe, took_teacher
from colabel.pipeline.comparison import Study, set_report_aside
from colabel.pipeline.kept import part
from colabel.pipeline.quality import betas_of, judged_quality, name_readers
from colabel.pipeline.results import measured
from colabel.pipeline.rows import Rows
from colabel.pipeline.systems import System, cross_encoder_count, parse_system
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranker
from colabel.recipe import build_recipe
from colabel.reporting import ReportFiles, StudyDocument, read_study, records, report, write_study
from colabel.reporting.document import TRANSFERRED
from colabel.reporting.records import QualitySet
from colabel.settings import DataSettings, Recipe
from colabel.teachers import CrossEncoderTeacher

_THETA = "colbert"


def transfer(
    source: Path,
    data: DataSettings,
    out: Path,
    *,
    systems: Sequence[str] = (),
    measures: Sequence[str] = (),
    progress: Progress = SILENT,
) -> tuple[StudyDocument, ReportFiles]:
    """Rank the test queries of another collection with the systems of a finished study, and write the same report.

    Models are those of the study's first seed; nothing is trained. ColBERT-PRF takes its collective knowledge from
    the new collection. The same call continues after an interruption.

    Args:
        source: the output folder of :func:`colabel.study`.
        data: the new collection; all other settings are the study's.
        systems: some of its rows; empty: all.
        measures: other ones than the study's, such as ``RR(rel=2)@10`` for another scale of grades.
    """
    if out.resolve() == source.resolve():
        raise UsageError(f"{out} is the study itself; choose another folder for its transfer")
    if (out / RECIPE_FILE).exists():
        raise UsageError(f"{out} holds a study or run of its own; choose another folder for the transfer")
    finished, recipe = read_study(source), study_recipe(source)
    if systems:
        recipe = _with_rows(recipe, finished, systems)
    if measures:
        recipe = dataclasses.replace(recipe, study=dataclasses.replace(recipe.study, measures=tuple(measures)))
    rows = Transfer(finished, source, recipe, data, out, progress)
    with folder_lock(out), rows.bench:
        rows.check_data()  # before the report of an earlier transfer is set aside for this one
        _begin(source, data, out)
        rows.run_all()
        missed: list[str] = []
        quality = part("the quality of labels", rows.label_quality, missed) or ()
        document = dataclasses.replace(
            measured(rows, finished.recipe, missed),
            name=f"{finished.name}{TRANSFERRED}{rows.bench.dataset.name}",
            label_quality=quality,
            notes=(
                f"Systems were trained on {finished.name} (seed {recipe.seed}) and are evaluated on "
                f"{rows.bench.dataset.name} without training.",
                *rows.unreachable,
                *rows.shallow,
                *missed,
            ),
        )
        write_study(out, document)
        return document, report(out)


def _begin(source: Path, data: DataSettings, out: Path) -> None:
    """Note what is transferred to where; the report of another transfer is set aside until this one has its own."""
    path = out / TRANSFER_FILE
    note = {"study": str(source.resolve()), "data": data.with_absolute_paths().as_dict()}
    text = json.dumps(note, indent=1, ensure_ascii=False) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        set_report_aside(out)
        write_text(path, text)


def _with_rows(recipe: Recipe, finished: StudyDocument, wanted: Sequence[str]) -> Recipe:
    """The recipe with some rows of a study, in the order of the study."""
    known = [system.slug for system in finished.systems]
    slugs = {parse_system(name).slug for name in wanted}
    for slug in sorted(slugs - set(known)):
        raise UsageError(f"the study has no row '{slug}'; it has: {', '.join(known)}")
    chosen = tuple(slug for slug in known if slug in slugs)
    return dataclasses.replace(recipe, study=dataclasses.replace(recipe.study, systems=chosen))


def study_recipe(folder: Path) -> Recipe:
    """The settings that a study was run with.

    Raises:
        ArtefactError: the folder holds none.
    """
    if (folder / TRANSFER_FILE).exists():
        raise ArtefactError(f"{folder} is a transfer and holds no models; name the study that it was made from")
    if not (folder / RECIPE_FILE).exists():
        raise ArtefactError(
            f"{folder} has no {RECIPE_FILE}, so it is a page of results or an old study without its models; name the "
            "output folder of `colabel study`"
        )
    try:
        return build_recipe(_given(noted_recipe(folder)))
    except (OSError, ValueError) as error:
        raise ArtefactError(
            f"{folder / RECIPE_FILE} cannot be read ({error}); run `colabel study` again to write it"
        ) from None


def _given(table: dict[str, Any]) -> dict[str, Any]:
    """Nested tables without the values that were left out."""
    return {
        key: _given(value) if isinstance(value, dict) else value for key, value in table.items() if value is not None
    }


def _as_tuned(row: records.System) -> System:
    """A row of a finished study, with the β that it found."""
    system = parse_system(row.slug)
    return system.with_beta(row.beta) if system.tuned and row.beta is not None else system


class Transfer(Rows):
    """Rows of models that are trained already."""

    def __init__(
        self,
        finished: StudyDocument,
        source: Path,
        recipe: Recipe,
        data: DataSettings,
        out: Path,
        progress: Progress = SILENT,
    ) -> None:
        self._origin = Study(recipe, source)
        super().__init__(dataclasses.replace(recipe, data=data), out, self._origin.systems, progress)
        self._indexes: dict[str, Index] = {}
        known = {row.slug: _as_tuned(row) for row in finished.systems}
        self.systems = [known.get(system.slug, system) for system in self.systems]
        self._teachers = [known[row.slug] for row in finished.systems if not row.failed]
        rows = {system.slug for system in self.systems}
        self.failed = {
            system.slug: f"in the study: {system.failed}"
            for system in finished.systems
            if system.failed and system.slug in rows
        }

    @property
    def rows(self) -> list[tuple[System, int]]:
        """Every system that was trained, with the first seed."""
        return [(system, self.recipe.seed) for system in self.systems if system.slug not in self.failed]

    def ranker(self, system: System, seed: int | None = None) -> Ranker:
        """What answers queries for a row."""
        if system.slug == "bm25":
            return self.bench.bm25
        if system.kind == "search" and system.beta is not None:
            settings = dataclasses.replace(self.recipe.collective, beta=system.beta)
            index = self.index(_THETA, self._theta)
            return PrfRanker(index, settings, rerank=system.rerank, seed=self.recipe.seed)
        return LateInteraction(self.index(system.made_as, self._model(system)), system.slug)

    def index(self, name: str, model: Path) -> Index:
        """The new collection indexed by a model of the study."""
        if name not in self._indexes:
            if not model.is_dir():
                raise ArtefactError(f"{model} is missing, so '{name}' has no model; run `colabel study` to its end")
            self._indexes[name] = self.bench.build_index(self.out / "indexes" / name, str(model))
        return self._indexes[name]

    def label_quality(self) -> tuple[QualitySet, ...]:
        """All teachers of the study on θ's top passages of the new test queries: the paper's figure."""
        if _THETA not in self._indexes:
            raise UsageError("θ has not ranked this collection without the row 'colbert' or one of ColBERT-PRF")
        return judged_quality(
            self.bench.dataset,
            self.index(_THETA, self._theta),
            self.out / "judged",
            settings=self.recipe.collective,
            betas=betas_of(self._teachers),
            readers=name_readers(self._teachers, self._cross_encoders),
            most=self.recipe.study.quality_queries,
            seed=self.recipe.seed,
            progress=self.progress,
        )

    @property
    def _theta(self) -> Path:
        """θ by what the study noted and holds: the model of its recipe may have moved since."""
        origin, trained = self._origin, self._origin.first.out / "theta"
        taken = took_teacher(origin.out)
        return origin.out / "start" if taken or (taken is None and not trained.is_dir()) else trained

    def _model(self, system: System) -> Path:
        if system.slug == "zero-shot":
            return self._origin.out / "start"
        return self._theta if system.slug == "colbert" else self._origin.first.student_folder(system) / "model"

    def _cross_encoders(self, system: System) -> tuple[CrossEncoderTeacher, ...]:
        folders = (self._origin.first.out / "cross-encoders").glob("[0-9]*")
        trained = sorted((path for path in folders if path.name.isdecimal()), key=lambda path: int(path.name))
        models = list(self.recipe.cross_encoder.checkpoints or map(str, trained))
        needed = models[: cross_encoder_count(system, self.recipe)]
        return tuple(self.bench.cross_encoder(model, self.out / "pairs") for model in needed)

"""Checks that reject an unusable recipe or folder before any training starts, and the note of what a folder holds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from colabel.artefacts import folder_lock, refuse_foreign, write_json
from colabel.data import Dataset, load_recipe, resolve_paths
from colabel.data.conversion import store
from colabel.data.splits import DEV, TRAIN
from colabel.encode.weights import check_exists, resolve_model
from colabel.errors import ArtefactError, ColabelError, DataError, UsageError
from colabel.findings.records import STUDY_FILE
from colabel.labels import Verdict, VerdictStore, of_people
from colabel.labels.verdicts import FOLDER as VERDICT_FOLDER
from colabel.measures import parse_measure
from colabel.pipeline.layout import PLACES
from colabel.pipeline.stages import uses_checkpoint
from colabel.progress import SILENT, Progress
from colabel.ranking.bm25 import stemmer
from colabel.reporting.render import REPORT_FILES
from colabel.settings import DataSettings, Recipe
from colabel.settings.recipe import build_recipe
from colabel.systems import System, parse_system
from colabel.teachers.pair_model import PairModel, load_cross_encoder
from colabel.train.cross_encoders import split_layers
from colabel.train.loop import check_batch, check_device, choose_precision
from colabel.train.lower_layers import check_layers_of

RECIPE_FILE = "recipe.json"
"""All settings of a run or study, defaults included: what `transfer` goes by."""
TRANSFER_FILE = "transfer.json"
"""Which study was transferred, and to which collection."""
VERSIONS = "versions"
"""The folder of a run's earlier results."""
COLLECTIONS = "collections"
"""Datasets that were in memory, in the folder of a run or study."""
_TAKEN, STUDENT, VERDICTS, PROGRAMS = "takes_teacher", "student", "verdicts", "programs"


def recipe_for(
    data: Recipe | Dataset | Path | str,
    out: Path,
    kind: str,
    overrides: Iterable[str] = (),
    progress: Progress = SILENT,
) -> Recipe:
    """The recipe of a run or study: as it is, of a recipe file, or of a dataset by its name or in memory.

    What is in memory is stored in the folder first, so that every later command finds it.
    """
    if isinstance(data, Recipe):
        if list(overrides):
            raise UsageError(
                "'overrides' change a dataset's or recipe file's settings; change those of a Recipe itself"
            )
        return data
    if not isinstance(data, Dataset):
        if not isinstance(data, Path | str):
            raise UsageError(
                f"expected a dataset, its path, or a recipe, not a {type(data).__name__}; tables become a dataset with "
                "Dataset.from_records"
            )
        return load_recipe(data, overrides)
    check_folder(out, kind)
    return load_recipe(store(data, out / COLLECTIONS, progress=progress), overrides)


def check_training(recipe: Recipe, *, student: bool = True) -> None:
    """Refuse settings with which θ, or a student, could not be trained: model, language, measure, device, precision.

    How several processes share a step is asked when one begins.
    """
    check_exists(resolve_model(recipe.encoder.model))
    stemmer(recipe.rank.language)
    device = check_device(recipe.encoder.device)
    if student or not uses_checkpoint(recipe):
        parse_measure(recipe.fit.measure)
        choose_precision(recipe.fit, device)
        if isinstance(recipe.train.layers, int):
            check_layers_of(resolve_model(recipe.encoder.model), recipe.train.layers)


def check_system(system: System, recipe: Recipe) -> None:
    """Refuse a system that cannot be made from a recipe."""
    if system.tuned and system.beta is None:
        raise UsageError(f"β of '{system.slug}' is found by a study, on dev; name a number: {system.family}-0.5")
    if "scores" in system.needs:
        if not recipe.labels.scores:
            raise UsageError("the teacher 'scores' needs a score file; name it: labels.scores = \"FILE\"")
        if not Path(recipe.labels.scores).exists():
            raise UsageError(f"'labels.scores' is '{recipe.labels.scores}', and there is no such file")
    count = system.cross_encoder_count(recipe)
    if "cross-encoders" in system.needs and count < 2:
        raise UsageError("the ensemble needs several cross-encoders; name them in 'cross_encoder.models'")
    for model in recipe.cross_encoder.checkpoints[:count]:
        check_exists(model)


def check_run(system: System, recipe: Recipe) -> None:
    """All of it for one student; cross-encoders of the recipe's own are loaded once to see that they can teach."""
    check_training(recipe)
    check_batch(recipe.distil)
    check_system(system, recipe)
    settings, count = recipe.cross_encoder, system.cross_encoder_count(recipe)
    device = check_device(recipe.encoder.device)
    for model in settings.checkpoints[:count]:
        PairModel(load_cross_encoder(model, device), settings.max_length)
    if count and not settings.checkpoints:
        for model in settings.models[:count]:
            check_exists(resolve_model(split_layers(model)[0]))


def check_labels(data: Dataset, recipe: Recipe) -> None:
    """Refuse a collection from whose train labels nothing can be learned, or by whose dev labels nothing chosen."""
    found = ", ".join(data.splits) or "none"
    if TRAIN not in data.splits or not data.positives(TRAIN):
        raise DataError(
            f"{data.name} has no training query with a relevant passage (grade {data.relevant_from} or higher; its "
            f"splits: {found}); add labels, such as --clicks FILE, or search it untrained with `colabel index`"
        )
    if DEV in data.splits and recipe.fit.evaluate_every and not data.positives(DEV):
        raise DataError(
            f"no dev query of {data.name} has a relevant passage (grade {data.relevant_from} or higher), so weights "
            "cannot be chosen by them; mend the dev labels, or train without: --set fit.evaluate_every=0"
        )


def refused(systems: Sequence[System], recipe: Recipe) -> dict[str, str]:
    """Slug → why a system of a study cannot be made, as far as that is known before training."""
    found = {}
    for system in systems:
        try:
            check_system(system.with_beta(1.0) if system.tuned else system, recipe)
        except ColabelError as error:
            found[system.slug] = f"{system.slug} will fail: {error}"
    return found


@contextlib.contextmanager
def hold_folder(out: Path, kind: str) -> Iterator[None]:
    """Hold a folder for a run or study, after making sure that it is one."""
    check_folder(out, kind)
    with folder_lock(out):
        yield


class Learned(NamedTuple):
    """Which verdicts a run has learned: those up to a number, of people alone or of programs as well."""

    last: int = 0
    programs: bool = False


NONE_LEARNED = Learned()


def note_recipe(out: Path, recipe: Recipe, system: System | None = None, verdicts: Learned = NONE_LEARNED) -> None:
    """Write down what a folder is run with, defaults included; of a run, also its student and its last verdict."""
    write_json(out / RECIPE_FILE, recipe_note(recipe, system, verdicts))


def recipe_note(recipe: Recipe, system: System | None = None, verdicts: Learned = NONE_LEARNED) -> dict[str, Any]:
    """What is written down; paths of the data can be understood in any folder.

    Of verdicts, the number of the last one is enough: nothing before it ever changes.
    """
    recipe = dataclasses.replace(recipe, data=resolve_paths(recipe.data))
    table: dict[str, Any] = json.loads(json.dumps(recipe.as_dict()))
    table |= {_TAKEN: uses_checkpoint(recipe)} | ({STUDENT: system.slug} if system else {})
    table |= {VERDICTS: verdicts.last} if verdicts.last else {}
    return table | ({PROGRAMS: True} if verdicts.last and verdicts.programs else {})


def read_note(path: Path) -> dict[str, Any]:
    """A JSON file that a run wrote; empty where there is none, or it cannot be read."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def noted_verdicts(folder: Path) -> Learned:
    """The verdicts that a run learned."""
    note = read_note(folder / RECIPE_FILE)
    return Learned(int(note.get(VERDICTS, 0)), bool(note.get(PROGRAMS)))


def run_of(folder: Path) -> Path:
    """The run that a folder is an earlier result of; the folder itself where it is none."""
    run = folder.parent.parent
    return run if folder.parent.name == VERSIONS and (run / RECIPE_FILE).exists() else folder


def verdict_store(folder: Path) -> VerdictStore:
    """Where people's verdicts on a run are kept; a version shares those of its run."""
    return VerdictStore(run_of(folder) / VERDICT_FOLDER)


def learned(folder: Path, known: Learned | None = None) -> list[Verdict]:
    """What had been judged when a run learned it; ``known``: those of its note, unless others are given."""
    store, known = verdict_store(folder), noted_verdicts(folder) if known is None else known
    if known.last and store.last < known.last:
        raise ArtefactError(f"{store.path} has lost verdicts that this run learned; put the file back in its place")
    if not known.last:
        return []
    found = store.current(known.last)
    return found if known.programs else of_people(found)


def check_same_settings(out: Path, recipe: Recipe) -> None:
    """Refuse to train in the folder of a run with other settings, whose models would be replaced, or of other files."""
    if not (out / RECIPE_FILE).exists():
        refuse_foreign(out, PLACES)
        return
    noted, _ = noted_recipe(out)
    same_place = dataclasses.replace(noted, compute=recipe.compute, study=recipe.study)  # neither changes a model
    if recipe_note(same_place) != recipe_note(recipe):
        raise UsageError(
            f"{out} holds a run with other settings, whose models would be replaced; choose another folder, or use "
            "`colabel run`, which keeps the earlier result"
        )


def check_folder(out: Path, kind: str) -> None:
    """Refuse a folder in which somebody else's files lie, or which holds something else than a "study" or "run"."""
    path = out / RECIPE_FILE
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected a folder")
    if (out / TRANSFER_FILE).exists():
        raise UsageError(f"{out} holds a transfer; choose another folder for the {kind}")
    if not path.exists():
        foreign = next((out / name for name in (STUDY_FILE, *REPORT_FILES) if (out / name).exists()), None)
        if foreign is not None:
            raise UsageError(
                f"{foreign} is there and {RECIPE_FILE} is not, so it is of no {kind} in this folder and would be "
                "overwritten; move it away or choose another folder"
            )
        refuse_foreign(out, PLACES)
        return
    if not {"data", "train", "distil"} <= set(read_note(path)):
        raise UsageError(f"{path} does not hold the settings of a study or run; move it away or choose another folder")
    other, made = "study", [*out.glob("seed-*"), out / STUDY_FILE]
    if kind == "study":
        other, made = "run", [out / "theta", out / "students"]
    if any(one.exists() for one in made):
        raise UsageError(
            f"{out} holds a {other}, whose rankings and settings a {kind} would replace; choose another folder"
        )


def noted_recipe(folder: Path) -> tuple[Recipe, bool | None]:
    """The settings that a study was run with, and whether its recipe's model was θ; None where that was not noted.

    Settings that this version no longer has are left out.
    """
    path = folder / RECIPE_FILE
    if (folder / TRANSFER_FILE).exists():
        raise ArtefactError(f"{folder} is a transfer and holds no models; name the study that it was made from")
    if not path.exists():
        found = f"has no {RECIPE_FILE}, so it is no run or study" if folder.is_dir() else "is not a folder"
        raise ArtefactError(f"{folder} {found}; name the output folder of `colabel run` or `colabel study`")
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        given = {key: value for key, value in table.items() if key in Recipe.__dataclass_fields__}
        recipe = build_recipe(_without_nulls(given), stored=True)
        return dataclasses.replace(recipe, data=_at_home(recipe.data, folder)), table.get(_TAKEN)
    except (OSError, ValueError, ColabelError) as error:
        raise ArtefactError(f"{path} cannot be read ({error}); run `colabel study` again to write it") from None


def _at_home(data: DataSettings, folder: Path) -> DataSettings:
    """Settings that name a collection stored in this folder, wherever the folder was when they were noted."""
    *_, home, contents, name = ("", "", *Path(data.source).parts, "")[-4:-1]
    here = folder / COLLECTIONS / contents / name
    return dataclasses.replace(data, source=str(here.resolve())) if home == COLLECTIONS and here.is_dir() else data


def noted_system(folder: Path) -> System:
    """What the student of a run is; where that was not noted, its only student."""
    slug, made = read_note(folder / RECIPE_FILE).get(STUDENT), sorted(folder.glob("students/*/model"))
    if slug is None and len(made) != 1:
        found = f"the students {', '.join(path.parent.name for path in made)}" if made else "no student"
        raise ArtefactError(f"{folder} holds {found} of an earlier version; repeat `colabel run` to name its student")
    return parse_system(slug or made[0].parent.name)


def _without_nulls(value: Any) -> Any:
    """Nested tables without the values that were left out."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(one) for key, one in value.items() if one is not None}

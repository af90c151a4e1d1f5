"""Which settings have changed since a folder was last run with."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colabel.artefacts import file_fingerprint, fingerprint, write_json
from colabel.data import Dataset
from colabel.errors import UsageError
from colabel.pipeline.systems import TUNED
from colabel.pipeline.workbench import takes_teacher
from colabel.reporting.render import REPORT_FILES
from colabel.reporting.study_file import STUDY_FILE
from colabel.settings import Recipe
from colabel.teachers import scores_file

RECIPE_FILE = "recipe.json"
"""All settings of a run or study, defaults included: what `transfer` goes by."""
EARLIER_FILE = "recipe.earlier.json"
"""Settings of stages that a study with changed settings has not made again yet; gone when it ends."""
_WITHOUT_EFFECT = ("save_every", "save_seconds", "log_every", "tensorboard", "batch_tokens", "device")
_NOT_OF_STAGES = ("collective.beta", "labels.temperature")
"""β is in the name of each row, and the temperature is that of `colabel missing`."""
_HIDING = ("data.keep_labels", "data.hide_seed")
TRANSFER_FILE = "transfer.json"
"""Which study was transferred, and to which collection."""
_COLLECTION = "collection"
_TAKEN = "takes_teacher"
_SCORED = "file_of_scores"
_SCORES = "labels.scores"
CONTENTS = "data.contents"
"""Stands among the keys of settings for what a collection holds: its files may be edited where they lie."""
ROWS = ("study.systems", "study.seeds", "study.repeated")
"""What a report has other rows with; those that it had stay as they are."""


@dataclasses.dataclass(frozen=True)
class Changes:
    """Keys of settings that are not those with which the stages of a folder were made.

    Attributes:
        last: other than in the last call.
        earlier: other than in calls before it, of which stages are still there: (made before this time, keys), rising.
    """

    last: tuple[str, ...] = ()
    earlier: tuple[tuple[float, tuple[str, ...]], ...] = ()

    def of_stage(self, made: float) -> tuple[str, ...]:
        """What has changed since a stage was made, by its time of making.

        >>> changes = Changes(last=(), earlier=((10.0, ("train.steps",)), (20.0, ("seed",))))
        >>> changes.of_stage(9.0), changes.of_stage(12.0), changes.of_stage(30.0)
        (('train.steps',), ('seed',), ())
        """
        return next((keys for until, keys in self.earlier if made < until), self.last)

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(sorted({*self.last, *(key for _, keys in self.earlier for key in keys)}))


def note_settings(recipe: Recipe, out: Path, dataset: Dataset | None = None) -> None:
    """Write down what a folder is run with, and on which contents of the collection where that is given."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / RECIPE_FILE, _noted(recipe, dataset))


def note_changed_settings(recipe: Recipe, out: Path, dataset: Dataset) -> None:
    """Write down what a folder is run with from now on, and keep what it was run with until all is made again."""
    if changed_settings(recipe, out, dataset):
        before = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))
        write_json(out / EARLIER_FILE, [*_earlier(out), [time.time(), before]])
    note_settings(recipe, out, dataset)


def _noted(recipe: Recipe, dataset: Dataset | None) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(recipe.as_dict()))
    if dataset is None:
        return table
    labels = {split: dataset.labels_fingerprint(split) for split in dataset.splits}
    contents = [dataset.passages.fingerprint, fingerprint(sorted(dataset.queries.items())), labels]
    return {
        **table,
        _COLLECTION: fingerprint(contents),
        _TAKEN: takes_teacher(recipe),
        _SCORED: _contents(recipe.labels.scores),
    }


def _contents(scores: str) -> str | None:
    """What the file of scores holds; None where there is none."""
    path = scores_file(Path(scores))
    try:
        about = path.stat()
    except OSError:
        return None
    return _read_once(path, about.st_mtime_ns, about.st_size) if scores and path.is_file() else None


@functools.cache
def _read_once(path: Path, changed: int, size: int) -> str:
    """A large file is not read again for every question about it."""
    return file_fingerprint(path)


def noted_recipe(out: Path) -> dict[str, Any]:
    """The settings that a folder was last run with, as they are built from.

    Raises:
        OSError, ValueError: there are none, or they cannot be read.
    """
    table: dict[str, Any] = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))
    return {key: value for key, value in table.items() if key not in (_COLLECTION, _TAKEN, _SCORED)}


def took_teacher(out: Path) -> bool | None:
    """Whether the recipe's model was θ in the last run of a folder; None where that was not noted."""
    found: bool | None = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8")).get(_TAKEN)
    return found


def forget_earlier_settings(out: Path) -> None:
    """All stages of a folder are of its settings."""
    (out / EARLIER_FILE).unlink(missing_ok=True)


def check_folder(out: Path, kind: str) -> None:
    """Refuse a folder in which a file of somebody else has the name of one of ours, or which is of another kind.

    Args:
        kind: what is to be in it, "study" or "run".

    Raises:
        UsageError: it has, or is.
    """
    path = out / RECIPE_FILE
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected a folder")
    if (out / TRANSFER_FILE).exists():
        raise UsageError(f"{out} holds a transfer; choose another folder for the {kind}")
    if not path.exists():
        names = (STUDY_FILE, *REPORT_FILES) if kind == "study" else ()
        foreign = next((out / name for name in names if (out / name).exists()), None)
        if foreign is not None:
            raise UsageError(
                f"{foreign} is there and {RECIPE_FILE} is not, so it is of no study in this folder and would be "
                "overwritten; move it away or choose another folder"
            )
        return
    try:
        ours = {"data", "train", "distil"} <= set(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        ours = False
    if not ours:
        raise UsageError(f"{path} does not hold the settings of a study or run; move it away or choose another folder")
    other = "study" if kind == "run" else "run"
    made = [*out.glob("seed-*"), out / STUDY_FILE] if other == "study" else [out / "theta", out / "students"]
    if any(one.exists() for one in made):
        raise UsageError(
            f"{out} holds a {other}, whose rankings and settings a {kind} would replace; choose another folder"
        )


def changed_settings(recipe: Recipe, out: Path, dataset: Dataset | None = None) -> list[str]:
    """Keys whose values differ from those that ``out`` was last run with; what depends on them is made again.

    Settings that change no result of a row ([compute], most of [study], how often training is saved) are left out.
    With ``dataset``, other contents of the collection are a change, too.
    """
    try:
        before = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return _changed(_noted(recipe, dataset), before)


def changes_since(recipe: Recipe, out: Path, dataset: Dataset) -> Changes:
    """What has changed since the stages of a folder were made, also where its last call was interrupted."""
    now = _noted(recipe, dataset)
    earlier = tuple((until, tuple(_changed(now, before))) for until, before in _earlier(out))
    return Changes(tuple(changed_settings(recipe, out, dataset)), earlier)


def _earlier(out: Path) -> list[tuple[float, dict[str, Any]]]:
    """Until when a folder was run with which settings, rising, since it was last finished."""
    try:
        return [(until, before) for until, before in json.loads((out / EARLIER_FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        return []


def _changed(table: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    was, now = _deciding(before), _deciding(table)
    if was.get(CONTENTS) and was[CONTENTS] == now.get(CONTENTS):
        was = {key: value for key, value in was.items() if not key.startswith("data.") or key in _HIDING}
    if before.get(_SCORED) and table.get(_SCORED):  # by what the file holds, wherever it lies
        was[_SCORES], now[_SCORES] = before[_SCORED], table[_SCORED]
    return [key for key, value in now.items() if was.get(key, value) != value]


def _deciding(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the results depend on, by their keys."""
    chosen = recipe.get("study", {})
    found = {"seed": recipe.get("seed"), "study.trials": chosen.get("trials", []), "study.seeds": chosen.get("seeds")}
    found |= {f"study.{key}": sorted(chosen.get(key, [])) for key in ("systems", "repeated")}
    if any(slug.endswith(f"-{TUNED}") for slug in chosen.get("systems", ())):
        found["study.measures"] = chosen.get("measures", [])[:1]  # by which β is tuned
    if recipe.get(_COLLECTION):
        found[CONTENTS] = recipe[_COLLECTION]
    for section, table in recipe.items():
        if isinstance(table, dict) and section not in ("study", "compute"):
            found |= {f"{section}.{key}": value for key, value in table.items() if key not in _WITHOUT_EFFECT}
    return {key: value for key, value in found.items() if key not in _NOT_OF_STAGES}

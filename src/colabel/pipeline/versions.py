"""The results of a run folder: what it holds now, and the earlier ones, kept in ``versions/`` as run folders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from colabel.artefacts import Stale
from colabel.artefacts.build import link, sync
from colabel.findings.records import STUDY_FILE, read_study
from colabel.labels.verdicts import FOLDER as VERDICTS
from colabel.pipeline.layout import Layout
from colabel.pipeline.preflight import (
    NONE_LEARNED,
    RECIPE_FILE,
    STUDENT,
    VERSIONS,
    Learned,
    noted_recipe,
    noted_system,
    read_note,
    recipe_note,
)
from colabel.reporting.render import REPORT_FILES
from colabel.settings import Recipe
from colabel.systems import System

_NOT_KEPT = (VERSIONS, "pairs", "curve", VERDICTS)  # what grows in place: a cache of scores, and verdicts


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return (folder / STUDY_FILE).exists() or any(folder.glob("seed-*"))


def versions(folder: Path) -> list[Path]:
    """The earlier results of a run, oldest first; each is a run folder of its own."""
    return sorted(path for path in (folder / VERSIONS).glob("[0-9]*") if path.is_dir())


def keep_version(
    folder: Path, recipe: Recipe, system: System, stale: Stale | None, verdicts: Learned = NONE_LEARNED
) -> bool:
    """Keep what a run folder holds in ``versions/NNNN`` before another run replaces parts of it; whether that was done.

    Done where a student is finished, and another one is wanted or ``stale``, the first stage to be made, follows from
    other settings or data. A run that was interrupted on its way from a version to its next result has nothing new to
    keep. Files are linked, so a version takes no room of its own: artefacts are never changed, only
    replaced whole. The version appears with one rename; only then the earlier figures leave the folder.
    """
    noted, made = read_note(folder / RECIPE_FILE), sorted(folder.glob("students/*/model/manifest.json"))
    if not noted or not made:
        return False
    replaced = stale is not None and (bool(stale.differs) or noted != recipe_note(recipe, system, verdicts))
    if not replaced and noted.get(STUDENT, system.slug) == system.slug:
        return False
    results = [path for name in (Layout.of(folder).evaluation.name, *REPORT_FILES) if (path := folder / name).exists()]
    kept = versions(folder)
    if kept and not results:
        return False
    new = not kept or not all(_same(path, kept[-1] / path.relative_to(folder)) for path in (*made, *results))
    if new:
        final = folder / VERSIONS / f"{int(kept[-1].name) + 1 if kept else 1:04d}"
        partial = final.with_name(f".{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(folder, partial, copy_function=link, ignore=shutil.ignore_patterns(*_NOT_KEPT, ".*"))
        sync(partial)
        partial.rename(final)
        sync(final.parent)
    for path in results:
        path.unlink()
    return new


def _same(path: Path, other: Path) -> bool:
    return other.exists() and (path.samefile(other) or path.read_bytes() == other.read_bytes())


def prune_versions(folder: Path) -> int:
    """Remove the earlier results of a run; how many there were."""
    found = versions(folder)
    for path in found:
        path.rename(path.with_name(f".{path.name}.removed"))  # never half a version, whatever happens
    for path in (folder / VERSIONS).glob(".*.removed"):
        shutil.rmtree(path)
    return len(found)


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The results of a run folder, oldest first: its versions, and what it holds now. Of a study, its systems.

    Each as plain JSON types: folder, student, the means of the student and BM25 together (empty where there are none).
    """
    noted_recipe(folder)
    if is_study(folder):
        systems = read_study(folder).finished if (folder / STUDY_FILE).exists() else []
        return [{"folder": str(folder), "student": one.slug, "means": one.means} for one in systems]
    found: list[dict[str, Any]] = []
    for path in [*versions(folder), folder]:
        slug, means = noted_system(path).slug, read_note(Layout.of(path).evaluation).get("means", {})
        shown = means.get(f"memory-{slug}") or means.get(f"hybrid-{slug}") or means.get(slug, {})
        found.append({"folder": str(path), "student": slug, "means": shown})
    return found

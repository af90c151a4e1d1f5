"""A run whose passages change without training: the index that its student searches, and BM25 with it.

    RUN/live/   the index as training left it (the same files, linked) and its generations, each with BM25 beside it

What was trained stays as it is: labels, knowledge and rankings name rows of the index that they were made of. The
changed index is that of one trained index, which it notes; where training makes another, the changes have to be in the
collection by then, or the run is not trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colabel.artefacts import DryBuilder, Stale, folder_lock, write_json
from colabel.artefacts.build import link
from colabel.data import PassageTable, reopen_passages
from colabel.data.passages import passage_line
from colabel.encode import Encoder
from colabel.errors import ArtefactError, ColabelError, DataError, UsageError
from colabel.index import Index
from colabel.index.index import SETTINGS_FILE, read_settings
from colabel.index.living import LivingIndex, change
from colabel.pipeline.layout import Layout
from colabel.progress import Progress
from colabel.ranking import Bm25
from colabel.settings import DataSettings, RankSettings, Recipe

log = logging.getLogger(__name__)

_TRAINED = "trained"  # in index.json: the fingerprint of the index that the changes were made to


@dataclasses.dataclass(frozen=True)
class Live:
    """What a changed run searches: one state of both."""

    index: LivingIndex
    bm25: Bm25


def newest(folder: Path, trained: str) -> int | None:
    """The generation of a run's changed index; None where the index of this fingerprint was not changed."""
    noted = _note(folder)
    return noted.get("generation") if noted.get(_TRAINED) == trained else None


def open_live(
    folder: Path, trained: Index, settings: RankSettings, encoder: Callable[[], Encoder] | None = None
) -> Live | None:
    """The newest state of a run's changed index; None where the trained one was not changed."""
    number = newest(folder, trained.store.fingerprint)
    if number is None:
        if _note(folder).get("generation"):
            log.warning(
                "%s holds passages that were added to or deleted from an earlier index, and is not searched; repeat "
                "`colabel run`, which says what to do with it",
                folder,
            )
        return None
    try:
        index = LivingIndex.of(folder, number, encoder)
        number = index.generation
        with DryBuilder():
            return Live(index, _words(index, settings))
    except (Stale, ColabelError, OSError) as error:
        if newest(folder, trained.store.fingerprint) != number:  # replaced, and again, while it was opened
            return open_live(folder, trained, settings, encoder)
        if isinstance(error, Stale):
            raise ArtefactError(f"{folder} has no BM25 of these settings; repeat `colabel run`") from None
        raise


def change_live(
    out: Path, trained: Index, recipe: Recipe, encoder: Callable[[], Encoder] | None, progress: Progress, **changes: Any
) -> Index:
    """Change what a run searches, and return its index; ``changes`` as :func:`colabel.index.living.change` takes them.

    Raises:
        LockedError: another process changes or trains the run.
    """
    at = Layout.of(out)
    if read_settings(trained.folder)["shards"] is not None:
        raise UsageError(
            f"{trained.folder} is an index in shards, which cannot be changed; run again with all passages"
        )
    with folder_lock(out):
        before = _note(at.live)
        if before and before.get(_TRAINED) != trained.store.fingerprint:
            raise ArtefactError(
                f"{at.live} holds changes to an index that was replaced since; repeat `colabel run`, which says what "
                "to do with them"
            )
        if number := before.get("generation"):
            index: Index = LivingIndex.of(at.live, number, encoder)
        else:
            texts = _texts(recipe.data, at, trained)
            if not before:
                _copy(trained, at.live)
            index = Index(at.live, passages=texts, encoder=encoder)

        def words(passages: PassageTable, place: Path) -> None:
            Bm25(passages, recipe.rank, place, progress)

        return change(index, beside=words, progress=progress, **changes)


def refuse_loss(folder: Path, passages: PassageTable, source: str, planned: Index | None) -> None:
    """Refuse to train a changed run where that would lose the changes: its index would be rebuilt from other passages.

    Args:
        passages: those that it would be built from.
        planned: the index that will be searched, where it is there already.
    """
    noted = _note(folder)
    kept = planned is not None and noted.get(_TRAINED) == planned.store.fingerprint
    if kept or noted.get("generation") is None:
        return
    changed = Index.open(folder).passages
    if changed is None:
        raise ArtefactError(f"{folder} cannot be read; remove it to drop what was added to and deleted from the run")
    ours, theirs = _contents(changed), _contents(passages)
    added = [name for key, name in ours.items() if key not in theirs]
    gone = [name for key, name in theirs.items() if key not in ours]
    if added or gone:
        found = [
            f"{len(names):,} {what} ('{names[0]}' for one)"
            for names, what in ((added, f"passages are not in {source}"), (gone, "of it were deleted or replaced"))
            if names
        ]
        raise DataError(
            f"{folder.parent} was changed since it was trained, and training would rebuild its index: "
            f"{', and '.join(found)}. Nothing was done. Change {source} in the same way, or remove {folder} to drop "
            "the changes"
        )


def settle_live(folder: Path, trained: Index, settings: RankSettings) -> None:
    """After training: keep the changes of an index that is still searched, and remove those of an earlier one."""
    noted = _note(folder)
    if noted and noted.get(_TRAINED) != trained.store.fingerprint:
        log.info("the index was rebuilt from a collection with the same changes as %s, which is removed", folder)
        _remove(folder)
    elif noted.get("generation"):
        _words(LivingIndex.of(folder, noted["generation"]), settings)


def _words(index: LivingIndex, settings: RankSettings) -> Bm25:
    if index.passages is None:
        raise ArtefactError(f"{index.folder} has lost the text of its passages; remove it and change the run again")
    return Bm25(index.passages, settings, index.beside)


def _note(folder: Path) -> dict[str, Any]:
    """What a changed index says of itself; empty where there is none."""
    try:
        return dict(json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise ArtefactError(
            f"{folder / SETTINGS_FILE} cannot be read ({error}); put it back, or remove the folder"
        ) from None


def _texts(data: DataSettings, at: Layout, trained: Index) -> PassageTable:
    """The texts that were indexed; those of new passages are kept beside them."""
    try:
        with DryBuilder():
            found = reopen_passages(data, at.data)
        trained.check_collection(found)
    except (Stale, ColabelError):
        raise DataError(
            f"{data.source} is not what {at.out} was trained on any more, and BM25 needs its texts; put it back, or "
            "repeat `colabel run`"
        ) from None
    return found


def _copy(trained: Index, folder: Path) -> None:
    """An index as it is under another name, whole or not at all; it takes no room."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(trained.folder, partial, copy_function=link, ignore=shutil.ignore_patterns(".*"))
    write_json(partial / SETTINGS_FILE, {**_note(trained.folder), _TRAINED: trained.store.fingerprint})
    partial.rename(folder)


def _remove(folder: Path) -> None:
    removed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    folder.rename(removed)
    shutil.rmtree(removed)


def _contents(passages: PassageTable) -> dict[bytes, str]:
    """A digest of each passage → its id."""
    return {
        hashlib.blake2b(passage_line(one).encode(), digest_size=16).digest(): one.id
        for one in passages.range(0, len(passages))
    }

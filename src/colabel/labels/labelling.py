"""Label the candidates of every training query with a teacher, block by block."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Spec, Workspace, build
from colabel.collective.centroids import labels_used
from colabel.data import Dataset
from colabel.data.pieces import with_labelled_pieces
from colabel.data.string_table import StringTable, StringTableBuilder
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels.artefact import BLOCK, ORIGIN_FILE, PARTS, STAGE, Flag, Labels, read_block
from colabel.progress import SILENT, Progress
from colabel.ranking.labelled_pieces import positive_rows
from colabel.ranking.rankings import block_name
from colabel.settings import LabelSettings
from colabel.teachers.guarded import CheckedTeacher
from colabel.teachers.protocol import Teacher
from colabel.types import IntArray

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

log = logging.getLogger(__name__)


class PairChoice(Protocol):
    """Chooses which pairs an expensive teacher scores."""

    @property
    def fingerprint(self) -> str:
        """Names everything that the choice depends on."""

    def __call__(self, query_ids: Sequence[str], rows: IntArray, flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Bool [queries, candidates]: True where the pair is to be scored."""


def label(
    knowledge: Knowledge,
    dataset: Dataset,
    teacher: Teacher,
    out: Path | str,
    *,
    settings: LabelSettings | None = None,
    only: PairChoice | None = None,
    progress: Progress = SILENT,
) -> Labels:
    """Score the candidates of every query that has a visible positive; an interrupted run continues.

    Candidates are the top ``labels.candidates`` of the knowledge's ranking and behind them the labelled positives that
    are not among those. Queries without a visible positive are left out and counted, and so are positives whose
    passage is empty, in which nothing can match.

    Args:
        only: which pairs the teacher scores; the others get NaN. None: all.
    """
    out = Path(out)
    settings = settings or LabelSettings()
    check_inputs(knowledge, dataset, settings)
    pairs = "all" if only is None else only.fingerprint
    kept = {"candidates": settings.candidates, "pairs": pairs, "split": knowledge.split, "teacher": teacher.name}
    inputs = {
        "knowledge": knowledge.fingerprint,
        "labels": dataset.labels_fingerprint(knowledge.split),
        "passages": dataset.passages.fingerprint,
        "teacher": teacher.fingerprint,
    }

    origin = {  # to explain a score; the place is relative, so that knowledge and labels may move together
        "place": os.path.relpath(knowledge.folder.resolve(), out.resolve()),
        "beta": getattr(teacher, "beta", knowledge.settings.beta),
        "scale": getattr(teacher, "scale", knowledge.settings.expansion_scale),
    }

    def write(space: Workspace) -> Mapping[str, Any]:
        with space.file(ORIGIN_FILE) as path:
            path.write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
        ids, blocks, skipped = StringTableBuilder(), 0, 0
        left_out = {"skipped_queries": 0, "empty_positives": 0}
        task = progress.start(f"labelling with {teacher.name}", len(knowledge.ranking), "queries")
        for ranked in labelled_queries(knowledge, dataset, settings.candidates, left_out):
            name = block_name(blocks)
            if not space.done(f"{name}.{PARTS[-1]}.npy"):
                arrays = _label_block(knowledge, ranked, teacher, only)
                for part in PARTS:
                    space.save(f"{name}.{part}.npy", arrays[part])
            for query_id in ranked.query_ids:
                ids.append(query_id)
            task.advance(len(ranked.query_ids) + left_out["skipped_queries"] - skipped)
            skipped = left_out["skipped_queries"]
            blocks += 1
        task.close()
        ids.finish().save(space, "queries")
        StringTable.of(knowledge.index.store.ids).save(space, "ids")
        return _counts(space.folder, blocks) | left_out

    counts = build(out, Spec(STAGE, kept, inputs), write).counts
    if counts["skipped_queries"] or counts["empty_positives"]:
        log.info(
            "%s queries have no visible positive and are not labelled; %s positives are empty passages and left out",
            f"{counts['skipped_queries']:,}",
            f"{counts['empty_positives']:,}",
        )
    return Labels(out)


def _label_block(
    knowledge: Knowledge, ranked: Ranked, teacher: Teacher, only: PairChoice | None
) -> dict[str, npt.NDArray[Any]]:
    rows, base, flags = _candidates(knowledge, ranked)
    wide = rows.astype(np.int64)
    chosen = rows >= 0
    if only is not None:
        chosen &= only(ranked.query_ids, wide, flags)
    scores = CheckedTeacher(teacher).scores(ranked.query_ids, np.where(chosen, wide, -1))
    scores = np.where(chosen, scores, np.where(rows >= 0, np.nan, -np.inf)).astype(np.float32)
    return {"teacher": scores, "base": base, "flags": flags, "rows": rows}


def _candidates(
    knowledge: Knowledge, ranked: Ranked
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Rows, φ and flags [queries, candidates] of a block, padding behind each query's candidates."""
    beyond = [found[~np.isin(found, line)] for line, found in zip(ranked.rows, ranked.positives, strict=True)]
    extra = np.full((len(beyond), max(map(len, beyond))), -1, dtype=np.int64)  # positives beyond the ranking
    for place, found in enumerate(beyond):
        extra[place, : len(found)] = found
    further = np.full(extra.shape, -np.inf, dtype=np.float32)
    here = np.flatnonzero((extra >= 0).any(axis=1))
    if len(here):
        vectors = knowledge.queries.vectors([ranked.query_ids[place] for place in here])
        further[here] = knowledge.index.store.score(vectors, extra[here])
    rows = np.concatenate([ranked.rows, extra.astype(np.int32)], axis=1)
    base = np.concatenate([ranked.base, further], axis=1)
    hard = np.concatenate([ranked.rows >= 0, np.zeros(extra.shape, dtype=bool)], axis=1)
    labelled = np.stack([np.isin(line, found) for line, found in zip(rows, ranked.positives, strict=True)])
    feedback = np.zeros(rows.shape, dtype=bool)
    for column in knowledge.feedback(ranked.query_ids).T:
        feedback |= rows == column[:, None]
    flags = (
        labelled * np.uint8(Flag.LABELLED)
        | (feedback & (rows >= 0)) * np.uint8(Flag.FEEDBACK)
        | (hard & ~labelled) * np.uint8(Flag.HARD_NEGATIVE)
    )
    order = np.argsort(rows < 0, axis=1, kind="stable")[:, : int((rows >= 0).sum(axis=1).max())]
    base = np.where(rows >= 0, base, -np.inf).astype(np.float32)
    rows, base, flags = (np.take_along_axis(values, order, axis=1) for values in (rows, base, flags))
    return rows, base, flags


def _counts(folder: Path, blocks: int) -> dict[str, Any]:
    """Counts of the manifest, from the files: the same whether the run was interrupted or not."""
    flags = {"labelled": Flag.LABELLED, "feedback": Flag.FEEDBACK, "hard_negatives": Flag.HARD_NEGATIVE}
    counts = dict.fromkeys(("queries", "pairs", "scored", *flags), 0)
    for number in range(blocks):
        arrays = read_block(folder, number)
        counts["queries"] += len(arrays["rows"])
        counts["pairs"] += int((arrays["rows"] >= 0).sum())
        counts["scored"] += int(np.isfinite(arrays["teacher"]).sum())
        for name, flag in flags.items():
            counts[name] += int(((arrays["flags"] & flag) != 0).sum())
    return {"blocks": blocks, **counts}


class Ranked(NamedTuple):
    """Queries of a block: their top candidates, φ of them, and the rows of their positives."""

    query_ids: list[str]
    rows: npt.NDArray[np.int32]
    base: npt.NDArray[np.float32]
    positives: list[IntArray]


def labelled_queries(
    knowledge: Knowledge, dataset: Dataset, candidates: int, left_out: dict[str, int]
) -> Iterator[Ranked]:
    """Labelled queries in the order of the ranking, a block at a time; counts what it leaves out."""
    store, ids = knowledge.index.store, dataset.passages.ids
    labelled, nothing = positive_rows(dataset, knowledge.split), np.zeros(0, np.int64)
    pending: list[tuple[str, npt.NDArray[np.int32], npt.NDArray[np.float32], IntArray]] = []
    for query_ids, rows, scores in knowledge.ranking.blocks():
        for place, query_id in enumerate(query_ids):
            found = labelled.get(query_id, nothing)
            positives = found[store.lengths(found) > 0]
            left_out["empty_positives"] += len(found) - len(positives)
            if not len(positives):
                left_out["skipped_queries"] += 1
                continue
            line = rows[place, :candidates]
            if ids.first_rows is not None:  # other pieces of a labelled document are no candidates
                line = np.where(with_labelled_pieces(line, positives, ids) == line, line, -1).astype(np.int32)
            pending.append((query_id, line, scores[place, :candidates], positives))
            if len(pending) == BLOCK:
                yield _stack(pending)
                pending = []
    if pending:
        yield _stack(pending)


def _stack(pending: list[tuple[str, npt.NDArray[np.int32], npt.NDArray[np.float32], IntArray]]) -> Ranked:
    query_ids, rows, base, positives = zip(*pending, strict=True)
    return Ranked(list(query_ids), np.stack(rows), np.stack(base), list(positives))


def check_inputs(knowledge: Knowledge, dataset: Dataset, settings: LabelSettings) -> None:
    """Refuse what does not fit together, before anything is written."""
    labels = dataset.labels(knowledge.split)
    knowledge.index.check_collection(dataset.passages)
    depth = int(knowledge.ranking.manifest.counts["depth"])
    if depth < min(settings.candidates, len(dataset.passages)):
        raise UsageError(
            f"'labels.candidates' is {settings.candidates}, and {knowledge.folder} ranked {depth} passages for each "
            "query; choose at most as many or collect again with a deeper ranking"
        )
    for query_id in labels:
        if knowledge.ranking.query_ids.row(query_id) < 0:
            raise ArtefactError(
                f"{knowledge.folder} knows nothing of query '{query_id}' of the split '{knowledge.split}' of "
                f"{dataset.name}; collect again from this dataset"
            )
    left_out = {"skipped_queries": 0, "empty_positives": 0}
    if next(labelled_queries(knowledge, dataset, settings.candidates, left_out), None) is None:
        raise DataError(
            f"no query of the split '{knowledge.split}' of {dataset.name} has a visible positive (grade "
            f"{dataset.relevant_from} or higher) that is not empty; there is nothing to label"
        )
    used = knowledge.labelled_fingerprint
    if used is not None and used != labels_used(dataset.positives(knowledge.split)):
        # a positive that was feedback and is hidden now would make labels that know what they are to find
        raise ArtefactError(
            f"{knowledge.folder} was collected with other labels than the split '{knowledge.split}' of {dataset.name} "
            "shows; collect again with the same settings, such as data.keep_labels"
        )

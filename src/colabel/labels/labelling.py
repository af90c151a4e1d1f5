"""Label the candidates of every training query with a teacher, block by block."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Plan, Workspace, build
from colabel.data import Dataset
from colabel.data.strings import StringTable, StringTableBuilder
from colabel.errors import UsageError
from colabel.labels.artefact import ORIGIN_FILE, PARTS, STAGE, Flag, Labels, block_name, read_block
from colabel.labels.ranked import LabelledQueries, Ranked, check_inputs
from colabel.progress import SILENT, Progress
from colabel.settings import LabelSettings
from colabel.teachers.base import Teacher

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge

log = logging.getLogger(__name__)

IntArray = npt.NDArray[np.int64]


class PairChoice(Protocol):
    """Chooses which pairs a teacher scores, for teachers whose scores are dear."""

    @property
    def fingerprint(self) -> str:
        """Names all that the choice depends on."""

    def __call__(self, query_ids: Sequence[str], rows: IntArray, flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Bool [queries, candidates]: True where the pair is to be scored."""


def label(
    knowledge: Knowledge,
    dataset: Dataset,
    teacher: Teacher,
    out: Path,
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

    def write(space: Workspace) -> Mapping[str, Any]:
        with space.file(ORIGIN_FILE) as path:
            path.write_text(json.dumps(_origin(knowledge, teacher, out), indent=2) + "\n", encoding="utf-8")
        return _write(
            space, knowledge, LabelledQueries(knowledge, dataset, settings.candidates), teacher, only, progress
        )

    manifest = build(out, Plan(STAGE, kept, inputs), write)
    counts = manifest.counts
    if counts["skipped_queries"] or counts["empty_positives"]:
        log.info(
            "%s queries have no visible positive and are not labelled; %s positives are empty passages and left out",
            f"{counts['skipped_queries']:,}",
            f"{counts['empty_positives']:,}",
        )
    return Labels(out)


def _write(
    space: Workspace,
    knowledge: Knowledge,
    stream: LabelledQueries,
    teacher: Teacher,
    only: PairChoice | None,
    progress: Progress,
) -> Mapping[str, Any]:
    ids = StringTableBuilder()
    blocks = 0
    task = progress.start(f"labelling with {teacher.name}", len(stream), "queries")
    skipped = 0
    for number, ranked in enumerate(stream):
        if not space.done(f"{block_name(number)}.{PARTS[-1]}.npy"):
            arrays = _label_block(knowledge, ranked, teacher, only)
            for part in PARTS:
                with space.file(f"{block_name(number)}.{part}.npy") as path, path.open("wb") as file:
                    np.save(file, arrays[part], allow_pickle=False)
        for query_id in ranked.query_ids:
            ids.append(query_id)
        task.advance(len(ranked.query_ids) + stream.skipped_queries - skipped)
        skipped = stream.skipped_queries
        blocks = number + 1
    task.close()
    ids.finish().save(space, "queries")
    StringTable.of(knowledge.index.store.ids).save(space, "ids")
    left_out = {"skipped_queries": stream.skipped_queries, "empty_positives": stream.empty_positives}
    return _counts(space.folder, blocks) | left_out


def _label_block(
    knowledge: Knowledge, ranked: Ranked, teacher: Teacher, only: PairChoice | None
) -> dict[str, npt.NDArray[Any]]:
    rows, base, flags = _candidates(knowledge, ranked)
    wide = rows.astype(np.int64)
    chosen = rows >= 0
    if only is not None:
        chosen &= only(ranked.query_ids, wide, flags)
    scores = teacher.score(ranked.query_ids, np.where(chosen, wide, -1))
    if scores.shape != rows.shape:
        raise UsageError(
            f"the teacher '{teacher.name}' gave scores of shape {scores.shape} for candidates of shape {rows.shape}; "
            "expected one score for each"
        )
    scores = np.where(chosen, scores, np.where(rows >= 0, np.nan, -np.inf)).astype(np.float32)
    return {"teacher": scores, "base": base, "flags": flags, "rows": rows}


def _candidates(
    knowledge: Knowledge, ranked: Ranked
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Rows, φ and flags [queries, candidates] of a block, padding behind each query's candidates."""
    extra = _unranked(ranked)
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


def _unranked(ranked: Ranked) -> IntArray:
    """Positives beyond the ranking, int64 [queries, most of any query], −1 where there are fewer."""
    found = [
        positives[~np.isin(positives, line)] for line, positives in zip(ranked.rows, ranked.positives, strict=True)
    ]
    extra = np.full((len(found), max(len(rows) for rows in found)), -1, dtype=np.int64)
    for place, rows in enumerate(found):
        extra[place, : len(rows)] = rows
    return extra


def _counts(folder: Path, blocks: int) -> dict[str, Any]:
    """Counts of the manifest, from the files: the same whether the run was interrupted or not."""
    counts = dict.fromkeys(("queries", "pairs", "scored", "labelled", "feedback", "hard_negatives"), 0)
    for number in range(blocks):
        arrays = read_block(folder, number)
        counts["queries"] += len(arrays["rows"])
        counts["pairs"] += int((arrays["rows"] >= 0).sum())
        counts["scored"] += int(np.isfinite(arrays["teacher"]).sum())
        for name, flag in (
            ("labelled", Flag.LABELLED),
            ("feedback", Flag.FEEDBACK),
            ("hard_negatives", Flag.HARD_NEGATIVE),
        ):
            counts[name] += int(((arrays["flags"] & flag) != 0).sum())
    return {"blocks": blocks, **counts}


def _origin(knowledge: Knowledge, teacher: Teacher, out: Path) -> dict[str, Any]:
    """What the missing-label report needs to explain a score; the place is relative, so both may move together."""
    return {
        "place": os.path.relpath(knowledge.folder.resolve(), out.resolve()),
        "beta": getattr(teacher, "beta", knowledge.settings.beta),
        "scale": getattr(teacher, "scale", knowledge.settings.expansion_scale),
    }

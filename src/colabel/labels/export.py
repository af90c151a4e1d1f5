"""Labels for other programs: parquet, TREC files, JSON lines, and Hugging Face datasets."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colabel.artefacts import Manifest, Plan, Workspace, build
from colabel.data import Dataset
from colabel.data.trec import qrel_lines, run_line
from colabel.errors import ArtefactError, UsageError
from colabel.labels.artefact import Flag, LabelBlock, Labels
from colabel.labels.targets import probabilities, suspect_ranks
from colabel.labels.training_rows import Cut, plan_cut, training_rows
from colabel.progress import SILENT, Progress, Task
from colabel.types import Qrel, ScoredPassage

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

PAIR_FORMATS = ("parquet", "trec")
ROW_FORMATS = ("jsonl", "hf", "pylate")
FORMATS = (*PAIR_FORMATS, *ROW_FORMATS)
_STAGE = "label-export"


def export_labels(
    labels: Labels,
    dataset: Dataset,
    out: Path,
    format: str,
    *,
    temperature: float = 1.0,
    passages: int | None = None,
    progress: Progress = SILENT,
) -> Manifest:
    """Write labels to the folder ``out``, whole or not at all; the manifest's counts say what was left out.

    ``parquet``: labels.parquet, a row per pair. ``trec``: run.trec, the teacher's scores, and qrels.trec, the visible
    labels. ``jsonl``: labels.jsonl, a row per query with texts. ``hf``: a dataset for the distillation losses of
    sentence-transformers. ``pylate``: three datasets (train, queries, documents) that PyLate joins by id.

    Args:
        temperature: of the probabilities; in jsonl, hf and pylate scores are divided by it, so that a loss with a
            teacher temperature of 1 sees the same targets.
        passages: passages of a row in jsonl, hf and pylate. None: all scored ones in jsonl, elsewhere the number up to
            32 that keeps most pairs.
    """
    if format not in FORMATS:
        raise UsageError(f"'{format}' is no export format; expected one of {', '.join(FORMATS)}")
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    if format in PAIR_FORMATS and passages is not None:
        raise UsageError(f"'{format}' holds every pair; a number of passages goes with {', '.join(ROW_FORMATS)}")
    if passages is not None and passages < 2:
        raise UsageError(f"rows of {passages} passages teach nothing; expected at least 2")
    check_dataset(labels, dataset)
    cut = plan_cut(labels, passages, equal=format != "jsonl") if format in ROW_FORMATS else None
    settings = {"format": format, "temperature": temperature, "passages": None if cut is None else cut.passages}
    inputs = {"labels": labels.fingerprint, "passages": dataset.passages.fingerprint}

    def write(space: Workspace) -> Mapping[str, Any]:
        return _write(space, labels, dataset, format, temperature, cut, progress)

    manifest = build(out, Plan(_STAGE, settings, inputs), write)
    if cut is not None and (cut.short_queries or cut.labelled_left_out):
        log.warning(
            "%d queries have fewer than %s scored candidates and were left out; %d labelled passages found no place",
            cut.short_queries,
            cut.passages or 2,
            cut.labelled_left_out,
        )
    return manifest


def check_dataset(labels: Labels, dataset: Dataset) -> None:
    """Refuse a dataset other than the one that the labels were made from."""
    dataset.labels(labels.split)  # says which splits there are where this one is missing
    if dataset.labels_fingerprint(labels.split) != labels.manifest.inputs["labels"]:
        raise ArtefactError(
            f"{labels.folder} was made from other queries or labels than the split '{labels.split}' of {dataset.name} "
            "has; give the same dataset with the same settings (such as data.keep_labels), or label again"
        )
    if dataset.passages.fingerprint != labels.manifest.inputs["passages"]:
        raise ArtefactError(
            f"{labels.folder} was made from another collection than that of {dataset.name}; give the same one, or "
            "label again"
        )


def _write(
    space: Workspace,
    labels: Labels,
    dataset: Dataset,
    format: str,
    temperature: float,
    cut: Cut | None,
    progress: Progress,
) -> Mapping[str, Any]:
    task = progress.start(f"exporting as {format}", len(labels), "queries")
    try:
        if format == "parquet":
            return _write_parquet(space, labels, temperature, task)
        if cut is None:
            return _write_trec(space, labels, dataset, task)
        if format == "jsonl":
            _write_jsonl(space, labels, dataset, temperature, cut, task)
        else:
            from colabel.labels import hf_export

            writer = hf_export.write_hf if format == "hf" else hf_export.write_pylate
            writer(space, labels, dataset, temperature, cut, task)
        return dataclasses.asdict(cut)
    finally:
        task.close()


def _write_parquet(space: Workspace, labels: Labels, temperature: float, task: Task) -> Mapping[str, Any]:
    """One row group per block of queries, so that memory stays that of one block."""
    import pyarrow.parquet

    pairs = 0
    with space.file("labels.parquet") as path, pyarrow.parquet.ParquetWriter(path, _schema()) as writer:
        for block in labels.blocks():
            table = pairs_table(labels, block, temperature)
            writer.write_table(table, row_group_size=max(1, len(table)))
            pairs += len(table)
            task.advance(len(block.query_ids))
    return {"queries": len(labels), "pairs": pairs}


def _schema() -> pyarrow.Schema:
    import pyarrow

    return pyarrow.schema(
        [
            ("query_id", pyarrow.string()),
            ("passage_id", pyarrow.string()),
            ("teacher_score", pyarrow.float32()),
            ("base_score", pyarrow.float32()),
            ("probability", pyarrow.float32()),
            ("labelled", pyarrow.bool_()),
            ("feedback", pyarrow.bool_()),
            ("hard_negative", pyarrow.bool_()),
            ("suspect_rank", pyarrow.int32()),
        ]
    )


def pairs_table(labels: Labels, block: LabelBlock, temperature: float) -> pyarrow.Table:
    """The pairs of a block as an Arrow table; the teacher score of a pair that was not scored is null."""
    import pyarrow

    used = block.rows >= 0
    places = np.nonzero(used)[0]
    teacher = block.teacher[used]
    flags = block.flags[used]
    columns = [
        pyarrow.array([block.query_ids[place] for place in places.tolist()], pyarrow.string()),
        pyarrow.array([labels.passage_ids[row] for row in block.rows[used].tolist()], pyarrow.string()),
        pyarrow.array(teacher, pyarrow.float32(), mask=~np.isfinite(teacher)),
        pyarrow.array(block.base[used], pyarrow.float32()),
        pyarrow.array(probabilities(block.teacher, temperature)[used], pyarrow.float32()),
        *(pyarrow.array((flags & flag) != 0) for flag in (Flag.LABELLED, Flag.FEEDBACK, Flag.HARD_NEGATIVE)),
        pyarrow.array(suspect_ranks(block.teacher, block.flags)[used], pyarrow.int32()),
    ]
    return pyarrow.Table.from_arrays(columns, schema=_schema())


def _write_trec(space: Workspace, labels: Labels, dataset: Dataset, task: Task) -> Mapping[str, Any]:
    pairs = 0
    with space.file("run.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for block in labels.blocks():
            for place, query_id in enumerate(block.query_ids):
                ranked = ranked_passages(labels, block, place)
                pairs += len(ranked)
                for rank, (passage_id, score) in enumerate(ranked, start=1):
                    file.write(run_line(ScoredPassage(query_id, passage_id, rank, score), labels.teacher) + "\n")
            task.advance(len(block.query_ids))
    judged = (
        Qrel(query_id, passage_id, grade)
        for query_id, grades in dataset.labels(labels.split).items()
        for passage_id, grade in grades.items()
    )
    with space.file("qrels.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(qrel_lines(judged))
    return {"queries": len(labels), "pairs": pairs}


def ranked_passages(labels: Labels, block: LabelBlock, place: int) -> list[tuple[str, float]]:
    """Passage ids and teacher scores of a query, best first; of equal scores the larger id first."""
    scored = np.isfinite(block.teacher[place])
    scores = block.teacher[place][scored].tolist()
    ids = [labels.passage_ids[row] for row in block.rows[place][scored].tolist()]
    by_id = sorted(zip(ids, scores, strict=True), key=lambda pair: pair[0].encode("utf-8"), reverse=True)
    return sorted(by_id, key=lambda pair: -pair[1])


def _write_jsonl(space: Workspace, labels: Labels, dataset: Dataset, temperature: float, cut: Cut, task: Task) -> None:
    with space.file("labels.jsonl") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for row in text_rows(labels, dataset, temperature, cut, task):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def text_rows(labels: Labels, dataset: Dataset, temperature: float, cut: Cut, task: Task) -> Iterator[dict[str, Any]]:
    """Training rows with ids, texts and scores divided by the temperature."""
    for row in training_rows(labels, cut.passages):
        found = [dataset.passages[place] for place in row.rows.tolist()]
        yield {
            "query_id": row.query_id,
            "query": dataset.queries[row.query_id],
            "document_ids": [passage.id for passage in found],
            "documents": [passage.full_text for passage in found],
            "scores": (row.scores / np.float32(temperature)).tolist(),
        }
        task.advance()

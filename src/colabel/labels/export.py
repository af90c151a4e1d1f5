"""Labels for other programs: parquet, TREC files, and datasets for sentence-transformers and PyLate."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Manifest, Spec, Workspace, build
from colabel.data import Dataset
from colabel.data.scored_files import run_line
from colabel.data.text_lines import qrel_lines
from colabel.errors import ArtefactError, UsageError
from colabel.labels.artefact import Flag, LabelBlock, Labels, missing_ranks, probabilities
from colabel.progress import SILENT, Progress, track
from colabel.types import ScoredPassage

log = logging.getLogger(__name__)

FORMATS = ("parquet", "trec", "hf", "pylate")
LONGEST = 32
"""Most passages per query unless a number is given: what ColBERT distillation commonly uses."""
_BATCH = 256  # examples held at once: 256 queries with 32 passages of 180 tokens are about 8 MB of text


def export_labels(
    labels: Labels,
    dataset: Dataset,
    out: Path | str,
    format: str,
    *,
    temperature: float = 1.0,
    passages: int | None = None,
    progress: Progress = SILENT,
) -> Manifest:
    """Write labels to the folder ``out``, whole or not at all; the manifest's counts say what was left out.

    ``parquet``: labels.parquet, a record per pair. ``trec``: run.trec, the teacher's scores, and qrels.trec, the
    visible labels. ``hf``: a dataset for the distillation losses of sentence-transformers. ``pylate``: three datasets
    (train, queries, documents) that PyLate joins by id.

    Args:
        temperature: of the probabilities; in hf and pylate scores are divided by it, so that a loss with a teacher
            temperature of 1 sees the same targets.
        passages: passages per query in hf and pylate. None: the number up to 32 that keeps most pairs.
    """
    out = Path(out)
    if format not in FORMATS:
        raise UsageError(f"'{format}' is no export format; expected one of {', '.join(FORMATS)}")
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    if format in ("parquet", "trec") and passages is not None:
        raise UsageError(f"'{format}' holds every pair; a number of passages goes with hf and pylate")
    if passages is not None and passages < 2:
        raise UsageError(f"{passages} passages per query teach nothing; expected at least 2")
    check_dataset(labels, dataset)
    cut = plan_cut(labels, passages) if format in ("hf", "pylate") else {}
    settings = {"format": format, "temperature": temperature, "passages": cut.get("passages")}
    inputs = {"labels": labels.fingerprint, "passages": dataset.passages.fingerprint}

    def write(space: Workspace) -> Mapping[str, Any]:
        if not cut:
            blocks = track(labels.blocks(), progress, f"exporting as {format}", None, "blocks")
            if format == "parquet":
                return {"queries": len(labels), "pairs": _write_parquet(space, labels, blocks, temperature)}
            return {"queries": len(labels), "pairs": _write_trec(space, labels, blocks, dataset)}
        examples = training_examples(labels, cut["passages"], temperature)
        examples = track(examples, progress, f"exporting as {format}", cut["queries"], "queries")
        (_write_hf if format == "hf" else _write_pylate)(space, examples, dataset, cut["passages"])
        return cut

    manifest = build(out, Spec("label-export", settings, inputs), write)
    if cut.get("short_queries") or cut.get("labelled_left_out"):
        log.warning(
            "%d queries have fewer than %d scored candidates and were left out; %d labelled passages found no place",
            cut["short_queries"],
            cut["passages"],
            cut["labelled_left_out"],
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


def plan_cut(labels: Labels, passages: int | None) -> dict[str, int]:
    """The number of passages per query, and what it keeps and leaves out.

    ``short_queries`` counts queries left out with too few scored candidates, ``labelled_left_out`` labelled passages
    that found no place.
    """
    counts = [np.zeros((0, 2), np.int64)]
    for block in labels.blocks():
        marked = np.isfinite(block.teacher) & ((block.flags & Flag.LABELLED) != 0)
        counts.append(np.stack([np.isfinite(block.teacher).sum(axis=1), marked.sum(axis=1)], axis=1))
    scored, labelled = np.concatenate(counts).T
    passages = passages or best_length(scored)
    kept = scored >= passages
    if not kept.any():
        most = int(scored.max(initial=0))
        advice = f"ask for at most {most}" if most >= 2 else "label more candidates"
        raise UsageError(f"no query has {passages} scored candidates, the most is {most}; {advice}")
    queries = int(kept.sum())
    room = passages - (scored[kept] > labelled[kept])
    return {
        "passages": passages,
        "queries": queries,
        "pairs": queries * passages,
        "short_queries": len(scored) - queries,
        "pairs_left_out": int(scored.sum()) - queries * passages,
        "labelled_left_out": int(np.maximum(labelled[kept] - room, 0).sum()),
    }


def best_length(lengths: npt.NDArray[np.integer]) -> int:
    """The n from 2 to 32 with the largest n · (queries that have at least n).

    >>> best_length(np.array([100, 100, 5])), best_length(np.array([4, 4, 4, 5])), best_length(np.array([0]))
    (32, 4, 2)
    """
    return max(range(2, LONGEST + 1), key=lambda n: (n * int((lengths >= n).sum()), -n))


class TrainingExample(NamedTuple):
    """One query: passage rows, labelled ones first, each group best first, and scores divided by the temperature."""

    query_id: str
    rows: list[int]
    scores: list[float]


def training_examples(labels: Labels, passages: int, temperature: float) -> Iterator[TrainingExample]:
    """Queries with exactly ``passages`` passages, those with fewer scored candidates left out.

    The labelled passages come first, so that losses which take the first passage as the positive work as well. At
    least one place is kept for an unlabelled passage where there is one: labelled passages alone teach no contrast.
    """
    for block in labels.blocks():
        for query_id, rows, teacher, flags in zip(block.query_ids, block.rows, block.teacher, block.flags, strict=True):
            scored = np.isfinite(teacher)
            if scored.sum() < passages:
                continue
            best = np.argsort(np.where(scored, -teacher, np.inf), kind="stable")[: int(scored.sum())]
            marked = (flags[best] & Flag.LABELLED) != 0
            first = best[marked][: passages - bool((~marked).any())]
            order = np.concatenate([first, best[~marked][: passages - len(first)]])
            scores = np.asarray(teacher[order], dtype=np.float32) / np.float32(temperature)
            yield TrainingExample(query_id, rows[order].tolist(), scores.tolist())


def _write_parquet(space: Workspace, labels: Labels, blocks: Iterable[LabelBlock], temperature: float) -> int:
    """One row group per block of queries, so that memory stays that of one block; returns the number of pairs."""
    import pyarrow.parquet

    kinds = dict.fromkeys(("query_id", "passage_id"), pyarrow.string())
    kinds |= dict.fromkeys(("teacher_score", "base_score", "probability"), pyarrow.float32())
    kinds |= dict.fromkeys(("labelled", "feedback", "hard_negative"), pyarrow.bool_())
    schema, pairs = pyarrow.schema(kinds | {"suspect_rank": pyarrow.int32()}), 0
    with space.file("labels.parquet") as path, pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            used = block.rows >= 0
            teacher, flags = block.teacher[used], block.flags[used]
            columns = {
                "query_id": [block.query_ids[place] for place in np.nonzero(used)[0].tolist()],
                "passage_id": [labels.passage_ids[row] for row in block.rows[used].tolist()],
                "teacher_score": pyarrow.array(teacher, mask=~np.isfinite(teacher)),  # null where it was not scored
                "base_score": block.base[used],
                "probability": probabilities(block.teacher, temperature)[used],
                **{flag.name.lower(): (flags & flag) != 0 for flag in Flag if flag.name},
                "suspect_rank": missing_ranks(block.teacher, block.flags)[used],
            }
            table = pyarrow.Table.from_pydict(columns, schema=schema)
            writer.write_table(table, row_group_size=max(1, len(table)))
            pairs += len(table)
    return pairs


def _write_trec(space: Workspace, labels: Labels, blocks: Iterable[LabelBlock], dataset: Dataset) -> int:
    """A run of the teacher's scores, of equal ones the larger id first, and the visible labels; returns the pairs."""
    pairs = 0
    with space.file("run.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for block in blocks:
            for query_id, rows, teacher in zip(block.query_ids, block.rows, block.teacher, strict=True):
                scored = np.isfinite(teacher)
                ids = [labels.passage_ids[row] for row in rows[scored].tolist()]
                ranked = sorted(zip(teacher[scored].tolist(), map(str.encode, ids), strict=True), reverse=True)
                pairs += len(ranked)
                for rank, (score, passage_id) in enumerate(ranked, start=1):
                    file.write(
                        run_line(ScoredPassage(query_id, passage_id.decode(), rank, score), labels.teacher) + "\n"
                    )
    with space.file("qrels.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(qrel_lines(dataset.labels(labels.split)))
    return pairs


def _write_hf(space: Workspace, examples: Iterable[TrainingExample], dataset: Dataset, passages: int) -> None:
    """A dataset with the columns query, document_1 … document_N, scores (float32 [N]).

    Losses of sentence-transformers read the columns by position and take ``scores`` as the label. Ids are left out:
    the trainer would take them for text.
    """
    columns = dict.fromkeys(["query", *(f"document_{number}" for number in range(1, passages + 1))], "string")
    records = (
        [dataset.queries[query_id], *(dataset.passages[row].full_text for row in rows), scores]
        for query_id, rows, scores in examples
    )
    _save(space, space.folder, {**columns, "scores": "scores"}, records)


def _write_pylate(space: Workspace, examples: Iterable[TrainingExample], dataset: Dataset, passages: int) -> None:
    """Datasets train (query_id, document_ids, scores), queries (query_id, text) and documents (document_id, text)."""
    used = np.zeros(len(dataset.passages), dtype=bool)
    kept: list[str] = []
    whole = dataset.passages.ids.first_rows is None

    def name(row: int) -> str:
        """A piece has an id of its own here, as each id has one text."""
        return dataset.passages.ids[row] if whole else dataset.passages[row].id

    def train() -> Iterator[list[Any]]:
        for query_id, rows, scores in examples:
            used[rows] = True
            kept.append(query_id)
            yield [query_id, [name(row) for row in rows], scores]

    columns = {"query_id": "string", "document_ids": "strings", "scores": "scores"}
    _save(space, space.folder / "train", columns, train())
    queries = ([query_id, dataset.queries[query_id]] for query_id in kept)
    _save(space, space.folder / "queries", {"query_id": "string", "text": "string"}, queries)
    found = (dataset.passages[row] for row in np.flatnonzero(used).tolist())
    documents = ([passage.id, passage.full_text] for passage in found)
    _save(space, space.folder / "documents", {"document_id": "string", "text": "string"}, documents)


def _save(space: Workspace, folder: Path, columns: Mapping[str, str], records: Iterable[list[Any]]) -> None:
    """Write records to an Arrow file, a batch in memory at a time, and from there as ``save_to_disk`` does."""
    import datasets
    import pyarrow

    string = pyarrow.string()
    kinds = {"string": string, "strings": pyarrow.list_(string), "scores": pyarrow.list_(pyarrow.float32())}
    schema, source = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()]), iter(records)
    scratch = space.folder / ".rows"  # save_to_disk refuses the folder that holds its source
    scratch.mkdir(exist_ok=True)
    whole = str(scratch / "rows.arrow")
    with pyarrow.ipc.new_stream(whole, schema) as stream:
        while batch := list(itertools.islice(source, _BATCH)):
            rows = [dict(zip(columns, record, strict=True)) for record in batch]
            stream.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))
    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # ours is the only bar on screen
    try:
        datasets.Dataset.from_file(whole).save_to_disk(str(folder))
    finally:
        if not disabled:
            datasets.enable_progress_bars()
    shutil.rmtree(scratch)

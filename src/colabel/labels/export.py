"""Labels for other programs: parquet, TREC files, JSON lines, and Hugging Face datasets."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Manifest, Spec, Workspace, build
from colabel.data import Dataset
from colabel.data.scored_files import run_line
from colabel.data.text_lines import qrel_lines
from colabel.errors import ArtefactError, UsageError
from colabel.labels.artefact import Flag, LabelBlock, Labels
from colabel.labels.statistics import missing_ranks, probabilities
from colabel.progress import SILENT, Progress, Task
from colabel.types import ScoredPassage

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

PAIR_FORMATS = ("parquet", "trec")
QUERY_FORMATS = ("jsonl", "hf", "pylate")
FORMATS = (*PAIR_FORMATS, *QUERY_FORMATS)
LONGEST = 32
"""Most passages per query unless a number is given: what ColBERT distillation commonly uses."""
_STAGE = "label-export"
_BATCH = 256  # examples held at once: 256 queries with 32 passages of 180 tokens are about 8 MB of text


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

    ``parquet``: labels.parquet, a record per pair. ``trec``: run.trec, the teacher's scores, and qrels.trec, the
    visible labels. ``jsonl``: labels.jsonl, a record per query with texts. ``hf``: a dataset for the distillation
    losses of sentence-transformers. ``pylate``: three datasets (train, queries, documents) that PyLate joins by id.

    Args:
        temperature: of the probabilities; in jsonl, hf and pylate scores are divided by it, so that a loss with a
            teacher temperature of 1 sees the same targets.
        passages: passages per query in jsonl, hf and pylate. None: all scored ones in jsonl, elsewhere the number up to
            32 that keeps most pairs.
    """
    if format not in FORMATS:
        raise UsageError(f"'{format}' is no export format; expected one of {', '.join(FORMATS)}")
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}; expected a number above 0")
    if format in PAIR_FORMATS and passages is not None:
        raise UsageError(f"'{format}' holds every pair; a number of passages goes with {', '.join(QUERY_FORMATS)}")
    if passages is not None and passages < 2:
        raise UsageError(f"{passages} passages per query teach nothing; expected at least 2")
    check_dataset(labels, dataset)
    cut = plan_cut(labels, passages, equal=format != "jsonl") if format in QUERY_FORMATS else None
    settings = {"format": format, "temperature": temperature, "passages": None if cut is None else cut.passages}
    inputs = {"labels": labels.fingerprint, "passages": dataset.passages.fingerprint}

    def write(space: Workspace) -> Mapping[str, Any]:
        task = progress.start(f"exporting as {format}", len(labels), "queries")
        try:
            if cut is None:
                pairs = (_write_parquet if format == "parquet" else _write_trec)(
                    space, _Source(labels, dataset, temperature, None, task)
                )
                return {"queries": len(labels), "pairs": pairs}
            writer = {"jsonl": _write_jsonl, "hf": _write_hf, "pylate": _write_pylate}[format]
            writer(space, _Source(labels, dataset, temperature, cut.passages, task))
            return dataclasses.asdict(cut)
        finally:
            task.close()

    manifest = build(out, Spec(_STAGE, settings, inputs), write)
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


@dataclasses.dataclass(frozen=True)
class Cut:
    """How many passages a query gets, and what that leaves out.

    ``passages`` None: all scored candidates, any number, at least two. ``queries`` counts those that remain,
    ``short_queries`` those left out with too few scored candidates, ``labelled_left_out`` the labelled passages that
    found no place.
    """

    passages: int | None
    queries: int
    pairs: int
    short_queries: int
    pairs_left_out: int
    labelled_left_out: int


def plan_cut(labels: Labels, passages: int | None, *, equal: bool) -> Cut:
    """Decide the number of passages per query and count what it leaves out.

    With ``equal`` all queries need the same number: left open, it is the one up to 32 that keeps most pairs.
    """
    counts = [np.zeros((0, 2), np.int64)]
    for block in labels.blocks():
        marked = np.isfinite(block.teacher) & ((block.flags & Flag.LABELLED) != 0)
        counts.append(np.stack([np.isfinite(block.teacher).sum(axis=1), marked.sum(axis=1)], axis=1))
    scored, labelled = np.concatenate(counts).T
    if passages is None and equal:
        passages = best_length(scored)
    needed = 2 if passages is None else passages
    kept = scored >= needed
    if not kept.any():
        most = int(scored.max(initial=0))
        advice = f"ask for at most {most}" if most >= 2 else "label more candidates"
        raise UsageError(f"no query has {needed} scored candidates, the most is {most}; {advice}")
    lengths = scored[kept] if passages is None else np.full(int(kept.sum()), passages)
    room = lengths - (scored[kept] > labelled[kept])
    return Cut(
        passages=passages,
        queries=len(lengths),
        pairs=int(lengths.sum()),
        short_queries=len(scored) - len(lengths),
        pairs_left_out=int(scored.sum() - lengths.sum()),
        labelled_left_out=int(np.maximum(labelled[kept] - room, 0).sum()),
    )


def best_length(lengths: npt.NDArray[np.integer]) -> int:
    """The n from 2 to 32 with the largest n · (queries that have at least n).

    >>> best_length(np.array([100, 100, 5])), best_length(np.array([4, 4, 4, 5])), best_length(np.array([0]))
    (32, 4, 2)
    """
    pairs = {n: n * int((lengths >= n).sum()) for n in range(2, LONGEST + 1)}
    return max(pairs, key=lambda n: (pairs[n], -n))


@dataclasses.dataclass(frozen=True)
class TrainingExample:
    """One query: passage rows int64 [n], labelled ones first, each group best first, and teacher scores float32 [n]."""

    query_id: str
    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


def training_examples(labels: Labels, passages: int | None) -> Iterator[TrainingExample]:
    """Queries with exactly ``passages`` passages (None: all), those with fewer scored candidates left out.

    The labelled passages come first, so that losses which take the first passage as the positive work as well. At
    least one place is kept for an unlabelled passage where there is one: labelled passages alone teach no contrast.
    """
    for block in labels.blocks():
        for place, query_id in enumerate(block.query_ids):
            order = _ordered(block, place, passages)
            if len(order) >= (2 if passages is None else passages):
                scores = np.asarray(block.teacher[place][order], dtype=np.float32)
                yield TrainingExample(query_id, block.rows[place][order].astype(np.int64), scores)


def _ordered(block: LabelBlock, place: int, passages: int | None) -> npt.NDArray[np.intp]:
    """Places of the chosen candidates of a query, labelled first, each group best first."""
    teacher = block.teacher[place]
    scored = np.isfinite(teacher)
    best = np.argsort(np.where(scored, -teacher, np.inf), kind="stable")[: int(scored.sum())]
    marked = (block.flags[place][best] & Flag.LABELLED) != 0
    first, rest = best[marked], best[~marked]
    if passages is not None:
        first = first[: passages - bool(len(rest))]
        rest = rest[: passages - len(first)]
    return np.concatenate([first, rest])


@dataclasses.dataclass(frozen=True)
class _Source:
    """What the writers write."""

    labels: Labels
    dataset: Dataset
    temperature: float
    passages: int | None
    task: Task

    def examples(self) -> Iterator[tuple[TrainingExample, list[float]]]:
        """Training examples, and their scores divided by the temperature."""
        for example in training_examples(self.labels, self.passages):
            yield example, (example.scores / np.float32(self.temperature)).tolist()
            self.task.advance()

    def texts(self) -> Iterator[dict[str, Any]]:
        """Training examples with ids and texts."""
        for example, scores in self.examples():
            found = [self.dataset.passages[row] for row in example.rows.tolist()]
            yield {
                "query_id": example.query_id,
                "query": self.dataset.queries[example.query_id],
                "document_ids": [passage.id for passage in found],
                "documents": [passage.full_text for passage in found],
                "scores": scores,
            }


def _write_parquet(space: Workspace, source: _Source) -> int:
    """One row group per block of queries, so that memory stays that of one block; returns the number of pairs."""
    import pyarrow.parquet

    pairs = 0
    with space.file("labels.parquet") as path, pyarrow.parquet.ParquetWriter(path, _schema()) as writer:
        for block in source.labels.blocks():
            table = pairs_table(source.labels, block, source.temperature)
            writer.write_table(table, row_group_size=max(1, len(table)))
            pairs += len(table)
            source.task.advance(len(block.query_ids))
    return pairs


def _schema() -> pyarrow.Schema:
    import pyarrow

    text, number, yes = pyarrow.string(), pyarrow.float32(), pyarrow.bool_()
    ids = [("query_id", text), ("passage_id", text)]
    scores = [("teacher_score", number), ("base_score", number), ("probability", number)]
    flags = [("labelled", yes), ("feedback", yes), ("hard_negative", yes)]
    return pyarrow.schema([*ids, *scores, *flags, ("suspect_rank", pyarrow.int32())])


def pairs_table(labels: Labels, block: LabelBlock, temperature: float) -> pyarrow.Table:
    """The pairs of a block as an Arrow table; the teacher score of a pair that was not scored is null."""
    import pyarrow

    used = block.rows >= 0
    teacher, flags = block.teacher[used], block.flags[used]
    columns = [
        pyarrow.array([block.query_ids[place] for place in np.nonzero(used)[0].tolist()], pyarrow.string()),
        pyarrow.array([labels.passage_ids[row] for row in block.rows[used].tolist()], pyarrow.string()),
        pyarrow.array(teacher, pyarrow.float32(), mask=~np.isfinite(teacher)),
        pyarrow.array(block.base[used], pyarrow.float32()),
        pyarrow.array(probabilities(block.teacher, temperature)[used], pyarrow.float32()),
        *(pyarrow.array((flags & flag) != 0) for flag in (Flag.LABELLED, Flag.FEEDBACK, Flag.HARD_NEGATIVE)),
        pyarrow.array(missing_ranks(block.teacher, block.flags)[used], pyarrow.int32()),
    ]
    return pyarrow.Table.from_arrays(columns, schema=_schema())


def _write_trec(space: Workspace, source: _Source) -> int:
    """A run of the teacher's scores and the visible labels; returns the number of pairs."""
    labels, pairs = source.labels, 0
    with space.file("run.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for block in labels.blocks():
            for place, query_id in enumerate(block.query_ids):
                ranked = ranked_passages(labels, block, place)
                pairs += len(ranked)
                for rank, (passage_id, score) in enumerate(ranked, start=1):
                    file.write(run_line(ScoredPassage(query_id, passage_id, rank, score), labels.teacher) + "\n")
            source.task.advance(len(block.query_ids))
    with space.file("qrels.trec") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(qrel_lines(source.dataset.labels(labels.split)))
    return pairs


def ranked_passages(labels: Labels, block: LabelBlock, place: int) -> list[tuple[str, float]]:
    """Passage ids and teacher scores of a query, best first; of equal scores the larger id first."""
    scored = np.isfinite(block.teacher[place])
    scores = block.teacher[place][scored].tolist()
    ids = [labels.passage_ids[row] for row in block.rows[place][scored].tolist()]
    by_id = sorted(zip(ids, scores, strict=True), key=lambda pair: pair[0].encode("utf-8"), reverse=True)
    return sorted(by_id, key=lambda pair: -pair[1])


def _write_jsonl(space: Workspace, source: _Source) -> None:
    with space.file("labels.jsonl") as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for record in source.texts():
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _write_hf(space: Workspace, source: _Source) -> None:
    """A dataset with the columns query, document_1 … document_N, scores (float32 [N]).

    Losses of sentence-transformers read the columns by position and take ``scores`` as the label. Ids are left out:
    the trainer would take them for text.
    """
    import pyarrow

    columns = [f"document_{number}" for number in range(1, (source.passages or 0) + 1)]
    texts = [(name, pyarrow.string()) for name in ("query", *columns)]
    records = (
        {"query": record["query"], **dict(zip(columns, record["documents"], strict=True)), "scores": record["scores"]}
        for record in source.texts()
    )
    _save(space, space.folder, [*texts, ("scores", pyarrow.list_(pyarrow.float32()))], records)


def _write_pylate(space: Workspace, source: _Source) -> None:
    """Datasets train (query_id, document_ids, scores), queries (query_id, text) and documents (document_id, text)."""
    import pyarrow

    labels, dataset = source.labels, source.dataset
    used = np.zeros(len(dataset.passages), dtype=bool)
    kept: list[str] = []

    def train() -> Iterator[dict[str, Any]]:
        for example, scores in source.examples():
            used[example.rows] = True
            kept.append(example.query_id)
            ids = [labels.passage_ids[row] for row in example.rows.tolist()]
            yield {"query_id": example.query_id, "document_ids": ids, "scores": scores}

    key, scores = pyarrow.string(), ("scores", pyarrow.list_(pyarrow.float32()))
    columns = [("query_id", key), ("document_ids", pyarrow.list_(key)), scores]
    _save(space, space.folder / "train", columns, train())
    queries = ({"query_id": query_id, "text": dataset.queries[query_id]} for query_id in kept)
    _save(space, space.folder / "queries", [("query_id", key), ("text", key)], queries)
    found = (dataset.passages[row] for row in np.flatnonzero(used).tolist())
    documents = ({"document_id": passage.id, "text": passage.full_text} for passage in found)
    _save(space, space.folder / "documents", [("document_id", key), ("text", key)], documents)


def _save(space: Workspace, folder: Path, columns: list[tuple[str, Any]], records: Iterable[Mapping[str, Any]]) -> None:
    """Write records to an Arrow file, a batch in memory at a time, and from there as ``save_to_disk`` does."""
    import datasets
    import pyarrow

    scratch = space.folder / ".rows"  # save_to_disk refuses the folder that holds its source
    scratch.mkdir(exist_ok=True)
    whole, source, schema = str(scratch / "rows.arrow"), iter(records), pyarrow.schema(columns)
    with pyarrow.ipc.new_stream(whole, schema) as stream:
        while batch := list(itertools.islice(source, _BATCH)):
            stream.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema=schema))
    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # ours is the only bar on screen
    try:
        datasets.Dataset.from_file(whole).save_to_disk(str(folder))
    finally:
        if not disabled:
            datasets.enable_progress_bars()
    shutil.rmtree(scratch)

"""Labels as Hugging Face datasets on disk, in the shapes that sentence-transformers and PyLate train on."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colabel.artefacts import Workspace
from colabel.data import Dataset
from colabel.labels.artefact import Labels
from colabel.labels.export import text_rows
from colabel.labels.training_rows import Cut, training_rows
from colabel.progress import Task

if TYPE_CHECKING:
    import pyarrow

_BATCH = 256  # rows held at once: 256 queries with 32 passages of 180 tokens are about 8 MB of text


def write_hf(space: Workspace, labels: Labels, dataset: Dataset, temperature: float, cut: Cut, task: Task) -> None:
    """A dataset with the columns query, document_1 … document_N, scores (float32 [N]).

    Losses of sentence-transformers read the columns by position and take ``scores`` as the label. Ids are left out:
    the trainer would take them for text.
    """
    import pyarrow

    count = cut.passages or 0
    columns = [f"document_{number}" for number in range(1, count + 1)]
    schema = pyarrow.schema(
        [("query", pyarrow.string()), *((name, pyarrow.string()) for name in columns), _scores(pyarrow)]
    )
    rows = (
        {"query": row["query"], **dict(zip(columns, row["documents"], strict=True)), "scores": row["scores"]}
        for row in text_rows(labels, dataset, temperature, cut, task)
    )
    _save(space, space.folder, schema, rows)


def write_pylate(space: Workspace, labels: Labels, dataset: Dataset, temperature: float, cut: Cut, task: Task) -> None:
    """Datasets train (query_id, document_ids, scores), queries (query_id, text) and documents (document_id, text)."""
    import pyarrow

    used = np.zeros(len(dataset.passages), dtype=bool)

    def train() -> Iterator[dict[str, Any]]:
        for row in training_rows(labels, cut.passages):
            used[row.rows] = True
            ids = [labels.passage_ids[place] for place in row.rows.tolist()]
            scores = (row.scores / np.float32(temperature)).tolist()
            yield {"query_id": row.query_id, "document_ids": ids, "scores": scores}
            task.advance()

    text, key = ("text", pyarrow.string()), pyarrow.string()
    document_ids = ("document_ids", pyarrow.list_(key))
    _save(space, space.folder / "train", pyarrow.schema([("query_id", key), document_ids, _scores(pyarrow)]), train())
    kept = (row.query_id for row in training_rows(labels, cut.passages))
    queries = ({"query_id": query_id, "text": dataset.queries[query_id]} for query_id in kept)
    _save(space, space.folder / "queries", pyarrow.schema([("query_id", key), text]), queries)
    found = (dataset.passages[row] for row in np.flatnonzero(used).tolist())
    documents = ({"document_id": passage.id, "text": passage.full_text} for passage in found)
    _save(space, space.folder / "documents", pyarrow.schema([("document_id", key), text]), documents)


def _scores(pyarrow: Any) -> tuple[str, Any]:
    return "scores", pyarrow.list_(pyarrow.float32())


def _save(space: Workspace, folder: Path, schema: pyarrow.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to an Arrow file, a batch in memory at a time, and from there as ``save_to_disk`` does."""
    import datasets
    import pyarrow

    scratch = space.folder / ".rows"  # save_to_disk refuses the folder that holds its source
    scratch.mkdir(exist_ok=True)
    whole, source = str(scratch / "rows.arrow"), iter(rows)
    with pyarrow.ipc.new_stream(whole, schema) as stream:
        while batch := list(itertools.islice(source, _BATCH)):
            stream.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema=schema))
    with _no_bars():
        datasets.Dataset.from_file(whole).save_to_disk(str(folder))
    shutil.rmtree(scratch)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keep ``datasets`` from drawing bars; ours is the only one on screen."""
    import datasets

    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not disabled:
            datasets.enable_progress_bars()

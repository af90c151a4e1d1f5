"""Write a dataset in another format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Spec, Workspace, build, fingerprint
from colabel.data.dataset import Dataset
from colabel.data.formats.folders import HIDDEN_FILE
from colabel.data.passages import passage_line
from colabel.data.splits import hidden_labels
from colabel.data.text_lines import qrel_lines
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress, track
from colabel.types import Passage, Qrels


def convert(dataset: Dataset, out: Path | str, to: str = "beir", *, progress: Progress = SILENT) -> Manifest:
    """Write ``dataset`` to the folder ``out`` as ``beir`` or ``msmarco``, whole or not at all.

    The splits are those that colabel works with: leaked queries are left out, a missing dev split is held out.
    Hidden labels go to ``hidden/train.tsv`` in BEIR form; the other format has no place for them and refuses.
    """
    out = Path(out)
    writers = {"beir": _write_beir, "msmarco": _write_msmarco}
    if to not in writers:
        raise UsageError(f"cannot convert to '{to}'; expected one of {', '.join(sorted(writers))}")
    if to != "beir" and hidden_labels(dataset):
        raise UsageError(f"{dataset.name} has hidden labels, for which the {to} format has no place; convert to beir")
    if dataset.passages.ids.first_rows is not None:
        raise UsageError(f"the documents of {dataset.name} are in pieces and cannot be written whole; leave out chunk")
    if dataset.passages.path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{out} holds the collection that is to be converted; choose another output folder")

    def write(space: Workspace) -> Mapping[str, Any]:
        passages = track(dataset.passages, progress, "writing passages", len(dataset.passages), "passages")
        writers[to](space, dataset, passages)
        return {"passages": len(dataset.passages), "queries": len(dataset.queries), "splits": list(dataset.splits)}

    return build(out, _spec(dataset, to), write)


def store(dataset: Dataset, folder: Path, *, progress: Progress = SILENT) -> Path:
    """Write a dataset below a folder, at a place that its contents name: the same dataset is written once."""
    name = re.sub(r"[^\w.-]+", "-", dataset.name).strip(".-") or "records"
    place = folder / _spec(dataset, "beir").fingerprint[:12] / name
    place.parent.mkdir(parents=True, exist_ok=True)
    convert(dataset, place, progress=progress)
    return place


def _spec(dataset: Dataset, to: str) -> Spec:
    """All that the output depends on, the order of its lines included."""
    labels = {"hidden": hidden_labels(dataset)} | {f"labels:{split}": dataset.labels(split) for split in dataset.splits}
    ordered = {name: [[query, list(rels.items())] for query, rels in held.items()] for name, held in labels.items()}
    inputs = {"passages": dataset.passages.fingerprint, "queries": fingerprint(list(dataset.queries.items()))}
    settings = {"to": to, "name": dataset.name, "relevant_from": dataset.relevant_from}
    return Spec("convert", settings, inputs | {name: fingerprint(held) for name, held in ordered.items()})


def _write_beir(space: Workspace, dataset: Dataset, passages: Iterable[Passage]) -> None:
    _write_lines(space, "corpus.jsonl", map(passage_line, passages))
    queries = ({"_id": query_id, "text": text} for query_id, text in dataset.queries.items())
    _write_lines(space, "queries.jsonl", (json.dumps(query, ensure_ascii=False) + "\n" for query in queries))
    for split in dataset.splits:
        _write_lines(space, f"qrels/{split}.tsv", _beir_qrels(dataset.labels(split)))
    if hidden := hidden_labels(dataset):
        _write_lines(space, HIDDEN_FILE.as_posix(), _beir_qrels(hidden))


def _write_msmarco(space: Workspace, dataset: Dataset, passages: Iterable[Passage]) -> None:
    """The passages, a query file and a label file per split, and a query file for the queries of no split."""
    _write_lines(space, "collection.tsv", _tsv((passage.id, passage.full_text) for passage in passages))
    rest = dict(dataset.queries)
    for split in dataset.splits:
        queries = dataset.split_queries(split)
        rest = {query_id: text for query_id, text in rest.items() if query_id not in queries}
        _write_lines(space, f"queries.{split}.tsv", _tsv(queries.items()))
        lines = qrel_lines(dataset.labels(split))
        _write_lines(space, f"qrels.{split}.tsv", (line.replace(" ", "\t") for line in lines))
    if rest:
        _write_lines(space, "queries.unlabelled.tsv", _tsv(rest.items()))


def _write_lines(space: Workspace, name: str, lines: Iterable[str]) -> None:
    if space.done(name):
        return
    with space.file(name) as path, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _tsv(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One record per line: any white space in a text becomes a space."""
    return (f"{name}\t{' '.join(text.split())}\n" for name, text in texts)


def _beir_qrels(labels: Qrels) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore\n"
    for query_id, grades in labels.items():
        yield from (f"{query_id}\t{passage_id}\t{grade}\n" for passage_id, grade in grades.items())

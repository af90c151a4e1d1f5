"""Write a dataset in another format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Plan, Workspace, build, fingerprint
from colabel.data.beir import HIDDEN_FILE
from colabel.data.dataset import Dataset
from colabel.data.hiding import hidden_labels
from colabel.data.trec import document_text, qrel_lines
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress, track
from colabel.types import Passage, Qrel, Qrels

Formatter = Callable[[Passage], str]


def convert(dataset: Dataset, out: Path, to: str = "beir", *, progress: Progress = SILENT) -> Manifest:
    """Write ``dataset`` to the folder ``out`` as ``beir``, ``trec`` or ``msmarco``, whole or not at all.

    The splits are those that colabel works with: leaked queries are left out, a missing dev split is held out.
    Hidden labels go to ``hidden/train.tsv`` in BEIR form; the other formats have no place for them and refuse.
    """
    writers = {"beir": _write_beir, "trec": _write_trec, "msmarco": _write_msmarco}
    if to not in writers:
        raise UsageError(f"cannot convert to '{to}'; expected one of {', '.join(sorted(writers))}")
    if to != "beir" and hidden_labels(dataset):
        raise UsageError(f"{dataset.name} has hidden labels, for which the {to} format has no place; convert to beir")
    if dataset.passages.path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{out} holds the collection that is to be converted; choose another output folder")
    plan = Plan("convert", {"to": to, "name": dataset.name, "relevant_from": dataset.relevant_from}, _inputs(dataset))

    def write(space: Workspace) -> Mapping[str, Any]:
        writers[to](space, dataset, progress)
        return {
            "passages": len(dataset.passages),
            "queries": len(dataset.queries),
            "splits": list(dataset.splits),
        }

    return build(out, plan, write)


def _inputs(dataset: Dataset) -> dict[str, str]:
    """All that the output depends on, the order of its lines included."""
    labels = {f"labels:{split}": fingerprint(_ordered(dataset.labels(split))) for split in dataset.splits}
    return {
        "passages": dataset.passages.fingerprint,
        "queries": fingerprint(list(dataset.queries.items())),
        "hidden": fingerprint(_ordered(hidden_labels(dataset))),
        **labels,
    }


def _ordered(labels: Qrels) -> list[Any]:
    return [[query_id, list(rels.items())] for query_id, rels in labels.items()]


def _write_beir(space: Workspace, dataset: Dataset, progress: Progress) -> None:
    _write_lines(space, "corpus.jsonl", _passages(dataset, _beir_passage, progress))
    queries = ({"_id": query_id, "text": text} for query_id, text in dataset.queries.items())
    _write_lines(space, "queries.jsonl", (json.dumps(row, ensure_ascii=False) + "\n" for row in queries))
    for split in dataset.splits:
        _write_lines(space, f"qrels/{split}.tsv", _beir_qrels(dataset.labels(split)))
    if hidden := hidden_labels(dataset):
        _write_lines(space, HIDDEN_FILE.as_posix(), _beir_qrels(hidden))


def _write_trec(space: Workspace, dataset: Dataset, progress: Progress) -> None:
    _write_lines(space, "documents.trec", _passages(dataset, document_text, progress))
    for split in dataset.splits:
        _write_lines(space, f"topics.{split}.tsv", _tsv_queries(dataset.split_queries(split)))
        _write_lines(space, f"qrels.{split}.txt", qrel_lines(_labels(dataset.labels(split))))
    _write_unlabelled(space, "topics", dataset)


def _write_msmarco(space: Workspace, dataset: Dataset, progress: Progress) -> None:
    _write_lines(space, "collection.tsv", _passages(dataset, _tsv_passage, progress))
    for split in dataset.splits:
        _write_lines(space, f"queries.{split}.tsv", _tsv_queries(dataset.split_queries(split)))
        _write_lines(space, f"qrels.{split}.tsv", (line.replace(" ", "\t") for line in _trec_rows(dataset, split)))
    _write_unlabelled(space, "queries", dataset)


def _write_unlabelled(space: Workspace, name: str, dataset: Dataset) -> None:
    """Queries of no split, which formats with a query file per split would lose."""
    labelled = {query_id for split in dataset.splits for query_id in dataset.labels(split)}
    rest = {query_id: text for query_id, text in dataset.queries.items() if query_id not in labelled}
    if rest:
        _write_lines(space, f"{name}.unlabelled.tsv", _tsv_queries(rest))


def _trec_rows(dataset: Dataset, split: str) -> Iterator[str]:
    return qrel_lines(_labels(dataset.labels(split)))


def _write_lines(space: Workspace, name: str, lines: Iterable[str]) -> None:
    if space.done(name):
        return
    with space.file(name) as path, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _passages(dataset: Dataset, formatter: Formatter, progress: Progress) -> Iterator[str]:
    passages = track(dataset.passages, progress, "writing passages", len(dataset.passages), "passages")
    return (formatter(passage) for passage in passages)


def _beir_passage(passage: Passage) -> str:
    row = {"_id": passage.id, "title": passage.title, "text": passage.text}
    return json.dumps(row, ensure_ascii=False) + "\n"


def _tsv_passage(passage: Passage) -> str:
    return f"{passage.id}\t{_flat(passage.full_text)}\n"


def _tsv_queries(queries: Mapping[str, str]) -> Iterator[str]:
    return (f"{query_id}\t{_flat(text)}\n" for query_id, text in queries.items())


def _flat(text: str) -> str:
    """Tab-separated files have one record a line: any white space becomes a space."""
    return " ".join(text.split())


def _beir_qrels(labels: Qrels) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore\n"
    for label in _labels(labels):
        yield f"{label.query_id}\t{label.passage_id}\t{label.grade}\n"


def _labels(labels: Qrels) -> Iterator[Qrel]:
    for query_id, rels in labels.items():
        for passage_id, grade in rels.items():
            yield Qrel(query_id, passage_id, grade)

"""Any ``ir_datasets`` id: ``irds:beir/scifact`` or, for chosen splits, ids joined by ``+``.

``irds:msmarco-passage/train/judged+msmarco-passage/dev/small+msmarco-passage/trec-dl-2019/judged`` has the
splits train, dev and test. An id without labels of its own stands for all its parts that have some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source, Stream
from colabel.data.text_lines import Kind, Located, Problems, check_id, make_query, numbered, parse_rows
from colabel.errors import UsageError
from colabel.settings import DataSettings
from colabel.settings.declare import nearest
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")
_SPLIT_WORDS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev", "test": "test"}
_FAILURES = (OSError, RuntimeError, ValueError, KeyError, ImportError)


def split_name(dataset_id: str) -> str:
    """The split that an id means.

    >>> split_name("msmarco-passage/train/judged"), split_name("beir/scifact/test")
    ('train', 'test')
    >>> split_name("msmarco-passage/trec-dl-2019/judged"), split_name("vaswani")
    ('test', 'test')
    """
    words = (part.partition("-")[0] for part in reversed(dataset_id.split("/")[1:]))
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "test")


def open_irds(ids: str, settings: DataSettings, cache: Path | None) -> Source:
    """One or more ids that share a collection, which is unpacked once."""
    name, first = f"irds:{ids}", ids.split("+", maxsplit=1)[0]
    collection, parts = _load(first), dict[str, Any]()
    for dataset_id in ids.split("+"):
        for part_id, part in _with_labels(dataset_id):
            split = split_name(part_id)
            if split in parts:
                raise UsageError(
                    f"{name}: '{part_id}' and another id are both {split} data; name one id per split, joined by '+'"
                )
            parts[split] = part

    def queries(problems: Problems) -> Iterator[Located[Query]]:
        for split, part in sorted(parts.items()):
            yield from _records(part.queries_iter, f"{name} queries ({split})", _query)(problems)

    def corpus_fingerprint() -> str:  # ir_datasets verifies the bytes of what it downloads
        import ir_datasets

        return fingerprint([str(ir_datasets.docs_parent_id(first)), collection.docs_count()])

    return Source(
        name=name,
        passages=_records(collection.docs_iter, f"{name} docs", _passage),
        fingerprint=corpus_fingerprint,
        provenance={"format": "irds", "ids": ids},
        queries=queries,
        labels={
            split: _records(part.qrels_iter, f"{name} qrels ({split})", _label) for split, part in sorted(parts.items())
        },
    )


def _load(dataset_id: str) -> Any:
    import ir_datasets

    try:
        return ir_datasets.load(dataset_id)
    except KeyError:
        known = [name for name in ir_datasets.registry if name.split("/")[0] == dataset_id.split("/", maxsplit=1)[0]]
        known = known or [name for name in ir_datasets.registry if "/" not in name]
        raise UsageError(f"irds:{dataset_id}: ir_datasets has no such id{nearest(dataset_id, known)}") from None
    except _FAILURES as error:
        raise UsageError(f"irds:{dataset_id}: ir_datasets cannot load it: {error}") from None


def _with_labels(dataset_id: str) -> Iterator[tuple[str, Any]]:
    """The id itself if it has labels, else its train, dev and test parts that have some."""
    import ir_datasets

    dataset = _load(dataset_id)
    if dataset.has_qrels():
        yield dataset_id, dataset
        return
    for name in sorted(ir_datasets.registry):
        if name.startswith(f"{dataset_id}/") and name.removeprefix(f"{dataset_id}/") in _SPLIT_WORDS:
            part = _load(name)
            if part.has_qrels():
                yield name, part


def _records(rows: Callable[[], Any], where: str, parse: Callable[[Any], T]) -> Stream[T]:
    """A stream that turns ir_datasets' failures (no network, full disk, broken file) into a problem."""

    def stream(problems: Problems) -> Iterator[Located[T]]:
        try:
            yield from parse_rows(numbered(rows(), where), parse, problems)
        except _FAILURES as error:
            problems.add(Kind.UNREADABLE, where, None, f"ir_datasets could not read it: {error}")

    return stream


def _passage(document: Any) -> Passage:
    title = getattr(document, "title", "") or ""
    text = getattr(document, "text", None)
    if not isinstance(text, str):
        text, title = document.default_text(), ""
    return Passage(check_id(document.doc_id), title, text)


def _query(query: Any) -> Query:
    return make_query(check_id(query.query_id), query.default_text())


def _label(label: Any) -> Qrel:
    """Negative grades (unjudged, spam) count as 0."""
    return Qrel(label.query_id, label.doc_id, max(0, int(label.relevance)))

"""Any ``ir_datasets`` id: ``irds:beir/scifact`` or, for chosen splits, ids joined by ``+``.

``irds:msmarco-passage/train/judged+msmarco-passage/dev/small+msmarco-passage/trec-dl-2019/judged`` has the
splits train, dev and test. An id without labels of its own stands for all its parts that have some.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source
from colabel.data.text_lines import UNREADABLE, Located, Malformed, Problems, check_id, make_query, warn_if_empty
from colabel.errors import UsageError
from colabel.settings import DataSettings
from colabel.settings.declare import nearest
from colabel.types import Passage, Qrel, Query

_SPLIT_WORDS = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "test": "test",
}
_FAILURES = (OSError, RuntimeError, ValueError, KeyError, ImportError)


def split_name(dataset_id: str) -> str:
    """The split that an id means.

    >>> split_name("msmarco-passage/train/judged"), split_name("beir/scifact/test")
    ('train', 'test')
    >>> split_name("msmarco-passage/trec-dl-2019/judged"), split_name("vaswani")
    ('test', 'test')
    """
    for part in reversed(dataset_id.split("/")[1:]):
        word = part.partition("-")[0]
        if word in _SPLIT_WORDS:
            return _SPLIT_WORDS[word]
    return "test"


@dataclasses.dataclass(frozen=True)
class IrdsSource(Source):
    """One or more ids of ``ir_datasets`` that share a collection, which is unpacked once."""

    ids: tuple[str, ...]

    prefix = "irds"
    spelling = "irds:ID"
    is_path = False

    @classmethod
    def open(cls, name: str, settings: DataSettings, cache: Path | None) -> Self:
        """Ids joined by ``+``."""
        return cls(tuple(name.split("+")))

    @property
    def name(self) -> str:
        """The spec as the user wrote it."""
        return "irds:" + "+".join(self.ids)

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """Split name → ir_datasets dataset."""
        found: dict[str, Any] = {}
        for dataset_id in self.ids:
            for part_id, part in _with_labels(dataset_id):
                split = split_name(part_id)
                if split in found:
                    raise UsageError(
                        f"{self.name}: '{part_id}' and another id are both {split} data; name one id per split, "
                        "joined by '+'"
                    )
                found[split] = part
        return found

    @cached_property
    def _collection(self) -> Any:
        return _load(self.ids[0])

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """The documents, in the data set's order."""
        rows = _guard(self._collection.docs_iter, f"{self.name} docs", problems)
        for number, document in enumerate(rows, start=1):
            try:
                passage = _passage(document)
            except Malformed as error:
                problems.add(error.kind, f"{self.name} docs", number, str(error))
                continue
            warn_if_empty(passage, f"{self.name} docs", number, problems)
            yield Located(passage, f"{self.name} docs", number)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """The queries of all splits."""
        for split, part in sorted(self._parts.items()):
            where = f"{self.name} queries ({split})"
            for number, query in enumerate(_guard(part.queries_iter, where, problems), start=1):
                try:
                    yield Located(make_query(check_id(query.query_id), query.default_text()), where, number)
                except Malformed as error:
                    problems.add(error.kind, where, number, str(error))

    def splits(self) -> tuple[str, ...]:
        """The splits that the ids mean."""
        return tuple(sorted(self._parts))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """The labels of one split; ir_datasets' negative grades (unjudged, spam) count as 0."""
        where = f"{self.name} qrels ({split})"
        for number, label in enumerate(_guard(self._parts[split].qrels_iter, where, problems), start=1):
            yield Located(Qrel(label.query_id, label.doc_id, max(0, int(label.relevance))), where, number)

    def corpus_fingerprint(self) -> str:
        """Of the id and the number of documents: ir_datasets verifies the bytes of what it downloads."""
        count = self._collection.docs_count()  # first, so that an unknown id is our error
        return fingerprint([_docs_id(self.ids[0]), count])

    def provenance(self) -> dict[str, str]:
        """Where it came from."""
        return {"format": "irds", "ids": "+".join(self.ids)}


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


def _docs_id(dataset_id: str) -> str:
    import ir_datasets

    return str(ir_datasets.docs_parent_id(dataset_id))


def _guard(rows: Any, where: str, problems: Problems) -> Iterator[Any]:
    """Iterate, turning ir_datasets' failures (no network, full disk, broken file) into a problem."""
    try:
        yield from rows()
    except _FAILURES as error:
        problems.add(UNREADABLE, where, None, f"ir_datasets could not read it: {error}")


def _passage(document: Any) -> Passage:
    title = getattr(document, "title", "") or ""
    text = getattr(document, "text", None)
    if not isinstance(text, str):
        text, title = document.default_text(), ""
    return Passage(check_id(document.doc_id), title, text)

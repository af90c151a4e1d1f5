"""pydocs: a collection on every machine, made of the documentation of installed libraries.

A query is the summary line of an object's documentation. Relevant are the object's own passage (grade 2) and
those of its "See Also" entries (grade 1). The train split shows the former only; the latter are hidden labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from colabel.artefacts import fingerprint
from colabel.data.formats.base import Source, Stream
from colabel.data.pydocs.collection import limited, split_of, stored_collection, whole_collection
from colabel.data.text_lines import numbered
from colabel.errors import UsageError
from colabel.settings import DataSettings
from colabel.types import Qrel, Query

OWN, RELATED = 2, 1
T = TypeVar("T")


def open_pydocs(name: str, settings: DataSettings, cache: Path | None) -> Source:
    """All documentation, or as many passages as ``name`` says; kept in ``cache`` for the next process."""
    if name and not re.fullmatch(r"[1-9][0-9]{0,6}", name):
        raise UsageError(f"'pydocs:{name}': expected a number of passages, such as pydocs:4000")
    size = int(name) if name else None
    collection = limited(whole_collection(), size) if cache is None else stored_collection(cache / "pydocs", size)
    passages = [entry.passage for entry in collection.entries]
    queries: list[Query] = []
    labels: dict[str, list[Qrel]] = {"dev": [], "test": [], "train": []}
    hidden: list[Qrel] = []
    for passage, query, related in collection.entries:
        if query is not None:
            queries.append(query)
            split = split_of(query)
            labels[split].append(Qrel(query.id, passage.id, OWN))
            shown = hidden if split == "train" else labels[split]
            shown.extend(Qrel(query.id, passage_id, RELATED) for passage_id in related)
    return Source(
        name=f"pydocs:{name}" if name else "pydocs",
        passages=_stream(passages),
        fingerprint=lambda: fingerprint([[passage.id, passage.title, passage.text] for passage in passages]),
        provenance=collection.versions,
        queries=_stream(queries),
        labels={split: _stream(found) for split, found in labels.items()},
        hidden=_stream(hidden),
    )


def query_counts(size: int) -> tuple[int, dict[str, int]]:
    """How many passages ``pydocs:size`` has, and queries of each split, without storing it."""
    entries = limited(whole_collection(), size).entries
    return len(entries), dict(Counter(split_of(entry.query) for entry in entries if entry.query))


def _stream(values: Sequence[T]) -> Stream[T]:
    return lambda problems: numbered(values, "pydocs")

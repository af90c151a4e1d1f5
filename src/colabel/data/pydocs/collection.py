"""The collection: passages, queries and cross-references made of the harvested documentation."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from colabel.data.pydocs.docstring import Docstring, split_docstring
from colabel.data.pydocs.duplicates import representatives
from colabel.data.pydocs.harvest import Documented, harvest
from colabel.data.pydocs.passage import MIN_WORDS, passage_text, without_boilerplate
from colabel.data.pydocs.references import Resolver
from colabel.types import Passage, Query

_QUERY_WORDS = range(3, 41)


class Entry(NamedTuple):
    """A passage, the query it answers (None where its summary is no use) and the passages it refers to."""

    passage: Passage
    query: Query | None
    related: tuple[str, ...]


class Collection(NamedTuple):
    """All entries in order of their ids, and the version of each library they are from."""

    entries: tuple[Entry, ...]
    versions: dict[str, str]


class _Candidate(NamedTuple):
    item: Documented
    parts: Docstring
    text: str


@functools.cache
def whole_collection() -> Collection:
    """Harvest and build; once a process, since it imports seven libraries."""
    documented, versions = harvest()
    return Collection(build(documented), versions)


def build(documented: Sequence[Documented]) -> tuple[Entry, ...]:
    """Entries in order of their ids. Near-duplicates become one, which references to any of them then mean.

    Only an object that refers to another passage asks a query. A summary that several objects share asks for
    none of them in particular and is no query either.
    """
    kept = [candidate for candidate in _candidates(documented) if len(candidate.text.split()) >= MIN_WORDS]
    standing = representatives(candidate.text for candidate in kept)
    passage_of: dict[str, str | None] = {name: None for item in documented for name in item.names}
    for candidate, row in zip(kept, standing, strict=True):
        passage_of.update(dict.fromkeys(candidate.item.names, kept[row].item.name))
    resolver = Resolver(passage_of)
    chosen = [kept[row] for row in sorted(set(standing))]
    askers = Counter(normalised(candidate.parts.summary) for candidate in chosen)
    entries = []
    for item, parts, text in chosen:
        found = (resolver.resolve(written, item.name, item.defined) for written in parts.see_also)
        related = tuple(dict.fromkeys(passage for passage in found if passage))
        asks = related and _is_query(parts.summary) and askers[normalised(parts.summary)] == 1
        query = asked_by(item.name, parts.summary) if asks else None
        entries.append(Entry(Passage(item.name, item.name, text), query, related))
    return tuple(sorted(entries, key=lambda entry: entry.passage.id))


def asked_by(name: str, summary: str) -> Query:
    """The query that an object's summary line is."""
    return Query(f"q:{name}", summary)


def limited(collection: Collection, size: int | None) -> Collection:
    """The collection cut to ``size`` passages such that every query keeps all passages it refers to.

    Queries come in the order of a hash, each with its passage and those it refers to, then the passages that
    no query needs; the first ``size`` passages stay. So a smaller collection is part of any larger one.
    """
    entries = collection.entries
    if size is None or size >= len(entries):
        return collection
    shuffled = sorted(entries, key=lambda entry: stable_hash(entry.passage.id))
    order: dict[str, None] = {}
    for entry in shuffled:
        if entry.query:
            order.update(dict.fromkeys((entry.passage.id, *entry.related)))
    order.update(dict.fromkeys(entry.passage.id for entry in shuffled))
    kept = set(list(order)[:size])
    cut = [
        entry if kept.issuperset(entry.related) else entry._replace(query=None, related=())
        for entry in entries
        if entry.passage.id in kept
    ]
    return Collection(tuple(cut), collection.versions)


def split_of(query: Query) -> str:
    """The split of a query, by the hash of its text: about 70 % train, 10 % dev, 20 % test."""
    place = stable_hash(normalised(query.text)) % 10
    return "train" if place < 7 else "dev" if place < 8 else "test"


def normalised(text: str) -> str:
    """The text without case, extra white space and its final stop: queries that agree in this are the same.

    >>> normalised("Add  two Numbers.")
    'add two numbers'
    """
    return " ".join(text.casefold().split()).rstrip(".")


def stable_hash(text: str) -> int:
    """A number that is the same in every process, unlike ``hash``."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _candidates(documented: Sequence[Documented]) -> list[_Candidate]:
    parsed = [split_docstring(item.doc) for item in documented]
    bodies = without_boilerplate([(item.name, parts.body) for item, parts in zip(documented, parsed, strict=True)])
    return [
        _Candidate(item, parts, passage_text(parts.summary, body))
        for item, parts, body in zip(documented, parsed, bodies, strict=True)
    ]


def _is_query(summary: str) -> bool:
    return len(summary.split()) in _QUERY_WORDS and "deprecated" not in summary.casefold()

"""The collection: passages, queries and cross-references made of the harvested documentation.

Harvesting imports seven libraries and reads ten thousand docstrings; the result is stored, and rebuilt only when a
library or this package has changed.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from colabel.artefacts import Spec, Workspace
from colabel.artefacts import build as build_artefact
from colabel.data.pydocs.docstrings import Block, Docstring, split_docstring
from colabel.data.pydocs.harvest import ABBREVIATIONS, DISTRIBUTIONS, MODULES, Documented, harvest
from colabel.types import Passage, Query

MAX_WORDS = 130
MIN_WORDS = 8
COMMON = 10
"""A block in more documentation strings than this is boilerplate."""
SIMILARITY = 0.8
"""Texts whose word triples overlap this much are near-duplicates."""

_QUERY_WORDS = range(3, 41)
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?][)\"']?(?=\s)")
_ENTRIES = "entries.jsonl"


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
    """Harvest and build; once per process, since it imports seven libraries."""
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


def passage_text(summary: str, body: Iterable[Block]) -> str:
    """The body as running text without the summary's words, at most ``MAX_WORDS`` words long.

    >>> passage_text("Add numbers.", [Block("", "Fast."), Block("Returns", "int: The sum.")])
    'Fast. Returns: int: The sum.'
    """
    parts: list[str] = []
    label = ""
    for block in body:
        parts.append(block.text if block.label in ("", label) else f"{block.label}: {block.text}")
        label = block.label
    return cut(without(" ".join(parts), summary))


def without(text: str, summary: str) -> str:
    """Take every repetition of the summary out of a text, whatever its case and punctuation.

    >>> without("Adds numbers. Note: add two numbers, slowly.", "Add two numbers.")
    'Adds numbers. Note: slowly.'
    """
    sought = words(summary)
    if not sought or f" {' '.join(sought)} " not in f" {' '.join(words(text))} ":
        return text
    pattern = r"(?<!\w)" + r"\W+".join(map(re.escape, sought)) + r"(?!\w)[.,;:]?\s*"
    return re.sub(pattern, "", text, flags=re.IGNORECASE).strip()


def cut(text: str, limit: int = MAX_WORDS) -> str:
    """The first ``limit`` words, back to the last end of a sentence unless that costs more than half of them.

    >>> cut("One two three. Four five.", limit=4)
    'One two three.'
    """
    found = text.split()
    if len(found) <= limit:
        return " ".join(found)
    short = " ".join(found[:limit])
    ends = [match.end() for match in _SENTENCE_END.finditer(short + " ")]
    return short[: ends[-1]] if ends and ends[-1] * 2 >= len(short) else short


def without_boilerplate(named: Sequence[tuple[str, Sequence[Block]]], common: int = COMMON) -> list[list[Block]]:
    """Bodies (each with its object's name) without blocks that stand in more than ``common`` of them.

    What everybody says of ``out`` or ``random_state`` says nothing about the object, and would make all
    element-wise functions near-duplicates. The object's own name is blotted out for the count, since
    boilerplate likes to mention it.
    """
    keyed = [[(block, block.text.replace(name.rpartition(".")[2], "_")) for block in body] for name, body in named]
    counts = Counter(key for blocks in keyed for key in dict.fromkeys(key for _, key in blocks))
    return [[block for block, key in blocks if counts[key] <= common] for blocks in keyed]


def words(text: str) -> list[str]:
    """The words of a text without case and punctuation."""
    return _WORD.findall(text.casefold())


def shingles(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row (all words where there are fewer)."""
    found = words(text)
    triples: set[tuple[str, ...]] = set(zip(found, found[1:], found[2:], strict=False))
    return triples or {tuple(found)}


def jaccard(a: set[int], b: set[int]) -> float:
    """|a ∩ b| / |a ∪ b|.

    >>> jaccard({1, 2, 3}, {2, 3, 4})
    0.5
    """
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def representatives(texts: Iterable[str], similarity: float = SIMILARITY) -> list[int]:
    """For each text the number of the text that stands for it: itself, or an earlier one as similar as that.

    No two texts that stand for themselves reach ``similarity``. Sets that reach it share one of their rarest
    triples (at most n − ⌈similarity · n⌉ + 1 of n), so only texts that meet in those are compared. In which
    order equally rare triples are numbered does not matter to the result, as long as it is one order for all.

    >>> representatives(["one two three four five", "one two six", "One two three, four five!"])
    [0, 1, 0]
    """
    sets = _by_rarity([shingles(text) for text in texts])
    bearers: dict[int, list[int]] = {}
    result: list[int] = []
    for row, items in enumerate(sets):
        rarest = sorted(items)[: len(items) - math.ceil(similarity * len(items)) + 1]
        rivals = sorted({rival for item in rarest for rival in bearers.get(item, ())})
        scored = ((jaccard(items, sets[rival]), -rival) for rival in rivals)
        score, rival = max(scored, default=(0.0, 0))
        result.append(-rival if score >= similarity else row)
        if score < similarity:
            for item in rarest:
                bearers.setdefault(item, []).append(row)
    return result


def _by_rarity(sets: list[set[tuple[str, ...]]]) -> list[set[int]]:
    """The same sets with numbers for triples: the smaller, the rarer."""
    counts = Counter(itertools.chain.from_iterable(sets))
    numbers = {item: number for number, item in enumerate(sorted(counts, key=counts.__getitem__))}
    return [{numbers[item] for item in items} for items in sets]


class Resolver:
    """Looks names up as seen from an object: next to it first, then outwards, then anywhere in its library."""

    def __init__(self, passage_of: Mapping[str, str | None]) -> None:
        """``passage_of`` maps every name to the id of the passage that stands for it (None: no passage does)."""
        self._passage_of = passage_of
        self._by_ending: dict[tuple[str, str], str | None] = {}
        for name, passage in passage_of.items():
            library, _, ending = name.partition(".")
            while ending:
                known = self._by_ending.setdefault((library, ending), passage)
                if known != passage:
                    self._by_ending[library, ending] = None  # more than one passage could be meant
                ending = ending.partition(".")[2]

    def resolve(self, written: str, name: str, defined: str) -> str | None:
        """The passage meant by ``written`` in the documentation of ``name``, but never its own.

        ``defined`` is the object's name where it was defined, the second place to look from.
        """
        own = self._passage_of.get(name)
        first, dot, rest = written.partition(".")
        written = ABBREVIATIONS.get(first, first) + dot + rest
        candidates = [f"{scope}.{written}" for scope in (*_scopes(name), *_scopes(defined))]
        if written.partition(".")[0] in MODULES:
            candidates.insert(0, written)
        for candidate in candidates:
            # A name that exists ends the search even if it has no passage: one further out means something else.
            if candidate in self._passage_of and (own is None or self._passage_of[candidate] != own):
                return self._passage_of[candidate]
        passage = self._by_ending.get((name.partition(".")[0], written))
        return passage if passage != own else None


def _scopes(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def stored_collection(folder: Path, size: int | None) -> Collection:
    """The collection of ``size`` passages from an artefact in ``folder``, which is made where it is not up to date."""
    settings = {"size": size, "libraries": _installed(), "program": _program()}
    manifest = build_artefact(folder, Spec("pydocs", settings, {}), lambda space: _write(space, size))
    return Collection(tuple(_read(folder / _ENTRIES)), dict(manifest.counts["versions"]))


def _write(space: Workspace, size: int | None) -> dict[str, object]:
    collection = limited(whole_collection(), size)
    with space.file(_ENTRIES) as path, path.open("w", encoding="utf-8") as target:
        for passage, query, related in collection.entries:
            row = {"id": passage.id, "text": passage.text, "query": query.text if query else None, "related": related}
            target.write(json.dumps(row, ensure_ascii=False) + "\n")
    return {"passages": len(collection.entries), "versions": collection.versions}


def _read(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            name, text = row["id"], row["query"]
            yield Entry(Passage(name, name, row["text"]), asked_by(name, text) if text else None, tuple(row["related"]))


def _installed() -> dict[str, str]:
    """Library → version as its distribution states it, without importing any."""
    found = {}
    for library, distribution in DISTRIBUTIONS.items():
        try:
            found[library] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def _program() -> str:
    """Names the code of this package: other rules of harvesting make another collection."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()

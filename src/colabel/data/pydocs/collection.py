"""The collection: passages, queries and cross-references made of the harvested documentation."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from colabel.artefacts import Spec, Workspace, fingerprint
from colabel.artefacts import build as build_artefact
from colabel.data.formats.base import Source, Stream
from colabel.data.pydocs.docstrings import Block, split_docstring
from colabel.data.pydocs.harvest import DISTRIBUTIONS, Documented, harvest
from colabel.data.text_lines import numbered
from colabel.errors import UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query

T = TypeVar("T")
OWN, RELATED = 2, 1
"""Grades of an object's own passage and of those that it refers to."""

MAX_WORDS = 130
MIN_WORDS = 8
COMMON = 10
"""A block in more documentation strings than this is boilerplate."""
SIMILARITY = 0.8
"""Texts whose word triples overlap this much are near-duplicates."""

_QUERY_WORDS = range(3, 41)
_ENTRIES = "entries.json"


class Entry(NamedTuple):
    """A passage, the query it answers (None where its summary is no use) and the passages it refers to."""

    passage: Passage
    query: Query | None
    related: tuple[str, ...]


class Collection(NamedTuple):
    """All entries in order of their ids, and the version of each library they are from."""

    entries: tuple[Entry, ...]
    versions: dict[str, str]


@functools.cache
def whole_collection() -> Collection:
    """Harvest and build; once per process: it imports seven libraries and reads ten thousand docstrings."""
    documented, versions = harvest()
    return Collection(build(documented), versions)


def build(documented: Sequence[Documented]) -> tuple[Entry, ...]:
    """Entries in order of their ids. Near-duplicates become one, which references to any of them then mean.

    Only an object that refers to another passage asks a query. A summary that several objects share asks for
    none of them in particular and is no query either.
    """
    parsed = [split_docstring(item.doc) for item in documented]
    bodies = without_boilerplate([(item.name, parts.body) for item, parts in zip(documented, parsed, strict=True)])
    texts = [passage_text(parts.summary, body) for parts, body in zip(parsed, bodies, strict=True)]
    kept = [row for row, text in enumerate(texts) if len(text.split()) >= MIN_WORDS]
    standing = [kept[place] for place in representatives([texts[row] for row in kept])]
    passage_of: dict[str, str | None] = {name: None for item in documented for name in item.names}
    for row, stands in zip(kept, standing, strict=True):
        passage_of.update(dict.fromkeys(documented[row].names, documented[stands].name))
    resolve = resolver(passage_of)
    chosen = sorted(set(standing), key=lambda row: documented[row].name)
    askers = Counter(normalised(parsed[row].summary) for row in chosen)
    entries = []
    for row in chosen:
        name, summary = documented[row].name, parsed[row].summary
        found = (resolve(written, name) for written in parsed[row].see_also)
        related = tuple(dict.fromkeys(passage for passage in found if passage))
        useful = len(summary.split()) in _QUERY_WORDS and "deprecated" not in summary.casefold()
        asks = related and useful and askers[normalised(summary)] == 1
        entries.append(Entry(Passage(name, name, texts[row]), Query(f"q:{name}", summary) if asks else None, related))
    return tuple(entries)


def limited(collection: Collection, size: int | None) -> Collection:
    """The collection cut to ``size`` passages such that every query keeps all passages it refers to.

    Queries come in the order of a hash, each with its passage and those it refers to, then the passages that
    no query needs; the first ``size`` passages stay. So a smaller collection is part of any larger one.
    """
    entries = collection.entries
    if size is None or size >= len(entries):
        return collection
    shuffled = sorted(entries, key=lambda entry: stable_hash(entry.passage.id))
    needed = [name for entry in shuffled if entry.query for name in (entry.passage.id, *entry.related)]
    order = dict.fromkeys([*needed, *(entry.passage.id for entry in shuffled)])
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
    """The text without case, extra white space and its final stop: queries that agree in this are the same."""
    return " ".join(text.casefold().split()).rstrip(".")


def stable_hash(text: str) -> int:
    """A number that is the same in every process, unlike ``hash``."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def passage_text(summary: str, body: Iterable[Block]) -> str:
    """The body as running text without the summary's words, at most ``MAX_WORDS`` words long.

    >>> passage_text("Add numbers.", [Block("", "Fast."), Block("Returns", "int: The sum.")])
    'Fast. Returns: int: The sum.'
    """
    parts: list[str] = []
    for label, blocks in itertools.groupby(body, key=lambda block: block.label):
        parts += [f"{label}:"] if label else []
        parts += [block.text for block in blocks]
    found = without(" ".join(parts), summary).split()
    return " ".join(found[:MAX_WORDS])


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


def without_boilerplate(named: Sequence[tuple[str, Sequence[Block]]], common: int = COMMON) -> list[list[Block]]:
    """Bodies (each with its object's name) without blocks that stand in more than ``common`` of them.

    What everybody says of ``out`` or ``random_state`` says nothing about the object. The object's own name is blotted
    out for the count, since boilerplate likes to mention it.
    """
    keyed = [[(block, block.text.replace(name.rpartition(".")[2], "_")) for block in body] for name, body in named]
    counts = Counter(key for blocks in keyed for key in {key for _, key in blocks})
    return [[block for block, key in blocks if counts[key] <= common] for blocks in keyed]


def words(text: str) -> list[str]:
    """The words of a text without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


def shingles(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row (all words where there are fewer)."""
    found = words(text)
    triples: set[tuple[str, ...]] = set(zip(found, found[1:], found[2:], strict=False))
    return triples or {tuple(found)}


def representatives(texts: Sequence[str], similarity: float = SIMILARITY) -> list[int]:
    """For each text the number of the text that stands for it: itself, or the earlier one that is most similar.

    Texts are similar as the Jaccard index of their word triples is high. No two texts that stand for themselves reach
    ``similarity``.

    >>> representatives(["one two three four five", "one two six", "One two three, four five!"])
    [0, 1, 0]
    """
    from sklearn.feature_extraction.text import CountVectorizer

    if not texts:
        return []
    triples = CountVectorizer(analyzer=shingles, dtype=np.int32).fit_transform(texts)
    sizes, shared = np.diff(triples.indptr), (triples @ triples.T).tocsr()
    result: list[int] = []
    for row in range(len(texts)):
        here = slice(shared.indptr[row], shared.indptr[row + 1])
        others, overlap = shared.indices[here], shared.data[here]
        scores = overlap / (sizes[row] + sizes[others] - overlap)
        near = (scores >= similarity) & (others < row)
        rivals = zip((-scores[near]).tolist(), others[near].tolist(), strict=True)
        result.append(min((rival for rival in rivals if result[rival[1]] == rival[1]), default=(0.0, row))[1])
    return result


def resolver(passage_of: Mapping[str, str | None]) -> Callable[[str, str], str | None]:
    """Looks names up as seen from an object: as they are, next to it, then outwards, then anywhere in its library.

    Args:
        passage_of: every name with the id of the passage that stands for it (None: no passage does).

    Returns:
        (name as written, name of the object whose documentation it is in) → the passage meant, never the object's own.
    """
    by_ending: dict[tuple[str, str], str | None] = {}
    for name, passage in passage_of.items():
        library, _, ending = name.partition(".")
        while ending:
            if by_ending.setdefault((library, ending), passage) != passage:
                by_ending[library, ending] = None  # more than one passage could be meant
            ending = ending.partition(".")[2]

    def resolve(written: str, name: str) -> str | None:
        own, candidate, scope = passage_of.get(name), written, name
        while candidate not in passage_of or (own is not None and passage_of[candidate] == own):
            scope = scope.rpartition(".")[0]
            if not scope:
                passage = by_ending.get((name.partition(".")[0], written))
                return passage if passage != own else None
            candidate = f"{scope}.{written}"
        # A name that exists ends the search even if it has no passage: one further out means something else.
        return passage_of[candidate]

    return resolve


def stored_collection(folder: Path, size: int | None) -> Collection:
    """The collection of ``size`` passages from an artefact in ``folder``, which is made where it is not up to date."""
    libraries: dict[str, str] = {}
    for library, distribution in DISTRIBUTIONS.items():
        with suppress(metadata.PackageNotFoundError):
            libraries[library] = metadata.version(distribution)
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    program = hashlib.blake2b(code, digest_size=16).hexdigest()  # other rules make another collection

    def write(space: Workspace) -> dict[str, object]:
        collection = limited(whole_collection(), size)
        with space.file(_ENTRIES) as path:
            path.write_bytes(msgspec.json.encode(collection.entries))
        return {"passages": len(collection.entries), "versions": collection.versions}

    spec = Spec("pydocs", {"size": size, "libraries": libraries, "program": program}, {})
    manifest = build_artefact(folder, spec, write)
    entries = msgspec.json.decode((folder / _ENTRIES).read_bytes(), type=tuple[Entry, ...])
    return Collection(entries, dict(manifest.counts["versions"]))


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

    def stream(values: Sequence[T]) -> Stream[T]:
        return lambda problems: numbered(values, "pydocs")

    return Source(
        name=f"pydocs:{name}" if name else "pydocs",
        passages=stream(passages),
        fingerprint=lambda: fingerprint([[passage.id, passage.title, passage.text] for passage in passages]),
        provenance=collection.versions,
        queries=stream(queries),
        labels={split: stream(found) for split, found in labels.items()},
        hidden=stream(hidden),
    )


def query_counts(size: int) -> tuple[int, dict[str, int]]:
    """How many passages ``pydocs:size`` has, and queries of each split, without storing it."""
    entries = limited(whole_collection(), size).entries
    return len(entries), dict(Counter(split_of(entry.query) for entry in entries if entry.query))

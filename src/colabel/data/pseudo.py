"""Training queries without labels: real ones that nobody labelled, and pseudo-queries, made of a passage's own words.

Each kind makes at most one query of a passage, and the passage is its label:

    title      its title, or the heading above it
    sentence   its first sentence
    keyphrase  its most telling words, by idf, in the order of the text
    crop       a piece of one of its other sentences
    generated  what a language model asks of it, where the user brings one

A text that several passages have is boilerplate and names none of them. Pseudo-queries are made only where there are no
training labels.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from colabel.data.dataset import Dataset
from colabel.data.passages import PassageTable
from colabel.data.splits import DEV, TRAIN, normalise_query, stable_fraction
from colabel.settings import PseudoSettings
from colabel.types import Passage

log = logging.getLogger(__name__)

MOST_PASSAGES = 100_000
"""Passages that queries are made of, drawn from a larger collection."""
MOST_WORDS, FEWEST_WORDS = 20, 2
KEYPHRASE_WORDS = 6
CROP_WORDS = 10
COMMON = 0.1
"""A query is too common if each of its words stands in more than this share of the passages."""
REPLACED, FEWEST_MADE = 4, 200
"""How many pseudo-queries a real one replaces, and how many are made in any case."""
GENERATED = "generated"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Case-folded words.

    >>> words_of("An Ice-cave, 2 m deep")
    ['an', 'ice', 'cave', '2', 'm', 'deep']
    """
    return _WORD.findall(text.casefold())


def title(passage: Passage) -> str:
    """Its title; of a part of a document, the heading without the file's name.

    >>> title(Passage("1", "caves.md: Ice caves", "", {"file": "caves.md"}))
    'Ice caves'
    """
    file = str(passage.metadata.get("file") or "")
    own = passage.title.removeprefix(file).removeprefix(":") if file else passage.title
    return " ".join(own.split()[:MOST_WORDS])


def sentences(text: str) -> list[str]:
    """Sentences by their final marks.

    >>> sentences("Ice melts. Where does it go? Down")
    ['Ice melts.', 'Where does it go?', 'Down']
    """
    return [part for piece in _SENTENCE_END.split(text) if (part := " ".join(piece.split()))]


def first_sentence(passage: Passage) -> str:
    """Its first sentence, cut where it is long.

    >>> first_sentence(Passage("1", "Ice", "Ice melts. It flows."))
    'Ice melts.'
    """
    found = sentences(passage.text)
    return " ".join(found[0].split()[:MOST_WORDS]) if found else ""


def keyphrase(passage: Passage, frequencies: Mapping[str, int], passages: int) -> str:
    """Its words of highest min(tf, 3) · idf in the order of the text; idf = ln(N / df).

    Numbers, and words that no other passage has (names of files, misprints), are left out.

    >>> keyphrase(Passage("1", "", "the ice in the cave"), {"the": 9, "in": 8, "ice": 2, "cave": 3}, 9)
    'ice in cave'
    """
    weights = {
        word: min(times, 3) * math.log(passages / frequencies[word])
        for word, times in Counter(words_of(passage.full_text)).items()
        if frequencies.get(word, 0) >= 2 and frequencies[word] < passages and not word.isdigit()
    }
    best = set(sorted(weights, key=lambda word: -weights[word])[:KEYPHRASE_WORDS])
    return " ".join(word for word in weights if word in best)


def crop(passage: Passage, chance: float) -> str:
    """A piece of one of its sentences but the first; ``chance`` in [0, 1) says which and where it begins.

    >>> crop(Passage("1", "", "Ice melts. Melt water carves tunnels."), 0.5)
    'Melt water carves tunnels.'
    """
    others = sentences(passage.text)[1:]
    if not others:
        return ""
    place = chance * len(others)
    held = others[int(place)].split()
    start = int((place % 1.0) * (max(0, len(held) - CROP_WORDS) + 1))
    return " ".join(held[start : start + CROP_WORDS])


@dataclasses.dataclass(frozen=True)
class PseudoQuery:
    """A query and the passage that it was made of."""

    kind: str
    text: str
    passage_id: str

    @property
    def id(self) -> str:
        """Its kind and its passage."""
        return f"{self.kind}:{self.passage_id}"


def pseudo_queries(
    passages: Sequence[Passage],
    kinds: Iterable[str],
    *,
    seed: int = 0,
    avoid: Iterable[str] = (),
    generated: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[PseudoQuery], dict[str, int]]:
    """The usable queries of all passages, and how many were left out: short, repeated, boilerplate, common, asked.

    Args:
        avoid: queries of dev and test, which training must not see.
        generated: passage id → the query that a language model wrote for it.
    """
    frequencies = Counter(word for passage in passages for word in set(words_of(passage.full_text)))
    made = [one for passage in passages for one in _of_passage(passage, tuple(kinds), frequencies, len(passages), seed)]
    made += [PseudoQuery(GENERATED, generated[one.id], one.id) for one in passages if generated.get(one.id)]
    keys = [normalise_query(one.text) for one in made]
    owners = Counter(key for key, _ in {(key, one.passage_id) for key, one in zip(keys, made, strict=True)})
    asked = {normalise_query(text) for text in avoid}
    often = max(2.0, COMMON * len(passages))
    seen: set[str] = set()
    kept, left = [], Counter[str]()
    for key, one in zip(keys, made, strict=True):
        words = words_of(key)
        if len(words) < FEWEST_WORDS or all(word.isdigit() for word in words):
            left["short"] += 1
        elif owners[key] > 1:
            left["boilerplate"] += 1
        elif key in seen:
            left["repeated"] += 1
        elif key in asked:
            left["asked"] += 1
        elif all(frequencies[word] > often for word in words):
            left["common"] += 1
        else:
            kept.append(one)
            seen.add(key)
    return kept, dict(left)


def _of_passage(
    passage: Passage, kinds: Sequence[str], frequencies: Mapping[str, int], passages: int, seed: int
) -> Iterator[PseudoQuery]:
    for kind in kinds:
        if kind == "title":
            text = title(passage)
        elif kind == "sentence":
            text = first_sentence(passage)
        elif kind == "keyphrase":
            text = keyphrase(passage, frequencies, passages)
        else:
            text = crop(passage, stable_fraction(passage.id, f"crop {seed}"))
        if text:
            yield PseudoQuery(kind, text, passage.id)


def _drawn(passages: PassageTable, draw: np.random.Generator) -> Iterator[Passage]:
    if len(passages) <= MOST_PASSAGES:
        yield from passages
        return
    for row in sorted(draw.choice(len(passages), MOST_PASSAGES, replace=False).tolist()):
        yield passages[row]


def unlabelled_queries(dataset: Dataset, most: int) -> list[str]:
    """The first ``most`` queries that nobody labelled, one of each text, none that a labelled query asks."""
    labelled = {query for split in dataset.splits for query in dataset.labels(split)}
    seen, found = {normalise_query(dataset.queries[query]) for query in labelled}, list[str]()
    for query, text in dataset.queries.items():
        key = normalise_query(text)
        if key not in seen and query not in labelled and len(found) < most:
            seen.add(key)
            found.append(query)
    return found


def with_training_queries(
    dataset: Dataset,
    settings: PseudoSettings,
    *,
    holdout: float = 0.15,
    seed: int = 0,
    generate: Callable[[Sequence[Passage]], Mapping[str, str]] | None = None,
) -> Dataset:
    """The dataset with training queries that have no labels.

    Real queries that nobody labelled join the train split, at most ``settings.queries``. Where there is no train split,
    pseudo-queries make one and, where there is none, a dev split. A passage's queries are all in train or all in dev,
    whose share is ``holdout``. Labels that are there stay as they are; texts of labelled queries are no pseudo-queries.

    Args:
        generate: passages → id → a query that a language model writes for it; asked of ``settings.queries`` passages.
    """
    asked: Mapping[str, dict[str, int]] = {query: {} for query in unlabelled_queries(dataset, settings.queries)}
    if asked:
        log.info("%s queries without labels teach what vectors and words say of them", f"{len(asked):,}")
    if TRAIN in dataset.splits:
        train = {**dataset.labels(TRAIN), **asked}
        return dataclasses.replace(dataset, _labels={**dataset._labels, TRAIN: train}) if asked else dataset
    draw = np.random.default_rng(seed)
    passages = list(_drawn(dataset.passages, draw))
    judged = [text for split in dataset.splits for text in dataset.split_queries(split).values()]
    read = sorted(passages, key=lambda one: stable_fraction(one.id, f"generated {seed}"))[: settings.queries]
    generated = {} if generate is None else generate(read)
    made, left = pseudo_queries(passages, settings.kinds, seed=seed, avoid=judged, generated=generated)
    wanted = max(min(settings.queries, FEWEST_MADE), settings.queries - REPLACED * len(asked))
    drawn = [made[place] for place in sorted(draw.permutation(len(made))[:wanted])]
    own_dev = DEV in dataset.splits
    train = {**asked}
    dev: dict[str, dict[str, int]] = {}
    for one in drawn:
        held = not own_dev and stable_fraction(one.passage_id, f"pseudo-dev {seed}") < holdout
        (dev if held else train)[one.id] = {one.passage_id: dataset.relevant_from}
    kinds = Counter(one.kind for one in drawn)
    log.info(
        "pseudo-queries of %s: %s; left out: %s",
        dataset.name,
        ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none",
        ", ".join(f"{count:,} {why}" for why, count in left.items()) or "none",
    )
    labels = {**dataset._labels, **({TRAIN: train} if train else {}), **({DEV: dev} if dev else {})}
    return dataclasses.replace(
        dataset,
        queries={**dataset.queries, **{one.id: one.text for one in drawn}},
        pseudo=tuple(split for split, held in ((TRAIN, train), (DEV, dev)) if held),
        _labels=labels,
    )

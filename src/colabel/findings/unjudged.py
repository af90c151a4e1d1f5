"""What can be known of a run without a judged test query: known-item search, agreement with words, what changed.

None of it says how good the answers are: known items are easy, and ask with the words of the passage. It says whether
anything broke, and where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from colabel.data import Dataset
from colabel.data.splits import DEV, TRAIN, stable_fraction
from colabel.measures import mean_values, measure_run
from colabel.ranking import Ranker
from colabel.ranking.rankings import as_run

FILE = "unjudged.json"
KNOWN_ITEM = ("RR@10", "R@10")
PLACES = 10
MOST_QUERIES = 200
EXAMPLES, SHOWN = 3, 3
WORDS, START = "bm25", "colbert"


class Changed(msgspec.Struct, frozen=True):
    """A query with the ids of the first passages that θ and the student find."""

    query: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Unjudged(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        held_out: queries made of passages that training did not see; 0 where dev has labels of its own.
        known_items: system → measure → how well it finds their passages.
        asked, real: on how many queries views were compared, and whether people asked them.
        agreement: system → mean share of its first ten passages that BM25 has among its own.
        changed: of those queries, the ones whose first passages the training changed most.
    """

    held_out: int
    known_items: dict[str, dict[str, float]]
    asked: int
    real: bool
    agreement: dict[str, float]
    changed: tuple[Changed, ...]


def find_unjudged(data: Dataset, rankers: Mapping[str, Ranker], student: str) -> Unjudged:
    """Ask the rankers of a run what its collection alone can tell; ``student`` is the name of one of them."""
    held = _drawn(data.labels(DEV)) if DEV in data.pseudo else {}
    train = data.labels(TRAIN) if TRAIN in data.splits else {}
    people = {query: known for query, known in train.items() if TRAIN not in data.pseudo or not known}
    queries = _drawn(people) or held
    known_items: dict[str, dict[str, float]] = {}
    for name, ranker in rankers.items() if held else ():
        run = as_run(held, *ranker.rank([data.queries[query] for query in held], PLACES), ranker.ids)
        known_items[name] = mean_values(measure_run(held, run, KNOWN_ITEM, relevant_from=data.relevant_from))
    if not queries:
        return Unjudged(len(held), known_items, 0, False, {}, ())
    texts = [data.queries[query] for query in queries]
    first = {name: rankers[name].rank(texts, PLACES)[0] for name in (WORDS, START, student)}
    common = {name: [_share(*line) for line in zip(rows, first[WORDS], strict=True)] for name, rows in first.items()}
    agreement = {name: float(np.mean(values)) for name, values in common.items() if name != WORDS}
    moved = [_share(*line) for line in zip(first[START][:, :SHOWN], first[student][:, :SHOWN], strict=True)]
    names, changed = rankers[student].ids, []
    for place in np.argsort(moved, kind="stable")[:EXAMPLES].tolist():
        pair = [[names[row] for row in first[name][place][:SHOWN].tolist() if row >= 0] for name in (START, student)]
        if moved[place] < 1:
            changed.append(Changed(texts[place], *map(tuple, pair)))
    return Unjudged(len(held), known_items, len(texts), bool(people), agreement, tuple(changed))


def read_unjudged(folder: Path) -> Unjudged | None:
    """What was found; None where nothing was looked for."""
    path = folder / FILE
    return msgspec.json.decode(path.read_bytes(), type=Unjudged) if path.exists() else None


def _drawn(labels: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Some of the queries, drawn by their ids."""
    drawn = sorted(labels, key=lambda query: stable_fraction(query, "unjudged"))[:MOST_QUERIES]
    return {query: dict(labels[query]) for query in drawn}


def _share(one: np.ndarray, other: np.ndarray) -> float:
    """The share of the rows of one list that the other has.

    >>> _share(np.array([1, 2, -1]), np.array([2, 3, 4]))
    0.5
    """
    held = one[one >= 0]
    return float(np.isin(held, other).mean()) if len(held) else 0.0

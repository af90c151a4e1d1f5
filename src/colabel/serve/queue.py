"""What to judge next: suspected missing labels, doubtful labels, and a blind random share, in one queue.

Of ten pairs, one is drawn at random from all unlabelled candidates (where among the ten, nobody can tell), one is a
doubtful label as long as there are any, and the others are the best suggestions, by a model that learns from every
verdict. The random ones come in one fixed
order; those that were judged by another way already count as well, or the share of relevant ones would look too small.

A share of the judged pairs may be shown to a second judge, who is not told so. Pairs on which people disagree make a
queue of their own, in which everybody sees what the others said and may think again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from colabel.collective import Knowledge
from colabel.data import Dataset
from colabel.data.splits import stable_fraction
from colabel.labels import Flag, LabelBlock, Labels, Verdict, find_missing
from colabel.labels.artefact import unlabelled
from colabel.labels.missing import order_values
from colabel.labels.verdicts import Decision
from colabel.serve.learning import Learner, rescore

Source = Literal["missing", "doubtful", "random", "double", "disagreement"]
SOURCES: tuple[Source, ...] = ("missing", "doubtful", "random")
"""Queues that pairs nobody has judged come from."""
POOL = 5000
"""Suggestions of the whole run that are in the queue; a query whose labels grow adds all of its candidates."""
PERIOD = 10
"""Pairs of which one is random."""
_DRAWN = 200_000  # random pairs that are drawn at most: more than anybody will judge
_LEASE = 180.0  # seconds for which a pair that one judge sees is not shown to another
_DOUBTFUL = 500  # labels that are doubted, at most


@dataclass(frozen=True)
class Pair:
    """A pair to judge."""

    query_id: str
    passage_id: str
    row: int
    source: Source
    value: float


class Queue:
    """The pairs of a run that are left to judge. Not for several threads at once.

    Args:
        double: share of the judged pairs that a second judge is shown.
    """

    def __init__(
        self, labels: Labels, knowledge: Knowledge, dataset: Dataset, *, seed: int = 0, double: float = 0.0
    ) -> None:
        self.labels, self.knowledge, self.dataset, self.double = labels, knowledge, dataset, double
        self.order = "standout" if labels.teacher in ("collective", "self") else "deviation"
        self._seed = seed
        self._visible = dataset.labels(labels.split)
        self._learner = Learner()
        self._first: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
        self._scores: dict[str, npt.NDArray[np.float32]] = {}
        self._grown: dict[str, tuple[int, ...]] = {}
        self._spreads = np.ones(2)
        self._doubtful, self.candidates, self._firsts = self._survey()
        self._features: dict[tuple[str, int], tuple[float, float]] = {}
        best = find_missing(labels, dataset, limit=POOL, order=self.order)
        pool = {(one.query_id, one.row) for one in best}
        for query_id in dict.fromkeys(one.query_id for one in best):
            self._features |= {key: held for key, held in self._figures(query_id).items() if key in pool}
        self._random = self._draw()
        self._places = {(pair.query_id, pair.passage_id): place for place, pair in enumerate(self._random)}
        self._handed: dict[tuple[str, str], tuple[str, float, Source]] = {}
        self._decisions: Mapping[tuple[str, str], Decision] = {}
        self._said: dict[tuple[str, str], dict[str, Verdict]] = {}
        self._given: Counter[str] = Counter()
        self._frontier = self._decided = 0
        self.gone: Collection[str] = ()
        """Ids of passages that were deleted since the labels were made."""

    def update(self, verdicts: Sequence[Verdict], decisions: Mapping[tuple[str, str], Decision]) -> list[str]:
        """Take in what judges said; queries whose labels grew or shrank are scored again, and returned."""
        self._decisions = decisions
        self._given = Counter(one.judge for one in verdicts)
        self._said = {}
        for given in verdicts:
            self._said.setdefault((given.query_id, given.passage_id), {})[given.judge] = given
        self._decided = sum(one.source in SOURCES for one in verdicts)
        drawn = [self._places.get((one.query_id, one.passage_id), -1) for one in verdicts if one.source == "random"]
        self._frontier = max(drawn, default=-1) + 1
        grown: dict[str, list[int]] = {}
        for (query_id, passage_id), one in decisions.items():
            labelled = passage_id in self._visible.get(query_id, {})
            if one.relevant and not labelled and self.labels.query_ids.row(query_id) >= 0:
                grown.setdefault(query_id, []).append(self.labels.passage_ids.row(passage_id))
        now = {query_id: tuple(sorted(row for row in rows if row >= 0)) for query_id, rows in grown.items()}
        changed = [one for one in {**now, **self._grown} if now.get(one, ()) != self._grown.get(one, ())]
        self._grown = now
        for query_id in changed:
            self._rescore(query_id)
        self._learn()
        return changed

    def _learn(self) -> None:
        """Learn from all pairs that people decided, by what was known of them before."""
        figures, relevant, queries = [], [], []
        for (query_id, passage_id), one in self._decisions.items():
            row = self.labels.passage_ids.row(passage_id)
            if one.relevant is None or row < 0 or self.labels.query_ids.row(query_id) < 0:
                continue
            if query_id not in self._first:
                self._first[query_id] = self._figures(query_id)
            if (held := self._first[query_id].get((query_id, row))) is not None:
                figures.append(held)
                relevant.append(one.relevant)
                queries.append(query_id)
        self._learner = Learner()
        if figures:
            self._learner.fit(np.array(figures), np.array(relevant), queries)

    def next(
        self, judge: str, count: int = 1, *, skip: Collection[str] = (), only: Collection[str] | None = None
    ) -> list[Pair]:
        """The next pairs for a judge; the same until one of them is judged.

        Args:
            skip: ids of queries that the judge does not want to see now.
            only: ids of the queries that the judge wants to see; None: all.
        """
        sources = {source: self._waiting(source, judge, skip, only) for source in (*SOURCES, "double")}
        found: list[Pair] = []
        while len(found) < count:
            second = ("double",) if (self._given[judge] + len(found)) % 2 else ()
            for source in (*second, *self._turn(self._decided + len(found))):
                taken = {(one.query_id, one.row) for one in found}
                pair = next((one for one in sources[source] if (one.query_id, one.row) not in taken), None)
                if pair is not None:
                    break
            else:
                break
            found.append(pair)
        now = time.monotonic()
        self._handed = {key: held for key, held in self._handed.items() if now - held[1] < _LEASE}
        for pair in found:
            self._handed[pair.query_id, pair.passage_id] = judge, now, pair.source
        return found

    def disputed(self) -> list[tuple[str, str]]:
        """Pairs that one found relevant and as many others did not, those judged last first."""
        found = [
            pair
            for pair, one in self._decisions.items()
            if one.relevant is None and {"yes", "no"} <= {said.answer for said in self._said[pair].values()}
        ]
        return sorted(found, key=lambda pair: -max(one.id for one in self._said[pair].values()))

    def to_settle(self, judge: str) -> list[tuple[str, str]]:
        """Disputed pairs about which a judge has not thought again."""
        again = "disagreement"
        return [
            pair for pair in self.disputed() if judge not in self._said[pair] or self._said[pair][judge].source != again
        ]

    def said(self, pair: tuple[str, str]) -> list[Verdict]:
        """What people say about a pair."""
        return list(self._said.get(pair, {}).values())

    def source_of(self, query_id: str, passage_id: str, judge: str) -> str:
        """Which queue a pair was shown from; after a restart, which one it would come from."""
        handed = self._handed.get((query_id, passage_id))
        if handed is not None and handed[0] == judge:
            return handed[2]
        if (query_id, passage_id) in self.disputed():
            return "disagreement"
        if self._said.get((query_id, passage_id), {}).keys() - {judge}:
            return "double"
        row = self.labels.passage_ids.row(passage_id)
        if (query_id, row) in self._features:
            return "missing"
        place = self._places.get((query_id, passage_id))
        if place is not None and place <= self._frontier + PERIOD:
            return "random"
        return "doubtful" if passage_id in self._visible.get(query_id, {}) else "search"

    def left(self) -> int:
        """Suggestions that nobody has judged."""
        names = self.labels.passage_ids
        waiting = ((query_id, names[row]) for query_id, row in self._features)
        return sum(pair not in self._decisions and pair[1] not in self.gone for pair in waiting)

    def sample(self) -> list[Decision | None]:
        """What was said about the random pairs up to the last one that was judged; None: it was passed over."""
        return [self._decisions.get((one.query_id, one.passage_id)) for one in self._random[: self._frontier]]

    def found(self) -> int:
        """Labels that were missing and are not any more."""
        return sum(
            bool(one.relevant) and query_id in self._visible and passage_id not in self._visible[query_id]
            for (query_id, passage_id), one in self._decisions.items()
        )

    def positives(self, query_id: str) -> list[int]:
        """Rows of the passages that are relevant to a query by its labels or by a verdict."""
        held = self._visible.get(query_id, {})
        names = [one for one, grade in held.items() if grade >= self.dataset.relevant_from]
        rows = [int(row) for row in self.labels.passage_ids.rows(names) if row >= 0]
        return list(dict.fromkeys([*rows, *self._grown.get(query_id, ())]))

    def teacher_scores(self, query_id: str) -> npt.NDArray[np.float32]:
        """The teacher's scores of a query's candidates, by the labels of now."""
        return self._scores.get(query_id, self.labels.query(query_id).teacher)

    def _turn(self, number: int) -> tuple[Source, ...]:
        """Whose turn it is, and who steps in where that queue is empty."""
        chosen = int(stable_fraction(str(number // PERIOD), f"random {self._seed}") * PERIOD)
        if number % PERIOD == chosen:
            return "random", "missing", "doubtful"
        if number % PERIOD == (chosen + PERIOD // 2) % PERIOD:
            return "doubtful", "missing", "random"
        return "missing", "doubtful", "random"

    def _waiting(
        self, source: Source, judge: str, skip: Collection[str], only: Collection[str] | None
    ) -> Iterator[Pair]:
        """Pairs of one queue that nobody has judged and that no other judge is looking at."""
        now = time.monotonic()
        for pair in self._twice(judge) if source == "double" else self._of(source):
            key = pair.query_id, pair.passage_id
            wanted = pair.query_id not in skip and (only is None or pair.query_id in only)
            if not wanted or pair.passage_id in self.gone or (key in self._decisions and source != "double"):
                continue
            holder, since, _ = self._handed.get(key, ("", 0.0, ""))
            if holder in ("", judge, *self._said.get(key, ())) or now - since >= _LEASE:
                yield pair

    def _twice(self, judge: str) -> Iterator[Pair]:
        """Pairs that one other person has judged and that are among those for two."""
        for (query_id, passage_id), given in self._said.items():
            ours = stable_fraction(passage_id, f"double {self._seed} {query_id}") < self.double
            row = self.labels.passage_ids.row(passage_id)
            if ours and len(given) == 1 and judge not in given and self.labels.query_ids.row(query_id) >= 0 <= row:
                yield Pair(query_id, passage_id, row, "double", 0.0)

    def _of(self, source: Source) -> Iterator[Pair]:
        if source == "random":
            yield from self._random[self._frontier :]
        elif source == "doubtful":
            yield from self._doubtful
        else:
            names, value = self.labels.passage_ids, self._learner.value
            found = [(value(key[0], held), key) for key, held in self._features.items()]
            for odds, (query_id, row) in sorted(found, key=lambda one: -one[0]):
                yield Pair(query_id, names[row], row, "missing", odds)

    def _rescore(self, query_id: str) -> None:
        """Score the candidates of a query by its labels of now; all that are not labelled are suggestions then.

        Scores of other teachers than the collective one stay: moved by new centroids, they found no more labels.
        """
        if self._grown.get(query_id) and self.labels.teacher == "collective":
            self._scores[query_id] = rescore(self.knowledge, self.labels, query_id, self.positives(query_id))
        else:
            self._scores.pop(query_id, None)
        figures = self._figures(query_id)
        for row in self.labels.query(query_id).rows.tolist():
            self._features.pop((query_id, row), None)
        found = self._grown.get(query_id, ())
        self._features |= {key: held for key, held in figures.items() if key[1] not in found}

    def _figures(self, query_id: str) -> dict[tuple[str, int], tuple[float, float]]:
        """What is known of a query's unlabelled candidates by its labels of now, for the model that orders them."""
        held = self.labels.query(query_id)
        teacher = self.teacher_scores(query_id)  # what was found since still counts in their mean: units stay the same
        block = LabelBlock([query_id], held.rows[None], teacher[None], held.base[None], held.flags[None])
        found = _figures(block, self.order)[0] / self._spreads
        judged = self.labels.passage_ids.rows(self._visible.get(query_id, ()))
        free = np.isfinite(found[:, 0]) & ~np.isin(held.rows, judged)
        return {
            (query_id, int(row)): (float(value), float(standout))
            for row, (value, standout) in zip(held.rows[free], found[free], strict=True)
        }

    def _free(self, block: LabelBlock) -> npt.NDArray[np.bool_]:
        """Which candidates of a block have a score and no judgement, [queries, candidates]."""
        free = unlabelled(block.teacher, block.flags)
        for place, query_id in enumerate(block.query_ids):
            judged = self.labels.passage_ids.rows(self._visible.get(query_id, ()))
            free[place] &= ~np.isin(block.rows[place], judged)
        return free

    def _survey(self) -> tuple[list[Pair], int, npt.NDArray[np.int64]]:
        """Doubtful labels, worst first; how many candidates are unlabelled; and the number of each query's first."""
        doubts: list[Pair] = []
        counts = [np.zeros(1, np.int64)]
        squares = np.zeros(2)
        for block in self.labels.blocks():
            free = self._free(block)
            squares += (_figures(block, self.order)[free] ** 2).sum(axis=0)
            counts.append(free.sum(axis=1))
            values = -doubt_values(block, free)
            for place, column in zip(*np.nonzero(values < 0), strict=True):
                row = int(block.rows[place, column])
                name = self.labels.passage_ids[row]
                doubts.append(Pair(block.query_ids[place], name, row, "doubtful", -float(values[place, column])))
            doubts = sorted(doubts, key=lambda pair: -pair.value)[:_DOUBTFUL]
        firsts = np.cumsum(np.concatenate(counts))
        spreads = np.sqrt(squares / max(int(firsts[-1]), 1))
        self._spreads = np.where(spreads > 1e-9, spreads, 1.0)
        return doubts, int(firsts[-1]), firsts

    def _draw(self) -> list[Pair]:
        """Unlabelled candidates of the whole run in a random order that is the same every time."""
        if not self.candidates:
            return []
        chance = np.random.default_rng(self._seed)
        if self.candidates <= _DRAWN:
            numbers = chance.permutation(self.candidates)
        else:
            numbers = np.array(list(dict.fromkeys(chance.integers(0, self.candidates, _DRAWN).tolist())))
        order = np.argsort(numbers, kind="stable")
        places = np.searchsorted(self._firsts, numbers, side="right") - 1
        rows = np.empty(len(numbers), dtype=np.int64)
        start = 0
        for block in self.labels.blocks():
            size = len(block.query_ids)
            inside = order[(places[order] >= start) & (places[order] < start + size)]
            rows[inside] = block.rows[self._free(block)][numbers[inside] - self._firsts[start]]
            start += size
        queries, names = self.labels.query_ids, self.labels.passage_ids
        return [
            Pair(queries[place], names[row], row, "random", 0.0)
            for place, row in zip(places.tolist(), rows.tolist(), strict=True)
        ]


def _figures(block: LabelBlock, order: str) -> npt.NDArray[np.float64]:
    """The order's value of each candidate, and how far φ stands out, float64 [queries, candidates, 2]."""
    plain = LabelBlock(block.query_ids, block.rows, block.base, block.base, block.flags)
    return np.stack([order_values(block, order), order_values(plain, "standout")], axis=2)


def doubt_values(block: LabelBlock, free: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """How far a labelled candidate lies below the mean of the query's unlabelled ones, in units of the highest φ.

    Its own centroids speak for a labelled passage, so one below that mean is contradicted by all the others. 0 where a
    candidate is not labelled, not scored, or not below.
    """
    scores = np.where(free, block.teacher, 0.0).astype(np.float64)
    mean = scores.sum(axis=1) / np.maximum(free.sum(axis=1), 1)
    highest = np.where(np.isfinite(block.base), block.base, -np.inf).max(axis=1, initial=-np.inf).astype(np.float64)
    unit = np.where((highest > 0) & np.isfinite(highest), highest, 1.0)
    labelled = ((block.flags & Flag.LABELLED) != 0) & np.isfinite(block.teacher) & free.any(axis=1, keepdims=True)
    below = mean[:, None] - np.where(labelled, block.teacher, np.inf)
    return np.asarray(np.maximum(below, 0.0) / unit[:, None])

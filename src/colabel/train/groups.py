"""Groups: for every step of a training run, which queries with which passages. Drawn once, from a seed.

A group is a query, one of its positives and n negatives from its pool. An epoch visits every query once, in an order
of its own; a query with several positives shows them in turn. Groups depend on pool, seed and size alone, and a
longer run starts with the groups of a shorter one, so they are known before a dear teacher scores its first pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.errors import UsageError
from colabel.teachers.base import Teacher
from colabel.train.pool import Pool, Rows


@dataclass(frozen=True)
class Mining:
    """Positive-aware mining: leave out candidates that look as relevant as the positive.

    ``margin``: candidates whose score is above φ⁺ − value. ``share``: above value · φ⁺ (NV-Retriever's TopK-PercPos).
    ``none``: nothing is left out. φ⁺ is the positive's score in the pool, or, where it is not in the pool, what a
    scorer gives it; without either, nothing is left out.
    """

    rule: str = "none"
    value: float = 0.0

    def limit(self, positive: float) -> float:
        """The highest score that a negative may have beside a positive of this score."""
        if self.rule == "none" or not np.isfinite(positive):
            return np.inf
        if self.rule == "margin":
            return positive - self.value
        return positive * self.value if positive >= 0 else positive / self.value

    def as_list(self) -> list[object]:
        """For fingerprints; all rules that do nothing are one."""
        return ["none"] if self.rule == "none" else [self.rule, self.value]


@dataclass(frozen=True)
class Groups:
    """All groups of a run in their order.

    Attributes:
        queries: int32 [count], query numbers of the pool.
        rows: int32 [count, 1 + n], passage rows, the positive first.
        filled: how many negatives were drawn from the whole collection, since a pool was too small.
        mined: (candidates that mining left out, candidates before), over the groups.
        pool: what they were drawn from.
        fingerprint: names all that the groups depend on.
    """

    queries: npt.NDArray[np.int32]
    rows: Rows
    filled: int
    mined: tuple[int, int]
    pool: Pool
    fingerprint: str

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def size(self) -> int:
        """Passages of a group, 1 + n."""
        return int(self.rows.shape[1])

    def pairs(self) -> DrawnPairs:
        """Which pairs are drawn: for :func:`colabel.labels.label`, so that a dear teacher scores no others."""
        return DrawnPairs(self)


def draw_groups(
    pool: Pool,
    *,
    count: int,
    size: int,
    seed: int,
    mining: Mining | None = None,
    scorer: Teacher | None = None,
    anywhere: int = 0,
) -> Groups:
    """Draw ``count`` groups of ``size`` passages; ``scorer`` gives φ⁺ where mining needs it and the pool has none.

    Negatives are drawn without replacement, labelled positives never. ``anywhere`` of each group come from the whole
    collection, the others from the query's pool. A pool with too few gives all it has, and the rest comes from the
    whole collection, too.
    """
    mining = mining or Mining()
    if pool.passages < size - 1 + max(len(rows) for rows in pool.positives):
        raise UsageError(f"a group has {size} passages, and the collection has {pool.passages}; choose smaller groups")
    queries = np.empty(count, np.int32)
    rows = np.empty((count, size), np.int32)
    sampler = _Sampler(pool, size, mining, None if mining.rule == "none" else scorer, anywhere)
    done = epoch = 0
    while done < count:
        random = np.random.default_rng([seed, epoch])
        order = random.permutation(len(pool))[: count - done]
        for number in order.tolist():
            queries[done] = number
            rows[done] = sampler.draw(number, epoch, random)
            done += 1
        epoch += 1
    names = {"pool": pool.fingerprint, "count": count, "size": size, "seed": seed, "mining": mining.as_list()}
    if scorer is not None and mining.rule != "none":
        names["scorer"] = scorer.fingerprint
    if anywhere:
        names["anywhere"] = anywhere
    return Groups(queries, rows, sampler.filled, (sampler.left_out, sampler.looked_at), pool, fingerprint(names))


class _Sampler:
    def __init__(self, pool: Pool, size: int, mining: Mining, scorer: Teacher | None, anywhere: int) -> None:
        self._pool = pool
        self._size = size
        self._anywhere = anywhere
        self._mining = mining
        self._scorer = scorer
        self.filled = self.left_out = self.looked_at = 0

    def draw(self, number: int, epoch: int, random: np.random.Generator) -> Rows:
        positives = self._pool.positives[number]
        positive = int(positives[(number + epoch) % len(positives)])
        negatives = self._negatives(number, positive)
        wanted = self._size - 1 - self._anywhere
        if len(negatives) > wanted:
            negatives = random.choice(negatives, wanted, replace=False)
        missing = wanted - len(negatives)
        self.filled += missing
        if missing + self._anywhere:
            others = self._fill(number, negatives, missing + self._anywhere, random)
            negatives = np.concatenate([negatives, others])
        return np.concatenate([[positive], negatives]).astype(np.int32)

    def _negatives(self, number: int, positive: int) -> Rows:
        rows, scores = self._pool.negatives(number)
        kept = scores <= self._mining.limit(self._own_score(number, positive))
        self.looked_at += len(rows)
        self.left_out += len(rows) - int(kept.sum())
        return rows[kept]

    def _own_score(self, number: int, positive: int) -> float:
        """φ⁺, NaN where nobody asks for it or knows it."""
        if self._mining.rule == "none":
            return float("nan")
        rows, scores = self._pool.candidates(number)
        own = scores[rows == positive]
        if len(own):
            return float(own[0])
        if self._scorer is None:
            return float("nan")
        return float(self._scorer.score([self._pool.query_ids[number]], np.array([[positive]], dtype=np.int64))[0, 0])

    def _fill(self, number: int, taken: Rows, missing: int, random: np.random.Generator) -> Rows:
        """Rows of the whole collection that are neither labelled nor taken nor, if there are others, mined away."""
        avoided = {*self._pool.positives[number].tolist(), *self._pool.candidates(number)[0].tolist()}
        if self._pool.passages - len(avoided) < missing:
            avoided = {*self._pool.positives[number].tolist(), *taken.tolist()}
        found: list[int] = []
        while len(found) < missing:
            row = int(random.integers(self._pool.passages))
            if row not in avoided:
                avoided.add(row)
                found.append(row)
        return np.array(found, dtype=np.int32)


class DrawnPairs:
    """The pairs that a run will draw, as a choice of pairs for labelling."""

    def __init__(self, groups: Groups) -> None:
        self.fingerprint = fingerprint({"groups": groups.fingerprint})
        self._numbers = {query_id: number for number, query_id in enumerate(groups.pool.query_ids)}
        order = np.argsort(groups.queries, kind="stable")
        self._rows = groups.rows[order]
        self._starts = np.searchsorted(groups.queries[order], np.arange(len(groups.pool) + 1))

    def __len__(self) -> int:
        """How many different pairs are drawn."""
        parts = [np.unique(self._drawn(number)) for number in range(len(self._starts) - 1)]
        return sum(len(part) for part in parts)

    def __call__(
        self, query_ids: Sequence[str], rows: npt.NDArray[np.int64], flags: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.bool_]:
        """Bool [queries, candidates]: True where the pair is drawn. ``flags`` do not matter."""
        chosen = np.zeros(rows.shape, dtype=np.bool_)
        for place, query_id in enumerate(query_ids):
            number = self._numbers.get(query_id)
            if number is not None:
                chosen[place] = np.isin(rows[place], self._drawn(number))
        return chosen

    def _drawn(self, number: int) -> Rows:
        return self._rows[self._starts[number] : self._starts[number + 1]]

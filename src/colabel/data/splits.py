"""Splits: which are train, dev and test, a dev split where there is none, and no query in two of them.

Labels can be hidden on purpose, to measure how many are found again. What is hidden leaves :class:`Dataset`
altogether: training code has no way to see it. :func:`hidden_labels` is for label-quality code alone, which a test of
the architecture enforces.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from colabel.data.text_lines import Kind
from colabel.errors import DataError, SettingsError
from colabel.types import Qrels

if TYPE_CHECKING:
    from colabel.data.dataset import Dataset

TRAIN, DEV, TEST = "train", "dev", "test"
_MEANING = {
    **{TRAIN: TRAIN, "training": TRAIN, TEST: TEST, "testing": TEST},
    **dict.fromkeys((DEV, "validation", "valid", "val", "dev.small"), DEV),
}
_PRECEDENCE = {(TRAIN, TEST): Kind.TEST_IN_TRAIN, (TRAIN, DEV): Kind.DEV_IN_TRAIN, (DEV, TEST): Kind.TEST_IN_DEV}


def split_names(names: Iterable[str]) -> dict[str, str]:
    """Our name → the source's name of every split; refuses two that mean the same, and names unfit for a file.

    MS MARCO's ``dev.small`` is dev, unless there is a ``dev`` as well, which is then another split.

    >>> split_names(["Train", "all", "validation"])
    {'train': 'Train', 'all': 'all', 'dev': 'validation'}
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise DataError(f"'{name}' cannot be the name of a split; expected letters, digits, '.', '_' and '-'")
        ours = name if name == "dev.small" and DEV in found else _MEANING.get(name.lower(), name)
        if ours in found:
            raise DataError(f"the label sets '{found[ours]}' and '{name}' both mean the split '{ours}'; keep one")
        found[ours] = name
    return found


def normalise_query(text: str) -> str:
    """The form in which two queries count as the same: letter case and white space do not matter.

    >>> normalise_query("How are  Glacier caves formed? ")
    'how are glacier caves formed?'
    """
    return " ".join(text.casefold().split())


class Leak(NamedTuple):
    """A query of ``split`` that occurs in ``later`` as well, there as ``twin``."""

    kind: Kind
    split: str
    query_id: str
    later: str
    twin: str

    @property
    def message(self) -> str:
        """The sentence for reports."""
        return f"{self.later} query '{self.twin}' also occurs in {self.split} (as '{self.query_id}')"


def leaks(labels: Mapping[str, Qrels], queries: Mapping[str, str]) -> Iterator[Leak]:
    """Queries of train that stand in dev or test, and of dev that stand in test, by id or by text."""
    for (split, later), kind in _PRECEDENCE.items():
        texts = {normalise_query(queries[query_id]): query_id for query_id in labels.get(later, {})}
        for query_id in labels.get(split, {}):
            twin = texts.get(normalise_query(queries[query_id]))
            if twin is not None:
                yield Leak(kind, split, query_id, later, twin)


def stable_fraction(text: str, salt: str) -> float:
    """A number in [0, 1) that depends on nothing but the two strings."""
    digest = hashlib.blake2b(f"{salt}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def hold_out(train: Qrels, queries: Mapping[str, str], share: float) -> tuple[Qrels, Qrels]:
    """Split train into (train, dev) by a hash of the query's text: ``share`` of the queries become dev.

    The text decides and not the id, so that two queries of one text never end up on both sides. Of a few queries it may
    be none; and it is none where nothing would be left to train on.
    """
    held = {query_id for query_id in train if stable_fraction(normalise_query(queries[query_id]), "dev") < share}
    rest = {query_id: labels for query_id, labels in train.items() if query_id not in held}
    if not rest:
        return train, {}
    return rest, {query_id: labels for query_id, labels in train.items() if query_id in held}


def hide_labels(dataset: Dataset, keep: int = 1, seed: int = 0) -> Dataset:
    """Keep ``keep`` positives of each train query and hide the others; dev and test stay whole.

    Which ones are kept depends on the seed and the two ids alone, so neither the order of the labels nor other
    queries matter. Judged non-relevant passages (grade below the cut-off) stay visible.

    Example:
        >>> sparse = hide_labels(load_dataset("nfcorpus"), keep=1, seed=0)  # doctest: +SKIP
    """
    if keep < 1:
        raise SettingsError(f"'data.keep_labels' is {keep}; expected a whole number of at least 1")
    positives = dataset.positives(TRAIN)
    visible: dict[str, dict[str, int]] = {}
    hidden = {query_id: dict(labels) for query_id, labels in dataset._hidden.items()}
    for query_id, labels in dataset.labels(TRAIN).items():
        salt = f"{seed}\0{query_id}"
        away = set(sorted(positives.get(query_id, ()), key=lambda passage: stable_fraction(passage, salt))[keep:])
        visible[query_id] = {passage: grade for passage, grade in labels.items() if passage not in away}
        if away:
            hidden.setdefault(query_id, {}).update({p: grade for p, grade in labels.items() if p in away})
    return dataclasses.replace(dataset, _labels={**dataset._labels, TRAIN: visible}, _hidden=hidden)


def hidden_labels(dataset: Dataset) -> Qrels:
    """The hidden labels of the train queries. Only for measuring label quality, never for training."""
    return dataset._hidden


def with_fewer_labels(dataset: Dataset, share: float, order: str, *, whole_queries: bool) -> Dataset:
    """The dataset with a share of its training queries, or of the positives of each; a larger share holds a smaller.

    Args:
        order: names the order in which they are drawn.
        whole_queries: keep some queries with all their labels; else all queries with some, at least one.
    """
    held, positives = dataset.labels(TRAIN), dataset.positives(TRAIN)

    def first(names: Iterable[str], salt: str) -> set[str]:
        drawn = sorted(names, key=lambda name: (stable_fraction(name, f"{order} {salt}"), name))
        return set(drawn[: max(1, round(share * len(drawn)))])

    if whole_queries:
        chosen = first(positives, "")
        fewer: dict[str, Mapping[str, int]] = {
            query: labels for query, labels in held.items() if query in chosen or query not in positives
        }
    else:
        gone = {query: set(passages) - first(passages, query) for query, passages in positives.items()}
        fewer = {
            query: {name: grade for name, grade in labels.items() if name not in gone.get(query, ())}
            for query, labels in held.items()
        }
    return dataclasses.replace(dataset, _labels={**dataset._labels, TRAIN: fewer}, _hidden={})


def with_hidden_labels(dataset: Dataset) -> Dataset:
    """The dataset with every label visible: for the ceiling of a study, which no product may be trained on."""
    merged = {query: {**held, **dataset._hidden.get(query, {})} for query, held in dataset.labels(TRAIN).items()}
    return dataclasses.replace(dataset, _labels={**dataset._labels, TRAIN: merged}, _hidden={})


def without_labels(dataset: Dataset) -> Dataset:
    """The passages, and the test queries with their labels: all that a system without labels may know."""
    labels = {TEST: dataset.labels(TEST)} if TEST in dataset.splits else {}
    queries = dataset.split_queries(TEST) if labels else {}
    return dataclasses.replace(dataset, queries=queries, _labels=labels, _hidden={}, trusted={})

"""Which values of rows compare, where rows were trained with different numbers of seeds."""

from __future__ import annotations

from collections.abc import Mapping

from colabel.reporting.figures import figure
from colabel.reporting.records import SEEDLESS, Figures

SeedMeans = Mapping[str, Mapping[str, Figures]]
"""Slug → seed (as text) → measure → mean over queries, of rows with several seeds."""


def unequal(seeds: Mapping[str, int]) -> bool:
    """Whether rows (slug → number of seeds) have different numbers of seeds; those that draw nothing have every seed.

    >>> unequal({"bm25": 1, "colbert": 3}), unequal({"bm25": 1, "colbert": 3, "self-kd": 1})
    (False, True)
    """
    return len({count for slug, count in seeds.items() if slug not in SEEDLESS}) > 1


def single(slug: str, seeds: Mapping[str, int]) -> bool:
    """Whether a row has one seed where others have several.

    >>> single("self-kd", {"colbert": 3, "self-kd": 1}), single("bm25", {"colbert": 3, "self-kd": 1, "bm25": 1})
    (True, False)
    """
    return unequal(seeds) and seeds.get(slug) == 1 and slug not in SEEDLESS


def first_common(seeds: Mapping[str, int], per_seed: SeedMeans) -> str | None:
    """The first seed that all rows have, where they have different numbers of seeds; a row of one seed has the first.

    >>> first_common({"a": 1, "b": 2, "c": 2}, {"b": {"0": {}, "1": {}}, "c": {"0": {}, "2": {}}})
    '0'
    """
    held = [set(per_seed.get(slug, ())) for slug, count in seeds.items() if count > 1]
    return min(set.intersection(*held), key=int, default=None) if unequal(seeds) else None


def comparable(measure: str, means: Mapping[str, Figures], seeds: Mapping[str, int], per_seed: SeedMeans) -> Figures:
    """Slug → the value by which a row is compared with the others.

    The mean over seeds where all rows have as many, else the value on the first seed that all have: the best of
    several single values is higher by luck than a mean. Nothing where such a seed is not known.
    """
    if not unequal(seeds):
        return {slug: found.get(measure) for slug, found in means.items()}
    seed = first_common(seeds, per_seed)
    if seed is None:
        return {}
    return {
        slug: (per_seed[slug][seed] if seeds.get(slug, 1) > 1 else found).get(measure) for slug, found in means.items()
    }


def best(values: Figures) -> set[str]:
    """The slugs of the highest value, to the three places that are shown.

    >>> sorted(best({"a": 0.5, "b": 0.49996, "c": 0.1, "d": None}))
    ['a', 'b']
    """
    highest = max((value for value in values.values() if value is not None), default=None)
    return {slug for slug, value in values.items() if value is not None and figure(value) == figure(highest)}

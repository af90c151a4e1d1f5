"""Bring the scores of different teachers to one scale, so that one temperature fits them all.

Cross-encoder logits, φ and the collective score differ by factors in how far apart they put the candidates of a query.
A temperature that is right for one makes another's target one-hot or flat, and comparing teachers would compare that.
"""

from __future__ import annotations

import numpy as np

from colabel.train.groups import Groups
from colabel.train.targets import Target

_GROUPS = 512
_FEWEST = 3


def teacher_scale(groups: Groups, target: Target) -> float:
    """What to multiply a teacher's scores by: median spread of the ranking's scores over that of the teacher's.

    The spread is the standard deviation over a group's negatives: the labelled passage is left out, since some teachers
    are built from it. One number for all queries, so that a teacher may be surer of one query than of another. 1 where
    nothing can be compared.
    """
    count = min(len(groups), _GROUPS)
    numbers = groups.queries[:count].tolist()
    rows = groups.rows[:count].astype(np.int64)
    taught = target.scores([groups.pool.query_ids[number] for number in numbers], rows)
    if taught is None:
        return 1.0
    ours, theirs = [], []
    for place, number in enumerate(numbers):
        known = dict(zip(*(part.tolist() for part in groups.pool.candidates(number)), strict=True))
        base = np.array([known.get(row, np.nan) for row in rows[place, 1:].tolist()])
        both = np.isfinite(base) & np.isfinite(taught[place, 1:])
        if both.sum() >= _FEWEST:
            ours.append(float(base[both].std()))
            theirs.append(float(taught[place, 1:][both].std()))
    if not ours or not np.median(theirs) > 0.0 or not np.median(ours) > 0.0:
        return 1.0
    return float(np.median(ours) / np.median(theirs))

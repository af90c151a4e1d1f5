"""What a teacher is: something that scores passages for training queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Teacher(Protocol):
    """Scores (query, passage) pairs; every teacher's scores go into the same label artefact.

    ``name`` is what reports call it, ``fingerprint`` names all that its scores depend on.
    """

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def fingerprint(self) -> str:
        """Names all that its scores depend on."""

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores float32 [queries, count] of each query's candidate rows [queries, count].

        −∞ where the row is −1 (no candidate), NaN where this teacher has no score for a pair.
        """

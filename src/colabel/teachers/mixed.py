"""Two teachers mixed, such as collective knowledge and a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint
from colabel.errors import UsageError
from colabel.teachers.base import Teacher
from colabel.teachers.scales import log_probabilities, moments, standardised, with_gaps

Scale = Literal["standardised", "probabilities"]


class MixedTeacher:
    """w parts of the first teacher and 1 − w of the second, combined query by query.

    Two teachers' scores differ in scale, so they are not added as they are. Over the candidates that both have scored:

    ``standardised`` brings the second's scores to the first's mean m₁ and deviation d₁:
        s = w · s₁ + (1 − w) · (m₁ + d₁ · (s₂ − m₂) / d₂)
    so w = 1 gives the first teacher's scores, and a temperature that suits the first suits the mixture.

    ``probabilities`` mixes the distributions at a temperature each:
        s = ln(w · softmax(s₁ / T₁) + (1 − w) · softmax(s₂ / T₂))
    whose softmax at temperature 1 is the mixture.

    Either way a score depends on the whole row of candidates. A pair that one of them lacks has no score.
    """

    name = "mixed"

    def __init__(
        self,
        first: Teacher,
        second: Teacher,
        weight: float = 0.5,
        *,
        scale: Scale = "standardised",
        temperatures: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        if not 0.0 <= weight <= 1.0:
            raise UsageError(f"the weight of the first teacher is {weight}; expected a number from 0 to 1")
        if scale not in get_args(Scale):
            raise UsageError(f"teachers cannot be mixed as '{scale}'; expected one of {', '.join(get_args(Scale))}")
        if not all(0.0 < temperature < np.inf for temperature in temperatures):
            raise UsageError(f"the temperatures of the mixture are {temperatures}; expected two numbers above 0")
        self._first, self._second = first, second
        self._weight, self._scale, self._temperatures = weight, scale, temperatures
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "parts": [first.fingerprint, second.fingerprint],
                "weight": weight,
                "scale": scale,
                "temperatures": list(temperatures) if scale == "probabilities" else None,
            }
        )

    def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Mixed scores float32 [queries, candidates]; −∞ where the row is −1, NaN where a teacher has none."""
        first = self._first.score(query_ids, rows).astype(np.float64)
        second = self._second.score(query_ids, rows).astype(np.float64)
        known = (rows >= 0) & np.isfinite(first) & np.isfinite(second)
        first, second = np.where(known, first, 0.0), np.where(known, second, 0.0)
        if self._scale == "standardised":
            mean, deviation = moments(first, known)
            mixed = self._weight * first + (1 - self._weight) * (mean + deviation * standardised(second, known))
        else:
            mixed = np.full(rows.shape, -np.inf)
            for scores, share, temperature in zip(
                (first, second), (self._weight, 1 - self._weight), self._temperatures, strict=True
            ):
                if share > 0:
                    mixed = np.logaddexp(mixed, np.log(share) + log_probabilities(scores, known, temperature))
        return with_gaps(mixed, known, rows)

"""What the visible labels say of the passages of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from colabel.teachers.score_file import pair_keys

IntArray = npt.NDArray[np.int64]


class KnownPositives:
    """Rows of the passages that visible labels call relevant, by query number."""

    def __init__(self, rows: Sequence[npt.NDArray[np.integer]]) -> None:
        counts = np.array([len(line) for line in rows], dtype=np.int64)
        owners = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
        flat = np.concatenate([np.asarray(line, dtype=np.int64) for line in rows]) if len(rows) else owners
        self._pairs = np.unique(pair_keys(owners, flat))

    def contains(self, queries: IntArray, rows: IntArray) -> npt.NDArray[np.bool_]:
        """Whether each pair of a query number and a passage row is known to be relevant; shapes broadcast."""
        wanted = pair_keys(queries, rows)
        places = np.searchsorted(self._pairs, wanted)
        places = np.minimum(places, max(0, len(self._pairs) - 1))
        return np.asarray(self._pairs[places] == wanted if len(self._pairs) else wanted < 0, dtype=np.bool_)

    def excluded(self, queries: IntArray, rows: IntArray, positive: IntArray) -> npt.NDArray[np.bool_]:
        """Bool [B, P]: pairs of a batch that take no part in a query's distribution.

        Args:
            queries: [B] query numbers.
            rows: [B, P] passage rows.
            positive: [B] column of each query's own positive, which takes part.

        Other copies of the positive, and other passages known to be relevant.
        """
        own = np.take_along_axis(rows, positive[:, None], axis=1)
        left_out: npt.NDArray[np.bool_] = (rows == own) | self.contains(queries[:, None], rows)
        np.put_along_axis(left_out, positive[:, None], False, axis=1)
        return left_out

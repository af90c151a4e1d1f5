"""Scores of (query, passage) pairs in memory, looked up by binary search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]

ROW_BITS = 0xFFFFFFFF
"""The bits of a pair's key that hold the passage's row; the query's number stands above them."""


def pair_keys(queries: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Keys:
    """One number for a pair, int64: the query's number above the passage's row, 32 bits each.

    Negative (and so in no table) where the query's number or the row is −1.
    """
    return (queries << 32) | rows


class PairTable:
    """Distinct pairs with a score each, 12 bytes per pair.

    >>> table = PairTable.of(np.array([7, 3, 7]), np.array([0.5, 0.25, 9.0], np.float32))
    >>> len(table), table.look_up(np.array([3, 7, 8])).tolist(), table.contains(np.array([3, 8])).tolist()
    (2, [0.25, 0.5, nan], [True, False])
    """

    def __init__(self, keys: Keys, values: Values) -> None:
        """Of distinct keys int64 [pairs], rising, and their values float32 [pairs]."""
        self.keys, self.values = keys, values

    @classmethod
    def of(cls, keys: Keys, values: Values) -> PairTable:
        """Of keys in any order and shape; of equal ones the first counts."""
        distinct, first = np.unique(keys, return_index=True)
        return cls(distinct, values.reshape(-1)[first])

    def __len__(self) -> int:
        return len(self.keys)

    def look_up(self, keys: Keys) -> Values:
        """Values float32 of keys of any shape, NaN where a pair is not there."""
        places, found = self._find(keys)
        if not found.any():
            return np.full(keys.shape, np.nan, dtype=np.float32)
        return np.where(found, self.values[places], np.float32(np.nan))

    def contains(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Whether each pair is there, bool of the shape of ``keys``."""
        return self._find(keys)[1]

    def _find(self, keys: Keys) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        if not len(self.keys):
            return np.zeros(keys.shape, np.intp), np.zeros(keys.shape, np.bool_)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return places, self.keys[places] == keys

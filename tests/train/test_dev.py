from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.errors import DataError
from colabel.ranking import rank
from colabel.teachers.protocol import Knows
from colabel.train import RerankQuality, rerank_quality
from tests.train.small import Small, Spread


class Backwards:
    """A teacher with known answers: prefers high rows, and does not know row 9."""

    name = "backwards"
    fingerprint = "backwards"
    knows: Knows = "any"

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        scores = np.where(rows == 9, np.nan, rows.astype(np.float32))
        return np.where(rows < 0, -np.inf, scores).astype(np.float32)


class InOrder(Spread):
    """A ranker that leaves all passages in their order."""

    def rank(
        self, texts: Sequence[str], depth: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        return np.tile(np.arange(depth), (len(texts), 1)), -np.tile(np.arange(depth, dtype=np.float32), (len(texts), 1))


def test_rerank_quality_by_hand(small: Small, tmp_path: Path) -> None:
    """Rows 0 … 19 become 19, …, 10, 8, …, 0, 9. Row 12 is 13th before and 8th after, row 9 10th and last."""
    ranking = rank(InOrder(small.dataset), small.dataset.split_queries("train"), tmp_path / "run", depth=20)
    labels = {"q7": {"d12": 1}, "q9": {"d9": 1}, "gone": {"d0": 1}}
    found = rerank_quality(Backwards(), ranking, labels, measures=["RR"])
    assert found.queries == 2
    assert found.ranked["RR"] == pytest.approx((1 / 13 + 1 / 10) / 2)
    assert found.reranked["RR"] == pytest.approx((1 / 8 + 1 / 20) / 2)
    assert found.differences["RR"] == pytest.approx([1 / 8 - 1 / 13, 1 / 20 - 1 / 10])
    top = "θ at ranking the top 20 of 2 dev queries again: RR 0.0875, θ 0.0885; paired t-test:"
    assert found.verdict("θ") == f"does not differ significantly from {top} p = 0.9875.", "1 − 2 / π · atan(0.0196)"
    top = rerank_quality(Backwards(), ranking, {"q7": {"d12": 1}}, depth=13, measures=["RR"])
    assert top.reranked["RR"] == 1.0
    with pytest.raises(DataError, match="none of the 10 queries"):
        rerank_quality(Backwards(), ranking, {"gone": {"d0": 1}})


@pytest.mark.parametrize(
    ("differences", "words", "p"),
    [
        ([0.2, 0.3, 0.4], "beats", "p = 0.0351"),  # t = 0.3 / (0.1 / √3) = 5.196, 2 degrees of freedom
        ([-0.2, -0.3, -0.4], "is worse than", "p = 0.0351"),
        ([0.1, 0.2, 0.3], "does not differ significantly from", "p = 0.0742"),  # t = 3.464
        ([-0.1, -0.2, -0.3], "does not differ significantly from", "p = 0.0742"),
        ([0.0, 0.0, 0.0], "does not differ significantly from", "p = 1.0000"),
        ([0.3], "does not differ significantly from", "not defined"),
        ([0.2, 0.2 + 1e-6, 0.2], "beats", "p < 0.0001"),
    ],
)
def test_a_verdict_is_that_of_the_paired_test(differences: list[float], words: str, p: str) -> None:
    after = {"RR": 0.5 + sum(differences) / len(differences)}
    found = RerankQuality(len(differences), 50, {"RR": 0.5}, after, {"RR": np.array(differences)})
    top = f"the top 50 of {len(differences)} dev queries again"
    expected = f"{words} θ at ranking {top}: RR {after['RR']:.4f}, θ 0.5000; paired t-test: {p}."
    assert found.verdict("θ") == expected

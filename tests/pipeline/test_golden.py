"""A golden run: a tiny model and collection made here, and the figures that they gave when this was written.

They were the same before and after the pipeline was rewritten. A change of any of them is a change of the method.
Tolerances allow for other processors: ranks are compared only where neighbouring scores are further apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colabel import Recipe, open_labels, run
from colabel.train import open_model

GOLDEN_MEANS = {"bm25": 0.0, "zero-shot": 0.1262, "colbert": 0.1, "collective-0.5": 0.1}
GOLDEN_LOSSES = {"theta": [1.53454], "students/collective-0.5/model": [0.1885]}
GOLDEN_SCORES = {
    "q0": ([23, 0, 37, 11], [11.2227, 11.1912, 11.1582, 11.1235]),
    "q1": ([2, 37, 29, 0], [10.8831, 10.6956, 10.5456, 10.5173]),
    "q2": ([37, 29, 0, 11], [11.071, 10.7895, 10.6666, 10.4959]),
}


@pytest.fixture(scope="module")
def golden(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("golden") / "run"
    run(recipe, out, teacher="collective")
    return out


def test_figures(recipe: Recipe, golden: Path) -> None:
    result = run(recipe, golden, teacher="collective")
    assert result.evaluation is not None
    for name, wanted in GOLDEN_MEANS.items():
        assert result.evaluation.means[name]["nDCG@10"] == pytest.approx(wanted, abs=0.05), name


def test_losses(golden: Path) -> None:
    for name, wanted in GOLDEN_LOSSES.items():
        losses = [line["loss"] for line in open_model(golden / name).log if "loss" in line]
        assert losses == pytest.approx(wanted, rel=2e-3), name


def test_top_ranks_and_teacher_scores(golden: Path) -> None:
    labels = open_labels(golden / "labels" / "collective-0.5")
    for query_id, (rows, scores) in GOLDEN_SCORES.items():
        found = labels.query(query_id)
        best = np.argsort(-found.teacher, kind="stable")[: len(rows)]
        assert found.teacher[best].tolist() == pytest.approx(scores, abs=2e-3), query_id
        gaps = np.diff(scores)
        for place, row in enumerate(rows):
            apart = abs(gaps[max(0, place - 1) : place + 1]).min() > 0.01
            assert not apart or found.rows[best[place]] == row, query_id

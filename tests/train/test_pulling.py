"""How much of a training is kept, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colabel.train.pulling import by_alpha, choose_alpha, describe_choice, interval, mixed, verdict


def values(**means: float) -> dict[float, np.ndarray]:
    """Dev values of two queries with given means: ``values(a0=0.5, a100=0.6)``."""
    return {int(name[1:]) / 100: np.array([mean - 0.1, mean + 0.1]) for name, mean in means.items()}


def test_weights_are_mixed_one_by_one_and_the_ends_are_exact() -> None:
    start = {"w": torch.tensor([0.1, 0.3]), "ids": torch.tensor([1, 2])}
    trained = {"w": torch.tensor([0.5, 0.7]), "ids": torch.tensor([1, 2])}
    assert mixed(start, trained, 0.25)["w"].tolist() == pytest.approx([0.2, 0.4])
    assert torch.equal(mixed(start, trained, 0.0)["w"], start["w"])
    assert torch.equal(mixed(start, trained, 1.0)["w"], trained["w"])
    assert mixed(start, trained, 0.5)["ids"].tolist() == [1, 2]


def test_of_equals_the_smallest_share_is_taken() -> None:
    assert choose_alpha(values(a0=0.5, a50=0.6, a100=0.6), "s") == 0.5
    assert choose_alpha(values(a0=0.6, a50=0.6, a100=0.5), "s") == 0.0
    assert choose_alpha(values(a0=0.6, a50=0.5, a100=0.4), "s", force=True) == 0.5
    assert choose_alpha(values(a0=0.4, a50=0.5, a100=0.6), "s", force=True) == 1.0
    assert choose_alpha({}, "s") == 0.5


def test_the_interval_by_hand() -> None:
    mean, low, high = interval(np.array([0.0, 0.2]))  # deviation √0.02, error 1.96 · √0.01
    assert (mean, low, high) == pytest.approx((0.1, 0.1 - 0.196, 0.1 + 0.196))
    assert interval(np.array([0.3])) == pytest.approx([0.3, 0.3, 0.3])


def said(folder: Path, alpha: float, found: dict[float, np.ndarray], **more: Any) -> str:
    (folder / "training").mkdir(exist_ok=True)
    summary = {**describe_choice(alpha, found, "nDCG@10"), **more}
    (folder / "training" / "summary.json").write_text(json.dumps(summary))
    return verdict(folder)


def test_the_verdict_says_what_dev_decided(tmp_path: Path) -> None:
    found = values(a0=0.5, a50=0.54, a100=0.56)
    assert said(tmp_path, 1.0, found) == (
        "Take the student: nDCG@10 on 2 dev queries rises from 0.500 to 0.560, +0.060 [+0.060, +0.060]."
    )
    assert "on 2 dev queries, ranked again, rises" in said(tmp_path, 1.0, found, reranked=100)
    assert "0.500 with 0, 0.540 with 0.5, 0.560 with 1" in by_alpha(tmp_path)
    assert "mean of student and θ (α = 0.5)" in said(tmp_path, 0.5, found)
    assert "too few queries" in said(tmp_path, 0.5, found, gain=[0.04, -0.01, 0.09])
    harmful = values(a0=0.5, a50=0.45, a100=0.4)
    assert said(tmp_path, 0.0, harmful).startswith("Keep θ") and "0.450 at best" in said(tmp_path, 0.0, harmful)
    assert said(tmp_path, 0.5, harmful).startswith("Taken although dev says to keep θ: the mean")
    assert "falls from 0.500 to 0.450, -0.050" in said(tmp_path, 0.5, harmful)
    assert said(tmp_path, 0.5, values(a0=0.5, a50=0.5)).endswith("stays at 0.500.")
    assert "Nothing was measured on dev" in said(tmp_path, 0.5, {}) and by_alpha(tmp_path) == ""
    (tmp_path / "training" / "summary.json").write_text(json.dumps({"kept_step": 3}))
    assert verdict(tmp_path) == by_alpha(tmp_path) == "", "fit.keep = best, or a model of an earlier version"

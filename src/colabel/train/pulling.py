"""How much of a training is kept: α·student + (1 − α)·θ, with the α that ranks dev queries best.

A few labels can make a finished retriever worse, and the mean of both weights is often better than either. α = 0 keeps
θ: the labels did not help. ``force`` leaves that answer out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

log = logging.getLogger(__name__)

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the trained weights that dev compares."""
UNDECIDED = 0.5
"""α where nothing was measured on dev."""

Values = Mapping[float, npt.NDArray[np.floating]]
"""α → the measure of every dev query."""


def mixed(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """α·trained + (1 − α)·start, weight by weight; 0 and 1 give back the very bytes."""
    return {
        key: torch.lerp(start[key], value, alpha) if value.is_floating_point() else value
        for key, value in trained.items()
    }


def choose_alpha(values: Values, what: str, *, force: bool = False) -> float:
    """The α of the highest mean on dev, and of equals the smallest; with ``force`` the best but 0.

    >>> choose_alpha({0.0: np.array([0.5, 0.5]), 0.5: np.array([0.4, 0.4]), 1.0: np.array([0.4, 0.2])}, "student")
    0.0
    """
    if not values:
        return UNDECIDED
    means = {one: float(held.mean()) for one, held in values.items()}
    best = max(means, key=lambda one: (means[one], -one))
    if best > 0:
        log.info("%s: α = %g", what, best)
        return best
    tried = max((one for one in means if one > 0), key=lambda one: (means[one], -one))
    figures = f"{means[0.0]:.4f} with θ, {means[tried]:.4f} at best trained (α = {tried:g})"
    if force:
        log.warning("%s: dev says to keep θ (%s); the student is taken because that was asked for", what, figures)
        return tried
    log.warning("%s: no better on dev than θ, which is kept (%s)", what, figures)
    return best


def describe_choice(alpha: float, values: Values, measure: str | None) -> dict[str, Any]:
    """What ``training/summary.json`` says of the choice: α, the means on dev, and the gain over θ with its interval."""
    found: dict[str, Any] = {"alpha": alpha, "measure": measure}
    found["dev"] = {str(one): float(values[one].mean()) for one in sorted(values)}
    if values:
        found["gain"] = interval(values[alpha] - values[0.0])
        found["dev_queries"] = len(values[alpha])
    return found


def interval(differences: npt.NDArray[np.floating]) -> list[float]:
    """Mean and 95 % interval (normal) of paired differences."""
    mean = float(differences.mean())
    if len(differences) < 2:
        return [mean, mean, mean]
    error = 1.96 * float(differences.std(ddof=1)) / len(differences) ** 0.5
    return [mean, mean - error, mean + error]


def verdict(model: Path) -> str:
    """One sentence: whether dev says to take the trained student, the mean of it and θ, or θ as it was.

    The rule: of α·student + (1 − α)·θ, the α of the highest mean on dev, and of equals the smallest. Empty where the
    weights were chosen in another way (``fit.keep``).
    """
    found = _summary(model)
    if "alpha" not in found:
        return ""
    alpha, dev, measure = found["alpha"], found["dev"], found["measure"]
    if not dev:
        return f"Nothing was measured on dev: the student is the mean of the trained model and θ (α = {alpha:g})."
    again = ", ranked again," if found.get("reranked") else ", alone and with BM25," if found.get("with_words") else ""
    on, before = f"on {found['dev_queries']:,} dev queries{again}", dev["0.0"]
    if alpha == 0:
        best = max(value for one, value in dev.items() if float(one) > 0)
        return (
            f"Keep θ: training did not help. {measure} {on} is {before:.3f} with θ, {best:.3f} at best trained "
            "(--force takes that)."
        )
    mean, low, high = found["gain"]
    change = f"from {before:.3f} to {dev[str(alpha)]:.3f}, {mean:+.3f} [{low:+.3f}, {high:+.3f}]"
    taken = "the student" if alpha == 1 else f"the mean of student and θ (α = {alpha:g})"
    if mean <= 0:
        moves = f"falls {change}" if mean < 0 else f"stays at {before:.3f}"
        return f"Taken although dev says to keep θ: {taken}. {measure} {on} {moves}."
    sure = "" if low > 0 else " (too few queries to be sure)"
    return f"Take {taken}: {measure} {on} rises {change}{sure}."


def by_alpha(model: Path) -> str:
    """What each α would have come to on dev, in a sentence; empty where α was not chosen."""
    found = _summary(model)
    if not found.get("dev"):
        return ""
    values = ", ".join(f"{value:.3f} with {float(one):g}" for one, value in found["dev"].items())
    return f"{found['measure']} on dev by α, the share of the trained weights (0 is θ): {values}."


def _summary(model: Path) -> dict[str, Any]:
    return dict(json.loads((model / "training" / "summary.json").read_text(encoding="utf-8")))

"""Time budgets: choices by hand with invented rates, what is kept, and runs that are given minutes."""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
from pathlib import Path

import pytest

from colabel import Recipe, run, study
from colabel.data import load_recipe
from colabel.errors import UsageError
from colabel.pipeline.budget import (
    DEMO_SIZES,
    FEWEST_STEPS,
    Budget,
    apply,
    choose_demo,
    choose_steps,
    demo_seconds,
    demo_sentence,
    first_seconds,
    fit_recipe,
    note,
    noted,
)
from colabel.pipeline.capacity import Counts, Rates
from colabel.pipeline.demo import DEMO_RECIPE
from colabel.progress import SILENT
from colabel.systems import parse_system, systems_of
from tests.conftest import Call

LAPTOP = Rates(encoded=40.0, queries=150.0, searched=2e7, step=0.5, tokens=60.0, dimension=128)


def counts(size: int) -> Counts:
    return Counts(min(size, 8305), size // 2, size // 12, size // 6)


def demo_of(minutes: float, rates: Rates = LAPTOP, spent: float = 30.0) -> tuple[int, int, float]:
    recipe = load_recipe(DEMO_RECIPE)
    return choose_demo(recipe, systems_of(recipe), counts, rates, 60 * minutes, spent=spent)


def most_steps(size: int) -> int:
    """Eight passes over the training queries in batches of 32."""
    return 8 * math.ceil(counts(size).train / 32)


@pytest.mark.parametrize("minutes", [4, 5, 20])
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_a_demo_fills_its_minutes_and_shows_something_early(minutes: float, speed: float) -> None:
    rates = dataclasses.replace(LAPTOP, encoded=40 * speed, queries=150 * speed, searched=2e7 * speed, step=0.5 / speed)
    recipe = load_recipe(DEMO_RECIPE)
    size, steps, _ = demo_of(minutes, rates)
    fitted = apply(recipe, {"query_side.steps": steps})
    rows = [(system, 0) for system in systems_of(recipe)]
    taken = 30 + demo_seconds(fitted, rows, counts(size), rates)
    assert 0.8 * 60 * minutes <= taken <= 60 * minutes or steps == min(8 * 150, most_steps(size))
    if size > DEMO_SIZES[0]:
        assert 30 + first_seconds(recipe, counts(size), rates) <= 0.3 * 60 * minutes


def test_more_minutes_buy_more_and_the_sentence_says_it() -> None:
    found = [demo_of(minutes)[:2] for minutes in (3, 5, 20)]
    assert sorted(found) == found and len(set(found)) == 3
    size, steps = found[1]
    told = demo_sentence(5, found[1], found[2])
    assert told.startswith(f"Chosen to fit 5 minutes on this machine: {size:,} passages, {steps:,} training steps. ")
    assert f"--minutes 20 would buy {found[2][0]:,} passages and" in told


def test_the_least_demo_is_the_smallest_collection_and_ten_steps() -> None:
    size, steps, least = demo_of(0.1)
    assert (size, steps) == (DEMO_SIZES[0], FEWEST_STEPS)
    recipe = apply(load_recipe(DEMO_RECIPE), {"query_side.steps": FEWEST_STEPS})
    rows = [(system, 0) for system in systems_of(recipe)]
    assert least == pytest.approx(30 + demo_seconds(recipe, rows, counts(DEMO_SIZES[0]), LAPTOP))


def linear(recipe: Recipe) -> float:
    """A second a step of each training, two an evaluation."""
    both = recipe.train.steps + recipe.distil.steps
    every = recipe.fit.evaluate_every
    return both + recipe.query_side.steps + (2 * both / every if every else 0)


def test_steps_by_hand(recipe: Recipe) -> None:
    query_side, both = [parse_system("views")], [parse_system("collective-0.5")]
    taken = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, theta="take"))
    known = linear(taken) - taken.query_side.steps
    found, least = choose_steps(taken, query_side, (), linear, known + 60, 5000)
    assert found == {"query_side.steps": 60} and least == known + FEWEST_STEPS
    assert choose_steps(taken, query_side, {"query_side.steps"}, linear, 1.0, 5000) == ({}, linear(taken))
    wide = apply(recipe, {"train.steps": 100, "distil.steps": 100})
    found, _ = choose_steps(
        wide, both, (), linear, wide.query_side.steps + 416, 5000
    )  # four evaluations each, 16 seconds
    assert found == {"train.steps": 200, "distil.steps": 200, "fit.evaluate_every": 50}
    found, _ = choose_steps(
        wide, both, {"distil.steps", "fit.evaluate_every"}, linear, wide.query_side.steps + 160, 5000
    )
    assert set(found) == {"train.steps"}
    found, _ = choose_steps(wide, both, (), linear, 0.0, 5000)
    assert found == {"train.steps": 10, "distil.steps": 10, "fit.evaluate_every": 0}


def test_a_budget_that_is_too_small_names_the_least(recipe: Recipe) -> None:
    rows = [(parse_system("views"), 0)]
    with pytest.raises(UsageError, match=r"^0.1 minutes are too few: 4,000 passages alone take about 1.7"):
        fit_recipe(recipe, rows, Counts(4000, 2000, 300, 600), LAPTOP, Budget(0.1), (), whole_run=True)
    with pytest.raises(UsageError, match="expected a number above 0"):
        Budget(-1)


def test_the_remaining_time_is_the_clocks() -> None:
    now = [100.0]
    budget = Budget(5, clock=lambda: now[0])
    now[0] += 90
    assert (budget.spent, budget.left) == (90, pytest.approx(0.95 * 300 - 90))
    assert budget.remaining() == "3.5 of 5 min left"
    now[0] += 240
    assert budget.remaining() == "0 of 5 min left, 0.5 over"

    class Listening(type(SILENT)):
        def start(self, what: str, total: int | None, unit: str):  # type: ignore[no-untyped-def]
            heard.append(what)
            return super().start(what, total, unit)

    heard: list[str] = []
    budget.watch(Listening()).start("encoding passages", 3, "passages")
    assert heard == ["encoding passages (begun with 0 of 5 min left, 0.5 over)"]


def test_a_choice_is_kept_for_the_same_minutes_and_settings(tmp_path: Path) -> None:
    assert noted(tmp_path, 5) is None
    note(tmp_path, 5, {"query_side.steps": 60}, ["data.source"])
    assert noted(tmp_path, 5, ["data.source"]) == noted(tmp_path, None, ["data.source"])
    assert noted(tmp_path, None, ["data.source"]) == (5.0, {"query_side.steps": 60})
    assert noted(tmp_path, 6, ["data.source"]) is None and noted(tmp_path, 5) is None
    (tmp_path / "budget.json").write_text("[]")
    assert noted(tmp_path, 5) is None


def test_a_run_and_a_study_fit_their_minutes(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rates = Rates(encoded=1000.0, queries=1000.0, searched=1e9, step=2.0, tokens=20.0, dimension=16)
    for place in ("run", "study"):
        monkeypatch.setattr(sys.modules[f"colabel.pipeline.{place}"], "measure_rates", lambda recipe, data: rates)
    few = apply(recipe, {"study.systems": ("bm25", "hn-query"), "query_side.batch_queries": 2})
    few = apply(few, {"train.theta": "take", "query_side.passages": 4})
    with caplog.at_level(logging.INFO, logger="colabel.pipeline"):
        result = run(few, tmp_path / "run", teacher="hard-query", minutes=1)
    told = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("chosen for 1 minutes: query_side.steps = ") for line in told)
    kept = noted(tmp_path / "run", 1)
    assert kept is not None and 10 <= kept[1]["query_side.steps"] <= 28
    assert result.student.is_dir()
    document, _ = study(few, tmp_path / "study", minutes=1, recipe_text="[data]\n")
    assert "# --minutes 1: query_side.steps = " in document.recipe
    for place in ("run", "study"):
        monkeypatch.setattr(sys.modules[f"colabel.pipeline.{place}"], "measure_rates", None)
    assert run(few, tmp_path / "run", teacher="hard-query", minutes=1).student == result.student
    study(few, tmp_path / "study", minutes=1, recipe_text="[data]\n")


def test_the_command_says_what_the_least_is(tiny_model: Path, recipe: Recipe, tmp_path: Path, call: Call) -> None:
    settings = [f"encoder.model={tiny_model}", "encoder.dimension=16", "encoder.passage_length=24", "train.theta=take"]
    changed = [part for one in settings for part in ("--set", one)]
    code, _, err = call("run", recipe.data.source, *changed, "--minutes", "0.01", "--out", tmp_path / "out")
    assert (code, "the least for all of it is about" in err) == (2, True)

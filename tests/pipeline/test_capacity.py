"""Capacity plans: arithmetic by hand, and the command on a tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import DataSettings, Recipe
from colabel.cli import main
from colabel.pipeline.capacity import Rates, StageCost, estimate
from colabel.settings import ComputeSettings, DistilSettings, IndexSettings, TrainSettings
from tests.train.small import write_collection

RATES = Rates(
    tokens=50.0,
    encoded=100.0,
    query_tokens=10.0,
    compared=1e6,
    asked=50.0,
    rescored=1e6,
    clustered=20.0,
    worded=1000.0,
    matched=1e6,
    dimension=128,
    memory=10**9,
)
RECIPE = Recipe(
    data=DataSettings(source="pydocs"),
    index=IndexSettings(engine="exact"),
    train=TrainSettings(steps=10, batch_queries=2, passages=5),
    distil=DistilSettings(steps=20, batch_queries=2, passages=5),
    compute=ComputeSettings(engine="ray", shard_passages=4096),
)


def test_stages_by_hand() -> None:
    plan = estimate(RECIPE, RATES, passages=10_000, queries=1000, tests=0)
    assert (plan.tokens, plan.engine, plan.shards) == (500_000, "exact", 3)
    seconds = {stage.name: stage.seconds for stage in plan.stages}
    assert seconds["encode with θ"] == seconds["encode with the student"] == 100.0
    assert seconds["rank training queries"] == pytest.approx(1000 * (10 * 500_000 / 1e6))
    assert seconds["label"] == pytest.approx(1000 * 100 * 50 / 1e6)
    assert seconds["encode training queries"] == 2 * 1000 / 50
    assert seconds["train θ"] == pytest.approx(10 * 2 * 5 * 3.2 / 100)
    assert plan.disk_bytes == 2 * 500_000 * (128 * 2 + 4)


def test_stages_that_need_no_transformer_and_evaluations_on_dev_are_counted() -> None:
    stages = {stage.name: stage.seconds for stage in estimate(RECIPE, RATES, 10_000, 1000, tests=100, dev=40).stages}
    evaluations = (1 + 20 // 50) * 40 * 100  # of the student: 40 dev queries, 100 passages each
    assert stages["train the student"] == pytest.approx((20 * 2 * 5 * 3.2 + evaluations) / 100)
    assert stages["BM25"] == pytest.approx(10_000 / 1000 + (1000 + 100 + 40) * 10_000 / 1e6)
    assert stages["rank training queries"] == pytest.approx(1040 * 10 * 500_000 / 1e6)
    assert stages["rank test queries"] == pytest.approx(3 * 100 * 10 * 500_000 / 1e6)
    near = replace(RECIPE, index=IndexSettings(engine="ivf"))
    names = {stage.name for stage in estimate(near, RATES, 10_000, 1000, tests=0).stages}
    assert "build approximate indexes" in names
    taken = replace(RECIPE, train=TrainSettings(theta="take"))
    assert not {"BM25", "train θ"} & {stage.name for stage in estimate(taken, RATES, 10_000, 1000, tests=0).stages}


def test_workers_share_all_but_training_and_the_encoding_of_queries() -> None:
    plan = estimate(RECIPE, RATES, passages=10_000, queries=1000, tests=100)
    alone = [stage for stage in plan.stages if not stage.shared]
    names = ["BM25", "train θ", "encode training queries", "train the student", "encode test queries"]
    assert [stage.name for stage in alone] == names
    driver = sum(stage.seconds for stage in alone) / 3600
    assert plan.hours(4) == pytest.approx(driver + (plan.hours(1) - driver) / 4)
    assert StageCost("x", 7200.0, shared=True).hours(4) == 0.5
    assert StageCost("x", 7200.0, shared=False).hours(4) == 2.0


def test_large_collections_are_searched_approximately_and_take_less_than_exactly() -> None:
    auto = replace(RECIPE, index=IndexSettings(engine="auto"), compute=ComputeSettings(engine="ray"))
    plan = estimate(auto, RATES, passages=8_841_823, queries=500_000, tests=0)
    exact = estimate(RECIPE, RATES, passages=8_841_823, queries=500_000, tests=0)
    assert plan.engine == "ivf"
    assert plan.shards == 135
    ranking, slow = (next(s for s in one.stages if s.name.startswith("rank")).seconds for one in (plan, exact))
    assert ranking < slow / 10


def test_the_command_measures_and_prints(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_collection(tmp_path / "small")
    (tmp_path / "recipe.toml").write_text(
        f'[data]\nsource = "{folder}"\n[encoder]\nmodel = "{tiny_model}"\ndimension = 16\n'
        'query_length = 12\npassage_length = 24\ndevice = "cpu"\n'
    )
    with pytest.raises(SystemExit) as ended:
        main(["plan", str(tmp_path / "recipe.toml"), "--workers", "1", "--workers", "8"])
    assert ended.value.code == 2
    assert "--set compute.engine=ray" in capsys.readouterr().err
    on_ray = ["plan", str(tmp_path / "recipe.toml"), "--set", "compute.engine=ray"]
    with pytest.raises(SystemExit) as ended:
        main([*on_ray, "--workers", "1", "--workers", "8"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "hours with workers:" in shown
    assert "40" in next(line for line in shown.splitlines() if line.startswith("passages"))
    with pytest.raises(SystemExit):
        main([*on_ray, "--passages", "1000000", "--queries", "5000", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["passages"] == 1_000_000
    assert found["queries"] == 5000
    assert found["hours"]["16"] < found["hours"]["1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.toml", "small"], "nothing is written"

"""Capacity plans: arithmetic by hand, and the command on a tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import Recipe, load_dataset
from colabel.pipeline.capacity import SHARED, Counts, Rates, stage_seconds, work_seconds
from colabel.settings import ComputeSettings, TrainSettings
from colabel.systems import parse_system
from colabel.train.query_side import steps_of
from tests.conftest import Said
from tests.train.small import write_collection

RATES = Rates(encoded=100.0, queries=200.0, searched=1e6, step=0.5, tokens=50.0, dimension=128)


def test_stages_by_hand(recipe: Recipe) -> None:
    data, system = Counts.of(load_dataset(recipe.data)), parse_system("collective-0.5")
    found = stage_seconds(recipe, system, data, RATES, whole_run=True)
    assert found["index"] == found["student index"] == found["plain index"] == 40 / 100
    evaluations = (1 + 2) * 40  # two dev queries have 200 passages, and there are 40
    assert found["distil"] == pytest.approx((2 * 2 * 3 * 3.2 + evaluations) / 100)
    assert found["train"] == pytest.approx((2 * 2 * 2 * 3.2 + evaluations) / 100)
    pulled = replace(recipe, fit=replace(recipe.fit, keep="pulled"))  # three more evaluations, of students alone
    more = stage_seconds(pulled, system, data, RATES, whole_run=True)
    assert more["distil"] - found["distil"] == pytest.approx(3 * 40 / 100) and more["train"] == found["train"]
    search = 1 / 200 + 40 * 50 / 1e6
    assert found["cross-encoder"] == 0.0
    assert found["label"] == pytest.approx(3 * data.train * min(recipe.labels.candidates, 40) * 50 / 1e6)
    assert found["encoder"] == 3.0 + 40 / 100 and found["rank"] == pytest.approx(data.test * search)
    few = replace(recipe, pseudo=replace(recipe.pseudo, queries=40), data=replace(recipe.data, holdout=0.1))
    alone = replace(recipe, pseudo=replace(recipe.pseudo, queries=1))  # more than that are labelled
    taught = stage_seconds(alone, parse_system("views"), data, RATES)["query side"]
    assert taught == pytest.approx(3.0 + 2 * 8 * 0.5 + 9 * data.dev * search)  # two lessons of eight steps
    beside = 36 * (search + 0.5 / 100) + steps_of(recipe.query_side, 36) * 0.5 + 2 * data.dev * search
    assert stage_seconds(few, parse_system("views"), data, RATES)["query side"] == pytest.approx(taught + beside)
    assert stage_seconds(few, parse_system("views"), replace(data, pseudo=True), RATES)["query side"] == taught
    short = stage_seconds(recipe, parse_system("bootstrap"), replace(data, passages=5), RATES)
    assert short["collect"] == pytest.approx(20 * (1 / 200 + 5 * 50 / 1e6 + 0.5 / 100)), "four kinds of five passages"
    made = stage_seconds(few, parse_system("bootstrap"), data, RATES)  # 36 queries, four more held out
    assert made["collect"] == pytest.approx(36 * (search + 0.5 / 100))
    assert made["query side"] == pytest.approx(3.0 + steps_of(recipe.query_side, 36) * 0.5 + 5 * 4 * search)
    read = stage_seconds(recipe, parse_system("ce-kd"), data, RATES)
    assert read["label"] == pytest.approx(2 * 2 * 3 * 1.1 / 100)
    assert read["cross-encoder"] == pytest.approx(2 * 2 * 3 * 3.2 * 1.1 / 100)
    upper = replace(recipe, train=replace(recipe.train, layers=1))  # of two: half of each pass, and the rest once
    once = min(40, 2 * 2 * 3 + 40)
    halved = (2 * 2 * 3 * 3.2 + evaluations + once) / 2 / 100
    assert stage_seconds(upper, system, data, RATES)["distil"] == pytest.approx(halved)
    taken = replace(recipe, train=TrainSettings(theta="take"))
    assert stage_seconds(taken, system, data, RATES)["train"] == 0.0
    shared = stage_seconds(
        replace(recipe, compute=ComputeSettings(engine="ray", workers=4)), system, data, RATES, whole_run=True
    )
    ranked = {"collect": data.train * (search / 4 + 0.5 / 100)}  # workers rank, the driver clusters
    assert shared == pytest.approx(
        {name: value / (4 if name in SHARED else 1) for name, value in found.items()} | ranked
    )


def test_what_systems_share_is_counted_once(recipe: Recipe) -> None:
    data = Counts(1000, 100, 50, 50)
    one, both = ([(parse_system(slug), 0) for slug in slugs] for slugs in (["views"], ["views", "hn-query", "colbert"]))
    alone = stage_seconds(recipe, parse_system("hn-query"), data, RATES)
    own = alone["label"] + alone["query side"] + 2 * alone["rank"]
    more = work_seconds(recipe, both, data, RATES) - work_seconds(recipe, one, data, RATES)
    assert more == pytest.approx(own)
    with_made = [*one, (parse_system("bootstrap"), 0)]
    alone = stage_seconds(recipe, parse_system("bootstrap"), data, RATES)
    own = alone["collect"] + alone["label"] + alone["query side"] + alone["rank"]
    more = work_seconds(recipe, with_made, data, RATES) - work_seconds(recipe, one, data, RATES)
    assert more == pytest.approx(own), "the index is that of the others"


def test_the_command_measures_and_prints(tiny_model: Path, tmp_path: Path, said: Said) -> None:
    folder = write_collection(tmp_path / "small")
    (tmp_path / "recipe.toml").write_text(
        f'[data]\nsource = "{folder}"\n[encoder]\nmodel = "{tiny_model}"\ndimension = 16\n'
        'query_length = 12\npassage_length = 24\ndevice = "cpu"\n'
    )
    shown = said("plan", tmp_path / "recipe.toml", "--teacher", "collective")
    assert shown.startswith("40 passages, ")
    assert "student index" in shown
    found = json.loads(said("plan", tmp_path / "recipe.toml", "--teacher", "views", "--json"))
    assert found["disk_bytes"] == found["tokens"] * (2 * 16 + 4), "θ's index alone: no test labels, no second index"
    assert "query side" in found["seconds"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.toml", "small"], "nothing is written"

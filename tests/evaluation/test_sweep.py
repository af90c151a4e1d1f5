"""Sweeps over collective settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.collective.small import SETTINGS, small_dataset, small_index

from colabel import Index, PrfRanker, sweep
from colabel.collective import extract
from colabel.data import Dataset
from colabel.errors import DataError, SettingsError
from colabel.evaluation.sweep import Grid


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))


def test_sweep_shares_work_and_continues(
    dataset: Dataset, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import colabel.evaluation.sweep as module

    grid = Grid(feedback_passages=(1, 3), clusters=(4, 6), centroids=(2, 5), beta=(0.0, 1.0))
    calls: list[object] = []

    def counted(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return extract(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "extract", counted)
    points = sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=grid, full=True, depth=20)
    assert len(points) == 16 - 4 + 1, "five centroids of four clusters are impossible; the base point comes on top"
    assert len(calls) == 4, "clusters are shared between all β and f_e"
    plain = [point.measures for point in points if point.beta == 0]
    assert all(values == plain[0] for values in plain), "β = 0 is the plain ranking whatever the rest"
    ranker = PrfRanker(index, replace(SETTINGS, feedback_passages=1, clusters=6, centroids=5))
    queries = dataset.split_queries("dev")
    rows, scores = ranker.rank(list(queries.values()), 20)
    from colabel.measures import mean_values, measure_run

    run = {
        query_id: {index.store.ids[int(row)]: float(score) for row, score in zip(line, values, strict=True) if row >= 0}
        for query_id, line, values in zip(queries, rows, scores, strict=True)
    }
    chosen = next(p for p in points if (p.feedback_passages, p.clusters, p.centroids, p.beta) == (1, 6, 5, 1.0))
    expected = mean_values(measure_run(dataset.labels("dev"), run, list(chosen.measures)))
    assert chosen.measures == pytest.approx(expected)
    assert sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=grid, full=True, depth=20) == points
    assert len(calls) == 4, "a finished sweep is read, not computed"
    single = sweep(dataset, index, tmp_path / "one", settings=SETTINGS, grid=grid, rerank=True, depth=20)
    assert len(single) == 6


def test_sweep_refuses_nonsense(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    for wrong in (Grid(beta=(-1.0,)), Grid(feedback_passages=(0,))):
        with pytest.raises(SettingsError, match=r"'collective\.(beta|feedback_passages)' is"):
            sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=wrong)
    with pytest.raises(SettingsError, match="no value for beta"):
        sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=Grid(beta=()))
    with pytest.raises(DataError, match="has no split 'other'"):
        sweep(dataset, index, tmp_path / "s", split="other")

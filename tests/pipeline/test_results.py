"""Response times of a table are of one go: a row that is added has all of them taken again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colabel.evaluation import ResponseTimes
from colabel.pipeline import parse_system, results
from colabel.pipeline.results import all_settings, collective_settings
from colabel.reporting.records import Timing
from colabel.settings import CollectiveSettings, CrossEncoderSettings, DataSettings, EncoderSettings, Recipe


class FakeRows:
    """Finished and failed rows whose rankers are their names."""

    def __init__(self, out: Path, *slugs: str, failed: tuple[str, ...] = (), weights: str = "") -> None:
        self.out, self.systems = out, [parse_system(slug) for slug in (*slugs, *failed)]
        self.recipe = SimpleNamespace(study=SimpleNamespace(timed_queries=2), rank=SimpleNamespace(depth=100))
        self.bench = SimpleNamespace(
            dataset=SimpleNamespace(passages=range(40), split_queries=lambda _: {"q1": "a", "q2": "b", "q3": "c"})
        )
        self._finished, self._weights = slugs, weights

    def finished(self, slug: str) -> bool:
        return slug in self._finished

    def ranker(self, system: Any) -> Any:
        return SimpleNamespace(name=system.slug, fingerprint=f"{system.slug} {self._weights}")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rankers that were timed, in order; the n-th takes n milliseconds."""
    asked: list[str] = []

    def time_one(ranker: Any, k: int) -> ResponseTimes:
        asked.append(ranker.name)
        return ResponseTimes(ranker.name, k, 1, 0, (float(len(asked)),))

    def response_times_of(rankers: list[Any], texts: list[str], k: int) -> list[ResponseTimes]:
        assert (texts, k) == (["a", "b"], 40)
        return [time_one(ranker, k) for ranker in rankers]

    monkeypatch.setattr(results, "response_times_of", response_times_of)
    return asked


def medians(rows: FakeRows) -> dict[str, float]:
    return {slug: found.median for slug, found in results._response_times(rows).items()}  # type: ignore[arg-type]


def test_all_rows_are_timed_in_one_go(tmp_path: Path, timed: list[str]) -> None:
    first = medians(FakeRows(tmp_path, "bm25", "colbert", failed=("ce3-kd",)))
    assert first == {"bm25": 1.0, "colbert": 2.0}, "a failed row is no part"
    assert medians(FakeRows(tmp_path, "bm25", "colbert")) == first, "resumed without a change"
    more = medians(FakeRows(tmp_path, "bm25", "colbert", "ce3-kd"))
    assert more == {"bm25": 3.0, "colbert": 4.0, "ce3-kd": 5.0}, "not hours apart from the others"
    trained_again = medians(FakeRows(tmp_path, "bm25", "colbert", "ce3-kd", weights="new"))
    assert list(trained_again.values()) == [6.0, 7.0, 8.0]
    assert timed == ["bm25", "colbert", *["bm25", "colbert", "ce3-kd"] * 2]
    assert [path.name for path in tmp_path.iterdir()] == ["timing.json"]


def test_no_times_where_none_are_wanted(tmp_path: Path, timed: list[str]) -> None:
    rows = FakeRows(tmp_path, "bm25")
    rows.recipe.study.timed_queries = 0
    assert medians(rows) == {}
    assert not timed


def test_rows_are_compared_in_the_order_of_the_report(tmp_path: Path) -> None:
    rows = FakeRows(tmp_path, "bm25", "colbert", "collective-0.5", "smoothing", "self-kd", failed=("colbert-hn",))
    assert results._in_order(rows) == ["bm25", "colbert", "smoothing", "collective-0.5", "self-kd"]  # type: ignore[arg-type]


def test_settings_beside_those_of_the_paper() -> None:
    ours = {one.name: one for one in collective_settings(CollectiveSettings())}
    assert [name for name, one in ours.items() if one.differs] == ["feedback", "token", "expansion_scale"]
    assert (ours["feedback"].value, ours["feedback"].paper) == ("labelled", "top")
    assert (ours["beta"].value, ours["beta"].paper) == ("0.5", "")
    assert "labelled_weight" not in ours, "it has no effect"
    paper = CollectiveSettings(feedback="top", token="nearest", expansion_scale="paper", feedback_passages=5)
    assert [one.name for one in collective_settings(paper) if one.differs] == ["feedback_passages"]
    weighted = {one.name: one.value for one in collective_settings(CollectiveSettings(feedback="weighted"))}
    assert weighted["labelled_weight"] == "3"


def test_how_many_queries_are_timed_and_how_deep(tmp_path: Path) -> None:
    rows = FakeRows(tmp_path, "bm25")
    assert results._timing(rows) == Timing(queries=2, depth=40, threads=1, warmup=10)  # type: ignore[arg-type]
    rows.recipe.study.timed_queries = 50
    assert results._timing(rows).queries == 3, "there are no more"  # type: ignore[arg-type]


def test_all_settings_without_the_folders_of_the_machine() -> None:
    data = DataSettings("/home/me/data/caves", labels={"test": "/home/me/more/test.tsv"})
    recipe = Recipe(data, encoder=EncoderSettings(model="/models/mine/small"), seed=7)
    found = all_settings(recipe, 'model = "/models/mine/small"')
    assert (found["data.source"], found["data.labels"]) == ("…/caves", '{"test": "…/test.tsv"}')
    assert found["encoder.model"] == "/models/mine/small", "the recipe names it"
    assert (found["seed"], found["collective.beta"], found["data.keep_labels"]) == ("7", "0.5", "not set")
    assert (found["study.texts"], found["cross_encoder.models"]) == ("true", '["minilm", "minilm:4", "minilm:3"]')
    sections = [section for section, table in recipe.as_dict().items() if isinstance(table, dict)]
    assert len(found) == 1 + sum(len(recipe.as_dict()[section]) for section in sections)


@pytest.mark.parametrize(
    ("slugs", "readers"),
    [(("bm25", "colbert"), []), (("ce-kd", "mixed"), ["minilm"]), (("ce-kd", "ce3-kd"), ["minilm", "…/b"])],
)
def test_models_are_those_that_some_row_needs(slugs: tuple[str, ...], readers: list[str]) -> None:
    settings = CrossEncoderSettings(models=("minilm", "/home/me/b"))
    recipe = Recipe(DataSettings("x"), encoder=EncoderSettings(model="hub/model"), cross_encoder=settings)
    rows: Any = SimpleNamespace(recipe=recipe, systems=[parse_system(slug) for slug in slugs])
    found = results._models(rows, "")
    assert found.pop("encoder") == "hub/model"
    assert found == {f"cross-encoder {number}": name for number, name in enumerate(readers, start=1)}

"""Click logs: counted, thresholded, and split by the query's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colabel.data import Dataset, load_dataset
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rows = "".join(f"p{number},Product {number}\n" for number in range(5))
    (tmp_path / "products.csv").write_text("sku,name\n" + rows)
    return tmp_path


def load(shop: Path, log: str, name: str = "clicks.csv", least: int = 1) -> Dataset:
    (shop / name).write_text(log)
    settings = DataSettings(
        source=str(shop / "products.csv"),
        labels={"clicks": str(shop / name)},
        min_clicks=least,
        holdout=0.0,
        unknown_labels="refuse",
    )
    return load_dataset(settings)


def labels_of(dataset: Dataset) -> dict[str, dict[str, int]]:
    return {
        dataset.queries[query_id]: dict(labels)
        for split in dataset.splits
        for query_id, labels in dataset.labels(split).items()
    }


def test_rows_of_a_pair_add_up(shop: Path) -> None:
    log = "query,sku,clicks\nTent,p1,2\ntent ,p1,1\ntent,p2,2\nstove,p3,9\n"
    assert labels_of(load(shop, log, least=3)) == {"Tent": {"p1": 1}, "stove": {"p3": 1}}
    assert labels_of(load(shop, "query,sku\ntent,p1\ntent,p1\ntent,p2\n", least=2)) == {"tent": {"p1": 1}}


def test_grades_and_json_lines(shop: Path) -> None:
    rows = [
        {"search_term": "tent", "product_id": "p1", "grade": 2},
        {"search_term": "tent", "product_id": "p2", "grade": 0},
    ]
    found = labels_of(load(shop, "".join(json.dumps(row) + "\n" for row in rows), "clicks.jsonl"))
    assert found == {"tent": {"p1": 2, "p2": 0}}


def test_the_split_depends_on_the_text_alone(shop: Path) -> None:
    rows = [f"query {number},p{number % 5}\n" for number in range(400)]
    dataset = load(shop, "query,sku\n" + "".join(rows))
    again = load(shop, "query,sku\n" + "".join(reversed(rows[:200])))
    assert dataset.splits == ("test", "train")
    assert len(dataset.labels("test")) == pytest.approx(60, abs=20)
    assert set(again.labels("test")) <= set(dataset.labels("test"))


def test_with_labels_of_its_own_clicks_train(shop: Path) -> None:
    (shop / "test.qrels").write_text("j1 0 p1 1\n")
    (shop / "judged.tsv").write_text("j1\ta judged query\n")
    (shop / "clicks.csv").write_text("query,sku\n" + "".join(f"query {number},p1\n" for number in range(50)))
    settings = DataSettings(
        source=str(shop / "products.csv"), queries=(str(shop / "judged.tsv"),),
        labels={"test": str(shop / "test.qrels"), "clicks": str(shop / "clicks.csv")}, holdout=0.0,
    )  # fmt: skip
    dataset = load_dataset(settings)
    assert (len(dataset.labels("train")), dict(dataset.labels("test"))) == (50, {"j1": {"p1": 1}})


def test_what_is_no_click_log_is_refused(shop: Path) -> None:
    with pytest.raises(UsageError, match=r"'query'.*the columns are a, b"):
        load(shop, "a,b\n1,2\n")
    with pytest.raises(DataError, match=r"clicks\.csv:2: 'clicks' is 'many'"):
        load(shop, "query,sku,clicks\ntent,p1,many\n")
    with pytest.raises(DataError, match="passage 'p9' does not exist"):
        load(shop, "query,sku\ntent,p9\n")
    with pytest.raises(UsageError, match="no such file"):
        load_dataset(DataSettings(source=str(shop / "products.csv"), labels={"clicks": "nowhere.csv"}))


def test_a_query_log_counts_texts_and_leaves_out_what_clicks_bring(shop: Path) -> None:
    (shop / "clicks.csv").write_text("query,sku\ntent,p1\n")
    (shop / "log.csv").write_text("search_term,count\nstove,1\nlamp,2\nTENT,9\n Stove,4\n")
    data = DataSettings(
        source=str(shop / "products.csv"),
        labels={"clicks": str(shop / "clicks.csv")},
        queries=(str(shop / "log.csv"),),
        holdout=0.0,
    )
    loaded = load_dataset(data)
    assert [text for text in loaded.queries.values() if text != "tent"] == ["stove", "lamp"]
    (shop / "log.csv").write_text("query,count\nstove,many\n")
    with pytest.raises(DataError, match=r"log\.csv:2: .*'many'"):
        load_dataset(data)

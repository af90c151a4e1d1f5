"""What every format must give of the small collection."""

from __future__ import annotations

from tests.conftest import LABELS, PASSAGES, QUERIES

from colabel.data import check, load_dataset
from colabel.settings import DataSettings
from colabel.types import Passage


def assert_is_caves(data: str | DataSettings, *, titles: bool = True) -> None:
    dataset = load_dataset(data)
    assert list(dataset.passages.ids) == [row["_id"] for row in PASSAGES]
    for row, passage in zip(PASSAGES, dataset.passages, strict=True):
        if titles:
            assert passage == Passage(row["_id"], row["title"], row["text"])
        else:
            assert passage.full_text == f"{row['title']} {row['text']}".strip()
    assert dataset.passages.get("d4").id == "d4"
    assert dict(dataset.queries) == QUERIES
    for split, labels in LABELS.items():
        flat = [(q, p, g) for q, rels in dataset.labels(split).items() for p, g in rels.items()]
        assert sorted(flat) == sorted(labels)
    assert check(data).ok

"""The collection on disk: the same as the harvested one, and harvested again only where something changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from colabel import load_dataset
from colabel.artefacts import read_manifest
from colabel.data.hiding import hidden_labels
from colabel.data.pydocs import collection, stored
from colabel.data.pydocs.collection import Collection, Entry
from colabel.types import Passage, Query

SMALL = Collection(
    (
        Entry(Passage("a.f", "a.f", "Adds two\nnumbers, 加."), Query("q:a.f", "Add two numbers"), ("a.g",)),
        Entry(Passage("a.g", "a.g", "Takes one from the other."), None, ()),
    ),
    {"numpy": "2"},
)


@pytest.fixture
def harvests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the libraries were walked, one entry each."""
    seen: list[int] = []

    def whole() -> Collection:
        seen.append(len(seen))
        return SMALL

    monkeypatch.setattr(stored, "whole_collection", whole)
    return seen


def test_what_is_read_back_is_what_was_harvested(tmp_path: Path, harvests: list[int]) -> None:
    assert stored.stored_collection(tmp_path / "pydocs", None) == SMALL
    assert stored.stored_collection(tmp_path / "pydocs", None) == SMALL
    assert harvests == [0]
    assert read_manifest(tmp_path / "pydocs", "pydocs").counts["versions"] == {"numpy": "2"}


def test_another_size_or_version_is_harvested_again(
    tmp_path: Path, harvests: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.stored_collection(tmp_path / "pydocs", None)
    assert len(stored.stored_collection(tmp_path / "pydocs", 1).entries) == 1
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} of tomorrow")
    stored.stored_collection(tmp_path / "pydocs", 1)
    assert harvests == [0, 1, 2]


def test_a_dataset_with_a_cache_is_the_same_and_does_not_harvest_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = load_dataset("pydocs:80")
    load_dataset("pydocs:80", cache=tmp_path)
    monkeypatch.setattr(stored, "whole_collection", lambda: pytest.fail("harvested again"))
    monkeypatch.setattr(collection, "harvest", lambda: pytest.fail("harvested again"))
    again = load_dataset("pydocs:80", cache=tmp_path)
    assert list(again.passages) == list(fresh.passages)
    assert again.passages.fingerprint == fresh.passages.fingerprint
    assert again.provenance == fresh.provenance
    assert (dict(again.queries), hidden_labels(again)) == (dict(fresh.queries), hidden_labels(fresh))
    assert [again.labels(split) for split in again.splits] == [fresh.labels(split) for split in fresh.splits]
